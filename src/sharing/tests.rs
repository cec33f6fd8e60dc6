//! Who has a file by what two hosts show of it.

use super::*;
use crate::inventory::tests::{DIR, disk, domain, volume, written};

fn seed(second: i64) -> VolumeInfo {
    let at = jiff::Timestamp::from_second(second).unwrap();
    written(volume("web-seed.iso"), at)
}

/// Another host: its seed of that name, if it sees one, and its domain.
fn other(seed: Option<VolumeInfo>, name: &str, devices: &str) -> Files {
    Files {
        domains: vec![domain(name, "", devices)],
        volumes: seed.into_iter().chain([volume("web.qcow2")]).collect(),
        pool: "default".to_owned(),
        ..Files::default()
    }
}

#[test]
fn anothers_instance_is_known_by_its_seed() {
    use Sharing::{Own, Perhaps};
    let name = InstanceName::new("web").unwrap();
    let its_disk = disk(&format!("{DIR}/web.qcow2"));
    let table = [
        ("the same seed", other(Some(seed(7)), "web", ""), Own, true),
        (
            "one of its own",
            other(Some(seed(8)), "web", ""),
            Own,
            false,
        ),
        (
            "by name only",
            other(Some(seed(8)), "web", ""),
            Perhaps,
            true,
        ),
        ("no seed", other(None, "web", ""), Own, false),
        ("no seed", other(None, "web", ""), Perhaps, false),
        ("renamed", other(Some(seed(7)), "x", &its_disk), Own, true),
        ("its own path", other(None, "x", &its_disk), Own, false),
        ("a shared path", other(None, "x", &its_disk), Perhaps, true),
        ("nobody", other(Some(seed(7)), "x", ""), Own, false),
        ("nobody", other(Some(seed(7)), "x", ""), Perhaps, false),
    ];
    for (about, files, shared, used) in table {
        let overlay = volume("web.qcow2");
        let found = is_used_by(&files, shared, &seed(7), &name, Some(&overlay));
        assert_eq!(found, used, "{about}, {shared:?}");
    }
}

#[test]
fn a_host_that_cant_be_asked_is_in_doubt_only_where_the_pool_may_be_shared() {
    use Sharing::{Own, Perhaps};
    let down = |host: &str| Other {
        host: host.to_owned(),
        files: Err(Error::transient(Reason::ConnectFailed, "no route")),
    };
    let has = |files: &Files| files.domain("web").is_some();
    let up = |host: &str, name: &str| Other {
        host: host.to_owned(),
        files: Ok(other(Some(seed(7)), name, "")),
    };
    let word = |others: &[Other], shared| match judge(others, shared, has) {
        Verdict::Nobodys => "nobody's".to_owned(),
        Verdict::On(host) => format!("on {host}"),
        Verdict::Unknown(host, _) => format!("unknown on {host}"),
    };
    assert_eq!(word(&[down("nas2")], Own), "nobody's");
    assert_eq!(word(&[down("nas2")], Perhaps), "unknown on nas2");
    // What is known for sure goes first.
    assert_eq!(word(&[down("nas2"), up("nas3", "web")], Own), "on nas3");
    assert_eq!(word(&[up("nas3", "x")], Perhaps), "nobody's");
}

#[test]
fn an_instance_with_its_domain_is_anothers_by_uuid_or_by_the_use_of_its_files() {
    use Sharing::{Own, Perhaps};
    let name = InstanceName::new("web").unwrap();
    let own = domain("web", "", "").instance.domain;
    let anothers = DomainRef {
        uuid: "another".to_owned(),
        ..own.clone()
    };
    let its_disk = disk(&format!("{DIR}/web.qcow2"));
    let table = [
        ("migrated", &own, other(None, "web", ""), Perhaps, true),
        (
            "migrated, on its own disk",
            &own,
            other(None, "web", ""),
            Own,
            false,
        ),
        (
            "one disk of two hosts",
            &own,
            other(Some(seed(7)), "web", ""),
            Own,
            true,
        ),
        (
            "a namesake",
            &anothers,
            other(Some(seed(7)), "web", ""),
            Perhaps,
            false,
        ),
        (
            "its disk",
            &anothers,
            other(Some(seed(7)), "x", &its_disk),
            Perhaps,
            true,
        ),
        (
            "its disk, no seed",
            &anothers,
            other(None, "web", &its_disk),
            Perhaps,
            true,
        ),
        // Times that were cut to whole seconds.
        (
            "about one time",
            &anothers,
            other(Some(seed(8)), "web", &its_disk),
            Perhaps,
            true,
        ),
        (
            "a namesake's own",
            &anothers,
            other(Some(seed(9)), "web", &its_disk),
            Perhaps,
            false,
        ),
        (
            "nobody",
            &anothers,
            other(Some(seed(7)), "x", ""),
            Perhaps,
            false,
        ),
        // Off, and nobody can look into it: that says nothing about an instance which is here.
        (
            "another's disk, unread",
            &anothers,
            other(Some(seed(7)), "x", &disk("/vms/win10.qcow2")),
            Perhaps,
            false,
        ),
    ];
    for (about, domain, files, shared, expected) in table {
        let (seed, overlay) = (seed(7), volume("web.qcow2"));
        let had = is_had_by(&files, shared, domain, &name, Some(&seed), Some(&overlay));
        assert_eq!(had, expected, "{about}, {shared:?}");
    }
}
