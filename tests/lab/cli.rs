//! Running egressctl in a bare environment, and looking at how it ended.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::schema::faults;
use crate::support::wait_until;

/// egressctl with one configuration and a bare environment.
pub(crate) struct Cli {
    config: PathBuf,
    home: PathBuf,
    env: Vec<(String, String)>,
    binary: Option<PathBuf>,
}

/// The binary to test.
pub(crate) fn binary() -> PathBuf {
    let given = std::env::var_os("EGRESSCTL_BIN").map(PathBuf::from);
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_egressctl").into())
}

impl Cli {
    /// With this configuration file and home directory.
    pub(crate) fn new(config: PathBuf, home: PathBuf) -> Self {
        Cli {
            config,
            home,
            env: Vec::new(),
            binary: None,
        }
    }

    /// With one more environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        let value = value.as_ref().to_str().unwrap().to_owned();
        self.env.push((name.to_owned(), value));
        self
    }

    /// With another binary.
    pub(crate) fn binary(mut self, binary: PathBuf) -> Self {
        self.binary = Some(binary);
        self
    }

    /// Ready to be started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.binary.clone().unwrap_or_else(binary));
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", &self.home)
            .env("EGRESSCTL_CONFIG", &self.config)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.run_with_stdin(args, b"")
    }

    /// Runs it to its end with this on stdin.
    pub(crate) fn run_with_stdin(&self, args: &[&str], input: &[u8]) -> Run {
        let mut running = self.start_piped(args, Stdio::piped());
        running
            .child
            .stdin
            .take()
            .unwrap()
            .write_all(input)
            .unwrap();
        running.wait()
    }

    /// Runs it to its end on a terminal of 100 columns, by script(1); stdout has all that the terminal got.
    pub(crate) fn run_on_terminal(&self, args: &[&str]) -> Run {
        let own = self.command(&[]);
        let program = own.get_program().to_str().unwrap();
        let line = format!("stty cols 100 rows 30; exec {program} {}", args.join(" "));
        let mut terminal = Command::new("script");
        terminal
            .args(["-qec", &line, "/dev/null"])
            .env_clear()
            .envs(
                own.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("TERM", "xterm")
            .env("NO_COLOR", "1");
        Running::spawn(terminal, args, Stdio::null()).wait()
    }

    /// Starts it.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.start_piped(args, Stdio::null())
    }

    /// Starts it with its stdout there.
    pub(crate) fn start_into(&self, args: &[&str], stdout: Stdio) -> Running {
        Running::spawn_into(self.command(args), args, Stdio::null(), stdout)
    }

    fn start_piped(&self, args: &[&str], stdin: Stdio) -> Running {
        Running::spawn(self.command(args), args, stdin)
    }
}

/// Longer than any run takes: a guest's boot has 5 minutes.
const FOR_EVER: Duration = Duration::from_secs(900);

/// An egressctl at work.
pub(crate) struct Running {
    child: Child,
    since: Instant,
    args: Vec<String>,
}

impl Running {
    fn spawn(command: Command, args: &[&str], stdin: Stdio) -> Self {
        Self::spawn_into(command, args, stdin, Stdio::piped())
    }

    fn spawn_into(mut command: Command, args: &[&str], stdin: Stdio, stdout: Stdio) -> Self {
        command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        Running {
            since: Instant::now(),
            child: command.spawn().unwrap(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        }
    }

    /// Sends it a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(
            sent.unwrap().success(),
            "{:?} had ended before SIG{name}",
            self.args
        );
    }

    /// Waits until it is suspended.
    pub(crate) fn sleeps(&self) {
        let path = format!("/proc/{}/stat", self.child.id());
        wait_until("it is suspended", Duration::from_secs(30), || {
            let stat = std::fs::read_to_string(&path).unwrap();
            let (_, after) = stat.rsplit_once(')').unwrap();
            after.trim_start().starts_with('T')
        });
    }

    /// Waits until it handles signals: before, it would be ended by one as any program is.
    pub(crate) fn listening(self) -> Self {
        let status = format!("/proc/{}/status", self.child.id());
        let catches = || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            // Bit N-1 is signal N's (proc(5)); SIGINT is 2. What has ended has no mask any more.
            caught.is_none_or(|mask| mask & 2 != 0)
        };
        wait_until("it handles signals", Duration::from_secs(30), catches);
        self
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills it, if it still runs.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Interrupts it and waits for its end; none where it was done before that.
    pub(crate) fn interrupt(mut self) -> Option<Run> {
        if self
            .child
            .try_wait()
            .unwrap()
            .is_some_and(|status| status.success())
        {
            return None;
        }
        self.signal("INT");
        let run = self.wait();
        // It may have been done with everything at that very moment.
        if run.0.status == Some(0) {
            None
        } else {
            Some(run)
        }
    }

    /// Waits for this on its stdout, and closes the pipe.
    pub(crate) fn read_and_leave(&mut self, wanted: &str) {
        let mut got = vec![0; wanted.len()];
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8(got).unwrap(), wanted);
    }

    /// Waits for its end; one that takes longer than [`FOR_EVER`] is killed, so that its test fails and not the whole run.
    pub(crate) fn wait(self) -> Run {
        let pid = self.child.id().to_string();
        let (ended, end) = channel::<()>();
        let watch = std::thread::spawn(move || {
            if end.recv_timeout(FOR_EVER) == Err(RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-s", "KILL", &pid]).status();
            }
        });
        let output = self.child.wait_with_output().unwrap();
        drop(ended);
        watch.join().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Run(Checked {
            args: self.args,
            took: self.since.elapsed(),
            status: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        })
    }
}

/// How a run ended; its exit code has to be looked at.
#[must_use]
pub(crate) struct Run(Checked);

impl Run {
    /// What it said on stderr, however it ended.
    pub(crate) fn stderr(&self) -> &str {
        &self.0.stderr
    }

    /// Fails unless it ended with this exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Checked {
        let run = self.0;
        assert!(
            run.status == Some(code),
            "exit code {code} was expected\n{run}"
        );
        run
    }

    /// Whether it succeeded, to decide what to look at next.
    pub(crate) fn succeeded(&self) -> bool {
        self.0.status == Some(0)
    }

    /// Whether it succeeded, for polling.
    pub(crate) fn ends_well(self) -> bool {
        self.0.status == Some(0)
    }

    /// Fails unless a signal ended it.
    #[track_caller]
    pub(crate) fn was_killed(self) -> Checked {
        let run = self.0;
        assert!(run.status.is_none(), "it should have been killed\n{run}");
        run
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A run whose exit code was right.
pub(crate) struct Checked {
    args: Vec<String>,
    status: Option<i32>,
    /// How long it took.
    pub(crate) took: Duration,
    /// All of its stdout.
    pub(crate) stdout: String,
    /// All of its stderr.
    pub(crate) stderr: String,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self
            .status
            .map_or("a signal".to_owned(), |code| format!("exit code {code}"));
        writeln!(
            f,
            "egressctl {}\n{status} after {:.1?}",
            self.args.join(" "),
            self.took
        )?;
        write!(
            f,
            "--- stdout\n{}--- stderr\n{}---",
            self.stdout, self.stderr
        )
    }
}

impl Checked {
    /// Fails unless stderr has this.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(
            self.stderr.contains(text),
            "stderr should say {text:?}\n{self}"
        );
        self
    }

    /// Fails if stderr has this.
    #[track_caller]
    pub(crate) fn never_says(self, text: &str) -> Self {
        assert!(
            !self.stderr.contains(text),
            "stderr should not say {text:?}\n{self}"
        );
        self
    }

    /// Fails unless stdout has this.
    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text),
            "stdout should have {text:?}\n{self}"
        );
        self
    }

    /// Fails unless stdout is exactly this.
    #[track_caller]
    pub(crate) fn prints_only(self, text: &str) -> Self {
        assert!(self.stdout == text, "stdout should be {text:?}\n{self}");
        self
    }

    /// Fails unless it was over within this time.
    #[track_caller]
    pub(crate) fn within(self, limit: Duration) -> Self {
        assert!(
            self.took <= limit,
            "it should take {limit:?} at most\n{self}"
        );
        self
    }

    /// Fails unless stderr is empty.
    #[track_caller]
    pub(crate) fn says_nothing(self) -> Self {
        assert!(self.stderr.is_empty(), "stderr should be empty\n{self}");
        self
    }

    /// stdout as one JSON document, which keeps to its kind's schema.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let document: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}\n{self}"));
        if document.get("apiVersion").is_some() {
            let faults = faults(&document);
            assert!(faults.is_empty(), "{faults:#?}\n{self}");
        }
        document
    }

    /// The document's items.
    #[track_caller]
    pub(crate) fn items(&self) -> Vec<Value> {
        self.json()["items"]
            .as_array()
            .unwrap_or_else(|| panic!("no items\n{self}"))
            .clone()
    }

    /// The document's only item.
    #[track_caller]
    pub(crate) fn item(&self) -> Value {
        let items = self.items();
        assert!(items.len() == 1, "one item was expected\n{self}");
        items[0].clone()
    }

    /// The errors on stderr under `-o json`, one object a line.
    #[track_caller]
    pub(crate) fn errors(&self) -> Vec<Value> {
        let lines = self.stderr.lines().filter(|line| line.starts_with('{'));
        let errors: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for error in &errors {
            assert!(faults(error).is_empty(), "{:?}\n{self}", faults(error));
        }
        errors
    }

    /// Fails unless there is one error under `-o json`, or one of each host, with this reason and a hint that has this text.
    #[track_caller]
    pub(crate) fn fails_with(self, reason: &str, hint: &str) -> Self {
        let errors = self.errors();
        let hosts: BTreeSet<String> = errors.iter().map(|e| e["host"].to_string()).collect();
        assert!(
            !errors.is_empty() && errors.len() == hosts.len(),
            "one error was expected, or one of each host\n{self}"
        );
        for error in &errors {
            let is_meant = error["reason"] == reason;
            assert!(is_meant, "the reason should be {reason}\n{self}");
            let has_hint = error["hints"].to_string().contains(hint);
            assert!(has_hint, "a hint should have {hint:?}\n{self}");
        }
        self
    }
}
