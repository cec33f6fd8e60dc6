//! An instance's domain XML.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::metadata::Metadata;
use super::tree::Element;
use crate::config::{Firmware, ImageFormat, Nic};
use crate::error::Result;
use crate::name::InstanceName;

#[cfg(test)]
mod tests;

/// How a domain's CPU is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// Hardware virtualisation.
    Kvm,
    /// QEMU's software emulation.
    Qemu,
}

impl Accelerator {
    /// As libvirt's `<domain type=…>` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Qemu => "qemu",
        }
    }
}

/// A file of an overlay's backing chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingFile {
    /// Its path on the host, as libvirt reports it.
    pub path: String,
    /// Its format, as verified from its bytes.
    pub format: ImageFormat,
}

/// The domain that is wanted.
#[derive(Debug, Clone)]
pub struct DomainSpec {
    /// Its name.
    pub name: InstanceName,
    /// Its UUID, chosen by the caller, as the seed's instance-id may be made of it.
    pub uuid: Uuid,
    /// How its CPU is run.
    pub accelerator: Accelerator,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// What it boots with.
    pub firmware: Firmware,
    /// The overlay's path on the host, as libvirt reports it.
    pub overlay: String,
    /// What the overlay is backed by, nearest first. With the whole chain here libvirt needn't probe
    /// the files at start; empty leaves it to the overlay's header.
    pub backing: Vec<BackingFile>,
    /// The seed's path on the host, as libvirt reports it.
    pub seed: String,
    /// What the NIC is plugged into.
    pub nic: Nic,
    /// The NIC's MAC address, lower case with colons; see [`mac_from_uid`].
    pub mac: String,
    /// Whose it is, and how it was made.
    pub metadata: Metadata,
}

/// The MAC address of an instance's NIC: QEMU's own prefix 52:54:00 and three bytes of the SHA-256 of the
/// uid, so that a create repeated after a crash asks the DHCP server for the same address.
pub fn mac_from_uid(uid: &str) -> String {
    let digest = Sha256::digest(format!("mac {uid}"));
    format!(
        "52:54:00:{:02x}:{:02x}:{:02x}",
        digest[0], digest[1], digest[2]
    )
}

impl DomainSpec {
    /// The XML for `virDomainDefineXMLFlags`.
    pub fn to_xml(&self) -> Result<String> {
        Element::new("domain")
            .with("type", self.accelerator.as_str())
            .child(leaf("name", &self.name))
            .child(leaf("uuid", self.uuid))
            .child(Element::new("metadata").child(self.metadata.to_element()))
            .child(leaf("memory", self.memory_mib).with("unit", "MiB"))
            .child(leaf("currentMemory", self.memory_mib).with("unit", "MiB"))
            .child(leaf("vcpu", self.vcpus).with("placement", "static"))
            .child(self.os())
            .child(
                Element::new("features")
                    .child(Element::new("acpi"))
                    .child(Element::new("apic")),
            )
            .child(self.cpu())
            .child(Element::new("clock").with("offset", "utc"))
            .child(leaf("on_poweroff", "destroy"))
            .child(leaf("on_reboot", "restart"))
            // A crashed guest answers nobody: it is stopped, and shown as crashed.
            .child(leaf("on_crash", "destroy"))
            .child(self.devices())
            .to_xml()
    }

    /// q35; firmware chosen by libvirt from the host's descriptors (libvirt 7.2), never by path: paths differ
    /// by distribution, and libvirt makes the per-domain NVRAM file. Secure boot is off in so many words, as
    /// a host whose first descriptor is a secure-boot build would refuse unsigned images.
    fn os(&self) -> Element {
        let machine = leaf("type", "hvm")
            .with("arch", "x86_64")
            .with("machine", "q35");
        match self.firmware {
            Firmware::Bios => Element::new("os").child(machine),
            Firmware::Uefi => {
                let off = |name: &str| {
                    Element::new("feature")
                        .with("enabled", "no")
                        .with("name", name)
                };
                Element::new("os")
                    .with("firmware", "efi")
                    .child(machine)
                    .child(
                        Element::new("firmware")
                            .child(off("enrolled-keys"))
                            .child(off("secure-boot")),
                    )
            }
        }
    }

    /// host-passthrough is KVM's only; `maximum` (libvirt 7.1) is all that emulation offers.
    fn cpu(&self) -> Element {
        Element::new("cpu").with(
            "mode",
            match self.accelerator {
                Accelerator::Kvm => "host-passthrough",
                Accelerator::Qemu => "maximum",
            },
        )
    }

    fn devices(&self) -> Element {
        Element::new("devices")
            .child(self.overlay_disk())
            .child(self.seed_disk())
            // q35 brings a USB controller unless told not to; nothing here would use it.
            .child(
                Element::new("controller")
                    .with("type", "usb")
                    .with("model", "none"),
            )
            .child(self.interface())
            .child(
                Element::new("serial")
                    .with("type", "pty")
                    .child(Element::new("target").with("port", 0)),
            )
            .child(
                Element::new("console").with("type", "pty").child(
                    Element::new("target")
                        .with("type", "serial")
                        .with("port", 0),
                ),
            )
            .child(
                Element::new("channel").with("type", "unix").child(
                    Element::new("target")
                        .with("type", "virtio")
                        .with("name", "org.qemu.guest_agent.0"),
                ),
            )
            .child(
                Element::new("rng")
                    .with("model", "virtio")
                    .child(leaf("backend", "/dev/urandom").with("model", "random")),
            )
            // Tells libvirt of a guest kernel's panic, which `on_crash` then acts on.
            .child(Element::new("panic").with("model", "isa"))
    }

    /// The overlay, as a file: only `<source file=…>` gets an `AppArmor` rule on Debian and Ubuntu. No `cache`:
    /// QEMU's default honours the guest's flushes, and `none` fails on pools without `O_DIRECT` (tmpfs, some
    /// network file systems). `discard`: what the guest trims is given back to the pool.
    fn overlay_disk(&self) -> Element {
        let driver = driver("qcow2").with("discard", "unmap");
        disk(&self.overlay, driver, "vda")
            .child(Element::new("boot").with("order", 1))
            .children_from(self.backing_chain())
    }

    /// `<backingStore>` elements, each in the one before; an empty one ends the chain.
    fn backing_chain(&self) -> Option<Element> {
        if self.backing.is_empty() {
            return None;
        }
        let end = Element::new("backingStore");
        Some(self.backing.iter().rev().fold(end, |below, file| {
            Element::new("backingStore")
                .with("type", "file")
                .child(Element::new("format").with("type", file.format.as_str()))
                .child(Element::new("source").with("file", &file.path))
                .child(below)
        }))
    }

    /// The seed, on virtio: the one bus whose driver every cloud kernel has (Debian's has no AHCI, q35 no IDE).
    fn seed_disk(&self) -> Element {
        disk(&self.seed, driver("raw"), "vdb").child(Element::new("readonly"))
    }

    fn interface(&self) -> Element {
        let (kind, source) = match &self.nic {
            Nic::Bridge(name) => ("bridge", name),
            Nic::Network(name) => ("network", name),
        };
        Element::new("interface")
            .with("type", kind)
            .child(Element::new("mac").with("address", &self.mac))
            .child(Element::new("source").with(kind, source))
            .child(Element::new("model").with("type", "virtio"))
    }
}

fn driver(format: &str) -> Element {
    Element::new("driver")
        .with("name", "qemu")
        .with("type", format)
}

/// A virtio disk from a file.
fn disk(path: &str, driver: Element, target: &str) -> Element {
    Element::new("disk")
        .with("type", "file")
        .with("device", "disk")
        .child(driver)
        .child(Element::new("source").with("file", path))
        .child(
            Element::new("target")
                .with("dev", target)
                .with("bus", "virtio"),
        )
}

/// An element with nothing but text.
fn leaf(name: &str, text: impl ToString) -> Element {
    Element::new(name).text(text)
}
