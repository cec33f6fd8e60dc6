//! A file in a guest, read by its agent, also while it grows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::Agent;
use crate::error::{Error, Reason, Result};

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
        let arguments = json!({ "path": path, "mode": "r" });
        let handle = agent.call("guest-file-open", &arguments)?;
        Ok(GuestFile { handle })
    }

    /// The next bytes (`guest-file-read`); none at the end. A file that grew meanwhile goes on after that.
    pub fn read(&self, agent: Agent<'_>) -> Result<Vec<u8>> {
        let arguments = json!({ "handle": self.handle, "count": BLOCK });
        let answer = agent.call("guest-file-read", &arguments)?;
        decode(&answer["buf-b64"])
    }

    /// Hands the bytes up to the present end to `take`.
    pub fn read_on(
        &self,
        agent: Agent<'_>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let mut count = 0;
        loop {
            let bytes = self.read(agent)?;
            if bytes.is_empty() {
                return Ok(count);
            }
            count += bytes.len() as u64;
            take(&bytes)?;
        }
    }

    /// Closes it (`guest-file-close`).
    pub fn close(self, agent: Agent<'_>) -> Result<()> {
        let arguments = json!({ "handle": self.handle });
        agent.call("guest-file-close", &arguments).map(drop)
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
