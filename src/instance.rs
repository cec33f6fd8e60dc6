//! One domain as egressctl shows it: whose it is, how it is, and where it is reached. Pure.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::error::{Error, Reason, Result};
use crate::libvirt::{self, AddressSource, DomainRef, DomainState, PAUSED_STARTING_UP};
use crate::seed;
use crate::xml::domain_info::DomainInfo;
use crate::xml::metadata::{Manager, Mark, Metadata, VolumeRole};

/// An instance's state, in the operator's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It runs, and an address is known.
    Running,
    /// It runs, without a known address so far.
    Provisioning,
    /// Everything else; libvirt's state says why.
    Stopped,
}

impl Status {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Running => "Running",
            Status::Provisioning => "Provisioning",
            Status::Stopped => "Stopped",
        }
    }
}

/// The addresses of an instance's own NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// All routable ones, the one to use first.
    pub all: Vec<IpAddr>,
    /// Where they come from.
    pub source: Option<AddressSource>,
}

impl Addresses {
    /// The one to use.
    pub fn primary(&self) -> Option<IpAddr> {
        self.all.first().copied()
    }
}

/// One of our (or the operator's) instances on one host.
#[derive(Debug, Clone)]
pub struct Instance {
    /// The host's name in the configuration.
    pub host: String,
    /// Its domain.
    pub domain: DomainRef,
    /// The domain's state.
    pub state: DomainState,
    /// The domain's XML, read.
    pub info: DomainInfo,
    /// What it is defined as for its next start, where it runs and that was asked for.
    pub defined: Option<Box<DomainInfo>>,
    /// Its addresses, once somebody asked.
    pub addresses: Addresses,
}

impl Instance {
    /// From a listed domain. Errors: XML that can't be read (Transient).
    pub fn from_domain(host: &str, listed: libvirt::ListedDomain) -> Result<Self> {
        let info = DomainInfo::parse(&listed.xml)?;
        Ok(Instance {
            host: host.to_owned(),
            domain: listed.domain,
            state: listed.state,
            info,
            defined: None,
            addresses: Addresses::default(),
        })
    }

    /// Takes note of its definition: what somebody changed by `virsh edit` counts, though it runs with what was there
    /// before.
    pub fn define(&mut self, defined: DomainInfo) {
        let running = std::mem::replace(&mut self.info.mark, Mark::None);
        self.info.mark = running.with_definition(defined.mark.clone());
        self.defined = Some(Box::new(defined));
    }

    /// Whether what it is defined as counts beside what it runs as: one of ours that runs. Of others, nothing that is
    /// shown or judged is in there.
    pub fn counts_as_defined(&self) -> bool {
        self.state.is_active() && self.metadata().is_some()
    }

    /// `hosts/<host>/domains/<name>`, for any domain, whatever its name.
    pub fn id(&self) -> String {
        format!("hosts/{}/domains/{}", self.host, self.domain.name)
    }

    /// Whose it is; nothing where it is nobody's that egressctl knows, or where that is in doubt.
    pub fn manager(&self) -> Option<Manager> {
        self.info.mark.manager()
    }

    /// Our own record, where it is ours.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.info.mark.metadata()
    }

    /// When it was made, as its mark says: ours, or the operator's.
    pub fn created_at(&self) -> Option<Timestamp> {
        match &self.info.mark {
            Mark::Operator(record) => record.created_at.as_deref()?.parse().ok(),
            mark => mark.metadata().map(|metadata| metadata.created_at),
        }
    }

    /// cloud-init's instance-id in its seed; `None` where the domain isn't ours, or not as it was made: a copy has its
    /// original's seed.
    pub fn instance_id(&self) -> Option<String> {
        let is_own = self.metadata().is_some() && self.ensure_own_mark().is_ok();
        is_own.then(|| seed::instance_id(&self.domain.name, &self.domain.uuid))
    }

    /// Whether its overlay, as our metadata records it, is in the pool of that name.
    pub fn is_recorded_in(&self, pool: &str) -> bool {
        let mut volumes = self.metadata().into_iter().flat_map(|m| &m.volumes);
        volumes.any(|volume| volume.role == VolumeRole::Overlay && volume.pool == pool)
    }

    /// Whether its mark is ours but can't be read.
    pub fn is_in_doubt(&self) -> bool {
        matches!(self.info.mark, Mark::Unreadable { .. })
    }

    /// The error for whoever would have to know what its mark says, where that can't be read.
    pub fn in_doubt(&self) -> Error {
        let name = &self.domain.name;
        let what =
            format!("domain {name} has a mark of egressctl that can't be read: it was left alone");
        Error::permanent(Reason::InDoubt, what).on_host(&self.host)
    }

    /// Makes sure that our mark is about this very domain: a clone made with virt-clone has the original's, and so has a
    /// domain that was renamed. Neither it nor the files that happen to be called like its volumes are known to be ours.
    ///
    /// Errors: [`Reason::InDoubt`] where its overlay, as recorded, is another instance's.
    pub fn ensure_own_mark(&self) -> Result<()> {
        let name = &self.domain.name;
        let overlays = self.metadata().into_iter().flat_map(|m| &m.volumes);
        let original = overlays
            .filter(|volume| volume.role == VolumeRole::Overlay)
            .filter_map(|volume| volume.name.strip_suffix(".qcow2"))
            .find(|original| original != name);
        let Some(original) = original else {
            return Ok(());
        };
        // Undefining with --nvram deletes whatever file the domain names: its original's, for a copy made by hand.
        let own = format!("/{name}_VARS.fd");
        let defined = self.defined.as_deref().unwrap_or(&self.info);
        let nvram = match &defined.nvram {
            Some(file) if !file.ends_with(&own) => "--keep-nvram",
            _ => "--nvram",
        };
        Err(Error::permanent(
            Reason::InDoubt,
            format!("domain {name} has the mark of instance {original}, so it is a copy of it or was renamed: it was left alone"),
        )
        .on_host(&self.host)
.hint(format!("a renamed one, on the host: virsh domrename {} {}", crate::shell::quote(name), crate::shell::quote(original)))
        .hint(format!("a copy, on the host: virsh undefine {nvram} {} removes it, its disks stay", crate::shell::quote(name))))
    }

    /// Its status by its state and addresses.
    pub fn status(&self) -> Status {
        status_of(self.state, self.addresses.primary().is_some())
    }

    /// Whether it makes sense to ask for its addresses.
    pub fn may_have_addresses(&self) -> bool {
        matches!(self.state, DomainState::Running | DomainState::Blocked)
    }

    /// The MAC addresses of its NICs, lower case.
    pub fn macs(&self) -> Vec<&str> {
        self.info
            .interfaces
            .iter()
            .map(|interface| interface.mac.as_str())
            .collect()
    }
}

/// Running or blocked with an address is Running, without one (or with no state, or while libvirt is starting it)
/// Provisioning, and everything else Stopped.
fn status_of(state: DomainState, has_address: bool) -> Status {
    match state {
        DomainState::Running | DomainState::Blocked if has_address => Status::Running,
        DomainState::Running
        | DomainState::Blocked
        | DomainState::NoState
        | DomainState::Paused(PAUSED_STARTING_UP) => Status::Provisioning,
        _ => Status::Stopped,
    }
}

/// The usable addresses that one source knows for NICs with these MAC addresses, IPv4 first.
///
/// Bridges and tunnels inside the guest have MAC addresses of their own, so they drop out by themselves.
pub fn routable(macs: &[&str], interfaces: &[libvirt::InterfaceInfo]) -> Vec<IpAddr> {
    let own = interfaces.iter().filter(|interface| {
        interface
            .mac
            .as_deref()
            .is_some_and(|mac| macs.iter().any(|m| m.eq_ignore_ascii_case(mac)))
    });
    let mut found: Vec<IpAddr> = own
        .flat_map(|interface| &interface.addresses)
        .filter_map(|text| text.split(['%', '/']).next()?.parse().ok())
        .filter(is_routable)
        .collect();
    // Stable: within a family the source's order stays.
    found.sort_by_key(IpAddr::is_ipv6);
    found.dedup();
    found
}

fn is_routable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !(v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_multicast()
                || v4.is_broadcast())
        }
        IpAddr::V6(v6) => {
            !(v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_with_an_address_is_running() {
        use DomainState::*;
        let status = |state| [status_of(state, false), status_of(state, true)];
        for state in [Running, Blocked] {
            assert_eq!(status(state), [Status::Provisioning, Status::Running]);
        }
        for state in [NoState, Paused(PAUSED_STARTING_UP)] {
            assert_eq!(status(state), [Status::Provisioning; 2], "{state}");
        }
        for state in [
            Paused(5),
            Shutdown,
            Shutoff(1),
            Crashed,
            PmSuspended,
            Other(9),
        ] {
            assert_eq!(status(state), [Status::Stopped; 2], "{state}");
        }
    }

    #[test]
    fn the_operators_instances_are_as_old_as_their_marks_say() {
        let created = |at: &str| {
            let mark = format!(
                "<kvm:instance xmlns:kvm='{}'><kvm:createdAt>{at}</kvm:createdAt></kvm:instance>",
                Manager::Kvm.namespace()
            );
            let instance = crate::inventory::tests::domain("web1", &mark, "").instance;
            assert_eq!(instance.manager(), Some(Manager::Kvm));
            instance.created_at().map(|at| at.to_string())
        };
        let at = "2026-01-02T03:04:05Z";
        assert_eq!(created(at).as_deref(), Some(at));
        assert_eq!(created("yesterday"), None);
    }

    fn interface(name: &str, mac: &str, addresses: &[&str]) -> libvirt::InterfaceInfo {
        libvirt::InterfaceInfo {
            name: name.into(),
            mac: Some(mac.into()),
            addresses: addresses.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn only_the_nics_own_routable_addresses_count() {
        let macs = ["52:54:00:aa:bb:cc"];
        let seen = [
            interface("lo", "00:00:00:00:00:00", &["127.0.0.1", "::1"]),
            interface("docker0", "02:42:0a:00:00:01", &["172.17.0.1"]),
            interface(
                "enp1s0",
                "52:54:00:AA:BB:CC",
                &["fe80::1", "2001:db8::7", "169.254.3.4", "192.0.2.7"],
            ),
            interface("wg0", "52:54:00:00:00:01", &["10.9.9.9"]),
        ];
        let found = routable(&macs, &seen);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["192.0.2.7", "2001:db8::7"]);
        assert!(routable(&["52:54:00:00:00:99"], &seen).is_empty());
    }

    #[test]
    fn an_ipv6_only_guest_has_an_address() {
        let seen = [interface(
            "eth0",
            "52:54:00:aa:bb:cc",
            &["fe80::9", "2001:db8::9"],
        )];
        let found = routable(&["52:54:00:aa:bb:cc"], &seen);
        assert_eq!(found, ["2001:db8::9".parse::<IpAddr>().unwrap()]);
    }
}
