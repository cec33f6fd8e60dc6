//! Base images that are ready: wanted, used, and what only looks like them.

use super::images::*;
use super::*;
use crate::gc::inventory::{ClaimOwner, MarkerView};
use crate::image::identity::{Marker, source_of};
use crate::inventory::PoolVolume;
use crate::inventory::tests::{disk, overlay};
use crate::owner::Liveness;

const IMAGE_GOES: &[&str] = &["+image base-a-0123456789abcdef.qcow2"];
const IMAGE_STAYS: &[&str] = &["-image base-a-0123456789abcdef.qcow2"];

#[test]
fn an_unwanted_image_goes_only_if_nothing_uses_it() {
    check(
        ready,
        &[image("a", Some("cd".repeat(32)))],
        &[
            ("its digest isn't the config's", |_| (), IMAGE_GOES),
            (
                "used by a domain",
                |v| v.files.domains.push(domain("x", "", &disk(&base_path()))),
                IMAGE_STAYS,
            ),
            (
                "under our overlay",
                |v| v.files.volumes.push(overlay("web.qcow2", &base_path())),
                &["-image base-a-0123456789abcdef.qcow2", "-orphan web.qcow2"],
            ),
            (
                "under a foreign overlay",
                |v| v.files.volumes.push(overlay("theirs.img", &base_path())),
                IMAGE_STAYS,
            ),
            (
                "under an overlay by another path",
                |v| {
                    v.files
                        .volumes
                        .push(overlay("theirs.img", &format!("/data/{BASE}")))
                },
                IMAGE_STAYS,
            ),
            (
                "under another pool's overlay",
                |v| {
                    v.files.elsewhere.push(PoolVolume {
                        pool: "p".into(),
                        info: overlay("x", &base_path()),
                    })
                },
                IMAGE_STAYS,
            ),
            (
                "a pool that can't be seen",
                |v| v.files.blind.push("p".into()),
                IMAGE_STAYS,
            ),
            (
                "a disk that can't be seen through",
                |v| {
                    v.files
                        .domains
                        .push(domain("x", "", &disk("/home/x.qcow2")))
                },
                IMAGE_STAYS,
            ),
            (
                "pulled just now",
                |v| {
                    v.markers
                        .values_mut()
                        .for_each(|m| *m = MarkerView::Valid(Box::new(marker(ago(60)))))
                },
                IMAGE_STAYS,
            ),
            (
                "pulled in the future",
                |v| {
                    v.markers
                        .values_mut()
                        .for_each(|m| *m = MarkerView::Valid(Box::new(marker(ago(-60)))))
                },
                IMAGE_STAYS,
            ),
            (
                "written just now",
                |v| v.files.volumes[0].modified = Some(ago(60)),
                IMAGE_STAYS,
            ),
            (
                "of no known time",
                |v| v.files.volumes[0].modified = None,
                IMAGE_STAYS,
            ),
            (
                "a marker of digest alone",
                |v| {
                    v.markers.values_mut().for_each(|m| {
                        *m = MarkerView::Valid(Box::new(Marker {
                            pulled_at: None,
                            ..marker(now())
                        }))
                    })
                },
                IMAGE_STAYS,
            ),
            (
                "a pull at work",
                |v| add_claim(v, ClaimOwner::Process(Liveness::Alive), 1),
                IMAGE_STAYS,
            ),
            (
                "on storage others may see",
                |v| v.shared = Sharing::Perhaps,
                IMAGE_GOES,
            ),
        ],
    );
}

#[test]
fn what_the_configuration_wants_stays() {
    let table: [(&str, Vec<Image>, &[&str]); 6] = [
        (
            "pinned to this",
            vec![image("a", Some("ab".repeat(32)))],
            NOTHING,
        ),
        (
            "pinned to another",
            vec![image("a", Some("cd".repeat(32)))],
            IMAGE_GOES,
        ),
        ("moving: the newest here", vec![image("a", None)], NOTHING),
        (
            "not in the configuration",
            vec![image("b", None)],
            IMAGE_GOES,
        ),
        (
            "wanted by another provider",
            vec![
                image("a", Some("cd".repeat(32))),
                image("a", Some("ab".repeat(32))),
            ],
            NOTHING,
        ),
        (
            "of another format",
            vec![Image {
                format: ImageFormat::Raw,
                ..image("a", None)
            }],
            IMAGE_GOES,
        ),
    ];
    for (about, images, expected) in table {
        let decided = plan(&[ready()], &rules(None, &images), now());
        assert_eq!(words(&decided), expected, "{about}: {}", reason(&decided));
    }
}

#[test]
fn of_a_moving_image_the_newest_stays() {
    let mut view = ready();
    view.files
        .volumes
        .push(written(volume(NEWER), ago(HOURS / 2)));
    add_marker(
        &mut view,
        NEWER,
        MarkerView::Valid(Box::new(marker(ago(HOURS / 2)))),
    );
    let images = [image("a", None)];
    let decided = plan(&[view.clone()], &rules(None, &images), now());
    assert_eq!(words(&decided), IMAGE_GOES);
    // Its marker alone makes nothing the newest.
    view.files.volumes.retain(|volume| volume.name != NEWER);
    let decided = plan(&[view], &rules(None, &images), now());
    assert_eq!(words(&decided), [format!("+unfinished {NEWER}.sha256")]);
}

/// A host with two generations that are ready: `BASE`, pulled an hour ago, and `NEWER`, half an hour ago.
fn two(older: Marker, newer: Marker) -> HostView {
    let mut view = unfinished();
    view.files
        .volumes
        .push(written(volume(NEWER), ago(HOURS / 2)));
    let at = |marker, seconds| {
        MarkerView::Valid(Box::new(Marker {
            pulled_at: Some(ago(seconds).to_string()),
            ..marker
        }))
    };
    add_marker(&mut view, BASE, at(older, HOURS));
    add_marker(&mut view, NEWER, at(newer, HOURS / 2));
    view
}

#[test]
fn of_a_moving_image_that_stays_which_a_create_would_take() {
    let at = |url: &str| Image {
        url: url.into(),
        ..image("a", None)
    };
    let (a, b) = (at("https://example.org/a"), at("https://example.org/b"));
    let checked = Image {
        checksum_url: Some("https://example.org/SHA256SUMS".into()),
        ..a.clone()
    };
    let from = |image: &Image| Marker {
        source: Some(source_of(image)),
        ..marker(now())
    };
    let unchecked = Marker {
        verified: Some("nothing".to_owned()),
        ..from(&a)
    };
    let newer_goes = format!("+image {NEWER}");
    let table: [(&str, HostView, Vec<Image>, &[&str]); 6] = [
        (
            "the URL was another for a while",
            two(from(&a), from(&b)),
            vec![a.clone()],
            &[&newer_goes],
        ),
        (
            "the URL was changed",
            two(from(&a), from(&b)),
            vec![b.clone()],
            IMAGE_GOES,
        ),
        (
            "two providers' images of one key",
            two(from(&a), from(&b)),
            vec![a.clone(), b.clone()],
            NOTHING,
        ),
        (
            "two of one URL",
            two(from(&a), from(&a)),
            vec![a.clone(), b.clone()],
            IMAGE_GOES,
        ),
        (
            "the new URL isn't pulled yet",
            two(from(&a), from(&a)),
            vec![b],
            IMAGE_GOES,
        ),
        (
            "the newer one isn't verified as it is to be",
            two(from(&a), unchecked),
            vec![checked],
            &[&newer_goes],
        ),
    ];
    for (about, view, images, expected) in table {
        let shown = bases(&view, &images, now());
        let wanted = shown.iter().filter(|base| base.wanted).count();
        assert_eq!(wanted, 2 - expected.len(), "{about}");
        let decided = plan(&[view], &rules(None, &images), now());
        assert_eq!(words(&decided), expected, "{about}: {}", reason(&decided));
    }
}

#[test]
fn look_alikes_and_the_operators_cache_stay() {
    let names = [
        "base-a.qcow2",
        "base-a.qcow2.sha256",
        "base-a-0123456789ABCDEF.qcow2",
        "base-a-0123.qcow2",
        "base-.qcow2",
        "base-a-0123456789abcdef.img",
        "base-a-0123456789abcdef.qcow2.bak",
        "xbase-a-0123456789abcdef.qcow2",
        "base-a-0123456789abcdef.qcow2.sha512",
        "base-a.qcow2.claim",
    ];
    let volumes = names.map(|name| written(volume(name), ago(HOURS))).to_vec();
    let decided = plan(&[view(Vec::new(), volumes)], &rules(None, &[]), now());
    assert_eq!(words(&decided), NOTHING, "{}", reason(&decided));
    // A directory of such a name.
    let mut directory = unfinished();
    directory.files.volumes[0].is_file = false;
    let decided = plan(&[directory], &rules(None, &[]), now());
    assert_eq!(words(&decided), NOTHING, "{}", reason(&decided));
    // The operator's cache of an image whose key ends like our ids.
    let key = "a-0123456789abcdef";
    let decided = plan(&[unfinished()], &rules(None, &[image(key, None)]), now());
    assert_eq!(words(&decided), NOTHING, "{}", reason(&decided));
}

#[test]
fn a_ready_image_may_still_be_held_by_a_pull() {
    let claimed = |owner, touched| {
        let mut view = ready();
        add_claim(&mut view, owner, touched);
        let bases = bases(&view, &[], now());
        let [base] = &bases[..] else {
            panic!("one base")
        };
        assert_eq!(base.state, BaseState::Ready);
        match &base.claim {
            Claimed::Free => "free",
            Claimed::Dead(b"word 1") => "dead",
            Claimed::Dead(_) => "another",
            Claimed::Busy(_) => "busy",
            Claimed::Doubt(_) => "doubt",
        }
    };
    let process = ClaimOwner::Process;
    assert_eq!(claimed(process(Liveness::Alive), HOURS), "busy");
    assert_eq!(claimed(process(Liveness::Unknown), 4), "busy");
    assert_eq!(claimed(process(Liveness::Unknown), HOURS), "dead");
    assert_eq!(claimed(process(Liveness::Gone), HOURS), "dead");
    assert_eq!(claimed(ClaimOwner::Other, HOURS), "doubt");
    assert_eq!(bases(&ready(), &[], now())[0].claim, Claimed::Free);
}

#[test]
fn the_list_shows_all_bases_and_how_far_they_are() {
    let mut view = ready();
    view.files
        .volumes
        .push(written(volume("base-a.qcow2"), ago(HOURS)));
    view.files.volumes.push(written(volume(NEWER), ago(HOURS)));
    view.files.volumes.push(overlay("web.qcow2", &base_path()));
    let images = [image("a", Some("ab".repeat(32)))];
    let seen: Vec<_> = bases(&view, &images, now())
        .into_iter()
        .map(|base| {
            (
                base.volume.name.clone(),
                base.state,
                base.wanted,
                base.users,
            )
        })
        .collect();
    let users = vec!["volume web.qcow2".to_owned()];
    assert_eq!(
        seen,
        [
            (BASE.to_owned(), BaseState::Ready, true, users),
            (
                "base-a.qcow2".to_owned(),
                BaseState::Operator,
                true,
                Vec::new()
            ),
            (NEWER.to_owned(), BaseState::Unfinished, false, Vec::new()),
        ]
    );
}
