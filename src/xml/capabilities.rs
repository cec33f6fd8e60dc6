//! What a host can run: its capabilities and those of one kind of domain.

use super::domain_info::bytes;
use super::tree::{Element, parse, unreadable};
use crate::error::Result;

/// A host's capabilities (`virConnectGetCapabilities`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCapabilities {
    /// The machine's own UUID: the same under whichever name it is reached.
    pub uuid: Option<String>,
    /// The host's architecture, such as `x86_64`.
    pub arch: String,
    /// The memory of all its NUMA cells in bytes.
    pub memory_bytes: u64,
    /// The CPUs of all its NUMA cells: threads, where they have several; 0 where it doesn't say.
    pub cpus: usize,
    /// The domain types for `x86_64` guests: `qemu`, and `kvm` where the module is loaded. libvirt lists `kvm`
    /// by the device node; guests may still fail to run on it.
    pub domain_types: Vec<String>,
}

impl HostCapabilities {
    /// Reads the capabilities XML.
    pub fn parse(xml: &str) -> Result<Self> {
        let root = parse("the host's capabilities", xml)?;
        if root.local != "capabilities" {
            return Err(unreadable(
                "the host's capabilities",
                "it is another element",
            ));
        }
        let cells = root.at(&["host", "topology", "cells"]);
        let memory = cells
            .into_iter()
            .flat_map(|cells| cells.all("cell"))
            .filter_map(|cell| bytes(cell.find("memory")?, "KiB"));
        Ok(HostCapabilities {
            uuid: root.text_at(&["host", "uuid"]),
            arch: root.text_at(&["host", "cpu", "arch"]).unwrap_or_default(),
            memory_bytes: memory.fold(0, u64::saturating_add),
            cpus: cells.map_or(0, |cells| {
                let cells = cells.all("cell").filter_map(|cell| cell.find("cpus"));
                cells.map(|cpus| cpus.all("cpu").count()).sum()
            }),
            domain_types: domain_types(&root),
        })
    }

    /// Whether libvirt lists KVM for `x86_64` guests.
    pub fn has_kvm(&self) -> bool {
        self.domain_types.iter().any(|kind| kind == "kvm")
    }
}

fn domain_types(root: &Element) -> Vec<String> {
    let x86 = root
        .all("guest")
        .filter(|guest| guest.text_at(&["os_type"]).as_deref() == Some("hvm"))
        .filter_map(|guest| guest.find("arch"))
        .filter(|arch| arch.attribute("name") == Some("x86_64"));
    x86.flat_map(|arch| arch.all("domain"))
        .filter_map(|domain| domain.attribute("type"))
        .map(str::to_owned)
        .collect()
}

/// What one kind of domain can have on a host (`virConnectGetDomainCapabilities`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainCapabilities {
    /// The domain type: `kvm` or `qemu`.
    pub domain_type: String,
    /// The machine, in its full name such as `pc-q35-10.0`.
    pub machine: String,
    /// The architecture.
    pub arch: String,
    /// The most vcpus a domain may have.
    pub max_vcpus: Option<u32>,
    /// Whether `<os firmware="efi">` finds a firmware.
    pub efi: bool,
    /// The firmware files of the host, for messages.
    pub loaders: Vec<String>,
    /// The choices of secure boot among them: `yes`, `no`.
    pub secure: Vec<String>,
    /// The CPU modes supported, such as `host-passthrough` and `maximum`.
    pub cpu_modes: Vec<String>,
}

impl DomainCapabilities {
    /// Reads the domain capabilities XML.
    pub fn parse(xml: &str) -> Result<Self> {
        let root = parse("the domain capabilities", xml)?;
        if root.local != "domainCapabilities" {
            return Err(unreadable(
                "the domain capabilities",
                "it is another element",
            ));
        }
        let text = |name: &str| root.text_at(&[name]).unwrap_or_default();
        let loader = root.at(&["os", "loader"]);
        let firmware = root.find("os").map(|os| values(os, "firmware"));
        Ok(DomainCapabilities {
            domain_type: text("domain"),
            machine: text("machine"),
            arch: text("arch"),
            max_vcpus: root
                .attribute_at(&["vcpu"], "max")
                .and_then(|max| max.parse().ok()),
            efi: firmware
                .unwrap_or_default()
                .iter()
                .any(|kind| kind == "efi"),
            loaders: loader.map(direct_values).unwrap_or_default(),
            secure: loader
                .map(|loader| values(loader, "secure"))
                .unwrap_or_default(),
            cpu_modes: cpu_modes(&root),
        })
    }

    /// Whether an unsigned image boots by UEFI: libvirt finds an EFI firmware, and not only secure-boot ones.
    /// Where libvirt doesn't say which (`secure` is empty), define decides.
    pub fn has_plain_efi(&self) -> bool {
        self.efi && (self.secure.is_empty() || self.secure.iter().any(|choice| choice == "no"))
    }
}

fn cpu_modes(root: &Element) -> Vec<String> {
    let modes = root.find("cpu").into_iter().flat_map(|cpu| cpu.all("mode"));
    modes
        .filter(|mode| mode.attribute("supported") == Some("yes"))
        .filter_map(|mode| mode.attribute("name"))
        .map(str::to_owned)
        .collect()
}

/// The values of an `<enum name=…>` inside an element.
fn values(element: &Element, name: &str) -> Vec<String> {
    let choice = element
        .all("enum")
        .find(|choice| choice.attribute("name") == Some(name));
    choice.map(direct_values).unwrap_or_default()
}

fn direct_values(element: &Element) -> Vec<String> {
    element.all("value").map(Element::content).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = include_str!("../../tests/fixtures/xml/capabilities.xml");
    const DOMAIN: &str = include_str!("../../tests/fixtures/xml/domain-capabilities-qemu.xml");

    #[test]
    fn a_real_hosts_capabilities_are_read() {
        let host = HostCapabilities::parse(HOST).unwrap();
        assert_eq!(host.arch, "x86_64");
        assert_eq!(host.memory_bytes, 8_349_900 << 10);
        assert_eq!(host.cpus, HOST.matches("<cpu id=").count());
        assert!(host.cpus > 0);
        assert_eq!(host.domain_types, ["qemu", "kvm"]);
        assert!(host.has_kvm());
    }

    #[test]
    fn kvm_counts_for_x86_64_hvm_alone() {
        let guest = |os: &str, arch: &str| {
            format!(
                "<guest><os_type>{os}</os_type><arch name='{arch}'><domain type='kvm'/></arch></guest>"
            )
        };
        for (os, arch, kvm) in [
            ("hvm", "x86_64", true),
            ("hvm", "i686", false),
            ("hvm", "aarch64", false),
            ("exe", "x86_64", false),
        ] {
            let xml = format!("<capabilities><host/>{}</capabilities>", guest(os, arch));
            let host = HostCapabilities::parse(&xml).unwrap();
            assert_eq!(host.has_kvm(), kvm, "{os} {arch}");
            assert_eq!(host.memory_bytes, 0);
        }
    }

    #[test]
    fn the_memory_of_all_cells_counts() {
        let cells = "<cell id='0'><memory unit='KiB'>1024</memory></cell>\
                     <cell id='1'><memory unit='MiB'>3</memory></cell><cell id='2'/>";
        let xml = format!(
            "<capabilities><host><topology><cells>{cells}</cells></topology></host></capabilities>"
        );
        assert_eq!(HostCapabilities::parse(&xml).unwrap().memory_bytes, 4 << 20);
    }

    #[test]
    fn real_domain_capabilities_are_read() {
        let domain = DomainCapabilities::parse(DOMAIN).unwrap();
        assert_eq!(
            (domain.domain_type.as_str(), domain.arch.as_str()),
            ("qemu", "x86_64")
        );
        assert_eq!(domain.machine, "pc-q35-10.0");
        assert_eq!(domain.max_vcpus, Some(4096));
        assert!(domain.efi && domain.has_plain_efi());
        assert_eq!(domain.loaders.len(), 3);
        assert_eq!(domain.secure, ["yes", "no"]);
        assert_eq!(domain.cpu_modes, ["maximum", "host-model", "custom"]);
    }

    #[test]
    fn a_host_without_fitting_firmware_is_told() {
        let without = DOMAIN.replace("<value>efi</value>", "<value>bios</value>");
        let domain = DomainCapabilities::parse(&without).unwrap();
        assert!(!domain.efi && !domain.has_plain_efi());
        // Only secure-boot builds.
        let secure = DOMAIN.replacen(
            "<enum name='secure'>\n        <value>yes</value>\n        <value>no</value>",
            "<enum name='secure'>\n        <value>yes</value>",
            1,
        );
        let domain = DomainCapabilities::parse(&secure).unwrap();
        assert_eq!(domain.secure, ["yes"]);
        assert!(domain.efi && !domain.has_plain_efi());
        let domain = DomainCapabilities::parse("<domainCapabilities/>").unwrap();
        assert!(!domain.efi && domain.cpu_modes.is_empty());
        assert!(DomainCapabilities::parse(HOST).is_err());
        assert!(HostCapabilities::parse(DOMAIN).is_err());
    }
}
