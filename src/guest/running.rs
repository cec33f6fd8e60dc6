//! A program that was started in a guest: following its output, and what becomes of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::ending::{self, Ending};
use super::file::decode;
use super::program::{Ended, Sink};
use super::{Agent, GuestFile};
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;

/// How often a running program is looked at: at first, and at most.
const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// How many blocks of a stream are handed over before the program is looked at again: one that writes faster than that
/// would never be.
const TURN: usize = 16;

/// How often the end of the clean-up is looked for.
const REAP_TRIES: u32 = 10;

/// Why a program isn't followed to its end.
pub(super) enum Stop {
    /// Nobody reads its output any more.
    Unread,
    /// Something failed.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// A started program.
pub(super) struct Running<'a> {
    agent: Agent<'a>,
    pid: i64,
    directory: &'a str,
    host: &'a HostSession,
    out: Option<GuestFile>,
    err: Option<GuestFile>,
    /// The last word of `guest-exec-status`, which the agent has only once.
    ended: Option<Value>,
}

impl<'a> Running<'a> {
    /// The process of that number, whose output goes into files in that directory.
    pub(super) fn new(
        agent: Agent<'a>,
        pid: i64,
        directory: &'a str,
        host: &'a HostSession,
    ) -> Self {
        Running {
            agent,
            pid,
            directory,
            host,
            out: None,
            err: None,
            ended: None,
        }
    }

    /// Hands output over until the program has ended.
    pub(super) fn follow(
        &mut self,
        deadline: Option<Instant>,
        sink: &mut dyn Sink,
    ) -> std::result::Result<Report, Stop> {
        let cancel = &self.host.cancels().work;
        let mut pause = POLL.0;
        loop {
            // Asked first: what is read after the end is all there is.
            self.look()?;
            let blocks = self.hand_over(sink)?;
            match &self.ended {
                Some(status) if blocks < TURN => {
                    return Ok(Report::read(status, self.out.is_some())?);
                }
                None if sink.is_left() => return Err(Stop::Unread),
                _ => {}
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let name = self.agent.name();
                let message = format!("the command in instance {name} wasn't done in time");
                return Err(Error::transient(Reason::TimedOut, message).into());
            }
            pause = match blocks {
                TURN.. => Duration::ZERO,
                0 => (pause * 2).clamp(POLL.0, POLL.1),
                _ => POLL.0,
            };
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            cancel.wait(left.map_or(pause, |left| left.min(pause)));
            cancel.check()?;
        }
    }

    /// Asks how the program ended, unless that is known.
    fn look(&mut self) -> Result<()> {
        if self.ended.is_none() {
            let arguments = json!({ "pid": self.pid });
            let status = self.agent.call("guest-exec-status", &arguments)?;
            self.ended = (status["exited"] == true).then_some(status);
        }
        Ok(())
    }

    /// Hands over what is there, at most [`TURN`] blocks of a stream; gives how many there were of the longer one.
    fn hand_over(&mut self, sink: &mut dyn Sink) -> std::result::Result<usize, Stop> {
        if self.out.is_none() {
            self.out = self.opened("out")?;
        }
        if self.err.is_none() {
            self.err = self.opened("err")?;
        }
        let out = self.pass_on(self.out.as_ref(), &mut |bytes| sink.stdout(bytes))?;
        let err = self.pass_on(self.err.as_ref(), &mut |bytes| sink.stderr(bytes))?;
        Ok(out.max(err))
    }

    fn pass_on(
        &self,
        file: Option<&GuestFile>,
        take: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> std::result::Result<usize, Stop> {
        let Some(file) = file else { return Ok(0) };
        for count in 0..TURN {
            let bytes = file.read(self.agent)?;
            if bytes.is_empty() {
                return Ok(count);
            }
            if !take(&bytes)? {
                return Err(Stop::Unread);
            }
        }
        Ok(TURN)
    }

    /// `None` while the shell hasn't made it yet.
    fn opened(&self, name: &str) -> Result<Option<GuestFile>> {
        match GuestFile::open(self.agent, &format!("{}/{name}", self.directory)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.reason() == Reason::AgentRefused => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What becomes of the program when its output has nowhere to go, because of that error or as nobody reads it: one
    /// that has ended counts as it ended; another is ended.
    pub(super) fn give_up(&mut self, error: Option<Error>) -> Result<Ended> {
        // What fails here fails again below, and is told there.
        let _ = self.look();
        if let Some(status) = &self.ended {
            let report = Report::read(status, self.out.is_some());
            self.clear();
            return error.map_or_else(|| report?.into_result(self.agent.name()), Err);
        }
        match (self.end(), error) {
            (Ok(Ending::Gone), None) => Ok(Ended::UNREAD),
            (ended, error) => {
                let unread = || {
                    let message = "nobody reads the command's output any more";
                    Error::permanent(Reason::OutputFailed, message)
                };
                Err(self.told(error.unwrap_or_else(unread), ended))
            }
        }
    }

    /// Ends the program, over a connection of its own: an interrupted run has lost the other one.
    pub(super) fn end(&mut self) -> Result<Ending> {
        let hypervisor = self.host.connect_for_cleanup()?;
        let agent = Agent::new(&*hypervisor, self.agent.domain);
        let cancel = &self.host.cancels().cleanup;
        let ending = ending::end(agent, self.directory, self.pid, cancel)?;
        // Fails where the error is the agent's own; it forgets them when it ends.
        let _ = self.close_files(agent);
        Ok(ending)
    }

    /// The error, with what came of ending the program.
    pub(super) fn told(&self, error: Error, ended: Result<Ending>) -> Error {
        match ended {
            Ok(Ending::Gone) => {
                error.because("it was ended in the guest, with all that it started")
            }
            Ok(Ending::GoesOn) => {
                self.left(error.because("it was killed in the guest, but something of it goes on"))
            }
            Ok(Ending::Unknown) => {
                let what = "it is being ended in the guest, which hasn't said yet that it is done";
                self.left(error.because(what))
            }
            Err(why) => {
                let why = why.message();
                self.left(error.because(format!("it could not be ended in the guest: {why}")))
            }
        }
    }

    /// The error, with what is in the guest without us.
    pub(super) fn left(&self, error: Error) -> Error {
        let (host, name) = (self.host.name(), self.agent.name());
        let (pid, directory) = (self.pid, self.directory);
        if self.ended.is_some() {
            return error.hint(format!(
                "it has ended in the guest; its output stays there, in {directory}"
            ));
        }
        // Its number may be another process's by the time somebody reads this.
        error.hint(format!(
            "it may go on in the guest, as process {pid}, with its output in {directory}; whether it does: \
             egressctl exec hosts/{host}/domains/{name} -- ps -o pid,lstart,args -p {pid}"
        ))
    }

    fn close_files(&mut self, agent: Agent<'_>) -> Result<()> {
        let files = [self.out.take(), self.err.take()];
        let mut files = files.into_iter().flatten();
        files.try_for_each(|file| file.close(agent))
    }

    /// Takes the files away again. The program is done, so a failure here is told only to those who look.
    pub(super) fn clear(&mut self) {
        if let Err(error) = self.try_clear() {
            log::warn!("{} stays in the guest: {error}", self.directory);
        }
    }

    fn try_clear(&mut self) -> Result<()> {
        self.close_files(self.agent)?;
        let arguments = json!({ "path": "rm", "arg": ["-rf", "--", self.directory] });
        let started = self.agent.call("guest-exec", &arguments)?;
        // The agent remembers a program until somebody has asked for its end.
        let arguments = json!({ "pid": started["pid"] });
        for _ in 0..REAP_TRIES {
            if self.agent.call("guest-exec-status", &arguments)?["exited"] == true {
                break;
            }
            self.host.cancels().work.wait(POLL.0);
        }
        Ok(())
    }
}

/// The last word of `guest-exec-status`.
pub(super) struct Report {
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

    pub(super) fn into_result(self, name: &str) -> Result<Ended> {
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

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

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
}
