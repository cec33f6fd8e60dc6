//! Volumes without a domain on storage that several hosts see.

use super::leftovers::{BOTH_GO, BOTH_STAY, crashed, the};
use super::*;
use crate::inventory::tests::{DIR, disk};

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
        rules.sees_all = sees_all;
        assert_eq!(
            words(&plan(&[view], &rules, now())),
            expected,
            "{shared:?} {sees_all}"
        );
    }
}
