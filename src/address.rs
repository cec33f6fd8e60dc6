//! Asking a host where an instance is reached: guest agent first, where one may answer, then DHCP lease, then ARP. And
//! beside that what it is defined as, since both are asked together.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::instance::{Addresses, Instance, routable};
use crate::libvirt::{AddressSource, Hypervisor, InterfaceInfo};
use crate::parallel::{self, lock};
use crate::xml::domain_info::{AgentChannel, DomainInfo};

/// In the order of trust: the guest knows best, ARP may be stale. An agent mostly answers, and then nobody else is asked;
/// the other two are asked together.
const SOURCES: [&[AddressSource]; 2] = [
    &[AddressSource::Agent],
    &[AddressSource::Lease, AddressSource::Arp],
];

/// What one source said, for a message about an address that never came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The source.
    pub source: AddressSource,
    /// Its answer in a few words.
    pub answer: String,
}

/// Asks for the addresses of one host's instances; may be shared by threads.
///
/// An agent that hangs costs the connection it was asked over, and so its limit: whoever else asked over that asks
/// again over a new one, except agents that had been silent for nearly as long. A host that gives no new one is left
/// alone from then on.
pub struct Asker<'a> {
    host: &'a HostSession,
    gave_up: Mutex<bool>,
}

impl<'a> Asker<'a> {
    /// For the instances of this host.
    pub fn new(host: &'a HostSession) -> Self {
        Asker {
            host,
            gave_up: Mutex::new(false),
        }
    }

    /// The instance's addresses from the first source that knows any, and what each source said.
    ///
    /// A source that fails means "no address yet": an agent that isn't there, or hangs, is normal. Where the instance's
    /// XML, just read, shows that none can answer, none is asked: that would take a round trip for an error.
    pub fn find(&self, instance: &Instance) -> (Addresses, Vec<Asked>) {
        let macs = instance.macs();
        let mut asked = Vec::new();
        if !instance.may_have_addresses() {
            return (Addresses::default(), asked);
        }
        for sources in SOURCES {
            let answers = parallel::map(sources.to_vec(), sources.len(), |source| {
                (source, self.ask(instance, source))
            });
            for (source, answer) in answers {
                let answer = match answer {
                    Ok(interfaces) => {
                        let all = routable(&macs, &interfaces);
                        if !all.is_empty() {
                            let source = Some(source);
                            return (Addresses { all, source }, asked);
                        }
                        "no address".to_owned()
                    }
                    Err(error) => error.nearest().to_owned(),
                };
                asked.push(Asked { source, answer });
            }
        }
        (Addresses::default(), asked)
    }

    /// What the instance is defined as for its next start, where that counts; nothing where it vanished meanwhile.
    pub fn definition(&self, instance: &Instance) -> Result<Option<DomainInfo>> {
        if !instance.counts_as_defined() {
            return Ok(None);
        }
        let question = |hypervisor: &dyn Hypervisor| hypervisor.find_definition(&instance.domain);
        let xml = self.patiently(Duration::MAX, question)?;
        xml.map(|xml| DomainInfo::parse(&xml)).transpose()
    }

    fn ask(&self, instance: &Instance, source: AddressSource) -> Result<Vec<InterfaceInfo>> {
        if source == AddressSource::Agent {
            let why = match instance.info.agent {
                AgentChannel::None => Some("it has no channel for a guest agent"),
                AgentChannel::Closed => Some("no guest agent is connected"),
                AgentChannel::Open => None,
            };
            if let Some(why) = why {
                return Err(Error::transient(Reason::AgentUnavailable, why));
            }
        }
        let patience = match source {
            // Several that hang were asked at about the same time: the second has had its limit when the first's is over.
            AddressSource::Agent => self.host.limits().calls.agent / 2,
            AddressSource::Lease | AddressSource::Arp => Duration::MAX,
        };
        let question =
            |hypervisor: &dyn Hypervisor| hypervisor.interface_addresses(&instance.domain, source);
        self.patiently(patience, question)
    }

    /// Asks once more where an instance's agent hung, and its limit closed the connection under all who asked over it:
    /// not where there had been no answer for as long as `patience`.
    fn patiently<T>(
        &self,
        patience: Duration,
        question: impl Fn(&dyn Hypervisor) -> Result<T>,
    ) -> Result<T> {
        let ask = || question(&*self.connect()?);
        let since = Instant::now();
        match ask() {
            Err(error)
                if error.reason() == Reason::ConnectionLost && since.elapsed() < patience =>
            {
                ask()
            }
            answer => answer,
        }
    }

    fn connect(&self) -> Result<Arc<dyn Hypervisor>> {
        let mut gave_up = lock(&self.gave_up);
        if *gave_up {
            return Err(Error::transient(
                Reason::LibvirtUnavailable,
                "the host doesn't answer any more",
            ));
        }
        self.host.connect().inspect_err(|_| *gave_up = true)
    }
}
