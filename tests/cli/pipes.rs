//! Readers that went away and disks that are full.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::support::{REMOTE, Sandbox};
use crate::{LOCAL, transcript};

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

#[test]
fn a_file_that_may_not_grow_is_a_failure() {
    let sandbox = Sandbox::new();
    let output = sandbox.write("output", "");
    // Its shell has the limit, and the signal's default action.
    let status = std::process::Command::new("sh")
        .args(["-c", "ulimit -f 0; exec \"$0\" config schema >\"$1\""])
        .arg(env!("CARGO_BIN_EXE_egressctl"))
        .arg(&output)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1), "{status}");
}

/// Ends a process that doesn't end by itself, so that the test fails instead of hanging.
pub(crate) fn ends(mut child: Child, what: &str) -> ExitStatus {
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
    // Names of nothing are no bytes; and a day's wait isn't waited for.
    for (watch, format) in [
        ("--watch=10ms", "json"),
        ("--watch=10ms", "name"),
        ("--watch=1d", "name"),
    ] {
        let sandbox = Sandbox::new();
        let config = sandbox.write("providers.yaml", LOCAL);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let child = sandbox
            .egressctl(&["list", watch, "-o", format])
            .env("EGRESSCTL_CONFIG", config)
            .stdout(Stdio::from(OwnedFd::from(ours)))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Its hosts have no libvirt.
        assert_eq!(ends(child, "list --watch").code(), Some(4), "{watch}");
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_file_that_says_nothing() {
    let waiting: &[&[&str]] = &[
        &["create", "--zone", "one", "--user-data", "-"],
        &["create", "--zone", "one", "--network-config", "-"],
        &["gc", "--keep", "-"],
        &["exec", "web1", "--stdin", "--", "true"],
    ];
    for args in waiting {
        let sandbox = Sandbox::new();
        let config = sandbox.write("providers.yaml", LOCAL);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = sandbox
            .egressctl(args)
            .env("EGRESSCTL_CONFIG", config)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let id = i32::try_from(child.id()).unwrap();
        wait_for_thread(id, "input");
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(id).unwrap(),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        assert_eq!(ends(child, args[0]).code(), Some(143), "{args:?}");
        drop(ours);
    }
}

/// Waits until the process reads: a thread of this name is there.
fn wait_for_thread(process: i32, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let tasks = format!("/proc/{process}/task");
    while Instant::now() < deadline {
        let threads = std::fs::read_dir(&tasks).unwrap();
        let mut names = threads.map(|thread| {
            let comm = thread.unwrap().path().join("comm");
            std::fs::read_to_string(comm).unwrap_or_default()
        });
        if names.any(|comm| comm.trim() == name) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no thread {name}");
}
