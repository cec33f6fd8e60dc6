//! Tables of what goes and what stays. What must stay is tested as hard as what must go.
// Long tables, and changes to a view that are expressions of one line.
#![allow(clippy::too_many_lines, clippy::semicolon_if_nothing_returned)]

mod images;
mod instances;
mod leftovers;
mod shared;
mod wanted;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::config::{Firmware, ImageFormat};
use crate::inventory::tests::{domain, volume, written};
use crate::inventory::{DomainFiles, Files};
use crate::xml::metadata::{Metadata, VolumeRef, VolumeRole, tests::plain};
use crate::xml::volume::VolumeInfo;

const MINUTES: i64 = 60;
const HOURS: i64 = 3600;
const MIN_AGE: Duration = Duration::from_secs(600);

fn now() -> Timestamp {
    "2026-11-29T20:00:00Z".parse().unwrap()
}

/// So many seconds before now; negative ones are after.
fn ago(seconds: i64) -> Timestamp {
    now()
        .checked_sub(SignedDuration::from_secs(seconds))
        .unwrap()
}

fn rules<'a>(keep: Option<&'a KeepList>, images: &'a [Image]) -> Rules<'a> {
    Rules {
        scope: Scope {
            instances: true,
            unfinished: true,
            images: true,
        },
        keep,
        min_age: MIN_AGE,
        images,
        unread: Vec::new(),
        kept: BTreeSet::new(),
    }
}

fn view(domains: Vec<DomainFiles>, volumes: Vec<VolumeInfo>) -> HostView {
    HostView {
        host: "nas1".to_owned(),
        files: Files {
            domains,
            volumes,
            pool: "default".to_owned(),
            ..Files::default()
        },
        clock_offset: Some(0),
        ..HostView::default()
    }
}

/// The metadata of an instance of ours, made an hour ago.
fn metadata(name: &str) -> Metadata {
    let volume = |name: String, role| VolumeRef {
        pool: "default".to_owned(),
        name,
        role,
    };
    Metadata {
        uid: format!("uid-{name}"),
        created_at: ago(HOURS),
        volumes: vec![
            volume(format!("{name}.qcow2"), VolumeRole::Overlay),
            volume(format!("{name}-seed.iso"), VolumeRole::Seed),
        ],
        ..plain()
    }
}

/// An instance with this metadata.
fn instance(name: &str, metadata: &Metadata) -> DomainFiles {
    domain(name, &metadata.to_xml().unwrap(), "")
}

fn image(key: &str, sha256: Option<String>) -> Image {
    Image {
        key: key.to_owned(),
        url: format!("https://example.org/{key}").as_str().into(),
        sha256,
        sha512: None,
        checksum_url: None,
        format: ImageFormat::Qcow2,
        firmware: Firmware::Uefi,
    }
}

/// What goes, and what is kept for a reason: `+kind thing` and `-kind thing`, sorted.
fn words(decisions: &[Decision]) -> Vec<String> {
    let mut words: Vec<String> = decisions
        .iter()
        .flat_map(Decision::items)
        .map(|item| {
            let sign = if item.goes { '+' } else { '-' };
            let thing = item.volume.or(item.instance).unwrap_or_default();
            format!("{sign}{} {thing}", item.kind.as_str())
        })
        .collect();
    words.sort();
    words
}

fn reason(decisions: &[Decision]) -> String {
    let reasons = decisions.iter().map(|decision| match &decision.verdict {
        Ok(why) | Err(why) => why.clone(),
    });
    reasons.collect::<Vec<_>>().join("; ")
}

#[test]
fn the_scope_bounds_what_is_looked_at() {
    let mut expired = metadata("web");
    expired.expires_at = Some(ago(1));
    let unfinished = written(volume("base-a-0123456789abcdef.qcow2"), ago(HOURS));
    let view = view(vec![instance("web", &expired)], vec![unfinished]);
    let mut rules = rules(None, &[]);
    assert_eq!(
        words(&plan(std::slice::from_ref(&view), &rules, now())),
        ["+expired web", "+unfinished base-a-0123456789abcdef.qcow2"]
    );
    rules.scope.instances = false;
    assert_eq!(
        words(&plan(std::slice::from_ref(&view), &rules, now())),
        ["+unfinished base-a-0123456789abcdef.qcow2"]
    );
    rules.scope.unfinished = false;
    assert!(plan(&[view], &rules, now()).is_empty());
}

#[test]
fn an_empty_host_needs_nothing() {
    assert!(plan(&[view(Vec::new(), Vec::new())], &rules(None, &[]), now()).is_empty());
    assert!(plan(&[], &rules(None, &[]), now()).is_empty());
}
