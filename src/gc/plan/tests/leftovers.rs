//! Volumes without a domain: what the seed proves, and what it doesn't.

use super::*;
use crate::gc::inventory::SeedView;
use crate::inventory::tests::{DIR, disk, overlay};
use crate::owner::Liveness;

fn mark(name: &str) -> SeedMark {
    SeedMark {
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        created_at: ago(HOURS),
        owner: None,
    }
}

fn base() -> String {
    format!("{DIR}/base-a-0123456789abcdef.qcow2")
}

/// A host with a crashed create's seed and overlay, both an hour old.
pub(super) fn crashed() -> HostView {
    let mut view = view(
        Vec::new(),
        vec![
            written(volume("web-seed.iso"), ago(HOURS)),
            written(overlay("web.qcow2", &base()), ago(HOURS - 1)),
        ],
    );
    seed(&mut view, SeedView::Marked(mark("web"), Liveness::Unknown));
    view
}

fn seed(view: &mut HostView, seed: SeedView) {
    view.seeds.insert("web-seed.iso".to_owned(), seed);
}

/// The named volume of the view.
pub(super) fn the<'a>(view: &'a mut HostView, name: &str) -> &'a mut VolumeInfo {
    let volumes = &mut view.files.volumes;
    volumes.iter_mut().find(|v| v.name == name).unwrap()
}

fn drop_volume(view: &mut HostView, name: &str) {
    view.files.volumes.retain(|volume| volume.name != name);
}

pub(super) const BOTH_GO: &[&str] = &["+orphan web-seed.iso", "+orphan web.qcow2"];
pub(super) const BOTH_STAY: &[&str] = &["-orphan web-seed.iso", "-orphan web.qcow2"];
const SEED_GOES: &[&str] = &["+orphan web-seed.iso"];
const SEED_STAYS: &[&str] = &["-orphan web-seed.iso"];
const OVERLAY_STAYS: &[&str] = &["-orphan web.qcow2"];
const NOTHING: &[&str] = &[];

type Change = fn(&mut HostView);

fn check(table: &[(&str, Change, &[&str])]) {
    for (about, change, expected) in table {
        let mut view = crashed();
        change(&mut view);
        let decided = plan(&[view], &rules(None, &[]), now());
        assert_eq!(words(&decided), *expected, "{about}: {}", reason(&decided));
    }
}

#[test]
fn the_seeds_mark_is_the_proof() {
    check(&[
        ("left by a crash", |_| (), BOTH_GO),
        (
            "before the overlay was made",
            |v| drop_volume(v, "web.qcow2"),
            SEED_GOES,
        ),
        ("a foreign seed", |v| seed(v, SeedView::Other), NOTHING),
        (
            "no seed",
            |v| {
                v.seeds.clear();
                drop_volume(v, "web-seed.iso");
            },
            OVERLAY_STAYS,
        ),
        (
            "another instance's mark",
            |v| seed(v, SeedView::Marked(mark("other"), Liveness::Unknown)),
            BOTH_STAY,
        ),
        (
            "its maker is at work",
            |v| seed(v, SeedView::Marked(mark("web"), Liveness::Alive)),
            BOTH_STAY,
        ),
        (
            "its maker is dead",
            |v| seed(v, SeedView::Marked(mark("web"), Liveness::Gone)),
            BOTH_GO,
        ),
        (
            "a domain has the name",
            |v| v.files.domains.push(domain("web", "", "")),
            NOTHING,
        ),
        (
            "a foreign domain has the seed",
            |v| {
                v.files
                    .domains
                    .push(domain("x", "", &disk(&format!("{DIR}/web-seed.iso"))))
            },
            BOTH_STAY,
        ),
        (
            "a foreign domain has the overlay",
            |v| {
                v.files
                    .domains
                    .push(domain("x", "", &disk(&format!("{DIR}/web.qcow2"))))
            },
            BOTH_STAY,
        ),
        (
            "a foreign overlay on the overlay",
            |v| {
                v.files
                    .volumes
                    .push(overlay("x.qcow2", &format!("{DIR}/web.qcow2")))
            },
            BOTH_STAY,
        ),
        (
            "another pool's overlay on it",
            |v| {
                v.files.elsewhere.push(crate::inventory::PoolVolume {
                    pool: "p".into(),
                    info: overlay("x", &format!("{DIR}/web.qcow2")),
                })
            },
            BOTH_STAY,
        ),
    ]);
}

#[test]
fn a_disk_beside_the_seed_must_be_its_overlay() {
    check(&[
        (
            "a raw disk",
            |v| *the(v, "web.qcow2") = written(volume("web.qcow2"), ago(HOURS - 1)),
            BOTH_STAY,
        ),
        (
            "a qcow2 disk of its own",
            |v| the(v, "web.qcow2").backing = None,
            BOTH_STAY,
        ),
        (
            "on something that is no base",
            |v| the(v, "web.qcow2").backing.as_mut().unwrap().path = "/x/golden.qcow2".into(),
            BOTH_STAY,
        ),
        (
            "on the operator's base",
            |v| the(v, "web.qcow2").backing.as_mut().unwrap().path = format!("{DIR}/base-a.qcow2"),
            BOTH_GO,
        ),
        (
            "older than the seed",
            |v| the(v, "web.qcow2").modified = Some(ago(HOURS + 1)),
            BOTH_STAY,
        ),
        (
            "as old as the seed",
            |v| the(v, "web.qcow2").modified = Some(ago(HOURS)),
            BOTH_GO,
        ),
        (
            "of no known time",
            |v| the(v, "web.qcow2").modified = None,
            BOTH_STAY,
        ),
        (
            "written just now",
            |v| the(v, "web.qcow2").modified = Some(ago(3)),
            BOTH_STAY,
        ),
    ]);
}

#[test]
fn nothing_young_goes() {
    fn made(v: &mut HostView, seconds: i64) {
        let mut mark = mark("web");
        mark.created_at = ago(seconds);
        seed(v, SeedView::Marked(mark, Liveness::Gone));
    }
    check(&[
        ("made this second", |v| made(v, 0), BOTH_STAY),
        ("made nine minutes ago", |v| made(v, 9 * MINUTES), BOTH_STAY),
        ("made ten minutes ago", |v| made(v, 10 * MINUTES), BOTH_GO),
        ("made in the future", |v| made(v, -1), BOTH_STAY),
        (
            "the seed was written just now",
            |v| {
                the(v, "web-seed.iso").modified = Some(ago(5));
                the(v, "web.qcow2").modified = Some(ago(4));
            },
            BOTH_STAY,
        ),
        (
            "the seed is of the future",
            |v| the(v, "web-seed.iso").modified = Some(ago(-5)),
            BOTH_STAY,
        ),
        (
            "the host's clock is behind",
            |v| v.clock_offset = Some(-55 * MINUTES),
            BOTH_STAY,
        ),
        (
            "the host's clock is far behind",
            |v| v.clock_offset = Some(-2 * HOURS),
            BOTH_STAY,
        ),
        (
            "the host's clock is ahead",
            |v| v.clock_offset = Some(2 * HOURS),
            BOTH_GO,
        ),
        (
            "the host is ahead, and it is young by ours",
            |v| {
                v.clock_offset = Some(2 * HOURS);
                made(v, 60);
            },
            BOTH_STAY,
        ),
        ("the host has no clock", |v| v.clock_offset = None, BOTH_GO),
        (
            "no clock, written just now",
            |v| {
                v.clock_offset = None;
                the(v, "web-seed.iso").modified = Some(ago(5));
            },
            BOTH_STAY,
        ),
    ]);
}

#[test]
fn without_a_min_age_a_maker_that_cant_be_asked_gets_a_minute() {
    let table = [
        (Liveness::Unknown, 59, BOTH_STAY),
        (Liveness::Unknown, 60, BOTH_GO),
        (Liveness::Gone, 0, BOTH_GO),
        (Liveness::Gone, -1, BOTH_STAY),
        (Liveness::Alive, HOURS, BOTH_STAY),
    ];
    for (liveness, age, expected) in table {
        let mut view = crashed();
        let mut mark = mark("web");
        mark.created_at = ago(age);
        seed(&mut view, SeedView::Marked(mark, liveness));
        the(&mut view, "web-seed.iso").modified = Some(ago(age));
        the(&mut view, "web.qcow2").modified = Some(ago(age));
        let mut rules = rules(None, &[]);
        rules.min_age = Duration::ZERO;
        let decided = plan(&[view], &rules, now());
        assert_eq!(
            words(&decided),
            expected,
            "{liveness:?} {age}: {}",
            reason(&decided)
        );
    }
}

#[test]
fn an_empty_seed_goes_only_where_nothing_could_be_missed() {
    fn empty(v: &mut HostView) {
        seed(v, SeedView::Empty);
        drop_volume(v, "web.qcow2");
    }
    check(&[
        ("left before it was written", empty, SEED_GOES),
        ("with an overlay", |v| seed(v, SeedView::Empty), BOTH_STAY),
        (
            "just made",
            |v| {
                empty(v);
                the(v, "web-seed.iso").modified = Some(ago(9 * MINUTES));
            },
            SEED_STAYS,
        ),
        (
            "of no known time",
            |v| {
                empty(v);
                the(v, "web-seed.iso").modified = None;
            },
            SEED_STAYS,
        ),
        (
            "the host has no clock",
            |v| {
                empty(v);
                v.clock_offset = None;
            },
            SEED_STAYS,
        ),
        (
            "in use",
            |v| {
                empty(v);
                v.files
                    .domains
                    .push(domain("x", "", &disk(&format!("{DIR}/web-seed.iso"))));
            },
            SEED_STAYS,
        ),
    ]);
}

#[test]
fn look_alikes_are_nobodys_business() {
    let names = [
        "data.qcow2",
        "web-seed.iso.bak",
        "web_seed.iso",
        "Web-seed.iso",
        "seed.iso",
        "-seed.iso",
        "web.qcow2.old",
        "debian.iso",
        "base-web-seed.iso",
    ];
    let volumes = names.map(|name| written(volume(name), ago(HOURS))).to_vec();
    let mut view = view(Vec::new(), volumes);
    // Even if they had our mark inside.
    for name in names {
        let seed = SeedView::Marked(mark("web"), Liveness::Gone);
        view.seeds.insert(name.to_owned(), seed);
    }
    let decided = plan(&[view], &rules(None, &[]), now());
    assert_eq!(words(&decided), NOTHING, "{}", reason(&decided));
}
