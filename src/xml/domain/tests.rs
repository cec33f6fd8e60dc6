//! Tests of the domain XML: whole documents, what must never be in one, and libvirt's own schema.

use std::path::PathBuf;

use virt::connect::Connect;
use virt::error::ErrorNumber;
use virt::sys::VIR_DOMAIN_DEFINE_VALIDATE;

use super::*;
use crate::xml::domain_info::{DiskSource, DomainInfo, FirmwareInfo};
use crate::xml::metadata::Mark;
use crate::xml::metadata::tests::plain;
use crate::xml::tree::parse;

fn spec() -> DomainSpec {
    DomainSpec {
        name: InstanceName::new("web-1").unwrap(),
        uuid: "6f0c2f0e-5d2b-4a7e-9c67-0a1b2c3d4e5f".parse().unwrap(),
        accelerator: Accelerator::Kvm,
        vcpus: 2,
        memory_mib: 2048,
        firmware: Firmware::Uefi,
        overlay: "/pool/web-1.qcow2".into(),
        backing: vec![BackingFile {
            path: "/pool/base-debian-13-0011.qcow2".into(),
            format: ImageFormat::Qcow2,
        }],
        seed: "/pool/web-1-seed.iso".into(),
        nic: Nic::Bridge("br0".into()),
        mac: "52:54:00:01:02:03".into(),
        metadata: plain(),
    }
}

fn emulated() -> DomainSpec {
    DomainSpec {
        accelerator: Accelerator::Qemu,
        firmware: Firmware::Bios,
        nic: Nic::Network("default".into()),
        backing: Vec::new(),
        ..spec()
    }
}

/// Every combination of the choices there are.
fn all() -> Vec<DomainSpec> {
    let mut specs = Vec::new();
    for accelerator in [Accelerator::Kvm, Accelerator::Qemu] {
        for firmware in [Firmware::Uefi, Firmware::Bios] {
            for base in [spec(), emulated()] {
                specs.push(DomainSpec {
                    accelerator,
                    firmware,
                    ..base
                });
            }
        }
    }
    specs
}

#[test]
fn the_documents_are_the_committed_ones() {
    for (name, spec) in [
        ("uefi-kvm-bridge", spec()),
        ("bios-qemu-network", emulated()),
    ] {
        let path: PathBuf = [
            env!("CARGO_MANIFEST_DIR"),
            "tests/fixtures/xml",
            &format!("define-{name}.xml"),
        ]
        .iter()
        .collect();
        let xml = spec.to_xml().unwrap() + "\n";
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &xml).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        assert_eq!(xml, committed, "{}; BLESS=1 rewrites it", path.display());
    }
}

#[test]
fn disks_are_files_on_virtio_and_secure_boot_is_off() {
    for spec in all() {
        let xml = spec.to_xml().unwrap();
        let root = parse("test", &xml).unwrap();
        let disks: Vec<_> = root.find("devices").unwrap().all("disk").collect();
        assert_eq!(disks.len(), 2, "{xml}");
        for disk in &disks {
            assert_eq!(disk.attribute("type"), Some("file"), "{xml}");
            assert_eq!(disk.attribute("device"), Some("disk"), "{xml}");
            assert_eq!(
                disk.attribute_at(&["target"], "bus"),
                Some("virtio"),
                "{xml}"
            );
        }
        assert!(disks[0].find("readonly").is_none(), "{xml}");
        assert!(disks[1].find("readonly").is_some(), "{xml}");
        for never in [
            "type=\"volume\"",
            "\"sata\"",
            "\"ide\"",
            "cdrom",
            "<graphics",
            "<loader",
            "<nvram",
        ] {
            assert!(!xml.contains(never), "{never} in {xml}");
        }
        let features: Vec<_> = root
            .at(&["os", "firmware"])
            .into_iter()
            .flat_map(|firmware| firmware.all("feature"))
            .map(|feature| {
                (
                    feature.attribute("name").unwrap(),
                    feature.attribute("enabled").unwrap(),
                )
            })
            .collect();
        match spec.firmware {
            Firmware::Uefi => {
                assert_eq!(root.attribute_at(&["os"], "firmware"), Some("efi"));
                assert_eq!(features, [("enrolled-keys", "no"), ("secure-boot", "no")]);
            }
            Firmware::Bios => {
                assert_eq!(root.attribute_at(&["os"], "firmware"), None);
                assert!(features.is_empty());
            }
        }
        let mode = root.attribute_at(&["cpu"], "mode").unwrap();
        match spec.accelerator {
            Accelerator::Kvm => assert_eq!(mode, "host-passthrough"),
            Accelerator::Qemu => assert_eq!(mode, "maximum"),
        }
    }
}

#[test]
fn what_is_defined_is_read_back() {
    let spec = spec();
    let info = DomainInfo::parse(&spec.to_xml().unwrap()).unwrap();
    assert_eq!(info.name, "web-1");
    assert_eq!(info.uuid, spec.uuid.to_string());
    assert_eq!(info.accelerator, "kvm");
    assert_eq!((info.vcpus, info.memory_bytes), (2, 2048 << 20));
    assert_eq!(info.firmware, FirmwareInfo::Efi);
    assert_eq!(info.mark, Mark::Egressctl(Box::new(spec.metadata)));
    assert_eq!(info.disks[0].source, DiskSource::Path(spec.overlay.clone()));
    let paths: Vec<_> = info.paths().collect();
    assert_eq!(paths, [&spec.overlay, &spec.backing[0].path, &spec.seed]);
    assert_eq!(info.interfaces[0].mac, spec.mac);
    assert_eq!(info.interfaces[0].source.as_deref(), Some("br0"));
}

#[test]
fn values_are_escaped_or_refused() {
    let mut odd = spec();
    odd.overlay = "/p/a&b<c>'\".qcow2".into();
    odd.nic = Nic::Bridge("b<r&0".into());
    let info = DomainInfo::parse(&odd.to_xml().unwrap()).unwrap();
    assert_eq!(info.disks[0].source, DiskSource::Path(odd.overlay.clone()));
    assert_eq!(info.interfaces[0].source.as_deref(), Some("b<r&0"));
    odd.seed = "/p/\u{1}".into();
    assert!(odd.to_xml().unwrap_err().message().contains("U+0001"));
}

#[test]
fn a_mac_address_belongs_to_a_uid() {
    // printf %s 'mac abc' | sha256sum | cut -c-6
    assert_eq!(mac_from_uid("abc"), "52:54:00:ac:b6:f7");
    assert_ne!(mac_from_uid("abc"), mac_from_uid("abd"));
}

/// libvirt checks a document against its schema before anything else, so on its test driver, which can
/// define neither KVM guests nor q35, every error but the schema's says that the schema is satisfied.
#[test]
fn libvirts_schema_accepts_every_document() {
    crate::libvirt::preload();
    let connection = Connect::open(Some("test:///default")).unwrap();
    let schema_error = |xml: &str| {
        let done = connection.define_domain_xml_flags(xml, VIR_DOMAIN_DEFINE_VALIDATE);
        let error = done
            .err()
            .filter(|e| e.code().is(ErrorNumber::XmlInvalidSchema))?;
        Some(error.message().to_owned())
    };
    let broken = spec()
        .to_xml()
        .unwrap()
        .replace("<features>", "<bogus/><features>");
    assert!(
        schema_error(&broken).is_some(),
        "libvirt's schemas are not installed"
    );
    for spec in all() {
        let xml = spec.to_xml().unwrap();
        assert_eq!(schema_error(&xml), None, "{xml}");
    }
}
