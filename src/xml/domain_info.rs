//! What libvirt says of a domain: its dumped XML, read.

use super::metadata::Mark;
use super::tree::{Element, parse_without, unreadable};
use crate::error::Result;

#[cfg(test)]
mod tests;

/// A domain as its XML (`virDomainGetXMLDesc`) describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainInfo {
    /// Its name.
    pub name: String,
    /// Its UUID, lower case with hyphens.
    pub uuid: String,
    /// libvirt's `<domain type=…>`: `kvm`, `qemu` or others.
    pub accelerator: String,
    /// Virtual CPUs at most.
    pub vcpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// What it boots with.
    pub firmware: FirmwareInfo,
    /// Its UEFI variables' file, once libvirt has chosen one.
    pub nvram: Option<String>,
    /// Its disks, in order.
    pub disks: Vec<DiskInfo>,
    /// Its network interfaces, in order.
    pub interfaces: Vec<InterfaceInfo>,
    /// Its guest agent's channel.
    pub agent: AgentChannel,
    /// Whose it is.
    pub mark: Mark,
}

/// What is known of the channel to the agent in the guest (libvirt's `qemuFindAgentConfig` says which it is).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentChannel {
    /// There is none: no agent will ever answer.
    None,
    /// Nobody in the guest has opened it: libvirt refuses every question to the agent, and logs that as an error.
    Closed,
    /// An agent may answer: it is open, or libvirt doesn't say, as for a domain that is off.
    Open,
}

/// What a domain boots with, as libvirt has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirmwareInfo {
    /// `<os firmware="efi">`, or a pflash loader.
    Efi,
    /// Anything else: BIOS.
    Bios,
}

/// One of a domain's disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskInfo {
    /// `disk`, `cdrom`, `floppy` or `lun`.
    pub device: String,
    /// Its target name, such as `vda`.
    pub target: String,
    /// Its bus, such as `virtio`.
    pub bus: Option<String>,
    /// Where its data is.
    pub source: DiskSource,
    /// The backing files in the XML, nearest first. Only a running domain has them for sure.
    pub backing: Vec<DiskSource>,
    /// Whether the guest may only read it.
    pub readonly: bool,
    /// The driver's format, such as `qcow2`.
    pub format: Option<String>,
}

/// Where a disk's data is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskSource {
    /// A file, directory or block device at this path.
    Path(String),
    /// A volume of a pool.
    Volume {
        /// The pool's name.
        pool: String,
        /// The volume's name.
        volume: String,
    },
    /// Anything else: a network disk, or an empty drive.
    Other,
}

/// One of a domain's network interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// Its MAC address, lower case.
    pub mac: String,
    /// `bridge`, `network` or others.
    pub kind: String,
    /// The bridge's or network's name.
    pub source: Option<String>,
    /// The host's device, such as `vnet0`, while the domain runs.
    pub device: Option<String>,
}

impl DomainInfo {
    /// Reads a domain's XML.
    pub fn parse(xml: &str) -> Result<Self> {
        let root = parse_without("a domain", xml, is_needless)?;
        if root.local != "domain" {
            return Err(unreadable("a domain", "it is another element"));
        }
        let name = root
            .find("name")
            .map(Element::content)
            .filter(|name| !name.is_empty())
            .ok_or_else(|| unreadable("a domain", "it has no name"))?;
        let what = format!("domain {name}");
        let devices = |local: &'static str| {
            root.find("devices")
                .into_iter()
                .flat_map(move |d| d.all(local))
        };
        Ok(DomainInfo {
            uuid: root.text_at(&["uuid"]).unwrap_or_default().to_lowercase(),
            accelerator: root.attribute("type").unwrap_or_default().to_owned(),
            vcpus: match root.text_at(&["vcpu"]) {
                Some(text) => text
                    .parse()
                    .map_err(|_| unreadable(&what, "its vcpu is no number"))?,
                None => 1,
            },
            memory_bytes: match root.find("memory") {
                Some(memory) => bytes(memory, "KiB")
                    .ok_or_else(|| unreadable(&what, "its memory is no size"))?,
                None => 0,
            },
            firmware: firmware(&root),
            nvram: root.text_at(&["os", "nvram"]).or_else(|| {
                let file = root.attribute_at(&["os", "nvram", "source"], "file")?;
                Some(file.to_owned())
            }),
            disks: devices("disk").map(disk).collect(),
            interfaces: devices("interface").map(interface).collect(),
            agent: devices("channel")
                .find_map(agent_channel)
                .unwrap_or(AgentChannel::None),
            mark: root.find("metadata").map_or(Mark::None, Mark::in_metadata),
            name,
        })
    }

    /// Every path that its disks name, backing files included.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let sources = self
            .disks
            .iter()
            .flat_map(|disk| std::iter::once(&disk.source).chain(&disk.backing));
        sources.filter_map(|source| match source {
            DiskSource::Path(path) => Some(path.as_str()),
            _ => None,
        })
    }
}

/// What nobody reads here is most of a domain's XML, controllers above all: a host has a thousand of them at times.
fn is_needless(around: &[Element], local: &[u8]) -> bool {
    match around {
        [_domain] => !matches!(
            local,
            b"name" | b"uuid" | b"vcpu" | b"memory" | b"os" | b"devices" | b"metadata"
        ),
        [_domain, within] if within.local == "devices" => {
            !matches!(local, b"disk" | b"interface" | b"channel")
        }
        _ => false,
    }
}

/// The agent's channel, if it is that.
fn agent_channel(channel: &Element) -> Option<AgentChannel> {
    let target = |name: &str| channel.attribute_at(&["target"], name);
    if (target("type"), target("name")) != (Some("virtio"), Some("org.qemu.guest_agent.0")) {
        return None;
    }
    Some(match target("state") {
        Some("disconnected") => AgentChannel::Closed,
        _ => AgentChannel::Open,
    })
}

/// An element's size in bytes, by its `unit` attribute: libvirt's `virScaleInteger` takes `k` and `KiB`
/// as 1024, `KB` as 1000, in either case.
pub(super) fn bytes(element: &Element, default_unit: &str) -> Option<u64> {
    let number: u64 = element.content().trim().parse().ok()?;
    let unit = element.attribute("unit").unwrap_or(default_unit);
    let unit = unit.to_ascii_lowercase();
    if matches!(unit.as_str(), "" | "b" | "byte" | "bytes") {
        return Some(number);
    }
    let power = ["k", "m", "g", "t", "p", "e"]
        .iter()
        .position(|prefix| unit.starts_with(prefix))?;
    let base: u64 = match &unit[1..] {
        "" | "ib" => 1024,
        "b" => 1000,
        _ => return None,
    };
    let scale = base.checked_pow(u32::try_from(power).ok()? + 1)?;
    number.checked_mul(scale)
}

fn firmware(root: &Element) -> FirmwareInfo {
    let auto = root.attribute_at(&["os"], "firmware") == Some("efi");
    let flash = root.attribute_at(&["os", "loader"], "type") == Some("pflash");
    if auto || flash {
        FirmwareInfo::Efi
    } else {
        FirmwareInfo::Bios
    }
}

fn disk(element: &Element) -> DiskInfo {
    let target = |name: &str| element.attribute_at(&["target"], name).map(str::to_owned);
    let mut backing = Vec::new();
    let mut below = element.find("backingStore");
    while let Some(store) = below {
        if store.find("source").is_some() {
            backing.push(source(store));
        }
        below = store.find("backingStore");
    }
    DiskInfo {
        device: element.attribute("device").unwrap_or("disk").to_owned(),
        target: target("dev").unwrap_or_default(),
        bus: target("bus"),
        source: source(element),
        backing,
        readonly: element.find("readonly").is_some(),
        format: element.attribute_at(&["driver"], "type").map(str::to_owned),
    }
}

fn source(element: &Element) -> DiskSource {
    let Some(source) = element.find("source") else {
        return DiskSource::Other;
    };
    let path = ["file", "dev", "dir"]
        .iter()
        .find_map(|key| source.attribute(key));
    match (path, source.attribute("pool"), source.attribute("volume")) {
        (Some(path), _, _) => DiskSource::Path(path.to_owned()),
        (None, Some(pool), Some(volume)) => DiskSource::Volume {
            pool: pool.to_owned(),
            volume: volume.to_owned(),
        },
        _ => DiskSource::Other,
    }
}

fn interface(element: &Element) -> InterfaceInfo {
    let kind = element.attribute("type").unwrap_or_default().to_owned();
    let mac = element
        .attribute_at(&["mac"], "address")
        .unwrap_or_default();
    InterfaceInfo {
        mac: mac.to_ascii_lowercase(),
        source: element.attribute_at(&["source"], &kind).map(str::to_owned),
        device: element.attribute_at(&["target"], "dev").map(str::to_owned),
        kind,
    }
}
