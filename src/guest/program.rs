//! A program in a guest: its output while it runs, and how it ended.
//!
//! The agent hands captured output over only at the end, and libvirt refuses answers beyond 4 MiB. So a shell
//! sends both streams into files in a directory of their own, which are read as they grow.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use uuid::Uuid;

use super::file::decode;
use super::{Agent, GuestFile, ending, input};
use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;

/// The most that a program can be given on its stdin, in bytes. It is held in memory, and slow to bring in.
pub const STDIN_LIMIT: usize = 2 << 20;

/// Gets the directory for the output, then the program's words. What it says itself is captured by the agent: only
/// a failure before the program's start.
const SCRIPT: &str = "d=$1; shift; (umask 077; mkdir \"$d\" && : >\"$d/out\" && : >\"$d/err\") || exit 125; \
                      exec \"$@\" >\"$d/out\" 2>\"$d/err\"";

/// The same where the directory is there, with the program's stdin in it.
const FED_SCRIPT: &str = "d=$1; shift; (umask 077; : >\"$d/out\" && : >\"$d/err\") || exit 125; \
                          exec \"$@\" <\"$d/in\" >\"$d/out\" 2>\"$d/err\"";

/// How often a running program is looked at: at first, and at most.
const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// How often the end of the clean-up is looked for.
const REAP_TRIES: u32 = 10;

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
    /// Bytes of its standard output.
    fn stdout(&mut self, bytes: &[u8]) -> Result<()>;
    /// Bytes of its standard error.
    fn stderr(&mut self, bytes: &[u8]) -> Result<()>;
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
    /// As a shell has it: a signal is 128 and its number.
    pub fn status(self) -> u8 {
        match self {
            Ended::Exited(status) => status,
            Ended::Killed(signal) => signal.saturating_add(128),
        }
    }
}

/// Runs a program to its end, as the agent's user (root).
///
/// Errors: before [`Reason::TimedOut`] and [`Reason::Interrupted`] it is ended, and they say whether that worked; others
/// are the agent's, and leave it running.
pub fn run(
    agent: Agent<'_>,
    program: &Program<'_>,
    host: &HostSession,
    sink: &mut dyn Sink,
) -> Result<Ended> {
    let cancel = &host.cancels().work;
    let directory = format!("/var/tmp/egressctl-{}", Uuid::new_v4().simple());
    let pid = start(agent, program, &directory, host)?;
    let mut running = Running {
        agent,
        pid,
        directory: &directory,
        out: None,
        err: None,
    };
    let deadline = program.timeout.map(|timeout| Instant::now() + timeout);
    match running.follow(deadline, cancel, sink) {
        Ok(report) => {
            running.clear(cancel);
            report.into_result(agent.name())
        }
        Err(error) => {
            // Fails where the error is the agent's own; it forgets them when it ends.
            let _ = running.close_files();
            if !matches!(error.reason(), Reason::TimedOut | Reason::Interrupted) {
                return Err(left_running(error, host, &running));
            }
            match running.end(host) {
                Ok(true) => {
                    Err(error.because("it was ended in the guest, with all that it started"))
                }
                Ok(false) => Err(left_running(
                    error.because("it was killed in the guest, but something of it goes on"),
                    host,
                    &running,
                )),
                Err(why) => Err(left_running(
                    error.because(format!(
                        "it could not be ended in the guest: {}",
                        why.message()
                    )),
                    host,
                    &running,
                )),
            }
        }
    }
}

fn start(
    agent: Agent<'_>,
    program: &Program<'_>,
    directory: &str,
    host: &HostSession,
) -> Result<Value> {
    let exec = |script: &str, stdin: Option<&[u8]>| {
        let mut words = vec!["-c", script, "sh", directory];
        words.extend(program.words.iter().map(String::as_str));
        let mut arguments = json!({ "path": "/bin/sh", "arg": words, "capture-output": true });
        if let Some(stdin) = stdin {
            arguments["input-data"] = BASE64.encode(stdin).into();
        }
        Ok(agent.call("guest-exec", &arguments)?["pid"].clone())
    };
    match program.stdin {
        Some(stdin) if stdin.len() > input::BLOCK => {
            input::put(agent, directory, stdin, &host.cancels().work)
                .and_then(|()| exec(FED_SCRIPT, None))
                .map_err(|error| input::take_back(agent, directory, host, error))
        }
        stdin => exec(SCRIPT, stdin),
    }
}

/// A started program.
struct Running<'a> {
    agent: Agent<'a>,
    pid: Value,
    directory: &'a str,
    out: Option<GuestFile>,
    err: Option<GuestFile>,
}

impl Running<'_> {
    /// Hands output over until the program has ended.
    fn follow(
        &mut self,
        deadline: Option<Instant>,
        cancel: &Cancel,
        sink: &mut dyn Sink,
    ) -> Result<Report> {
        let mut pause = POLL.0;
        loop {
            // Asked first: what is read after the end is all there is.
            let arguments = json!({ "pid": self.pid });
            let status = self.agent.call("guest-exec-status", &arguments)?;
            let moved = self.hand_over(sink)?;
            if status["exited"] == true {
                return Report::read(&status, self.out.is_some());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::transient(
                    Reason::TimedOut,
                    format!(
                        "the command in instance {} wasn't done in time",
                        self.agent.name()
                    ),
                ));
            }
            pause = if moved {
                POLL.0
            } else {
                (pause * 2).min(POLL.1)
            };
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            cancel.wait(left.map_or(pause, |left| left.min(pause)));
            cancel.check()?;
        }
    }

    fn hand_over(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let agent = self.agent;
        if self.out.is_none() {
            self.out = self.opened("out")?;
        }
        if self.err.is_none() {
            self.err = self.opened("err")?;
        }
        let mut count = 0;
        if let Some(file) = &self.out {
            count += file.read_on(agent, &mut |bytes| sink.stdout(bytes))?;
        }
        if let Some(file) = &self.err {
            count += file.read_on(agent, &mut |bytes| sink.stderr(bytes))?;
        }
        Ok(count > 0)
    }

    /// `None` while the shell hasn't made it yet.
    fn opened(&self, name: &str) -> Result<Option<GuestFile>> {
        match GuestFile::open(self.agent, &format!("{}/{name}", self.directory)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.reason() == Reason::AgentRefused => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends the program, over a connection of its own: an interrupted run has lost the other one.
    fn end(&self, host: &HostSession) -> Result<bool> {
        let hypervisor = host.connect_for_cleanup()?;
        let agent = Agent::new(&*hypervisor, self.agent.domain);
        ending::end(agent, self.directory, &self.pid, &host.cancels().cleanup)
    }

    fn close_files(&mut self) -> Result<()> {
        let files = [self.out.take(), self.err.take()];
        let mut files = files.into_iter().flatten();
        files.try_for_each(|file| file.close(self.agent))
    }

    /// Takes the files away again. The program is done, so a failure here is told only to those who look.
    fn clear(&mut self, cancel: &Cancel) {
        if let Err(error) = self.try_clear(cancel) {
            log::warn!("{} stays in the guest: {error}", self.directory);
        }
    }

    fn try_clear(&mut self, cancel: &Cancel) -> Result<()> {
        self.close_files()?;
        let arguments = json!({ "path": "rm", "arg": ["-rf", "--", self.directory] });
        let started = self.agent.call("guest-exec", &arguments)?;
        // The agent remembers a program until somebody has asked for its end.
        let arguments = json!({ "pid": started["pid"] });
        for _ in 0..REAP_TRIES {
            if self.agent.call("guest-exec-status", &arguments)?["exited"] == true {
                break;
            }
            cancel.wait(POLL.0);
        }
        Ok(())
    }
}

/// The last word of `guest-exec-status`.
struct Report {
    ended: Ended,
    /// What the shell said before the program's start; empty where it was started.
    complaint: String,
}

impl Report {
    fn read(status: &Value, has_files: bool) -> Result<Self> {
        let number = |key: &str| status[key].as_u64().and_then(|n| u8::try_from(n).ok());
        let ended = match number("signal") {
            Some(signal) => Ended::Killed(signal),
            None => Ended::Exited(number("exitcode").unwrap_or(u8::MAX)),
        };
        let complaint = decode(&status["err-data"])?;
        let mut complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
        if complaint.is_empty() && !has_files {
            "its output can't be read".clone_into(&mut complaint);
        }
        Ok(Report { ended, complaint })
    }

    fn into_result(self, name: &str) -> Result<Ended> {
        if self.complaint.is_empty() {
            return Ok(self.ended);
        }
        Err(Error::permanent(
            Reason::AgentRefused,
            format!("the command can't be started in instance {name}"),
        )
        .because(self.complaint)
        .hint("its output goes through files in /var/tmp of the guest"))
    }
}

/// Says what goes on in the guest without us.
fn left_running(error: Error, host: &HostSession, running: &Running<'_>) -> Error {
    let (host, name) = (host.name(), running.agent.name());
    let (pid, directory) = (&running.pid, running.directory);
    error.hint(format!(
        "it may go on in the guest, as process {pid}, with its output in {directory}; to end it: \
         egressctl exec hosts/{host}/domains/{name} -- kill {pid}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: &Value) -> Result<Ended> {
        Report::read(status, true).and_then(|report| report.into_result("web1"))
    }

    #[test]
    fn a_program_ends_by_itself_or_by_a_signal() {
        let table = [
            (json!({"exited": true, "exitcode": 0}), 0),
            (json!({"exited": true, "exitcode": 5}), 5),
            (json!({"exited": true, "signal": 9}), 137),
            (json!({"exited": true, "signal": 15}), 143),
            // A number that no exit status is.
            (json!({"exited": true, "exitcode": 3_221_225_477_u64}), 255),
        ];
        for (status, code) in table {
            assert_eq!(read(&status).unwrap().status(), code, "{status}");
        }
    }

    #[test]
    fn what_the_shell_says_is_no_result_of_the_program() {
        let said = BASE64.encode("mkdir: No space left on device\n");
        let error = read(&json!({"exited": true, "exitcode": 125, "err-data": said})).unwrap_err();
        assert_eq!(error.reason(), Reason::AgentRefused);
        assert!(error.to_string().contains("No space left"), "{error}");
        let unread = Report::read(&json!({"exited": true, "exitcode": 0}), false).unwrap();
        assert!(unread.into_result("web1").is_err());
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
