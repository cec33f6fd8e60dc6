//! What this run made on a host, so that a failure or an interruption can take it back.

use crate::error::{Class, Error, Result};
use crate::host::HostSession;
use crate::libvirt::{DomainRef, Hypervisor, NvramPolicy};

/// One thing made, and so one thing to take back. Taking it back twice does no harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// A volume of the host's pool.
    Volume(String),
    /// A domain was defined, and perhaps started.
    Domain(DomainRef),
}

/// The things made on one host, oldest first.
#[derive(Debug, Default)]
pub struct Undo {
    made: Vec<Made>,
}

impl Undo {
    /// Nothing made yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a thing right after it was made; or before, where a call without an answer may have made it.
    pub fn made(&mut self, thing: Made) {
        self.made.push(thing);
    }

    /// Notes that a thing is gone again.
    pub fn forget(&mut self, thing: &Made) {
        self.made.retain(|made| made != thing);
    }

    /// Takes everything back, newest first, over the clean-up connection; gives `cause` back with what is left
    /// behind, if anything is.
    pub fn roll_back(self, host: &HostSession, cause: Error) -> Error {
        if self.made.is_empty() {
            return cause;
        }
        let left = match host.connect_for_cleanup() {
            Ok(hypervisor) => self.take_back(&*hypervisor, host.pool()),
            Err(error) => {
                log::debug!("clean-up: {error}");
                self.made
            }
        };
        if left.is_empty() {
            return cause;
        }
        let names: Vec<String> = left
            .iter()
            .map(|made| match made {
                Made::Volume(name) => format!("volume {name} in pool {}", host.pool()),
                Made::Domain(domain) => format!("domain {}", domain.name),
            })
            .collect();
        cause
            .hint(format!("left behind on {}: {}", host.name(), names.join(", ")))
            .hint("run the same command again when the host is back: it finds and uses or replaces what is left")
    }

    fn take_back(self, hypervisor: &dyn Hypervisor, pool: &str) -> Vec<Made> {
        let mut left = Vec::new();
        for made in self.made.into_iter().rev() {
            if let Err(error) = take_back_one(hypervisor, pool, &made) {
                log::debug!("clean-up: {error}");
                left.push(made);
            }
        }
        left
    }
}

fn take_back_one(hypervisor: &dyn Hypervisor, pool: &str, made: &Made) -> Result<()> {
    match made {
        Made::Volume(name) => hypervisor.delete_volume(pool, name).map(drop),
        Made::Domain(domain) => {
            let taken = hypervisor
                .destroy_domain(domain)
                .and_then(|()| hypervisor.undefine_domain(domain, NvramPolicy::Remove));
            match taken {
                // Never defined, or gone already.
                Err(error) if error.class() == Class::NotFound => Ok(()),
                taken => taken,
            }
        }
    }
}
