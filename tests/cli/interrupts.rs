//! Signals while a pipe is waited for that nobody writes into.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Sandbox;
use crate::{REMOTE, sandbox};

/// A pipe under this name in the sandbox.
fn pipe(sandbox: &Sandbox, name: &str) {
    let made = Command::new("mkfifo")
        .arg(sandbox.home().join(name))
        .status();
    assert!(made.unwrap().success());
}

/// Waits until it sleeps, on a thread called so, in the kernel's wait for the pipe's other end.
fn waits_for_the_pipe(child: &Child) -> bool {
    let tasks = format!("/proc/{}/task", child.id());
    let Ok(tasks) = std::fs::read_dir(tasks) else {
        return false;
    };
    let name = |task: &Path| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
    tasks
        .filter_map(Result::ok)
        .any(|task| name(&task.path()).trim() == "input")
}

#[test]
fn a_pipe_that_nobody_writes_into_is_waited_for_until_a_signal_comes() {
    let sandbox = sandbox("remote");
    pipe(&sandbox, "pipe");
    sandbox.write(
        "key-in-a-pipe.yaml",
        &REMOTE.replace("sshKeyFile: key", "sshKeyFile: pipe"),
    );
    sandbox.write("known_hosts", "");
    sandbox.write(
        "known-hosts-in-a-pipe.yaml",
        &REMOTE.replace("knownHostsFile: known_hosts", "knownHostsFile: pipe"),
    );
    let create = ["create", "--zone", "nas1", "--image", "debian-13"];
    let lines: [Vec<&str>; 7] = [
        vec!["list", "--config", "pipe"],
        vec!["config", "validate", "--config", "pipe"],
        [&create[..], &["--user-data", "pipe"]].concat(),
        [&create[..], &["--network-config", "pipe"]].concat(),
        vec!["gc", "--keep", "pipe"],
        vec!["list", "--zone", "nas1", "--config", "key-in-a-pipe.yaml"],
        vec![
            "list",
            "--zone",
            "nas1",
            "--config",
            "known-hosts-in-a-pipe.yaml",
        ],
    ];
    for (line, (signal, code)) in lines
        .iter()
        .zip([("INT", 130), ("TERM", 143)].iter().cycle())
    {
        let mut child = sandbox
            .egressctl(line)
            .env("EGRESSCTL_CONFIG", "providers.yaml")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !waits_for_the_pipe(&child) {
            assert!(child.try_wait().unwrap().is_none(), "{line:?} has ended");
            assert!(Instant::now() < deadline, "{line:?} doesn't read the pipe");
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
        let status = crate::pipes::ends(child, &format!("{line:?}"));
        assert_eq!(status.code(), Some(*code), "{line:?}");
    }
}
