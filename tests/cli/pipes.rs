//! Readers that went away and disks that are full.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::support::Sandbox;
use crate::{REMOTE, transcript};

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
