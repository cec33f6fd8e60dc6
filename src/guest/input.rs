//! What a program reads on its stdin, when it is too long to go with the request: through a file in the guest.
//!
//! QEMU's agent takes `input-data` in one message. Without KVM, Debian 13's agent took 130 kB of it in 5 s, and with 200 kB it
//! was deaf for longer than a command may take; blocks of a file it takes one after the other.

use std::time::Duration;

use super::{Agent, GuestFile};
use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;

/// The most that goes with the request, and with one write to a file, in bytes.
pub(super) const BLOCK: usize = 48 << 10;

/// How often the end of making or removing a directory is looked for.
const POLL: Duration = Duration::from_millis(50);

/// Makes the directory, which is nobody else's, and the file `in` in it.
pub(super) fn put(
    agent: Agent<'_>,
    directory: &str,
    bytes: &[u8],
    host: &HostSession,
) -> Result<()> {
    let cancel = &host.cancels().work;
    // The agent makes files that everybody may read: the directory must be in the way.
    quick(agent, "mkdir", &["-m", "700", "--", directory], cancel)?;
    let path = format!("{directory}/in");
    let file = GuestFile::create(agent, &path)?;
    let written = write(agent, &file, bytes, cancel);
    file.close_after(agent, host, written)
}

/// Takes the directory away after this failure, and says where it can't.
pub(super) fn take_back(
    agent: Agent<'_>,
    directory: &str,
    host: &HostSession,
    error: Error,
) -> Error {
    // An interrupted run has lost its connection.
    let cleared = host.connect_for_cleanup().and_then(|hypervisor| {
        let agent = Agent::new(&*hypervisor, agent.domain);
        let words = ["-rf", "--", directory];
        quick(agent, "rm", &words, &host.cancels().cleanup)
    });
    match cleared {
        Ok(()) => error,
        Err(_) => error.hint(format!(
            "its stdin may be left in the guest, in {directory}"
        )),
    }
}

fn write(agent: Agent<'_>, file: &GuestFile, bytes: &[u8], cancel: &Cancel) -> Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        cancel.check()?;
        let block = &left[..left.len().min(BLOCK)];
        let count = file.write(agent, block)?;
        if count == 0 || count > block.len() {
            return Err(failed(agent, "the guest agent wrote nothing"));
        }
        left = &left[count..];
    }
    // What stays in the agent's buffer would be missing without an error.
    file.flush(agent)
}

/// Runs a command that takes no time, to its end.
fn quick(agent: Agent<'_>, path: &str, words: &[&str], cancel: &Cancel) -> Result<()> {
    if agent.run_short(path, words, POLL, cancel)? == Some(true) {
        return Ok(());
    }
    Err(failed(agent, &format!("{path} failed in the guest")))
}

fn failed(agent: Agent<'_>, why: &str) -> Error {
    let what = format!("stdin can't be brought into instance {}", agent.name());
    Error::permanent(Reason::AgentRefused, what)
        .because(why)
        .hint("it goes through a file in /var/tmp of the guest")
}
