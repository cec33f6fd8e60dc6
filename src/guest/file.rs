//! A file in a guest, read by its agent, also while it grows.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::Agent;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::libvirt::AgentCalls;

/// Bytes asked for at once: in base64, well below the 4 MiB that libvirt lets a string have (`REMOTE_STRING_MAX`).
const BLOCK: usize = 256 << 10;

/// An open file. Close it: the agent keeps it open until the guest stops.
pub struct GuestFile {
    handle: Value,
}

impl GuestFile {
    /// Opens a file for reading (`guest-file-open`).
    ///
    /// Errors: [`Reason::AgentRefused`] where there is no such file, or it may not be read.
    pub fn open(agent: Agent<'_>, path: &str) -> Result<Self> {
        Self::open_as(agent, path, "r")
    }

    /// Opens a file for writing, made or emptied.
    pub(super) fn create(agent: Agent<'_>, path: &str) -> Result<Self> {
        Self::open_as(agent, path, "w")
    }

    fn open_as(agent: Agent<'_>, path: &str, mode: &str) -> Result<Self> {
        let arguments = json!({ "path": path, "mode": mode });
        let handle = agent.call("guest-file-open", &arguments)?;
        Ok(GuestFile { handle })
    }

    /// Writes as many of the bytes as the agent takes (`guest-file-write`).
    pub(super) fn write(&self, agent: Agent<'_>, bytes: &[u8]) -> Result<usize> {
        let arguments = json!({ "handle": self.handle, "buf-b64": BASE64.encode(bytes) });
        let answer = agent.call("guest-file-write", &arguments)?;
        let count = answer["count"].as_u64().unwrap_or_default();
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Hands over what the agent holds back (`guest-file-flush`).
    pub(super) fn flush(&self, agent: Agent<'_>) -> Result<()> {
        let arguments = json!({ "handle": self.handle });
        agent.call("guest-file-flush", &arguments).map(drop)
    }

    /// The next bytes (`guest-file-read`); none at the end. A file that grew meanwhile goes on after that.
    pub fn read(&self, agent: Agent<'_>) -> Result<Vec<u8>> {
        let arguments = json!({ "handle": self.handle, "count": BLOCK });
        let answer = agent.call("guest-file-read", &arguments)?;
        decode(&answer["buf-b64"])
    }

    /// Hands the bytes up to the present end to `take`, until that says false: then nobody wants more, and this gives
    /// false, too.
    pub fn read_on(
        &self,
        agent: Agent<'_>,
        take: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<bool> {
        loop {
            let bytes = self.read(agent)?;
            if bytes.is_empty() {
                return Ok(true);
            }
            if !take(&bytes)? {
                return Ok(false);
            }
        }
    }

    /// Closes it (`guest-file-close`).
    pub fn close(self, agent: Agent<'_>) -> Result<()> {
        let arguments = json!({ "handle": self.handle });
        agent.call("guest-file-close", &arguments).map(drop)
    }

    /// Closes it after what was done with it, also where that failed; gives that failure, or the close's own.
    pub fn close_after<T>(
        self,
        agent: Agent<'_>,
        host: &HostSession,
        done: Result<T>,
    ) -> Result<T> {
        self.close_over(agent, done, || {
            Ok(host.connect_for_cleanup()? as Arc<dyn AgentCalls>)
        })
    }

    fn close_over<T>(
        self,
        agent: Agent<'_>,
        done: Result<T>,
        apart: impl FnOnce() -> Result<Arc<dyn AgentCalls>>,
    ) -> Result<T> {
        let error = match done {
            Ok(done) => return self.close(agent).map(|()| done),
            Err(error) => error,
        };
        let closed = match error.reason() {
            // A signal has closed the connection.
            Reason::Interrupted => {
                apart().and_then(|calls| self.close(Agent::new(&*calls, agent.domain)))
            }
            // It answers no more: whoever waits has waited enough.
            Reason::AgentUnavailable | Reason::ConnectionLost => Ok(()),
            _ => self.close(agent),
        };
        if let Err(closed) = closed {
            log::info!("a file stays open in the guest: {closed}");
        }
        Err(error)
    }
}

/// The bytes of an answer's base64 string; an absent one is empty.
pub(super) fn decode(text: &Value) -> Result<Vec<u8>> {
    BASE64
        .decode(text.as_str().unwrap_or_default())
        .map_err(|error| {
            Error::transient(
                Reason::AgentRefused,
                "the guest agent's answer is no base64",
            )
            .because(error)
        })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::fake::{Fake, domain};
    use super::*;
    use crate::error::Class;

    /// An agent that has one file without an end.
    fn endless() -> Fake {
        Fake::new(|command, _| {
            Ok(match command {
                "guest-file-open" => json!(7),
                "guest-file-read" => json!({ "count": 3, "buf-b64": BASE64.encode("abc") }),
                _ => json!({}),
            })
        })
    }

    #[test]
    fn a_file_without_an_end_is_read_as_long_as_somebody_wants_it() {
        let (fake, domain) = (endless(), domain());
        let agent = Agent::new(&fake, &domain);
        let file = GuestFile::open(agent, "/log").unwrap();
        let blocks = AtomicU32::new(0);
        let wanted = file.read_on(agent, &mut |_| {
            Ok(blocks.fetch_add(1, Ordering::Relaxed) < 2)
        });
        assert!(!wanted.unwrap());
        assert_eq!(blocks.into_inner(), 3);
    }

    #[test]
    fn a_file_is_closed_however_the_reading_ended() {
        let domain = domain();
        let closed_by = |done: Result<()>| {
            let (fake, apart) = (endless(), endless());
            let agent = Agent::new(&fake, &domain);
            let file = GuestFile::open(agent, "/log").unwrap();
            let result = file.close_over(agent, done.clone(), || Ok(Arc::new(apart.clone())));
            assert_eq!(result, done);
            let closes = |fake: &Fake| fake.asked().last().is_some_and(|c| c == "guest-file-close");
            (closes(&fake), closes(&apart))
        };
        let failed = |class, reason| Err(Error::new(class, reason, "x"));
        assert_eq!(closed_by(Ok(())), (true, false));
        let unread = failed(Class::Permanent, Reason::OutputFailed);
        assert_eq!(closed_by(unread), (true, false));
        let interrupted = failed(Class::Interrupted(2), Reason::Interrupted);
        assert_eq!(closed_by(interrupted), (false, true));
        let hung = failed(Class::Transient, Reason::AgentUnavailable);
        assert_eq!(closed_by(hung), (false, false));
    }
}
