//! Who uses a file, and what can't be seen. The builders serve gc's tests, too.

use super::*;
use crate::error::Error;
use crate::libvirt::{Definition, DomainRef, DomainState, When};
use crate::xml::volume::BackingInfo;
use jiff::Timestamp;

pub(crate) const DIR: &str = "/var/lib/libvirt/images";

/// A volume of the pool `default`.
pub(crate) fn volume(name: &str) -> VolumeInfo {
    let path = format!("{DIR}/{name}");
    VolumeInfo {
        name: name.to_owned(),
        key: path.clone(),
        path,
        is_file: true,
        format: Some("raw".to_owned()),
        capacity: 65536,
        allocation: 65536,
        physical: Some(65536),
        backing: None,
        modified: None,
        born: None,
    }
}

/// An overlay on the file of that path.
pub(crate) fn overlay(name: &str, backing: &str) -> VolumeInfo {
    VolumeInfo {
        format: Some("qcow2".to_owned()),
        backing: Some(BackingInfo {
            path: backing.to_owned(),
            format: Some("qcow2".to_owned()),
        }),
        ..volume(name)
    }
}

/// The same volume, last written then.
pub(crate) fn written(info: VolumeInfo, at: Timestamp) -> VolumeInfo {
    VolumeInfo {
        modified: Some(at),
        ..info
    }
}

/// A domain with this metadata and these disks, off.
pub(crate) fn domain(name: &str, metadata: &str, disks: &str) -> DomainFiles {
    let uuid = format!("uuid-of-{name}");
    let xml = format!(
        "<domain type='kvm'><name>{name}</name><uuid>{uuid}</uuid><memory>1024</memory>\
         <metadata>{metadata}</metadata><devices>{disks}</devices></domain>"
    );
    let listed = libvirt::ListedDomain {
        domain: DomainRef {
            name: name.to_owned(),
            uuid,
        },
        state: DomainState::Shutoff(1),
        xml,
    };
    DomainFiles::new("nas1", listed).unwrap()
}

/// A disk on a file.
pub(crate) fn disk(path: &str) -> String {
    format!(
        "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>\
         <source file='{path}'/><target dev='vda'/></disk>"
    )
}

fn files(domains: Vec<DomainFiles>, volumes: Vec<VolumeInfo>) -> Files {
    Files {
        domains,
        volumes,
        pool: "default".to_owned(),
        ..Files::default()
    }
}

const BASE: &str = "base-a-0123456789abcdef.qcow2";

fn base_path() -> String {
    format!("{DIR}/{BASE}")
}

#[test]
fn every_way_to_use_a_file_counts() {
    let path = base_path();
    let volume_disk = |pool: &str, name: &str| {
        format!(
            "<disk type='volume'><source pool='{pool}' volume='{name}'/><target dev='vda'/></disk>"
        )
    };
    let chain = format!(
        "<disk type='file'><source file='/x/top.qcow2'/><backingStore type='file'>\
         <source file='{path}'/><backingStore/></backingStore><target dev='vda'/></disk>"
    );
    let mirror = format!(
        "<disk type='file'><driver type='raw'/><source file='{DIR}/o.qcow2'/><mirror type='file' file='{path}'>\
         <source file='{path}'/></mirror><target dev='vda'/></disk>"
    );
    let table = [
        ("as a disk", disk(&path), true),
        (
            "as a cdrom",
            disk(&path).replace("device='disk'", "device='cdrom'"),
            true,
        ),
        ("in a chain", chain, true),
        (
            "as a volume of our pool",
            volume_disk("default", BASE),
            true,
        ),
        (
            "as a volume of a pool that can't be seen",
            volume_disk("dark", BASE),
            true,
        ),
        ("as a mirror", mirror, true),
        (
            "another volume",
            volume_disk("default", "other.qcow2"),
            false,
        ),
        ("another file", disk(&format!("{path}.bak")), false),
        (
            "perhaps by another path to it",
            disk(&format!("/x{path}")),
            true,
        ),
        ("nothing", String::new(), false),
    ];
    for (how, disks, used) in table {
        let files = files(
            vec![domain("d", "", &disks)],
            vec![overlay(BASE, "/none"), volume("other.qcow2")],
        );
        let users = files.seen_users_of(&path);
        let expected: &[&str] = if used { &["domain d"] } else { &[] };
        assert_eq!(users, expected, "{how}");
    }
}

#[test]
fn volumes_of_all_pools_count_as_users() {
    let mut files = files(
        Vec::new(),
        vec![volume(BASE), overlay("web.qcow2", &base_path())],
    );
    files.elsewhere.push(PoolVolume {
        pool: "fast".to_owned(),
        info: overlay("clone.qcow2", &base_path()),
    });
    assert_eq!(
        files.users_of(&base_path()),
        ["volume web.qcow2", "volume clone.qcow2 of pool fast"]
    );
    assert!(files.users_of(&format!("{DIR}/web.qcow2")).is_empty());
}

#[test]
fn a_file_named_by_another_path_is_used_unless_that_leads_elsewhere() {
    let (path, linked) = (base_path(), format!("/data/images/{BASE}"));
    // What the two paths lead to, and whether that is one file, as far as is known.
    let table = [
        (None, true),
        (Some(("1:7", "1:7")), true),
        (Some(("1:7", "1:8")), false),
        (Some(("1:7", "gone")), false),
    ];
    for (known, used) in table {
        let volumes = vec![volume(BASE), overlay("foreign", &linked)];
        let mut files = files(vec![domain("d", "", &disk(&linked))], volumes);
        if let Some((ours, theirs)) = known {
            files.identities.insert(path.clone(), ours.to_owned());
            files.identities.insert(linked.clone(), theirs.to_owned());
        }
        let expected: &[&str] = if used {
            &["domain d", "volume foreign"]
        } else {
            &[]
        };
        assert_eq!(files.seen_users_of(&path), expected, "{known:?}");
        assert_eq!(
            files.others_seen_using(&path, "other"),
            expected,
            "{known:?}"
        );
    }
}

#[test]
fn what_a_running_domain_will_be_counts_too() {
    let path = base_path();
    let other = format!("{DIR}/other.qcow2");
    let hidden = "/srv/later.qcow2";
    for when in [When::NextStart, When::Restored] {
        let mut one = domain("d", "", &disk(&other));
        one.instance.state = DomainState::Running;
        let xml = |file: &str| {
            let disks = [disk(&other), disk(file)].concat();
            format!("<domain><name>d</name><uuid>u</uuid><devices>{disks}</devices></domain>")
        };
        let definition = |file: &str| Definition {
            domain: one.instance.domain.clone(),
            when,
            xml: xml(file),
        };
        let mut now = one.clone();
        now.define(&definition(&path)).unwrap();
        let files_now = files(vec![now], vec![volume(BASE), volume("other.qcow2")]);
        assert_eq!(files_now.seen_users_of(&path), ["domain d"], "{when:?}");
        let mut now = one.clone();
        now.define(&definition(hidden)).unwrap();
        let files_now = files(vec![now], vec![volume(BASE), volume("other.qcow2")]);
        let unread = files_now.unread_disks(None);
        assert_eq!(unread.len(), 1, "{when:?}");
        assert_eq!(unread[0].path, hidden, "{when:?}");
        assert!(unread[0].runs, "{when:?}");
    }
}

#[test]
fn a_file_of_the_same_name_in_another_pool_is_another_where_its_times_say_so() {
    let at = |second: i64| Some(Timestamp::from_second(1_800_000_000 + second).unwrap());
    let theirs = format!("/data/{BASE}");
    let base = |path: &str, modified, born| VolumeInfo {
        path: path.to_owned(),
        modified,
        born,
        ..volume(BASE)
    };
    // Ours was written at 10 and made at 5; the other pool's volume, and whether its overlay counts as a user of ours.
    let table = [
        ("made at another time", Some((at(10), at(7))), false),
        ("written at another time", Some((at(20), None)), false),
        // Perhaps a link, and it is just being written.
        ("made at the same time", Some((at(20), at(5))), true),
        ("written at the same time", Some((at(10), None)), true),
        ("nothing but its name known", Some((None, None)), true),
        ("no volume that is known", None, true),
    ];
    for (how, other, is_user) in table {
        let ours = base(&base_path(), at(10), at(5));
        let mut files = files(Vec::new(), vec![ours]);
        let mut add = |info| {
            files.elsewhere.push(PoolVolume {
                pool: "data".to_owned(),
                info,
            });
        };
        if let Some((modified, born)) = other {
            add(base(&theirs, modified, born));
        }
        add(overlay("web9.qcow2", &theirs));
        let users = files.users_of_base(&base_path());
        let expected: &[&str] = if is_user {
            &["volume web9.qcow2 of pool data"]
        } else {
            &[]
        };
        assert_eq!(users, expected, "{how}");
        // Theirs is used all the same.
        assert!(!files.users_of_base(&theirs).is_empty(), "{how}");
    }
}

#[test]
fn a_pool_that_libvirt_cant_read_is_blind_and_a_lost_host_is_an_error() {
    for (reason, is_blind) in [
        (Reason::LibvirtError, true),
        (Reason::PoolBusy, true),
        (Reason::ConnectFailed, false),
        (Reason::Interrupted, false),
        (Reason::PermissionDenied, false),
    ] {
        let failed: Result<Option<()>> = Err(Error::transient(reason, "x"));
        let read = blind_where_unreadable("dark", failed);
        assert_eq!(matches!(read, Ok(None)), is_blind, "{reason}");
        assert_eq!(read.is_err(), !is_blind, "{reason}");
    }
}

#[test]
fn what_cant_be_seen_is_a_doubt() {
    let hidden = disk("/home/me/vm.qcow2");
    let mut shown = domain("d", "", &hidden);
    shown.instance.state = DomainState::Running;
    let raw = hidden.replace("type='qcow2'", "type='raw'");
    let table = [
        ("off, in no pool", domain("d", "", &hidden), true),
        ("running: libvirt shows the chain", shown, false),
        ("raw", domain("d", "", &raw), false),
        (
            "in our pool",
            domain("d", "", &disk(&format!("{DIR}/vm.qcow2"))),
            false,
        ),
    ];
    for (how, domain, doubt) in table {
        let files = files(
            vec![domain],
            vec![volume(BASE), overlay("vm.qcow2", "/other")],
        );
        let path = base_path();
        assert!(files.seen_users_of(&path).is_empty(), "{how}");
        let asked = [
            files.users_of_base(&path),
            files.users_of(&path),
            files.others_using(&path, "other"),
        ];
        for users in asked {
            assert_eq!(!users.is_empty(), doubt, "{how}: {users:?}");
        }
        assert!(files.others_using(&path, "d").is_empty(), "{how}");
    }
    let mut files = files(Vec::new(), vec![volume(BASE)]);
    files.blind.push("dark".to_owned());
    assert!(files.users_of(&base_path()).is_empty());
    assert!(files.users_of_base(&base_path())[0].contains("pool dark"));
}

#[test]
fn a_hidden_disk_uses_what_its_file_says() {
    let hidden = "/srv/vm.qcow2";
    let linked = format!("/data/{BASE}");
    let path = base_path();
    let table = [
        (vec![path.clone()], true),
        (vec!["/srv/between.qcow2".to_owned(), path.clone()], true),
        // Perhaps the same file, through a symbolic link.
        (vec![linked], true),
        (vec!["/srv/between.qcow2".to_owned()], false),
        (Vec::new(), false),
    ];
    for (chain, used) in table {
        let mut files = files(vec![domain("d", "", &disk(hidden))], vec![volume(BASE)]);
        files.chains.insert(hidden.to_owned(), chain.clone());
        for users in [files.users_of(&path), files.users_of_base(&path)] {
            assert_eq!(!users.is_empty(), used, "{chain:?}: {users:?}");
            assert!(
                users.iter().all(|user| user.contains("domain d")),
                "{users:?}"
            );
        }
        assert!(files.others_using(&path, "d").is_empty());
    }
}
