//! The SSH agent: which of its keys are offered, and when it is asked at all.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use egressctl::cancel::Cancel;
use egressctl::config::KeySource;
use egressctl::error::{Class, Reason};
use egressctl::ssh::{DialOptions, dial};

use crate::authentication::{PASSPHRASE, log_in, make};
use crate::require_sshd;
use crate::sshd::{Sshd, keygen, keys, told};

/// An agent of the test's own, killed when dropped.
struct Agent {
    socket: PathBuf,
    child: Child,
}

impl Agent {
    fn start(dir: &Path) -> Self {
        let socket = dir.join("agent");
        let child = Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        while !socket.exists() {
            assert!(Instant::now() < end, "no ssh-agent");
            std::thread::sleep(Duration::from_millis(5));
        }
        Agent { socket, child }
    }

    fn add(&self, key: &Path) {
        let askpass = self.socket.with_extension("askpass");
        std::fs::write(&askpass, format!("#!/bin/sh\necho {PASSPHRASE}\n")).unwrap();
        std::fs::set_permissions(&askpass, PermissionsExt::from_mode(0o700)).unwrap();
        let status = Command::new("ssh-add")
            .arg("-q")
            .arg(key)
            .env("SSH_AUTH_SOCK", &self.socket)
            .env("SSH_ASKPASS_REQUIRE", "force")
            .env("SSH_ASKPASS", askpass)
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn an_encrypted_key_that_the_agent_holds_needs_no_passphrase() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let agent = Agent::start(sshd.dir.path());
    let dir = sshd.dir.path();
    for (name, args) in [
        ("o-rsa", &["-t", "rsa", "-b", "2048"][..]),
        ("pem-ecdsa", &["-t", "ecdsa", "-m", "PEM"]),
    ] {
        let key = make(dir, name, PASSPHRASE, args);
        agent.add(&key);
        sshd.authorize(std::slice::from_ref(&key));
        let link = log_in(&sshd, KeySource::File(key), Some(&agent.socket), None);
        assert!(link.is_ok(), "{name}: {}", told(&link.unwrap_err()));
    }
}

#[test]
fn the_agent_logs_in_with_keys_of_every_type() {
    require_sshd!();
    let sshd = Sshd::start(&["LogLevel VERBOSE"]);
    let other = keys().join("other_ed25519");
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let dir = tempfile::tempdir().unwrap();
        let agent = Agent::start(dir.path());
        agent.add(&other);
        agent.add(&keys().join(format!("id_{kind}")));
        let link = log_in(&sshd, KeySource::Agent, Some(&agent.socket), None);
        assert!(link.is_ok(), "{kind}: {}", told(&link.unwrap_err()));
    }
}

#[test]
fn a_refusal_says_how_the_agents_keys_get_in() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let dir = sshd.dir.path();
    let agent = Agent::start(dir);
    let key = make(dir, "locked", PASSPHRASE, &["-t", "ed25519"]);
    agent.add(&key);
    let refused = |source| log_in(&sshd, source, Some(&agent.socket), None).unwrap_err();
    let error = refused(KeySource::Agent);
    assert_eq!(error.reason(), Reason::AuthenticationFailed);
    let copy = format!("ssh-copy-id -p {} root@127.0.0.1", sshd.port);
    assert_eq!(error.hints()[0], copy, "{}", told(&error));
    let error = refused(KeySource::File(key.clone()));
    let copy = format!("ssh-copy-id -i {}.pub ", key.display());
    assert!(error.hints()[0].starts_with(&copy), "{}", told(&error));
}

#[test]
fn a_configured_key_is_the_only_one_offered() {
    require_sshd!();
    let sshd = Sshd::start(&["MaxAuthTries 2", "LogLevel VERBOSE"]);
    let agent = Agent::start(sshd.dir.path());
    for index in 0..5 {
        let key = sshd.dir.path().join(format!("foreign{index}"));
        keygen(&key, "ed25519", "");
        agent.add(&key);
    }
    let right = keys().join("id_ed25519");
    log_in(
        &sshd,
        KeySource::File(right.clone()),
        Some(&agent.socket),
        None,
    )
    .unwrap();
    assert!(!sshd.log().contains("Failed publickey"), "{}", sshd.log());
    agent.add(&right);
    let error = log_in(&sshd, KeySource::Agent, Some(&agent.socket), None).unwrap_err();
    assert_eq!(
        (error.reason(), error.class()),
        (Reason::AuthenticationFailed, Class::Permanent)
    );
    let text = told(&error);
    assert!(
        text.contains("2 of the SSH agent's 6 keys were offered"),
        "{text}"
    );
    assert!(
        text.contains("MaxAuthTries") && text.contains("sshKeyFile"),
        "{text}"
    );
}

#[test]
fn a_hung_agent_costs_no_more_than_its_limit() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let key = make(sshd.dir.path(), "locked", PASSPHRASE, &["-t", "ed25519"]);
    sshd.authorize(std::slice::from_ref(&key));
    let mut agent = Agent::start(sshd.dir.path());
    agent.add(&key);
    // Lists its keys, and then never signs: a stand-in between us and the agent.
    let real = agent.socket.clone();
    agent.socket = sshd.serve("half-agent", move |mut client| {
        let mut request = [0; 5];
        while client.read_exact(&mut request).is_ok() && request[4] == 11 {
            let mut upstream = UnixStream::connect(&real).unwrap();
            upstream.write_all(&request).unwrap();
            let mut length = [0; 4];
            upstream.read_exact(&mut length).unwrap();
            let mut body = vec![0; u32::from_be_bytes(length) as usize];
            upstream.read_exact(&mut body).unwrap();
            client.write_all(&[&length[..], &body].concat()).unwrap();
        }
        std::thread::sleep(Duration::from_secs(30));
    });
    let auth = sshd.auth(&key);
    let options = DialOptions {
        dial_limit: Duration::from_secs(1),
        prompt: None,
        agent: Some(agent.socket.clone()),
        ..DialOptions::default()
    };
    let started = Instant::now();
    let error = dial("nas1", &sshd.target(), &auth, &options, &Cancel::new()).unwrap_err();
    assert_eq!(error.reason(), Reason::TimedOut, "{}", told(&error));
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}
