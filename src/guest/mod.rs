//! What is done inside a guest, by qemu-guest-agent: single commands, files, programs.

mod ending;
#[cfg(test)]
mod fake;
mod file;
mod input;
mod program;
mod running;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::libvirt::{AgentCalls, DomainRef};

pub use file::GuestFile;
pub use program::{Ended, Program, STDIN_LIMIT, Sink, run};

/// How long the agent may take for one command; without KVM, the start of a process takes seconds.
const LIMIT: Duration = Duration::from_secs(15);

/// How long a program of our own may take there; a guest without KVM is slow.
const SHORT: Duration = Duration::from_secs(20);

/// The agent of one guest.
#[derive(Clone, Copy)]
pub struct Agent<'a> {
    hypervisor: &'a dyn AgentCalls,
    domain: &'a DomainRef,
    limit: Duration,
}

impl<'a> Agent<'a> {
    /// The agent of that domain's guest; nothing is asked yet.
    pub fn new(hypervisor: &'a dyn AgentCalls, domain: &'a DomainRef) -> Self {
        Agent {
            hypervisor,
            domain,
            limit: LIMIT,
        }
    }

    /// The same agent with another limit for each command, in whole seconds.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Agent { limit, ..self }
    }

    /// The domain's name.
    pub fn name(&self) -> &'a str {
        &self.domain.name
    }

    /// Runs a short program to its end, which is looked for every `poll`: whether it ended well; none where that isn't known
    /// after [`SHORT`].
    ///
    /// Errors: the agent's; [`Reason::Interrupted`].
    fn run_short(
        &self,
        path: &str,
        words: &[&str],
        poll: Duration,
        cancel: &Cancel,
    ) -> Result<Option<bool>> {
        let started = self.call("guest-exec", &json!({ "path": path, "arg": words }))?;
        let arguments = json!({ "pid": started["pid"] });
        let since = Instant::now();
        while since.elapsed() < SHORT {
            let status = self.call("guest-exec-status", &arguments)?;
            if status["exited"] == true {
                return Ok(Some(status["exitcode"] == 0));
            }
            cancel.wait(poll);
            cancel.check()?;
        }
        Ok(None)
    }

    /// One command of the agent (QEMU's qemu-ga-ref); gives what it returned.
    ///
    /// Errors: [`Reason::AgentUnavailable`] where no agent answers, [`Reason::AgentRefused`] where it says no.
    pub fn call(&self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments }).to_string();
        let answer = self
            .hypervisor
            .agent_command(self.domain, &request, self.limit)
            .map_err(|error| self.explain(error, command))?;
        let answer: Value = serde_json::from_str(&answer).map_err(|error| {
            Error::transient(Reason::AgentRefused, "the guest agent's answer is no JSON")
                .because(error)
        })?;
        Ok(answer["return"].clone())
    }

    /// Whether it answers at all.
    pub fn ping(&self) -> Result<()> {
        self.call("guest-ping", &json!({})).map(drop)
    }

    /// The same error, for the person who wanted something of the guest.
    fn explain(&self, error: Error, command: &str) -> Error {
        let name = self.name();
        match error.reason() {
            Reason::AgentUnavailable => {
                // One name may stand on several hosts.
                let id = error.host().map_or_else(
                    || name.to_owned(),
                    |host| format!("hosts/{host}/domains/{name}"),
                );
                let explained = Error::new(
                    error.class(),
                    Reason::AgentUnavailable,
                    format!("the guest agent of instance {name} doesn't answer"),
                )
                .because(error.nearest())
                .hint(
                    "it is installed late in an instance's first boot, unless the configuration says \
                     installGuestAgent: false; create --wait=agent waits for it",
                )
                .hint(format!("egressctl console {id}"))
                .hint("there the guest shows what it is doing; whether it is the host that hangs: egressctl check");
                match error.host() {
                    Some(host) => explained.on_host(host),
                    None => explained,
                }
            }
            Reason::AgentRefused => {
                // Of files and programs it says what the guest's system says: they may be missing.
                let missing = error.to_string().contains("No such file");
                let refused = error.while_doing(format!(
                    "the guest agent of instance {name} refused {command}"
                ));
                if missing {
                    return refused;
                }
                refused.hint(
                    "distributions switch some of its commands off, in /etc/sysconfig/qemu-ga or \
                     /etc/qemu/qemu-ga.conf in the guest",
                )
            }
            _ => error,
        }
    }
}
