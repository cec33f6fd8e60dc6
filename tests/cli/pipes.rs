//! Readers that went away and disks that are full.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::support::Sandbox;
use crate::{LOCAL, REMOTE, transcript};

/// Commands that print on standard output without a host.
const PRINTING: &[&[&str]] = &[
    &["--help"],
    &["--version"],
    &["config", "schema"],
    &["config", "view"],
    &["completion", "bash"],
];

fn run(args: &[&str], stdout: Stdio) -> (Option<i32>, String) {
    let sandbox = Sandbox::new();
    let config = sandbox.write("providers.yaml", REMOTE);
    let output = sandbox
        .egressctl(args)
        .env("EGRESSCTL_CONFIG", config)
        .stdout(stdout)
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    (output.status.code(), transcript(&sandbox, &output))
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    for args in PRINTING {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let (code, said) = run(args, Stdio::from(OwnedFd::from(ours)));
        assert_eq!(code, Some(0), "{args:?}: {said}");
    }
}

#[test]
fn a_full_disk_is_a_failure() {
    for args in PRINTING {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, said) = run(args, full.into());
        assert_eq!(code, Some(1), "{args:?}: {said}");
    }
}

/// Ends a process that doesn't end by itself, so that the test fails instead of hanging.
fn ends(mut child: Child, what: &str) -> ExitStatus {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("{what} doesn't end");
}

#[test]
fn a_watch_ends_with_its_reader() {
    let sandbox = Sandbox::new();
    let config = sandbox.write("providers.yaml", LOCAL);
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let child = sandbox
        .egressctl(&["list", "--watch=10ms", "-o", "json"])
        .env("EGRESSCTL_CONFIG", config)
        .stdout(Stdio::from(OwnedFd::from(ours)))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Its hosts have no libvirt.
    assert_eq!(ends(child, "list --watch").code(), Some(4));
}
