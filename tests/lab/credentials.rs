//! Who we are to a host: key files of all formats, keys that can't be used, the agent.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::lab;
use crate::support::{Cleanup, Lab};

const LIST: [&str; 5] = ["list", "--zone", "nas1", "-o", "json"];

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A copy of one of the keys that the hosts accept, in another format or under another passphrase.
fn key(lab: &Lab, kind: &str, name: &str, change: &[&str]) -> PathBuf {
    let copy = lab.scratch(name);
    std::fs::copy(lab.path(&format!("keys/id_{kind}")), &copy).unwrap();
    if !change.is_empty() {
        done(
            Command::new("ssh-keygen")
                .args(["-q", "-p", "-P", ""])
                .args(change)
                .arg("-f")
                .arg(&copy),
        );
    }
    copy
}

fn with_key(file: &Path) -> impl FnOnce(&mut Value) + '_ {
    move |kvm| kvm["sshKeyFile"] = json!(file)
}

#[test]
fn keys_of_every_kind_and_format_log_in() {
    let lab = lab!();
    let table: [(&str, &str, &[&str], &str); 7] = [
        ("ed25519", "openssh", &[], "OPENSSH PRIVATE KEY"),
        ("ecdsa", "openssh", &[], "OPENSSH PRIVATE KEY"),
        ("rsa", "openssh", &[], "OPENSSH PRIVATE KEY"),
        ("ecdsa", "pem", &["-m", "PEM", "-N", ""], "EC PRIVATE KEY"),
        ("rsa", "pem", &["-m", "PEM", "-N", ""], "RSA PRIVATE KEY"),
        (
            "ecdsa",
            "pkcs8",
            &["-m", "PKCS8", "-N", ""],
            "BEGIN PRIVATE KEY",
        ),
        (
            "rsa",
            "pkcs8",
            &["-m", "PKCS8", "-N", ""],
            "BEGIN PRIVATE KEY",
        ),
    ];
    for (kind, format, change, header) in table {
        let file = key(&lab, kind, &format!("{kind}-{format}"), change);
        assert!(
            std::fs::read_to_string(&file).unwrap().contains(header),
            "{kind} {format}"
        );
        let run = lab.cli_with(with_key(&file)).run(&LIST).exits(0);
        assert!(run.stderr.is_empty(), "{kind} {format}\n{run}");
    }
}

#[test]
fn a_key_that_the_host_does_not_know_is_refused() {
    let lab = lab!();
    let file = lab.scratch("stranger");
    done(
        Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&file),
    );
    let cli = lab.cli_with(with_key(&file));
    let run = cli
        .run(&LIST)
        .exits(1)
        .fails_with("AuthenticationFailed", "ssh-copy-id -i ");
    let error = &run.errors()[0];
    assert_eq!(error["class"], "Permanent", "{run}");
    assert!(
        error["causes"].to_string().contains(file.to_str().unwrap()),
        "{run}"
    );
    cli.run(&["list", "--zone", "nas1"])
        .exits(1)
        .says("error: nas1:")
        .says("refused to log in virt")
        .says("hint: ssh-copy-id");
    let stranger = lab.cli_with(|kvm| kvm["hosts"][0]["user"] = json!("nobody-here"));
    stranger
        .run(&LIST)
        .exits(1)
        .fails_with("AuthenticationFailed", "nobody-here@");
}

#[test]
fn keys_that_cannot_be_used_are_refused_before_the_network_is() {
    let lab = lab!();
    let public = lab.path("keys/id_ed25519.pub");
    let garbage = lab.write("garbage", "not a key\n");
    let missing = lab.scratch("missing");
    let encrypted = key(&lab, "ed25519", "encrypted", &["-N", "a passphrase"]);
    let table = [
        (&public, 1, "KeyUnusable", ""),
        (&garbage, 1, "KeyUnusable", ""),
        (&encrypted, 1, "KeyUnusable", "ssh-add "),
        (&missing, 4, "CredentialsUnavailable", ""),
    ];
    for (file, code, reason, hint) in table {
        let cli = lab.cli_with(|kvm| {
            kvm["sshKeyFile"] = json!(file);
            // Nobody is there: an attempt would take its time, and fail otherwise.
            kvm["hosts"][0]["address"] = json!("192.0.2.1:22");
        });
        let run = cli.run(&LIST).exits(code).fails_with(reason, hint);
        let error = &run.errors()[0];
        assert!(
            error["message"]
                .to_string()
                .contains(file.to_str().unwrap()),
            "{run}"
        );
        assert!(
            !error["hints"].as_array().unwrap().is_empty(),
            "what to do?\n{run}"
        );
    }
}

#[test]
fn the_agent_serves_its_keys_and_encrypted_files() {
    let lab = lab!();
    let socket = lab.scratch("agent");
    let said = done(Command::new("ssh-agent").arg("-a").arg(&socket));
    let pid = said
        .split_once("SSH_AGENT_PID=")
        .unwrap()
        .1
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let _agent = Cleanup::later(|| drop(done(Command::new("kill").arg(&pid))));
    let encrypted = key(&lab, "ecdsa", "encrypted", &["-N", "a passphrase"]);
    // The agent's public half beside the file tells which of its keys is meant.
    std::fs::copy(lab.path("keys/id_ecdsa.pub"), lab.scratch("encrypted.pub")).unwrap();

    let by_agent = lab.cli_with(|kvm| {
        kvm.as_object_mut().unwrap().remove("sshKeyFile");
        kvm["sshAgent"] = json!(true);
    });
    let by_agent = by_agent.env("SSH_AUTH_SOCK", &socket);
    by_agent
        .run(&LIST)
        .exits(4)
        .fails_with("CredentialsUnavailable", "ssh-add");
    let add = key(&lab, "ecdsa", "plain", &[]);
    done(
        Command::new("ssh-add")
            .arg("-q")
            .arg(&add)
            .env("SSH_AUTH_SOCK", &socket),
    );
    by_agent.run(&LIST).exits(0).says_nothing();
    let by_file = lab
        .cli_with(with_key(&encrypted))
        .env("SSH_AUTH_SOCK", &socket);
    by_file.run(&LIST).exits(0).says_nothing();
}
