//! The providers configuration as the rest of the program sees it: resolved, validated, in file order.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::rules;
use crate::error::{Error, Reason, Result};
use crate::url::SecretUrl;

/// One provider entry of type `kvm` or `kvm2`, with every default filled in. Its `Debug` keeps `vendor_data` to itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Provider {
    /// The entry's name, what `--provider` picks.
    pub name: String,
    /// Which of the operator's two schemas the entry was written for.
    pub kind: ProviderKind,
    /// How to authenticate to every host of this provider.
    pub auth: SshAuth,
    /// Overlay capacity in GiB.
    pub disk_size_gib: u64,
    /// Whether vendor-data installs and starts qemu-guest-agent.
    pub install_guest_agent: bool,
    /// More vendor-data, beside that script.
    pub vendor_data: Option<String>,
    /// The images, in file order.
    pub images: Vec<Image>,
    /// The machine types, in file order; at least one.
    pub machine_types: Vec<MachineType>,
    /// The hosts, in file order; at least one.
    pub hosts: Vec<Host>,
    /// How long an instance lives when `--ttl` isn't given; none means for ever.
    pub default_ttl: Option<Duration>,
    /// What is odd about the entry, though it can be used; with file, line and key path.
    pub warnings: Vec<String>,
    /// What of the entry has to be mended before instances can be made by it, with file, line and key path. Everything
    /// else can be done.
    pub unmet: Vec<String>,
}

impl Provider {
    /// Says so where no instance can be made by this entry.
    ///
    /// Errors: Usage.
    pub fn ensure_met(&self) -> Result<()> {
        if self.unmet.is_empty() {
            return Ok(());
        }
        let message = format!(
            "no instance can be made by the provider entry {}",
            rules::quoted(&self.name)
        );
        let error = Error::usage(Reason::ConfigInvalid, message)
            .hint("correct the providers file, and look: egressctl config validate");
        Err(self.unmet.iter().fold(error, Error::because))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// The operator's provider types that egressctl drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// `type: kvm`.
    Kvm,
    /// `type: kvm2`.
    Kvm2,
}

/// How to authenticate to a provider's hosts, and how to know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshAuth {
    /// Where the private key is.
    pub key: KeySource,
    /// How a host's key is verified.
    pub host_keys: HostKeyPolicy,
}

/// Where the private key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A private key file, read at every dial (absolute path).
    File(PathBuf),
    /// The SSH agent at `$SSH_AUTH_SOCK`.
    Agent,
}

/// How a host's key is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostKeyPolicy {
    /// Against this `known_hosts` file, read at every dial (absolute path).
    KnownHosts(PathBuf),
    /// Not at all: `insecureIgnoreHostKey: true`.
    Ignore,
}

/// One entry of `images`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its key, what `--image` names.
    pub key: String,
    /// Where it is downloaded from, http or https.
    pub url: SecretUrl,
    /// SHA-256 of the published bytes, 64 lower-case hex digits.
    pub sha256: Option<String>,
    /// SHA-512 of the published bytes, 128 lower-case hex digits.
    pub sha512: Option<String>,
    /// A SHA256SUMS or SHA512SUMS file that lists the published bytes' digest.
    pub checksum_url: Option<SecretUrl>,
    /// The disk format inside.
    pub format: ImageFormat,
    /// The firmware its instances boot with.
    pub firmware: Firmware,
}

/// A base image's disk format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// QEMU's copy-on-write format, version 2 or 3.
    Qcow2,
    /// A plain disk.
    Raw,
}

impl ImageFormat {
    /// Every format there is.
    pub const ALL: [ImageFormat; 2] = [ImageFormat::Qcow2, ImageFormat::Raw];

    /// From what [`as_str`](Self::as_str) gives.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == word)
    }

    /// As libvirt's `<format type=…>` and file names have it.
    pub fn as_str(self) -> &'static str {
        match self {
            ImageFormat::Qcow2 => "qcow2",
            ImageFormat::Raw => "raw",
        }
    }
}

/// What an instance boots with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// UEFI, secure boot off.
    Uefi,
    /// `SeaBIOS`.
    Bios,
}

impl Firmware {
    /// As the configuration has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Firmware::Uefi => "uefi",
            Firmware::Bios => "bios",
        }
    }
}

/// One entry of `machineTypes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineType {
    /// Its key, what `--machine-type` names.
    pub key: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// One entry of `hosts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name, what `--zone` names.
    pub name: String,
    /// How its libvirt is reached.
    pub reach: Reach,
    /// The path of libvirt's socket on the host.
    pub socket: String,
    /// The storage pool for base images, overlays and seeds.
    pub pool: String,
    /// What the instances' NIC is plugged into.
    pub nic: Nic,
    /// KVM or software emulation.
    pub virt_type: VirtType,
}

/// How a host's libvirt is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// `local: true`: this very machine, no SSH.
    Local,
    /// Over SSH.
    Ssh(SshTarget),
}

/// An SSH server and who to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    /// Where it listens.
    pub address: Address,
    /// The user to log in as.
    pub user: String,
    /// The SSH server to go through (`proxyJump`), with the same key and `known_hosts` file.
    pub jump: Option<Box<SshTarget>>,
}

/// A host name or IP address, and a TCP port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// Name, IPv4 or IPv6 address (without brackets, with its scope if any).
    pub host: String,
    /// TCP port, 22 unless given.
    pub port: u16,
}

impl fmt::Display for Address {
    /// `host`, `host:port` or `[v6]:port`; port 22 is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.port, self.host.contains(':')) {
            (22, _) => f.write_str(&self.host),
            (port, false) => write!(f, "{}:{port}", self.host),
            (port, true) => write!(f, "[{}]:{port}", self.host),
        }
    }
}

/// What the instances' NIC is plugged into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nic {
    /// A bridge of the host.
    Bridge(String),
    /// A libvirt network.
    Network(String),
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nic::Bridge(name) => write!(f, "bridge {name}"),
            Nic::Network(name) => write!(f, "network {name}"),
        }
    }
}

/// `virtType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VirtType {
    /// KVM where the host has it, software emulation (with a warning) elsewhere.
    Auto,
    /// KVM or nothing.
    Kvm,
    /// QEMU's software emulation.
    Qemu,
}

impl VirtType {
    /// As the configuration has it.
    pub fn as_str(self) -> &'static str {
        match self {
            VirtType::Auto => "auto",
            VirtType::Kvm => "kvm",
            VirtType::Qemu => "qemu",
        }
    }
}
