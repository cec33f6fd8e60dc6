//! A pipe that nobody writes into: signals while it is waited for, and its limit.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::sandbox;
use crate::support::{REMOTE, Sandbox};

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

/// The same command with this done to its signals first, by env(1): what the tests' own shell may have had ignored would
/// be so for it, too.
fn with_signals(command: &Command, option: &str) -> Command {
    let mut env = Command::new("/usr/bin/env");
    env.arg(option)
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(command.get_current_dir().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    env
}

/// Starts it, and waits until it waits for the pipe.
fn waiting(mut command: Command) -> Child {
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !waits_for_the_pipe(&child) {
        assert!(child.try_wait().unwrap().is_none(), "{command:?} has ended");
        assert!(
            Instant::now() < deadline,
            "{command:?} doesn't read the pipe"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn what_nohup_has_ignored_stays_ignored() {
    let sandbox = sandbox("remote");
    pipe(&sandbox, "pipe");
    for signal in ["HUP", "QUIT"] {
        let list = sandbox.egressctl(&["list", "--config", "pipe"]);
        let child = waiting(with_signals(&list, &format!("--ignore-signal={signal}")));
        send(&child, signal);
        // Long enough for it to end, if it would.
        std::thread::sleep(Duration::from_millis(600));
        assert!(waits_for_the_pipe(&child), "SIG{signal} was heeded");
        send(&child, "TERM");
        let status = crate::pipes::ends(child, signal);
        assert_eq!(status.code(), Some(143), "SIG{signal}");
    }
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
    let signals = [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)];
    for (line, (signal, code)) in lines.iter().zip(signals.iter().cycle()) {
        let mut command = sandbox.egressctl(line);
        command.env("EGRESSCTL_CONFIG", "providers.yaml");
        let child = waiting(with_signals(&command, "--default-signal=HUP,QUIT"));
        send(&child, signal);
        let status = crate::pipes::ends(child, &format!("{line:?}"));
        assert_eq!(status.code(), Some(*code), "{line:?}");
    }
}

#[test]
fn a_pipe_for_keys_has_the_limit_of_a_dial() {
    let sandbox = sandbox("remote");
    pipe(&sandbox, "pipe");
    sandbox.write("known_hosts", "");
    for key in ["sshKeyFile: key", "knownHostsFile: known_hosts"] {
        let (name, _) = key.split_once(' ').unwrap();
        sandbox.write(
            "providers.yaml",
            &REMOTE.replace(key, &format!("{name} pipe")),
        );
        let mut list = sandbox.egressctl(&["list", "--zone", "nas1", "-o", "json"]);
        list.env("EGRESSCTL_CONFIG", "providers.yaml");
        let ended = list.env("EGRESSCTL_LIMITS", "dial=1").output().unwrap();
        assert_eq!(ended.status.code(), Some(4), "{ended:?}");
        let told = String::from_utf8_lossy(&ended.stdout);
        for wanted in ["CredentialsUnavailable", "nothing came from it within 1s"] {
            assert!(told.contains(wanted), "{wanted}: {ended:?}");
        }
    }
}
