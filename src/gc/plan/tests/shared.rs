//! Volumes without a domain on storage that several hosts see.

use super::leftovers::{BOTH_GO, BOTH_STAY, crashed, the};
use super::*;
use crate::inventory::tests::{DIR, disk};
use crate::libvirt::DomainState;

/// The same view on another host.
fn on(host: &str, mut view: HostView) -> HostView {
    host.clone_into(&mut view.host);
    view
}

#[test]
fn on_shared_storage_the_other_hosts_instances_count() {
    let rules = rules(None, &[]);
    let words_of = |views: &[HostView]| words(&plan(views, &rules, now()));
    // Both see the same abandoned files: one of them deletes them.
    assert_eq!(words_of(&[crashed(), on("nas2", crashed())]), BOTH_GO);
    // The instance runs on the other host, under its name.
    let mut runs = on("nas2", crashed());
    runs.seeds.clear();
    runs.files.domains.push(domain("web", "", ""));
    assert_eq!(words_of(&[crashed(), runs.clone()]), BOTH_STAY);
    assert_eq!(words_of(&[runs.clone(), crashed()]), BOTH_STAY);
    // The other host's instance has that name and files of its own.
    the(&mut runs, "web-seed.iso").modified = Some(ago(HOURS - 7));
    assert_eq!(words_of(&[crashed(), runs]), BOTH_GO);
    // A domain of another name has the files there.
    let mut renamed = on("nas2", crashed());
    renamed
        .files
        .domains
        .push(domain("x", "", &disk(&format!("{DIR}/web.qcow2"))));
    let decided = words_of(&[crashed(), renamed]);
    assert_eq!(decided, BOTH_STAY);
}

#[test]
fn shared_storage_needs_every_host() {
    for (shared, sees_all, expected) in [
        (Sharing::Own, false, BOTH_GO),
        (Sharing::Perhaps, true, BOTH_GO),
        (Sharing::Perhaps, false, BOTH_STAY),
    ] {
        let mut view = crashed();
        view.shared = shared;
        let mut rules = rules(None, &[]);
        if !sees_all {
            rules.unread = vec!["nas9".into()];
        }
        assert_eq!(
            words(&plan(&[view], &rules, now())),
            expected,
            "{shared:?} {sees_all}"
        );
    }
}

/// The instance `web` in pool `p1`, as a host with that pool or another one sees it: one machine under two names.
fn seen_as(host: &str, pool: &str) -> HostView {
    let mut metadata = metadata("web");
    for volume in &mut metadata.volumes {
        volume.pool = "p1".to_owned();
    }
    let mut view = on(host, view(vec![instance("web", &metadata)], Vec::new()));
    view.files.pool = pool.to_owned();
    for domain in &mut view.files.domains {
        domain.instance.host = host.to_owned();
    }
    view
}

/// A list, the pools of the two hosts, and the one that decides with what it decides.
type Case = (
    &'static str,
    [&'static str; 2],
    Option<(&'static str, &'static str)>,
);

#[test]
fn one_machine_under_two_names_has_each_instance_once() {
    let by_nas1 = ("nas1", "+unlisted web");
    let table: [Case; 5] = [
        ("hosts/nas1/domains/web", ["p1", "pp"], None),
        ("hosts/nasp/domains/web", ["p1", "pp"], None),
        ("x", ["p1", "pp"], Some(by_nas1)),
        ("x", ["pp", "p1"], Some(("nasp", "+unlisted web"))),
        // Recorded in neither's pool: the first one's to judge, and its pool isn't there.
        ("x", ["p2", "p3"], Some(("nas1", "-unlisted web"))),
    ];
    for (list, pools, expected) in table {
        let views = [seen_as("nas1", pools[0]), seen_as("nasp", pools[1])];
        let keep = KeepList::parse("-", list.as_bytes(), false).unwrap();
        let mut rules = rules(Some(&keep), &[]);
        rules.kept = kept(&views, Some(&keep));
        let decided = plan(&views, &rules, now());
        assert_eq!(decided.len(), usize::from(expected.is_some()), "{list}");
        if let Some((host, word)) = expected {
            assert_eq!(decided[0].host, host, "{list} {pools:?}");
            assert_eq!(words(&decided), [word], "{list} {pools:?}");
        }
    }
}

#[test]
fn an_id_on_a_host_that_wasnt_read_may_be_this_very_instance() {
    let keep = "hosts/nas1/domains/web\nhosts/nas9/domains/other";
    let keep = KeepList::parse("-", keep.as_bytes(), false).unwrap();
    for (unread, expected) in [("nas1", "-unlisted web"), ("nas9", "+unlisted web")] {
        let mut rules = rules(Some(&keep), &[]);
        rules.unread = vec![unread.to_owned()];
        let decided = plan(&[seen_as("nasp", "p1")], &rules, now());
        assert_eq!(words(&decided), [expected], "{unread}");
    }
}

/// The expired instance `web` with its volumes, as a host shows it that may share them.
fn expired_on(host: &str, shared: Sharing) -> HostView {
    let mut expired = metadata("web");
    expired.expires_at = Some(ago(1));
    let disks = disk(&format!("{DIR}/web.qcow2"));
    let web = domain("web", &expired.to_xml().unwrap(), &disks);
    let volumes = ["web.qcow2", "web-seed.iso"].map(|name| written(volume(name), ago(HOURS)));
    let mut view = on(host, view(vec![web], volumes.to_vec()));
    view.shared = shared;
    view
}

#[test]
fn an_instance_that_another_machine_has_too_stays_on_shared_storage() {
    use Sharing::{Own, Perhaps};
    let goes = "+expired web";
    let stays = "-expired web";
    let twin = |mut view: HostView| {
        view.machine = Some("one".to_owned());
        view
    };
    let migrated = || {
        let mut there = expired_on("nas2", Perhaps);
        for domain in &mut there.files.domains {
            domain.instance.info.mark = crate::xml::metadata::Mark::None;
        }
        there
    };
    let mut uses_it = migrated();
    for domain in &mut uses_it.files.domains {
        domain.instance.domain.uuid = "another".to_owned();
    }
    let mut namesake = uses_it.clone();
    the(&mut namesake, "web-seed.iso").modified = Some(ago(MINUTES));
    let mut on_its_own = migrated();
    the(&mut on_its_own, "web-seed.iso").modified = Some(ago(MINUTES));
    let mut runs_there = twin(migrated());
    for domain in &mut runs_there.files.domains {
        domain.instance.state = DomainState::from_raw(1, 1);
    }
    let table = [
        ("alone", expired_on("nas1", Perhaps), None, goes),
        (
            "migrated",
            expired_on("nas1", Perhaps),
            Some(migrated()),
            stays,
        ),
        (
            "migrated, one directory",
            expired_on("nas1", Own),
            Some(migrated()),
            stays,
        ),
        (
            "migrated with its disk",
            expired_on("nas1", Own),
            Some(on_its_own),
            goes,
        ),
        (
            "used there",
            expired_on("nas1", Perhaps),
            Some(uses_it),
            stays,
        ),
        (
            "a namesake there",
            expired_on("nas1", Perhaps),
            Some(namesake),
            goes,
        ),
        (
            "one machine",
            twin(expired_on("nas1", Perhaps)),
            Some(twin(migrated())),
            goes,
        ),
        (
            "boards of one vendor",
            twin(expired_on("nas1", Perhaps)),
            Some(runs_there),
            stays,
        ),
    ];
    for (about, here, there, expected) in table {
        let views: Vec<HostView> = [here].into_iter().chain(there).collect();
        let decided = plan(&views, &rules(None, &[]), now());
        assert_eq!(
            words(&decided)[0],
            expected,
            "{about}: {}",
            reason(&decided)
        );
    }
    // A host that wasn't read may have it, but for what runs here.
    let is = |state, shared| {
        let mut view = expired_on("nas1", shared);
        for domain in &mut view.files.domains {
            domain.instance.state = DomainState::from_raw(state, 1);
        }
        view
    };
    for (about, view, expected) in [
        ("off, its own", is(5, Own), goes),
        ("off", is(5, Perhaps), stays),
        ("paused, as one that is coming", is(3, Perhaps), stays),
        ("runs", is(1, Perhaps), goes),
    ] {
        let mut rules = rules(None, &[]);
        rules.unread = vec!["nas9".into()];
        assert_eq!(words(&plan(&[view], &rules, now())), [expected], "{about}");
    }
}
