//! A program in a guest: its output while it runs, and how it ended.
//!
//! The agent hands captured output over only at the end, and libvirt refuses answers beyond 4 MiB. So a shell
//! sends both streams into files in a directory of their own, which are read as they grow.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use uuid::Uuid;

use super::running::{Running, Stop};
use super::{Agent, LIMIT, input};
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;

/// The most that a program can be given on its stdin, in bytes. It is held in memory, and slow to bring in.
pub const STDIN_LIMIT: usize = 2 << 20;

/// The shortest limit that an agent can be given.
const SECOND: Duration = Duration::from_secs(1);

/// Gets the directory for the output, then the program's words. What it says itself is captured by the agent: only
/// a failure before the program's start.
const SCRIPT: &str = "d=$1; shift; (umask 077; mkdir \"$d\" && : >\"$d/out\" && : >\"$d/err\") || exit 125; \
                      exec \"$@\" >\"$d/out\" 2>\"$d/err\"";

/// The same where the directory is there, with the program's stdin in it.
const FED_SCRIPT: &str = "d=$1; shift; (umask 077; : >\"$d/out\" && : >\"$d/err\") || exit 125; \
                          exec \"$@\" <\"$d/in\" >\"$d/out\" 2>\"$d/err\"";

/// What to run.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    /// The program and its arguments, passed on as they are: no shell reads them.
    pub words: &'a [String],
    /// What it reads on its stdin, at most 2 MiB; none means nothing.
    pub stdin: Option<&'a [u8]>,
    /// How long it may run; none means for ever.
    pub timeout: Option<Duration>,
}

/// Where a program's output goes, as it comes.
pub trait Sink {
    /// Bytes of its standard output; false once nobody reads them any more.
    ///
    /// Errors: [`Reason::OutputFailed`].
    fn stdout(&mut self, bytes: &[u8]) -> Result<bool>;
    /// The same of its standard error.
    fn stderr(&mut self, bytes: &[u8]) -> Result<bool>;
    /// Whether somebody has read its standard output and is gone by now, as far as that shows without a write.
    fn is_left(&self) -> bool;
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status; 127 where there is no such program, 126 where it can't be run.
    Exited(u8),
    /// By this signal.
    Killed(u8),
}

impl Ended {
    /// As a program here ends that goes on writing when its reader has gone: by SIGPIPE.
    pub(super) const UNREAD: Ended = Ended::Killed(13);

    /// As a shell has it: a signal is 128 and its number.
    pub fn status(self) -> u8 {
        match self {
            Ended::Exited(status) => status,
            Ended::Killed(signal) => signal.saturating_add(128),
        }
    }
}

/// Runs a program to its end, as the agent's user (root). One that goes on when nobody reads its output any more is
/// ended.
///
/// Errors: before [`Reason::TimedOut`], [`Reason::Interrupted`] and [`Reason::OutputFailed`] it is ended, and they say
/// whether that worked; others are the agent's, and leave it running.
pub fn run(
    agent: Agent<'_>,
    program: &Program<'_>,
    host: &HostSession,
    sink: &mut dyn Sink,
) -> Result<Ended> {
    // An agent that hangs shall not cost much more than the time that was given.
    if let Some(timeout) = program.timeout.filter(|timeout| *timeout < LIMIT) {
        agent.within(timeout.max(SECOND)).ping()?;
    }
    let directory = format!("/var/tmp/egressctl-{}", Uuid::new_v4().simple());
    let pid = start(agent, program, &directory, host)?;
    let deadline = program.timeout.map(|timeout| Instant::now() + timeout);
    let mut running = Running::new(agent, pid, &directory, host);
    match running.follow(deadline, sink) {
        Ok(report) => {
            running.clear();
            report.into_result(agent.name())
        }
        Err(Stop::Unread) => running.give_up(None),
        Err(Stop::Failed(error)) => match error.reason() {
            Reason::OutputFailed => running.give_up(Some(error)),
            Reason::TimedOut | Reason::Interrupted => {
                let ended = running.end();
                Err(running.told(error, ended))
            }
            _ => Err(running.left(error)),
        },
    }
}

fn start(
    agent: Agent<'_>,
    program: &Program<'_>,
    directory: &str,
    host: &HostSession,
) -> Result<i64> {
    let exec = |script: &str, stdin: Option<&[u8]>| {
        let mut words = vec!["-c", script, "sh", directory];
        words.extend(program.words.iter().map(String::as_str));
        let mut arguments = json!({ "path": "/bin/sh", "arg": words, "capture-output": true });
        if let Some(stdin) = stdin {
            arguments["input-data"] = BASE64.encode(stdin).into();
        }
        started(&agent.call("guest-exec", &arguments)?)
    };
    match program.stdin {
        Some(stdin) if stdin.len() > input::BLOCK => input::put(agent, directory, stdin, host)
            .and_then(|()| exec(FED_SCRIPT, None))
            .map_err(|error| input::take_back(agent, directory, host, error)),
        stdin => exec(SCRIPT, stdin),
    }
}

/// The process that the agent says it has started: a guest may say anything, and this is told to people.
fn started(answer: &Value) -> Result<i64> {
    let pid = answer["pid"].as_i64().filter(|pid| *pid > 0);
    pid.ok_or_else(|| {
        let what = "the guest agent names no process for the command, which may run in the guest";
        Error::permanent(Reason::AgentRefused, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_number() {
        assert_eq!(started(&json!({"pid": 4711})).unwrap(), 4711);
        let odd = [
            json!("1; reboot"),
            json!(-1),
            json!(0),
            json!([1]),
            json!(null),
            json!(1.5),
        ];
        for pid in odd {
            let error = started(&json!({ "pid": pid })).unwrap_err();
            assert_eq!(error.reason(), Reason::AgentRefused, "{pid}");
            assert!(!error.to_string().contains("reboot"), "{error}");
        }
    }

    #[test]
    fn the_other_script_feeds_the_program_from_the_file() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        std::fs::write(directory.join("in"), b"a\0b").unwrap();
        let status = std::process::Command::new("/bin/sh")
            .args(["-c", FED_SCRIPT, "sh", directory.to_str().unwrap(), "cat"])
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(std::fs::read(directory.join("out")).unwrap(), b"a\0b");
        assert_eq!(std::fs::read(directory.join("err")).unwrap(), b"");
    }

    #[test]
    fn the_script_runs_words_as_they_are_and_keeps_both_streams() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("d");
        let words = ["printf", "%s|", "a b", "$x", "it's", ""];
        let status = std::process::Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh", directory.to_str().unwrap()])
            .args(words)
            .status()
            .unwrap();
        assert!(status.success());
        let out = std::fs::read_to_string(directory.join("out")).unwrap();
        assert_eq!(out, "a b|$x|it's||");
        assert_eq!(std::fs::read(directory.join("err")).unwrap(), b"");
        // The name is taken now: the shell complains where the agent captures it.
        let again = std::process::Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh", directory.to_str().unwrap(), "true"])
            .output()
            .unwrap();
        assert_eq!(again.status.code(), Some(125));
        assert!(!again.stderr.is_empty());
    }
}
