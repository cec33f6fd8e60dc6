//! Certificates, against `openssl s_server`, which sends prepared answers from files.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;

/// Where the inner run of the test finds the server.
const INNER_URL: &str = "EGRESSCTL_TEST_TLS_URL";
const INNER_TEST: &str = "image::source::tests::tls::private_cas_are_taken_from_the_environment";

struct TlsServer {
    process: Child,
    directory: tempfile::TempDir,
    address: String,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl TlsServer {
    fn url(&self, file: &str) -> String {
        format!("https://{}/{file}", self.address)
    }

    fn path(&self, file: &str) -> String {
        self.directory.path().join(file).display().to_string()
    }
}

fn openssl(directory: &Path, arguments: &[&str]) {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the openssl command is needed for this test");
    assert!(output.status.success(), "{output:?}");
}

fn tls_server() -> TlsServer {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    openssl(
        path,
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=test",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-days",
            "2",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ],
    );
    std::fs::create_dir(path.join("cas")).unwrap();
    std::fs::copy(path.join("cert.pem"), path.join("cas/ca.pem")).unwrap();
    openssl(path, &["rehash", "cas"]);
    std::fs::write(
        path.join("good"),
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood",
    )
    .unwrap();
    let down = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/a?x=secret\r\nContent-Length: 0\r\n\r\n";
    std::fs::write(path.join("down"), down).unwrap();
    let mut process = Command::new("openssl")
        .args([
            "s_server",
            "-accept",
            "127.0.0.1:0",
            "-cert",
            "cert.pem",
            "-key",
            "key.pem",
            "-HTTP",
        ])
        .current_dir(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let address = lines
        .map_while(std::result::Result::ok)
        .find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned))
        .unwrap();
    TlsServer {
        process,
        directory,
        address,
    }
}

#[test]
fn private_cas_are_taken_from_the_environment() {
    if let Ok(url) = std::env::var(INNER_URL) {
        assert_eq!(get(&format!("{url}/good")).unwrap(), b"good");
        let error = get(&format!("{url}/down")).unwrap_err();
        assert_eq!(error.class(), Class::Permanent, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("from https to http://127.0.0.1:9/a?…"),
            "{text}"
        );
        return;
    }
    let server = tls_server();
    let error = get(&server.url("good")).unwrap_err();
    assert_eq!(error.class(), Class::Permanent);
    assert!(
        error.message().contains("certificate is not trusted"),
        "{error}"
    );
    assert!(error.hints()[0].contains("SSL_CERT_FILE"));
    // The environment is the process's: another one is needed for another.
    for (variable, value) in [
        ("SSL_CERT_FILE", server.path("cert.pem")),
        ("SSL_CERT_DIR", server.path("cas")),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([INNER_TEST, "--exact"])
            .env(INNER_URL, server.url("").trim_end_matches('/'))
            .env(variable, value)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{variable}: {text}");
        assert!(text.contains("1 passed"), "{text}");
    }
}
