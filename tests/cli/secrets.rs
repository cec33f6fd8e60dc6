//! Passwords and tokens in URLs on the command line and in the configuration are never printed.

use std::process::Output;

use crate::sandbox;
use crate::support::REMOTE;

const SECRETS: [&str; 3] = ["hunter2pw", "t0ps3cret", "mallory"];
const URL: &str = "http://mallory:hunter2pw@192.0.2.1/x.qcow2?token=t0ps3cret";

#[track_caller]
fn assert_silent(output: &Output, what: &str) {
    for stream in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(stream);
        for secret in SECRETS {
            assert!(!text.contains(secret), "{what}: {text}");
        }
    }
}

#[test]
fn no_command_line_is_quoted_with_its_secrets() {
    let sandbox = sandbox("remote");
    let broken = URL.replace("http", "gopher");
    let port = URL.replace("/x", ":99999/x");
    let cut = "http://mallory:hunter2pw@[/t0ps3cret";
    let mistyped = [
        URL.replace("://", ":/"),
        URL.replace("://", "//"),
        URL.replace("http://", ""),
        URL.replace("http:", ""),
    ];
    let [slash, colon, bare, relative] = &mistyped;
    let lines: &[&[&str]] = &[
        &["create", "--zone", "nas1", "--image", slash],
        &["create", "--zone", "nas1", "--image", colon, "--dry-run"],
        &["create", "--zone", "nas1", &format!("--imagee={bare}")],
        &["image", "pull", bare],
        &["image", "pull", relative, slash],
        &["image", "rm", bare],
        &["image", "rm", slash],
        &["list", slash],
        &["get", bare],
        &["probe", "web1", "--url", slash],
        &["probe", "web1", "--url", bare],
        &["image", "pull", URL, URL],
        &["list", URL],
        &["list", "--zone", URL, "--sort-by"],
        &["create", "--zone", "moon", "--image", URL],
        &["create", "--zone", "nas1", "--image", &broken],
        &["create", "--zone", "nas1", "--dry-run", "--image", &port],
        &["create", "--zone", "nas1", "--dry-run", "--image", cut],
        &["create", "--zone", "nas1", "--image", URL, "--name", "A"],
        &["create", "--zone", "nas1", &format!("--imagee={URL}")],
        &["image", "rm", URL, "--zone", "moon"],
        &["probe", "web1", "--zone", "moon", "--url", URL],
        &["probe", "web1", "--url", &broken],
        &["probe", "web1", "--port", "x", "--url", URL],
        &["get", URL],
        &["delete", URL],
        &["list", "--selector", URL],
        &["create", "--label", URL],
    ];
    for line in lines {
        for more in [&[][..], &["-o", "json"], &["-vv"]] {
            let words = [line, more].concat();
            let output = sandbox
                .egressctl(&words)
                .env("EGRESSCTL_CONFIG", "providers.yaml")
                .output()
                .unwrap();
            assert!(!output.status.success(), "{words:?}");
            assert_silent(&output, &format!("{words:?}"));
        }
    }
}

#[test]
fn the_configuration_is_printed_without_secrets() {
    let sandbox = sandbox("remote");
    let remote = REMOTE.replace("https://192.0.2.1/12.qcow2", URL);
    let remote = remote.replace(
        "debian-13: {",
        &format!("debian-13: {{checksumUrl: '{URL}', "),
    );
    sandbox.write("good.yaml", &remote);
    sandbox.write(
        "bad.yaml",
        &remote.replace("http://mallory", "htp://mallory"),
    );
    sandbox.write(
        "misplaced.yaml",
        &remote
            .replace("sshKeyFile: key", &format!("sshAgent: '{URL}'"))
            .replace(
                "bridge: br0",
                &format!("bridge: '{URL}', virtType: '{URL}'"),
            )
            .replace("vcpus: 1", &format!("vcpus: '{URL}'"))
            .replace("name: nas1", &format!("name: '{URL}'"))
            .replace("checksumUrl:", "sha256:"),
    );
    sandbox.write("relative.yaml", &remote.replace("http:", ""));
    sandbox.write("bare.yaml", &remote.replace("http://", ""));
    sandbox.write("slash.yaml", &remote.replace("://", ":/"));
    sandbox.write(
        "worse.yaml",
        &remote.replace("192.0.2.1/x", "192.0.2.1/x y"),
    );
    for (file, good) in [
        ("good.yaml", true),
        ("bad.yaml", false),
        ("misplaced.yaml", false),
        ("worse.yaml", false),
        ("relative.yaml", false),
        ("bare.yaml", false),
        ("slash.yaml", false),
    ] {
        for words in [
            &["config", "view"][..],
            &["config", "view", "-o", "json"],
            &["config", "validate"],
            &["list", "--zone", "moon", "-vv"],
        ] {
            let output = sandbox
                .egressctl(&[words, &["--config", file]].concat())
                .output()
                .unwrap();
            assert_eq!(
                output.status.success(),
                good && words[0] == "config",
                "{words:?}"
            );
            assert_silent(&output, &format!("{file}: {words:?}"));
            if good && words[1] == "view" {
                let note = String::from_utf8_lossy(&output.stderr);
                assert!(note.contains("debian-12, debian-13"), "{note}");
            }
        }
    }
}
