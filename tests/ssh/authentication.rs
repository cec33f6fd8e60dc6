//! Every kind of key, from a file and from an agent, and what a refusal says.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use egressctl::cancel::Cancel;
use egressctl::config::{HostKeyPolicy, KeySource, SshAuth};
use egressctl::error::{Class, Reason, Result};
use egressctl::ssh::{DialOptions, Link, Prompt, dial};

use crate::require_sshd;
use crate::sshd::{Sshd, dial_as, keys, output, server_at, told, unverified};

pub(crate) const PASSPHRASE: &str = "secret";

pub(crate) fn log_in(
    sshd: &Sshd,
    key: KeySource,
    agent: Option<&Path>,
    prompt: Option<&Prompt<'_>>,
) -> Result<Link> {
    let auth = SshAuth {
        key,
        host_keys: HostKeyPolicy::KnownHosts(sshd.known_hosts()),
    };
    let options = DialOptions {
        prompt,
        agent: agent.map(Path::to_owned),
        ..DialOptions::default()
    };
    dial("nas1", &sshd.target(), &auth, &options, &Cancel::new())
}

/// Makes a key by ssh-keygen with these arguments; gives its path.
pub(crate) fn make(dir: &Path, name: &str, passphrase: &str, args: &[&str]) -> PathBuf {
    let path = dir.join(name);
    let fixed = ["-q", "-N", passphrase, "-f", path.to_str().unwrap()];
    output("ssh-keygen", &[&fixed, args].concat());
    path
}

/// An ed25519 key in PKCS#8, which ssh-keygen can't write.
fn make_pkcs8_ed25519(dir: &Path) -> PathBuf {
    use base64::Engine;
    let path = dir.join("pkcs8-ed25519");
    let name = path.to_str().unwrap();
    output(
        "openssl",
        &["genpkey", "-algorithm", "ed25519", "-out", name],
    );
    let der = Command::new("openssl")
        .args(["pkey", "-pubout", "-outform", "DER", "-in", name])
        .output()
        .unwrap()
        .stdout;
    let mut blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20".to_vec();
    blob.extend(&der[der.len() - 32..]);
    let base64 = base64::engine::general_purpose::STANDARD.encode(blob);
    std::fs::write(
        dir.join("pkcs8-ed25519.pub"),
        format!("ssh-ed25519 {base64}\n"),
    )
    .unwrap();
    path
}

#[test]
fn every_format_of_an_unencrypted_key_logs_in() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let dir = sshd.dir.path();
    let mut made = vec![make_pkcs8_ed25519(dir)];
    for (kind, bits) in [
        ("ed25519", "256"),
        ("rsa", "2048"),
        ("ecdsa", "256"),
        ("ecdsa", "384"),
        ("ecdsa", "521"),
    ] {
        for format in ["RFC4716", "PEM", "PKCS8"] {
            let name = format!("{kind}-{bits}-{format}");
            made.push(make(
                dir,
                &name,
                "",
                &["-t", kind, "-b", bits, "-m", format],
            ));
        }
    }
    let crlf = make(dir, "crlf", "", &["-t", "ed25519"]);
    let text = std::fs::read_to_string(&crlf).unwrap();
    std::fs::write(&crlf, text.trim().replace('\n', "\r\n")).unwrap();
    made.push(crlf);
    sshd.authorize(&made);
    for key in made {
        let first = std::fs::read_to_string(&key)
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .to_owned();
        let link = log_in(&sshd, KeySource::File(key.clone()), None, None);
        assert!(
            link.is_ok(),
            "{} ({first}): {}",
            key.display(),
            told(&link.unwrap_err())
        );
    }
}

#[test]
fn encrypted_keys_ask_for_their_passphrase_and_only_where_they_may() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let dir = sshd.dir.path();
    let made: Vec<PathBuf> = [
        ("o-ed25519", &["-t", "ed25519"][..]),
        (
            "o-rsa",
            &["-t", "rsa", "-b", "2048", "-Z", "aes256-gcm@openssh.com"],
        ),
        (
            "o-chacha",
            &["-t", "ecdsa", "-Z", "chacha20-poly1305@openssh.com"],
        ),
        ("pem-rsa", &["-t", "rsa", "-b", "2048", "-m", "PEM"]),
        ("pem-ecdsa", &["-t", "ecdsa", "-m", "PEM"]),
        ("pkcs8-rsa", &["-t", "rsa", "-b", "2048", "-m", "PKCS8"]),
    ]
    .iter()
    .map(|(name, args)| make(dir, name, PASSPHRASE, args))
    .collect();
    sshd.authorize(&made);
    for key in made {
        let asked = AtomicU32::new(0);
        // Wrong at first, then right.
        let prompt = |text: &str, _: &Cancel| {
            assert!(text.contains(key.to_str().unwrap()), "{text}");
            let right = asked.fetch_add(1, Ordering::SeqCst) > 0;
            Some(if right { PASSPHRASE } else { "wrong" }.to_owned())
        };
        let source = || KeySource::File(key.clone());
        let link = log_in(&sshd, source(), None, Some(&prompt));
        assert!(
            link.is_ok(),
            "{}: {}",
            key.display(),
            told(&link.unwrap_err())
        );
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let wrong = |_: &str, _: &Cancel| Some("wrong".to_owned());
        let error = log_in(&sshd, source(), None, Some(&wrong)).unwrap_err();
        assert_eq!(error.reason(), Reason::KeyUnusable, "{}", told(&error));
        let error = log_in(&sshd, source(), None, None).unwrap_err();
        assert_eq!(
            (error.reason(), error.class()),
            (Reason::KeyUnusable, Class::Permanent)
        );
        assert!(
            told(&error).contains(&format!("hint: ssh-add {}", key.display())),
            "{}",
            told(&error)
        );
    }
}

#[test]
fn a_refused_key_names_user_host_key_and_allowed_methods() {
    require_sshd!();
    for tries in ["MaxAuthTries 6", "MaxAuthTries 1"] {
        let sshd = Sshd::start(&[tries]);
        let key = keys().join("other_ed25519");
        let error = log_in(&sshd, KeySource::File(key.clone()), None, None).unwrap_err();
        let text = told(&error);
        assert_eq!(
            error.reason(),
            Reason::AuthenticationFailed,
            "{tries}: {text}"
        );
        assert_eq!(error.class(), Class::Permanent);
        assert_eq!(error.host(), Some("nas1"));
        assert!(
            text.contains(&sshd.target().user) && text.contains("127.0.0.1"),
            "{text}"
        );
        assert!(
            text.contains(key.to_str().unwrap()) && text.contains("ssh-copy-id"),
            "{text}"
        );
        let copy = format!(
            "ssh-copy-id -i {}.pub -p {} root@127.0.0.1",
            key.display(),
            sshd.port
        );
        assert_eq!(error.hints(), [copy]);
        if tries == "MaxAuthTries 6" {
            assert!(text.contains("would let root in by publickey"), "{text}");
        }
    }
}

/// Passes one connection on until the client has sent that many bytes; gives how many it sent.
fn pass_on(listener: &TcpListener, port: u16, limit: usize) -> usize {
    let (mut client, _) = listener.accept().unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut answers, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut answers, &mut to));
    let mut seen = 0;
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        seen += count;
        if seen > limit {
            break;
        }
        server.write_all(&buffer[..count]).unwrap();
    }
    client.shutdown(Shutdown::Both).unwrap_or_default();
    server.shutdown(Shutdown::Both).unwrap_or_default();
    seen
}

#[test]
fn a_connection_lost_while_authenticating_is_not_a_refusal() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut target = sshd.target();
    target.address.port = listener.local_addr().unwrap().port();
    let port = sshd.port;
    // Passes a whole log-in on, and hangs up just before the end of the next one.
    std::thread::spawn(move || {
        let whole = pass_on(&listener, port, usize::MAX);
        pass_on(&listener, port, whole - 10);
    });
    let auth = unverified();
    dial_as(&target, &auth).unwrap();
    let error = dial_as(&target, &auth).unwrap_err();
    let told = told(&error);
    assert_eq!(
        (error.reason(), error.class()),
        (Reason::ConnectionLost, Class::Transient),
        "{told}"
    );
}

#[test]
fn a_key_that_cannot_be_used_fails_before_the_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let good = std::fs::read_to_string(keys().join("id_ed25519")).unwrap();
    let public = std::fs::read_to_string(keys().join("id_ed25519.pub")).unwrap();
    let locked = make(dir.path(), "locked", PASSPHRASE, &["-t", "ed25519"]);
    let table = [
        (
            write("k.pub", &public),
            Reason::KeyUnusable,
            "is a public key",
        ),
        (
            write("junk", "hello"),
            Reason::KeyUnusable,
            "not a private key",
        ),
        (write("empty", ""), Reason::KeyUnusable, "is empty"),
        (
            write("cut", &good[..good.len() / 2]),
            Reason::KeyUnusable,
            "is damaged",
        ),
        (locked, Reason::KeyUnusable, "ssh-add"),
        (
            dir.path().join("none"),
            Reason::CredentialsUnavailable,
            "can't be read",
        ),
        (
            dir.path().to_owned(),
            Reason::CredentialsUnavailable,
            "can't be read",
        ),
    ];
    let known_hosts = write("known_hosts", "");
    for (key, reason, needle) in table {
        let auth = SshAuth {
            key: KeySource::File(key.clone()),
            host_keys: HostKeyPolicy::KnownHosts(known_hosts.clone()),
        };
        let target = server_at(port);
        let options = DialOptions {
            agent: None,
            ..DialOptions::default()
        };
        let error = dial("nas1", &target, &auth, &options, &Cancel::new()).unwrap_err();
        assert_eq!(error.reason(), reason, "{}", told(&error));
        assert!(told(&error).contains(needle), "{}", told(&error));
        assert!(
            told(&error).contains(key.to_str().unwrap()),
            "{}",
            told(&error)
        );
    }
    assert!(listener.accept().is_err(), "something connected");
}
