//! Asking a host where an instance is reached: guest agent first, then DHCP lease, then ARP.

use crate::instance::{Addresses, Instance, routable};
use crate::libvirt::{AddressSource, Hypervisor};

/// In the order of trust: the guest knows best, ARP may be stale.
const SOURCES: [AddressSource; 3] = [
    AddressSource::Agent,
    AddressSource::Lease,
    AddressSource::Arp,
];

/// What one source said, for a message about an address that never came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The source.
    pub source: AddressSource,
    /// Its answer in a few words.
    pub answer: String,
}

/// The instance's addresses from the first source that knows any, and what each source said.
///
/// A source that fails means "no address yet": an agent that isn't there, or hangs, is normal.
pub fn find(hypervisor: &dyn Hypervisor, instance: &Instance) -> (Addresses, Vec<Asked>) {
    let macs = instance.macs();
    let mut asked = Vec::new();
    if !instance.may_have_addresses() {
        return (Addresses::default(), asked);
    }
    for source in SOURCES {
        let answer = match hypervisor.interface_addresses(&instance.domain, source) {
            Ok(interfaces) => {
                let all = routable(&macs, &interfaces);
                if !all.is_empty() {
                    return (
                        Addresses {
                            all,
                            source: Some(source),
                        },
                        asked,
                    );
                }
                "no address".to_owned()
            }
            Err(error) => error
                .causes()
                .first()
                .map_or(error.message(), String::as_str)
                .to_owned(),
        };
        asked.push(Asked { source, answer });
    }
    (Addresses::default(), asked)
}
