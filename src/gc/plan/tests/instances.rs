//! Instances: expired, unlisted, foreign, young, in doubt.

use super::*;
use crate::inventory::PoolVolume;
use crate::inventory::tests::{DIR, disk, overlay};
use crate::xml::pool::PoolInfo;

/// One instance `web` with changed metadata, and what comes of it.
struct Case {
    about: &'static str,
    change: fn(&mut Metadata),
    keep: Option<&'static str>,
    expected: &'static [&'static str],
}

fn case(
    about: &'static str,
    change: fn(&mut Metadata),
    keep: Option<&'static str>,
    expected: &'static [&'static str],
) -> Case {
    Case {
        about,
        change,
        keep,
        expected,
    }
}

const GOES_EXPIRED: &[&str] = &["+expired web"];
const STAYS_EXPIRED: &[&str] = &["-expired web"];
const GOES_UNLISTED: &[&str] = &["+unlisted web"];
const STAYS_UNLISTED: &[&str] = &["-unlisted web"];
const NOTHING: &[&str] = &[];

#[test]
fn instances_of_ours() {
    let table = [
        case("without an end", |_| (), None, NOTHING),
        case(
            "not expired yet",
            |m| m.expires_at = Some(ago(-1)),
            None,
            NOTHING,
        ),
        case(
            "expired just now",
            |m| m.expires_at = Some(ago(0)),
            None,
            GOES_EXPIRED,
        ),
        case(
            "expired",
            |m| m.expires_at = Some(ago(HOURS)),
            None,
            GOES_EXPIRED,
        ),
        case(
            "expired, not managed",
            |m| {
                m.expires_at = Some(ago(1));
                m.managed = false;
            },
            None,
            STAYS_EXPIRED,
        ),
        case(
            "expired, but young",
            |m| {
                m.expires_at = Some(ago(1));
                m.created_at = ago(9 * MINUTES);
            },
            None,
            STAYS_EXPIRED,
        ),
        case(
            "expired, just old enough",
            |m| {
                m.expires_at = Some(ago(1));
                m.created_at = ago(10 * MINUTES);
            },
            None,
            GOES_EXPIRED,
        ),
        case(
            "expired, made this second",
            |m| {
                m.expires_at = Some(ago(0));
                m.created_at = ago(0);
            },
            None,
            STAYS_EXPIRED,
        ),
        case(
            "expired, made in the future",
            |m| {
                m.expires_at = Some(ago(1));
                m.created_at = ago(-HOURS);
            },
            None,
            STAYS_EXPIRED,
        ),
        case(
            "expired, on the list",
            |m| m.expires_at = Some(ago(1)),
            Some("web"),
            STAYS_EXPIRED,
        ),
        case(
            "expired, not on the list",
            |m| m.expires_at = Some(ago(1)),
            Some("x"),
            GOES_EXPIRED,
        ),
        case("listed by name", |_| (), Some("web"), NOTHING),
        case("listed by uid", |_| (), Some("uid-web"), NOTHING),
        case(
            "listed by ID",
            |_| (),
            Some("hosts/nas1/domains/web"),
            NOTHING,
        ),
        case(
            "listed on another host",
            |_| (),
            Some("hosts/nas2/domains/web"),
            GOES_UNLISTED,
        ),
        case(
            "another listed",
            |_| (),
            Some("web2\nuid-web2"),
            GOES_UNLISTED,
        ),
        case("a prefix listed", |_| (), Some("we"), GOES_UNLISTED),
        case("another case listed", |_| (), Some("WEB"), GOES_UNLISTED),
        case(
            "unlisted, not managed",
            |m| m.managed = false,
            Some("x"),
            STAYS_UNLISTED,
        ),
        case(
            "unlisted, young",
            |m| m.created_at = ago(599),
            Some("x"),
            STAYS_UNLISTED,
        ),
        case(
            "unlisted, from the future",
            |m| m.created_at = ago(-1),
            Some("x"),
            STAYS_UNLISTED,
        ),
        case(
            "a clone with the original's mark",
            |m| m.volumes = metadata("original").volumes,
            Some("x"),
            STAYS_UNLISTED,
        ),
        case(
            "without volumes",
            |m| m.volumes.clear(),
            Some("x"),
            STAYS_UNLISTED,
        ),
        case(
            "a volume twice",
            |m| {
                let first = m.volumes[0].clone();
                m.volumes.push(first);
            },
            Some("x"),
            STAYS_UNLISTED,
        ),
        case(
            "labelled, with more metadata",
            |m| {
                m.labels.insert("a".into(), "b".into());
            },
            Some("x"),
            GOES_UNLISTED,
        ),
    ];
    for Case {
        about,
        change,
        keep,
        expected,
    } in table
    {
        let mut metadata = metadata("web");
        change(&mut metadata);
        let keep = keep.map(|text| KeepList::parse("-", text.as_bytes(), false).unwrap());
        let view = view(vec![instance("web", &metadata)], Vec::new());
        let decided = plan(&[view], &rules(keep.as_ref(), &[]), now());
        assert_eq!(words(&decided), expected, "{about}: {}", reason(&decided));
    }
}

#[test]
fn nothing_foreign_goes_whatever_the_list_says() {
    let ours = metadata("web").to_xml().unwrap();
    let operators = |manager: &str| {
        format!(
            "<{manager}:instance xmlns:{manager}='https://gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/{manager}'>\
             <managed>true</managed><uid>u</uid><createdAt>2020-01-01T00:00:00Z</createdAt></{manager}:instance>"
        )
    };
    let unreadable = ours.replace("version=\"1\"", "version=\"2\"");
    let table = [
        ("nobody's", String::new(), NOTHING),
        (
            "somebody's",
            "<x:vm xmlns:x='urn:x'><x:managed>true</x:managed></x:vm>".to_owned(),
            NOTHING,
        ),
        ("the operator's", operators("kvm"), NOTHING),
        ("the operator's second", operators("kvm2"), NOTHING),
        ("a newer version's", unreadable, STAYS_UNLISTED),
        (
            "with two marks",
            format!("{ours}{}", operators("kvm")),
            STAYS_UNLISTED,
        ),
        (
            "our element in another namespace",
            ours.replace("/egressctl\"", "/egressctl2\""),
            NOTHING,
        ),
        (
            "without createdAt",
            ours.replace("createdAt", "madeAt"),
            STAYS_UNLISTED,
        ),
    ];
    let none = KeepList::parse("-", b"", true).unwrap();
    for (about, metadata, expected) in table {
        let view = view(vec![domain("web", &metadata, "")], Vec::new());
        let decided = plan(&[view], &rules(Some(&none), &[]), now());
        assert_eq!(words(&decided), expected, "{about}: {}", reason(&decided));
    }
}

#[test]
fn clocks_that_disagree_keep_things() {
    // The host's clock against ours; seconds ago of creation and of expiry by its mark.
    let table = [
        (Some(0), HOURS, 5, GOES_EXPIRED),
        (Some(-60), HOURS, 5, STAYS_EXPIRED),
        (Some(-60), HOURS, 60, GOES_EXPIRED),
        (Some(-2 * HOURS), HOURS, 3 * HOURS, STAYS_EXPIRED),
        (Some(2 * HOURS), HOURS, 5, GOES_EXPIRED),
        (Some(2 * HOURS), HOURS, -5, NOTHING),
        (Some(2 * HOURS), 60, 5, STAYS_EXPIRED),
        (None, HOURS, 5, GOES_EXPIRED),
        (None, 60, 5, STAYS_EXPIRED),
    ];
    for (offset, made, expired, expected) in table {
        let mut metadata = metadata("web");
        metadata.created_at = ago(made);
        metadata.expires_at = Some(ago(expired));
        let mut view = view(vec![instance("web", &metadata)], Vec::new());
        view.clock_offset = offset;
        let decided = plan(&[view], &rules(None, &[]), now());
        assert_eq!(words(&decided), expected, "{offset:?} {made} {expired}");
    }
}

#[test]
fn an_instance_that_others_build_on_stays() {
    let mut expired = metadata("web");
    expired.expires_at = Some(ago(1));
    let path = format!("{DIR}/web.qcow2");
    let own = || domain("web", &expired.to_xml().unwrap(), &disk(&path));
    let base = format!("{DIR}/base-a-0123456789abcdef.qcow2");
    let volumes = || vec![overlay("web.qcow2", &base), volume("web-seed.iso")];
    let goes = view(vec![own()], volumes());
    let with_foreign_overlay = view(
        vec![own()],
        [volumes(), vec![overlay("clone.qcow2", &path)]].concat(),
    );
    let with_foreign_domain = view(vec![own(), domain("other", "", &disk(&path))], volumes());
    for (view, expected) in [
        (goes, GOES_EXPIRED),
        (with_foreign_overlay, STAYS_EXPIRED),
        (with_foreign_domain, STAYS_EXPIRED),
    ] {
        let decided = plan(&[view], &rules(None, &[]), now());
        assert_eq!(words(&decided), expected, "{}", reason(&decided));
    }
}

#[test]
fn a_renamed_instance_stays() {
    for name in ["Web_1", "web.old", "base-web", "other"] {
        let mut expired = metadata("web");
        expired.expires_at = Some(ago(1));
        let view = view(vec![instance(name, &expired)], Vec::new());
        let decided = plan(&[view], &rules(None, &[]), now());
        assert_eq!(words(&decided), [format!("-expired {name}")]);
        assert!(reason(&decided).starts_with("in doubt"), "{name}");
    }
}

#[test]
fn a_disk_that_is_elsewhere_is_in_doubt_and_one_that_is_missing_is_not() {
    let mut old = metadata("web");
    old.expires_at = Some(ago(1));
    let (there, old_disk) = (format!("{DIR}/web.qcow2"), "/data/web.qcow2");
    let in_old = |path: &str| {
        let mut info = volume("web.qcow2");
        path.clone_into(&mut info.path);
        vec![PoolVolume {
            pool: "old".to_owned(),
            info,
        }]
    };
    let table = [
        (&*there, "default", vec![], GOES_EXPIRED),
        (old_disk, "default", vec![], STAYS_EXPIRED),
        // Recorded in another pool than the configured one.
        (old_disk, "old", in_old(old_disk), GOES_EXPIRED),
        (&*there, "old", in_old(old_disk), STAYS_EXPIRED),
        // Nobody would find its disk any more.
        (old_disk, "old", vec![], STAYS_EXPIRED),
    ];
    for (path, pool, elsewhere, expected) in table {
        let mut old = old.clone();
        for volume in &mut old.volumes {
            pool.clone_into(&mut volume.pool);
        }
        let web = domain("web", &old.to_xml().unwrap(), &disk(path));
        let mut view = view(vec![web], Vec::new());
        view.files.elsewhere = elsewhere;
        let xml = format!(
            "<pool type='dir'><name>default</name><target><path>{DIR}/</path></target></pool>"
        );
        view.pool = Some(PoolInfo::parse(&xml).unwrap());
        let decisions = plan(&[view], &rules(None, &[]), now());
        assert_eq!(words(&decisions), expected, "{path} {pool}");
    }
}
