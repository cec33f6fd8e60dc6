//! Base images: unfinished ones, and records without a base. The builders serve the tests of wanted ones, too.

use super::*;
use crate::gc::inventory::{ClaimOwner, ClaimView, MarkerView};
use crate::image::identity::Marker;
use crate::inventory::PoolVolume;
use crate::inventory::tests::{DIR, disk, overlay};
use crate::owner::Liveness;

pub(super) const BASE: &str = "base-a-0123456789abcdef.qcow2";
pub(super) const NEWER: &str = "base-a-fedcba9876543210.qcow2";

pub(super) fn marker(pulled: Timestamp) -> Marker {
    Marker {
        sha256: "ab".repeat(32),
        published_sha256: Some("ab".repeat(32)),
        pulled_at: Some(pulled.to_string()),
        verified: Some("sha256".to_owned()),
        ..Marker::default()
    }
}

pub(super) fn add_marker(view: &mut HostView, base: &str, marker: MarkerView) {
    let name = format!("{base}.sha256");
    view.files.volumes.push(written(volume(&name), ago(HOURS)));
    view.markers.insert(base.to_owned(), marker);
}

pub(super) fn add_claim(view: &mut HostView, owner: ClaimOwner, touched: i64) {
    let name = format!("{BASE}.claim");
    view.files
        .volumes
        .push(written(volume(&name), ago(touched)));
    let content = b"word 1".to_vec();
    view.claims
        .insert(BASE.to_owned(), ClaimView { content, owner });
}

/// A host with one base that has no marker, an hour old.
pub(super) fn unfinished() -> HostView {
    view(Vec::new(), vec![written(volume(BASE), ago(HOURS))])
}

/// A host with one base that is ready, an hour old.
pub(super) fn ready() -> HostView {
    let mut view = unfinished();
    add_marker(
        &mut view,
        BASE,
        MarkerView::Valid(Box::new(marker(ago(HOURS)))),
    );
    view
}

pub(super) fn base_path() -> String {
    format!("{DIR}/{BASE}")
}

pub(super) type Change = fn(&mut HostView);

pub(super) fn check(start: fn() -> HostView, images: &[Image], table: &[(&str, Change, &[&str])]) {
    for (about, change, expected) in table {
        let mut view = start();
        change(&mut view);
        let decided = plan(&[view], &rules(None, images), now());
        assert_eq!(words(&decided), *expected, "{about}: {}", reason(&decided));
    }
}

pub(super) const GOES: &[&str] = &["+unfinished base-a-0123456789abcdef.qcow2"];
pub(super) const STAYS: &[&str] = &["-unfinished base-a-0123456789abcdef.qcow2"];
pub(super) const MARKER_GOES: &[&str] = &["+unfinished base-a-0123456789abcdef.qcow2.sha256"];
pub(super) const MARKER_STAYS: &[&str] = &["-unfinished base-a-0123456789abcdef.qcow2.sha256"];
pub(super) const CLAIM_GOES: &[&str] = &["+unfinished base-a-0123456789abcdef.qcow2.claim"];
pub(super) const CLAIM_STAYS: &[&str] = &["-unfinished base-a-0123456789abcdef.qcow2.claim"];
pub(super) const NOTHING: &[&str] = &[];

#[test]
fn an_unfinished_base_that_nobody_writes_goes() {
    check(
        unfinished,
        &[image("a", None)],
        &[
            ("killed", |_| (), GOES),
            (
                "written just now",
                |v| v.files.volumes[0].modified = Some(ago(9 * MINUTES)),
                STAYS,
            ),
            (
                "written in the future",
                |v| v.files.volumes[0].modified = Some(ago(-1)),
                STAYS,
            ),
            (
                "of no known time",
                |v| v.files.volumes[0].modified = None,
                STAYS,
            ),
            ("the host has no clock", |v| v.clock_offset = None, STAYS),
            (
                "the host is behind",
                |v| v.clock_offset = Some(-HOURS),
                STAYS,
            ),
            (
                "its puller lives",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Alive), HOURS),
                STAYS,
            ),
            (
                "its puller is dead",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Gone), HOURS),
                GOES,
            ),
            (
                "its puller just died",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Gone), 60),
                STAYS,
            ),
            (
                "a far puller at work",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Unknown), 4),
                STAYS,
            ),
            (
                "a far puller silent for long",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Unknown), HOURS),
                GOES,
            ),
            (
                "a claim never written",
                |v| add_claim(v, ClaimOwner::Unwritten, HOURS),
                GOES,
            ),
            (
                "a claim being written",
                |v| add_claim(v, ClaimOwner::Unwritten, 1),
                STAYS,
            ),
            (
                "something else as a claim",
                |v| add_claim(v, ClaimOwner::Other, HOURS),
                STAYS,
            ),
            (
                "a marker never written",
                |v| add_marker(v, BASE, MarkerView::Unwritten),
                GOES,
            ),
            (
                "something else as a marker",
                |v| add_marker(v, BASE, MarkerView::Other),
                STAYS,
            ),
            (
                "used by a domain",
                |v| v.files.domains.push(domain("x", "", &disk(&base_path()))),
                STAYS,
            ),
            (
                "under a foreign overlay",
                |v| v.files.volumes.push(overlay("x", &base_path())),
                STAYS,
            ),
            (
                "under another pool's overlay",
                |v| {
                    v.files.elsewhere.push(PoolVolume {
                        pool: "p".into(),
                        info: overlay("x", &base_path()),
                    })
                },
                STAYS,
            ),
            (
                "a pool that can't be seen",
                |v| v.files.blind.push("p".into()),
                STAYS,
            ),
        ],
    );
}

#[test]
fn without_a_min_age_a_pull_still_gets_a_minute() {
    for (touched, expected) in [(59, STAYS), (60, GOES)] {
        let mut view = unfinished();
        view.files.volumes[0].modified = Some(ago(HOURS));
        add_claim(&mut view, ClaimOwner::Process(Liveness::Unknown), touched);
        let mut rules = rules(None, &[]);
        rules.min_age = Duration::ZERO;
        assert_eq!(words(&plan(&[view], &rules, now())), expected, "{touched}");
    }
}

#[test]
fn records_without_a_base_go_by_the_same_rules() {
    fn bare() -> HostView {
        view(Vec::new(), Vec::new())
    }
    fn valid() -> MarkerView {
        MarkerView::Valid(Box::new(marker(ago(HOURS))))
    }
    check(
        bare,
        &[],
        &[
            ("our marker", |v| add_marker(v, BASE, valid()), MARKER_GOES),
            (
                "an empty marker",
                |v| add_marker(v, BASE, MarkerView::Unwritten),
                MARKER_GOES,
            ),
            (
                "the operator's kind of marker",
                |v| {
                    add_marker(
                        v,
                        BASE,
                        MarkerView::Valid(Box::new(Marker {
                            pulled_at: None,
                            ..marker(now())
                        })),
                    )
                },
                MARKER_STAYS,
            ),
            (
                "something else",
                |v| add_marker(v, BASE, MarkerView::Other),
                MARKER_STAYS,
            ),
            (
                "a young marker",
                |v| {
                    add_marker(v, BASE, valid());
                    v.files.volumes[0].modified = Some(ago(1));
                },
                MARKER_STAYS,
            ),
            (
                "a marker, and a pull begins",
                |v| {
                    add_marker(v, BASE, valid());
                    add_claim(v, ClaimOwner::Process(Liveness::Alive), 0);
                },
                MARKER_STAYS,
            ),
            (
                "a dead claim",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Gone), HOURS),
                CLAIM_GOES,
            ),
            (
                "a live claim",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Alive), 1),
                CLAIM_STAYS,
            ),
            (
                "a far claim at work",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Unknown), 6),
                CLAIM_STAYS,
            ),
        ],
    );
    let digest = "ab".repeat(32);
    check(
        ready,
        &[image("a", Some(digest))],
        &[
            ("ready, wanted", |_| (), NOTHING),
            (
                "ready, with a dead claim",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Gone), HOURS),
                CLAIM_GOES,
            ),
            (
                "ready, with a live claim",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Alive), 1),
                CLAIM_STAYS,
            ),
        ],
    );
}
