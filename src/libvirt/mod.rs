//! The one seam to libvirt: what egressctl asks of a hypervisor, in its own types.
//!
//! Methods are named after the libvirt call they make. An object that isn't there is `None` from
//! `find_*`; every other failure is an [`Error`](crate::error::Error) with its class already decided.

mod closing;
mod deadline;
mod error;
mod error_names;
#[cfg(feature = "fault-injection")]
mod faults;
mod raw;
mod real;
mod uri;

use std::fmt;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;

pub use real::{Connection, Limits, preload};

/// Calls of one connection that are under way at once, for look-ups of many objects. libvirtd serves five at a time by
/// default, but over distance more in the pipe is what counts. Measured with 1,000 domains and 3,000 volumes at 30 ms:
/// gc took 6.9 s with 32, 4.5 s with 64, 3.7 s with 128; on a LAN there is no difference.
pub const CALLS_AT_ONCE: usize = 64;

/// A domain as this run knows it: the UUID makes sure that later calls mean the same one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DomainRef {
    /// The domain's name.
    pub name: String,
    /// Its UUID, as libvirt prints it.
    pub uuid: String,
}

/// libvirt's domain states (`virDomainState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainState {
    /// 0, no state.
    NoState,
    /// 1, running.
    Running,
    /// 2, blocked on a resource.
    Blocked,
    /// 3, paused, with libvirt's reason.
    Paused(u32),
    /// 4, being shut down.
    Shutdown,
    /// 5, shut off, with libvirt's reason.
    Shutoff(u32),
    /// 6, crashed.
    Crashed,
    /// 7, suspended by the guest's power management.
    PmSuspended,
    /// A state this version doesn't know.
    Other(u32),
}

/// What to do about a pool without room.
pub const MAKE_ROOM: &str = "delete instances or volumes that nobody needs, or use a larger pool";

/// The reason in [`DomainState::Shutoff`] that says `virDomainDestroy` (`VIR_DOMAIN_SHUTOFF_DESTROYED`).
pub const SHUTOFF_DESTROYED: u32 = 2;

/// The reason in [`DomainState::Paused`] that says that its QEMU is being set up (`VIR_DOMAIN_PAUSED_STARTING_UP`).
pub const PAUSED_STARTING_UP: u32 = 11;

/// The reason in [`DomainState::Paused`] that says that its QEMU is ending (`VIR_DOMAIN_PAUSED_SHUTTING_DOWN`).
pub const PAUSED_SHUTTING_DOWN: u32 = 8;

impl DomainState {
    /// From the numbers of `virDomainGetState`.
    pub fn from_raw(state: u32, reason: u32) -> Self {
        match state {
            0 => DomainState::NoState,
            1 => DomainState::Running,
            2 => DomainState::Blocked,
            3 => DomainState::Paused(reason),
            4 => DomainState::Shutdown,
            5 => DomainState::Shutoff(reason),
            6 => DomainState::Crashed,
            7 => DomainState::PmSuspended,
            other => DomainState::Other(other),
        }
    }

    /// Whether its guest's processors run, or wait only for a device: then no other host runs it. Of one that is being
    /// migrated the receiving host shows a paused one, and so does the other at the end.
    pub fn runs(self) -> bool {
        matches!(self, DomainState::Running | DomainState::Blocked)
    }

    /// Whether a QEMU process stands behind it (`virDomainIsActive`).
    pub fn is_active(self) -> bool {
        !matches!(self, DomainState::Shutoff(_) | DomainState::Crashed)
    }
}

impl fmt::Display for DomainState {
    /// libvirt's own words, with the reason where it tells something: `paused (I/O error)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Reasons: virDomainPausedReason and virDomainShutoffReason of libvirt-domain.h.
        let (word, reason) = match self {
            DomainState::NoState => ("no state", ""),
            DomainState::Running => ("running", ""),
            DomainState::Blocked => ("blocked", ""),
            DomainState::Shutdown => ("in shutdown", ""),
            DomainState::Crashed => ("crashed", ""),
            DomainState::PmSuspended => ("pmsuspended", ""),
            DomainState::Other(n) => return write!(f, "state {n}"),
            DomainState::Paused(reason) => (
                "paused",
                match *reason {
                    1 => "user",
                    2 => "migration",
                    3 => "save",
                    4 => "dump",
                    5 => "I/O error",
                    6 => "watchdog",
                    7 => "from snapshot",
                    PAUSED_SHUTTING_DOWN => "shutting down",
                    9 => "snapshot",
                    10 => "crashed",
                    PAUSED_STARTING_UP => "starting up",
                    12 => "post-copy",
                    13 => "post-copy failed",
                    14 => "API error",
                    _ => "",
                },
            ),
            DomainState::Shutoff(reason) => (
                "shut off",
                match *reason {
                    SHUTOFF_DESTROYED => "destroyed",
                    3 => "crashed",
                    4 => "migrated",
                    5 => "saved",
                    6 => "failed",
                    7 => "from snapshot",
                    8 => "daemon",
                    _ => "",
                },
            ),
        };
        f.write_str(word)?;
        if !reason.is_empty() {
            write!(f, " ({reason})")?;
        }
        Ok(())
    }
}

/// One listed domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDomain {
    /// Which one.
    pub domain: DomainRef,
    /// Its state.
    pub state: DomainState,
    /// Its XML (`virDomainGetXMLDesc`).
    pub xml: String,
}

/// Where interface addresses come from (`virDomainInterfaceAddressesSource`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSource {
    /// libvirt's own DHCP server.
    Lease,
    /// qemu-guest-agent in the guest.
    Agent,
    /// The host's ARP table.
    Arp,
}

impl AddressSource {
    /// As printed in `ipSource`.
    pub fn as_str(self) -> &'static str {
        match self {
            AddressSource::Lease => "lease",
            AddressSource::Agent => "agent",
            AddressSource::Arp => "arp",
        }
    }
}

/// One interface of a guest, as a source sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// The guest's (agent) or host's (lease, ARP) name of it.
    pub name: String,
    /// MAC address, lower case.
    pub mac: Option<String>,
    /// IP addresses, without prefix lengths.
    pub addresses: Vec<String>,
}

/// What `virDomainUndefineFlags` shall take along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvramPolicy {
    /// Remove the domain's own NVRAM file.
    Remove,
    /// Leave the file: it isn't the domain's own.
    Keep,
}

/// A storage pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPool {
    /// Its name.
    pub name: String,
    /// Whether it is running.
    pub active: bool,
    /// Its XML (`virStoragePoolGetXMLDesc`).
    pub xml: String,
}

/// Versions, as `major*1_000_000 + minor*1_000 + release`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The libvirt daemon's.
    pub libvirt: u64,
    /// QEMU's.
    pub hypervisor: u64,
}

/// A volume being written. Dropped without [`finish`](VolumeUpload::finish), the stream is aborted.
pub trait VolumeUpload: Send {
    /// Sends all of `data` (`virStreamSend`).
    fn send(&mut self, data: &[u8]) -> Result<()>;
    /// Ends the stream; only then is the volume's content known to be complete (`virStreamFinish`).
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A guest's serial console, open. Threads may share it: one receives, another sends.
pub trait Console: Send + Sync {
    /// What the guest wrote, at least one byte (`virStreamRecv`); 0 where the console was closed at the other end.
    /// Waits without a limit: a guest may be silent for days.
    fn receive(&self, buffer: &mut [u8]) -> Result<usize>;
    /// Types all of `data` (`virStreamSend`).
    fn send(&self, data: &[u8]) -> Result<()>;
    /// Ends it (`virStreamAbort`), and the connection it came from; a waiting [`receive`](Console::receive) returns.
    fn close(&self);
}

/// What egressctl asks of one host's libvirt.
pub trait Hypervisor: HostCalls + DomainCalls + AgentCalls + StorageCalls {}

impl<T: HostCalls + DomainCalls + AgentCalls + StorageCalls> Hypervisor for T {}

/// The host itself.
pub trait HostCalls: Send + Sync {
    /// Another connection to the same daemon through the same SSH connection, which ends with this one.
    fn connect_beside(&self) -> Result<Arc<dyn Hypervisor>>;
    /// How long the fastest call took so far: at least a round trip to the host.
    fn round_trip(&self) -> Duration;
    /// The daemon's version (`virConnectGetLibVersion`), as in [`Versions`].
    fn libvirt_version(&self) -> Result<u64>;
    /// The daemon's and QEMU's version.
    fn versions(&self) -> Result<Versions>;
    /// The host's name (`virConnectGetHostname`). Takes 10 s where the host can't resolve its own name.
    fn hostname(&self) -> Result<String>;
    /// `virConnectGetCapabilities`.
    fn capabilities(&self) -> Result<String>;
    /// `virConnectGetDomainCapabilities` for q35 on `x86_64`; `None` where that domain type isn't offered.
    fn find_domain_capabilities(&self, domain_type: &str) -> Result<Option<String>>;
    /// What a small shell command prints on the host, over the same SSH connection; `None` where sshd doesn't allow
    /// it. For facts that libvirt doesn't tell; reads only.
    fn host_command(&self, command: &str) -> Result<Option<String>>;
    /// A TCP connection from the host, through the same SSH connection (a `direct-tcpip` channel). Not for `local: true`:
    /// what that host reaches, this machine reaches, too.
    ///
    /// Errors: [`Reason::ForwardingRefused`](crate::error::Reason::ForwardingRefused),
    /// [`Reason::ConnectFailed`](crate::error::Reason::ConnectFailed).
    fn connect_tcp(&self, ip: IpAddr, port: u16, limit: Duration) -> Result<UnixStream>;
    /// Whether an interface of the host has that name (`virInterfaceLookupByName`); `None` where the daemon
    /// has no interface driver.
    fn interface_exists(&self, name: &str) -> Result<Option<bool>>;
    /// Whether a libvirt network of that name is active; `None` where there is none.
    fn find_network(&self, name: &str) -> Result<Option<bool>>;
}

/// What a domain will be at another time than now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The domain.
    pub domain: DomainRef,
    /// When.
    pub when: When,
    /// As XML.
    pub xml: String,
}

/// When a domain will be what its [`Definition`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It runs, and this is for its next start (`VIR_DOMAIN_XML_INACTIVE`): what `virsh edit` changes.
    NextStart,
    /// It is off, and its saved memory goes on as this (`virDomainManagedSaveGetXMLDesc`).
    Restored,
}

/// Domains.
pub trait DomainCalls: Send + Sync {
    /// Every domain with state and XML. One that vanishes meanwhile is left out.
    fn list_domains(&self) -> Result<Vec<ListedDomain>>;
    /// One domain by name.
    fn find_domain(&self, name: &str) -> Result<Option<ListedDomain>>;
    /// A domain that was found or made before, as it is now; `None` where it vanished.
    fn read_domain(&self, domain: &DomainRef) -> Result<Option<ListedDomain>>;
    /// What a domain is defined as for its next start (`VIR_DOMAIN_XML_INACTIVE`); `None` where it vanished.
    fn find_definition(&self, domain: &DomainRef) -> Result<Option<String>>;
    /// What a domain's saved memory goes on as at its next start (`virDomainManagedSaveGetXMLDesc`); `None` where it has
    /// none, or it was started or vanished meanwhile. Errors: [`Reason::InDoubt`](crate::error::Reason::InDoubt) where
    /// libvirt can't read it.
    fn find_saved_definition(&self, domain: &DomainRef) -> Result<Option<String>>;
    /// What [`list_domains`](Self::list_domains) doesn't tell: what running domains will be.
    fn list_definitions(&self) -> Result<Vec<Definition>>;
    /// The domain's present state (`virDomainGetState`).
    fn domain_state(&self, domain: &DomainRef) -> Result<DomainState>;
    /// `virDomainDefineXMLFlags`.
    fn define_domain(&self, xml: &str) -> Result<DomainRef>;
    /// Starts it (`virDomainCreate`).
    fn create_domain(&self, domain: &DomainRef) -> Result<()>;
    /// Lets a paused domain go on (`virDomainResume`).
    fn resume_domain(&self, domain: &DomainRef) -> Result<()>;
    /// Wakes a domain whose guest sleeps in memory (`virDomainPMWakeup`); it may take a moment until it runs.
    fn wake_domain(&self, domain: &DomainRef) -> Result<()>;
    /// Hard off (`virDomainDestroy`); already off is fine.
    fn destroy_domain(&self, domain: &DomainRef) -> Result<()>;
    /// Forgets it, with managed save, snapshot and checkpoint metadata; already gone is fine.
    fn undefine_domain(&self, domain: &DomainRef, nvram: NvramPolicy) -> Result<()>;
    /// Replaces the metadata element of our namespace, in the domain's definition and, while it runs, in the
    /// running domain too (`virDomainSetMetadata`). `xml` declares no namespace of ours: libvirt does.
    fn set_metadata(&self, domain: &DomainRef, xml: &str) -> Result<()>;
    /// `virDomainInterfaceAddresses`.
    fn interface_addresses(
        &self,
        domain: &DomainRef,
        source: AddressSource,
    ) -> Result<Vec<InterfaceInfo>>;
    /// `virDomainOpenConsole`: the domain's first one. `force` takes it from whoever has it.
    ///
    /// Errors: [`Reason::ConsoleBusy`](crate::error::Reason::ConsoleBusy).
    fn open_console(&self, domain: &DomainRef, force: bool) -> Result<Box<dyn Console + '_>>;
}

/// Guests' agents.
pub trait AgentCalls: Send + Sync {
    /// `virDomainQemuAgentCommand`, with a limit in whole seconds. Errors: [`Reason::AgentUnavailable`] where none
    /// answers within it, [`Reason::AgentRefused`] where the agent itself says no.
    ///
    /// [`Reason::AgentUnavailable`]: crate::error::Reason::AgentUnavailable
    /// [`Reason::AgentRefused`]: crate::error::Reason::AgentRefused
    fn agent_command(&self, domain: &DomainRef, json: &str, limit: Duration) -> Result<String>;
}

/// Storage pools and volumes.
pub trait StorageCalls: Send + Sync {
    /// The names of all pools, active or not.
    fn list_pools(&self) -> Result<Vec<String>>;
    /// One pool by name.
    fn find_pool(&self, pool: &str) -> Result<Option<ListedPool>>;
    /// Reads the pool's directory again (`virStoragePoolRefresh`).
    fn refresh_pool(&self, pool: &str) -> Result<()>;
    /// The names of all volumes of a pool.
    fn list_volumes(&self, pool: &str) -> Result<Vec<String>>;
    /// One volume's XML; `None` where it isn't there.
    fn find_volume_xml(&self, pool: &str, name: &str) -> Result<Option<String>>;
    /// How many volumes the pool has (`virStoragePoolNumOfVolumes`).
    fn count_volumes(&self, pool: &str) -> Result<u32>;
    /// What libvirt knows the volume by, whichever pool it is in (`virStorageVolGetKey`); no call where it was made or
    /// looked up over this connection.
    fn volume_key(&self, pool: &str, name: &str) -> Result<String>;
    /// Looks up a volume whose key is known, for the calls to come: one question instead of two
    /// (`virStorageVolLookupByKey`).
    fn know_volume(&self, pool: &str, name: &str, key: &str) -> Result<()>;
    /// Creates a volume; `false` where one of that name exists already. The one atomic test-and-set that libvirt has.
    fn create_volume(&self, pool: &str, name: &str, xml: &str) -> Result<bool>;
    /// A volume's path on the host (`virStorageVolGetPath`).
    fn volume_path(&self, pool: &str, name: &str) -> Result<String>;
    /// Opens `length` bytes of a volume for writing, from `offset` on; 0 is all there is (`virStorageVolUpload`).
    fn upload_volume(
        &self,
        pool: &str,
        name: &str,
        offset: u64,
        length: u64,
    ) -> Result<Box<dyn VolumeUpload + '_>>;
    /// Writes a volume from its start in one piece, for the small ones.
    fn write_volume(&self, pool: &str, name: &str, bytes: &[u8]) -> Result<()> {
        let mut upload = self.upload_volume(pool, name, 0, 0)?;
        upload.send(bytes)?;
        upload.finish()
    }
    /// Reads at most `limit` bytes from a volume's start; `None` where it isn't there.
    fn download_volume(&self, pool: &str, name: &str, limit: usize) -> Result<Option<Vec<u8>>> {
        self.read_volume(pool, name, 0, limit)
    }
    /// Reads at most `limit` bytes from `offset` on; none beyond the volume's end, `None` where it isn't there.
    fn read_volume(
        &self,
        pool: &str,
        name: &str,
        offset: u64,
        limit: usize,
    ) -> Result<Option<Vec<u8>>>;
    /// Deletes a volume; already gone is fine (`false`).
    fn delete_volume(&self, pool: &str, name: &str) -> Result<bool>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_says_why() {
        assert_eq!(
            DomainState::from_raw(3, 5).to_string(),
            "paused (I/O error)"
        );
        assert_eq!(DomainState::from_raw(5, 1).to_string(), "shut off");
        assert_eq!(
            DomainState::from_raw(5, 3).to_string(),
            "shut off (crashed)"
        );
        assert_eq!(DomainState::from_raw(99, 0).to_string(), "state 99");
        assert!(DomainState::from_raw(3, 1).is_active());
        assert!(!DomainState::from_raw(5, 0).is_active());
    }
}
