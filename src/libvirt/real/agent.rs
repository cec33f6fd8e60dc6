//! The call to a guest's agent.

use std::time::Duration;

use super::super::error::ARGUMENT_UNSUPPORTED;
use super::super::{AgentCalls, DomainRef};
use super::{About, Connection};
use crate::error::{Class, Reason, Result};

/// How much longer than its own limit a question to a guest agent may take on the way there and back.
const AGENT_GRACE: Duration = Duration::from_secs(3);

impl AgentCalls for Connection {
    fn agent_command(&self, domain: &DomainRef, json: &str, limit: Duration) -> Result<String> {
        let handle = self.handle(domain)?;
        let seconds = i32::try_from(limit.as_secs()).unwrap_or(i32::MAX);
        let about = About("domain", &domain.name);
        // libvirt's own limit doesn't count while another question to the same agent has no answer.
        self.attempt(
            "virDomainQemuAgentCommand",
            &about,
            limit + AGENT_GRACE,
            || handle.qemu_agent_command(json, seconds, 0),
        )
        .map_err(|failure| {
            let error = self.error(&failure);
            let Some(answer) = failure.answer() else {
                return error.with_reason(Reason::AgentUnavailable);
            };
            // The domain has no channel for an agent: none will ever come.
            if answer.code == ARGUMENT_UNSUPPORTED {
                return error
                    .with_class(Class::Permanent)
                    .with_reason(Reason::AgentUnavailable);
            }
            if answer.is_agents_own(json) {
                return error
                    .with_class(Class::Permanent)
                    .with_reason(Reason::AgentRefused);
            }
            error
        })
    }
}
