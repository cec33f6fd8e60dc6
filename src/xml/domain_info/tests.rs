//! Tests of reading domains: dumps of a real libvirt 11.3, and what other hosts have.

use super::*;
use crate::xml::metadata::{Manager, Metadata};

/// A domain of our own, as virsh dumps it while it runs.
const RUNNING: &str = include_str!("../../../tests/fixtures/xml/domain-running.xml");

/// The same domain's persistent definition.
const INACTIVE: &str = include_str!("../../../tests/fixtures/xml/domain-inactive.xml");

/// What virDomainGetMetadata returned for it: no prefix, no declaration.
const FRAGMENT: &str = include_str!("../../../tests/fixtures/xml/metadata-fragment.xml");

fn path(path: &str) -> DiskSource {
    DiskSource::Path(format!("/var/lib/libvirt/images/{path}"))
}

#[test]
fn an_agent_is_asked_unless_its_channel_shows_that_nobody_is_there() {
    let closed = "state='disconnected'";
    let table = [
        (RUNNING.to_owned(), AgentChannel::Closed),
        (
            RUNNING.replace(closed, "state='connected'"),
            AgentChannel::Open,
        ),
        (RUNNING.replace(closed, ""), AgentChannel::Open),
        (INACTIVE.to_owned(), AgentChannel::Open),
        (
            INACTIVE.replace("org.qemu.guest_agent.0", "com.example.0"),
            AgentChannel::None,
        ),
        (
            INACTIVE
                .replace("<channel ", "<parallel ")
                .replace("</channel>", "</parallel>"),
            AgentChannel::None,
        ),
    ];
    for (xml, expected) in table {
        assert_eq!(DomainInfo::parse(&xml).unwrap().agent, expected);
    }
}

#[test]
fn a_real_dump_is_read_in_full() {
    let info = DomainInfo::parse(RUNNING).unwrap();
    assert_eq!(info.name, "web-1");
    assert_eq!(info.uuid, "6f0c2f0e-5d2b-4a7e-9c67-0a1b2c3d4e5f");
    assert_eq!(info.accelerator, "qemu");
    assert_eq!((info.vcpus, info.memory_bytes), (2, 2 << 30));
    assert_eq!(info.firmware, FirmwareInfo::Efi);
    assert_eq!(
        info.nvram.as_deref(),
        Some("/var/lib/libvirt/qemu/nvram/web-1_VARS.fd")
    );
    let disk =
        |target: &str, file: &str, backing: Vec<DiskSource>, readonly: bool, format: &str| {
            DiskInfo {
                device: "disk".into(),
                target: target.into(),
                bus: Some("virtio".into()),
                source: path(file),
                backing,
                readonly,
                format: Some(format.into()),
            }
        };
    let base = vec![path("base-debian-13-0011.qcow2")];
    assert_eq!(
        info.disks,
        [
            disk("vda", "web-1.qcow2", base, false, "qcow2"),
            disk("vdb", "web-1-seed.iso", vec![], true, "raw"),
        ]
    );
    let interface = InterfaceInfo {
        mac: "52:54:00:01:02:03".into(),
        kind: "bridge".into(),
        source: Some("br0".into()),
        device: Some("vnet0".into()),
    };
    assert_eq!(info.interfaces, [interface]);
    assert_eq!(info.agent, AgentChannel::Closed);
    assert_eq!(info.mark.uid(), Some("0f5e8a9c"));
    let fragment = Mark::from_fragment(Manager::Egressctl, FRAGMENT).unwrap();
    assert_eq!(
        fragment.metadata().map(Metadata::to_xml),
        info.mark.metadata().map(Metadata::to_xml)
    );
    assert_eq!(fragment, info.mark);
}

#[test]
fn the_persistent_definition_is_read_too() {
    let info = DomainInfo::parse(INACTIVE).unwrap();
    let running = DomainInfo::parse(RUNNING).unwrap();
    assert_eq!(info.interfaces[0].device, None);
    assert_eq!(
        (info.mark, info.uuid, info.nvram),
        (running.mark, running.uuid, running.nvram)
    );
}

/// Devices in any order, in one document: cdroms, empty drives, network disks, volumes, block devices.
const ODD: &str = r"<domain type='kvm'>
  <name>a &amp; b</name><uuid>6F0C2F0E-5D2B-4A7E-9C67-0A1B2C3D4E5F</uuid>
  <memory>1048576</memory>
  <os><type>hvm</type><loader type='rom'>/usr/share/seabios/bios.bin</loader>
    <nvram type='file'><source file='/srv/vars.fd'/></nvram></os>
  <devices>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
    <interface type='network'><mac address='52:54:00:AA:BB:CC'/><source network='default' bridge='virbr0'/></interface>
    <disk type='volume'><source pool='default' volume='x.qcow2'/><target dev='vda'/></disk>
    <other:disk xmlns:other='urn:o'/>
    <interface type='direct'><mac address='52:54:00:00:00:01'/><source dev='eth0' mode='bridge'/></interface>
    <disk type='block' device='lun'><driver name='qemu' type='raw'/><source dev='/dev/vg/a'/><target dev='sdb'/></disk>
    <disk type='network'><source protocol='rbd' name='p/i'/><target dev='vdc'/></disk>
    <disk type='file'><source file='/a'/><target dev='vdd'/>
      <backingStore type='file'><format type='qcow2'/><source file='/b'/>
        <backingStore type='block'><source dev='/dev/c'/><backingStore/></backingStore></backingStore>
      <mirror type='file'><source file='/m'/></mirror></disk>
  </devices>
</domain>";

#[test]
fn odd_domains_are_read() {
    let info = DomainInfo::parse(ODD).unwrap();
    assert_eq!(info.name, "a & b");
    assert_eq!(info.uuid, "6f0c2f0e-5d2b-4a7e-9c67-0a1b2c3d4e5f");
    assert_eq!((info.vcpus, info.memory_bytes), (1, 1 << 30));
    assert_eq!(info.firmware, FirmwareInfo::Bios);
    assert_eq!(info.nvram.as_deref(), Some("/srv/vars.fd"));
    assert_eq!(info.mark, Mark::None);
    let disks: Vec<_> = info
        .disks
        .iter()
        .map(|disk| {
            (
                disk.target.as_str(),
                disk.device.as_str(),
                &disk.source,
                disk.readonly,
            )
        })
        .collect();
    let volume = DiskSource::Volume {
        pool: "default".into(),
        volume: "x.qcow2".into(),
    };
    let at = |path: &str| DiskSource::Path(path.into());
    assert_eq!(
        disks,
        [
            ("sda", "cdrom", &DiskSource::Other, true),
            ("vda", "disk", &volume, false),
            ("sdb", "lun", &at("/dev/vg/a"), false),
            ("vdc", "disk", &DiskSource::Other, false),
            ("vdd", "disk", &at("/a"), false),
        ]
    );
    assert_eq!(info.disks[4].backing, [at("/b"), at("/dev/c")]);
    assert_eq!(
        info.paths().collect::<Vec<_>>(),
        ["/dev/vg/a", "/a", "/b", "/dev/c"]
    );
    let interfaces: Vec<_> = info
        .interfaces
        .iter()
        .map(|nic| (nic.mac.as_str(), nic.kind.as_str(), nic.source.as_deref()))
        .collect();
    assert_eq!(
        interfaces,
        [
            ("52:54:00:aa:bb:cc", "network", Some("default")),
            ("52:54:00:00:00:01", "direct", None),
        ]
    );
}

#[test]
fn firmware_is_told_by_request_or_by_loader() {
    let with = |os: &str| {
        DomainInfo::parse(&format!("<domain><name>a</name>{os}</domain>"))
            .unwrap()
            .firmware
    };
    assert_eq!(with("<os firmware='efi'/>"), FirmwareInfo::Efi);
    assert_eq!(
        with("<os><loader type='pflash'>/x</loader></os>"),
        FirmwareInfo::Efi
    );
    assert_eq!(with("<os firmware='bios'/>"), FirmwareInfo::Bios);
    assert_eq!(with("<os/>"), FirmwareInfo::Bios);
    assert_eq!(with(""), FirmwareInfo::Bios);
}

#[test]
fn what_is_no_domain_is_an_error() {
    for xml in [
        "<network><name>a</name></network>",
        "<domain/>",
        "<domain><name/></domain>",
        "<domain><name>a</name><vcpu>two</vcpu></domain>",
        "<domain><name>a</name><memory>much</memory></domain>",
        "<domain><name>a</name><memory unit='furlong'>1</memory></domain>",
        "<domain><name>a</name>",
    ] {
        assert!(DomainInfo::parse(xml).is_err(), "{xml}");
    }
}

#[test]
fn units_are_libvirts() {
    let table = [
        ("", Some(7)),
        ("bytes", Some(7)),
        ("byte", Some(7)),
        ("b", Some(7)),
        ("B", Some(7)),
        ("KiB", Some(7 << 10)),
        ("k", Some(7 << 10)),
        ("KB", Some(7000)),
        ("MiB", Some(7 << 20)),
        ("M", Some(7 << 20)),
        ("MB", Some(7_000_000)),
        ("GiB", Some(7 << 30)),
        ("T", Some(7 << 40)),
        ("PiB", Some(7 << 50)),
        ("EiB", Some(7 << 60)),
        ("ZiB", None),
        ("kibi", None),
        ("ž", None),
    ];
    for (unit, expected) in table {
        let element = Element::new("memory").with("unit", unit).text(7);
        assert_eq!(bytes(&element, "KiB"), expected, "{unit}");
    }
    assert_eq!(
        bytes(&Element::new("memory").text("7"), "KiB"),
        Some(7 << 10)
    );
    assert_eq!(
        bytes(
            &Element::new("memory").with("unit", "EiB").text("16"),
            "KiB"
        ),
        None
    );
    assert_eq!(bytes(&Element::new("memory").text("-7"), "KiB"), None);
}

#[test]
fn what_is_left_out_must_be_well_formed_too() {
    let domain = |devices: &str| {
        let xml = format!("<domain><name>a</name><devices>{devices}</devices></domain>");
        DomainInfo::parse(&xml)
    };
    let disk = "<disk><source file='/a'/></disk>";
    let read = domain(&format!("<controller><a/></controller><hub/>{disk}")).unwrap();
    assert_eq!(read.paths().collect::<Vec<_>>(), ["/a"]);
    assert!(domain(&format!("<controller><a></controller>{disk}")).is_err());
    assert!(domain(&format!("<controller>{disk}")).is_err());
}
