//! Which base images go: unfinished ones that nobody writes, and with `--images` unused ones that the configuration
//! doesn't want. Also what `image list` shows.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Decision, Judge, Kind, Target, used_by};
use crate::config::Image;
use crate::gc::inventory::{ClaimOwner, ClaimView, HostView, MarkerView};
use crate::image::identity::{Identity, Marker, claim_volume, marker_volume, pin_of};
use crate::image::names::{BaseName, operator_key, our_name};
use crate::image::ready::{Sizes, serves};
use crate::owner::Liveness;
use crate::units;
use crate::xml::volume::VolumeInfo;

/// A base image on a host, as `image list` shows it and gc judges it.
#[derive(Debug, Clone)]
pub struct Base<'a> {
    /// Its volume.
    pub volume: &'a VolumeInfo,
    /// The image's key, by the volume's name.
    pub key: String,
    /// The content's id; none for the operator's own cache.
    pub id: Option<String>,
    /// Its marker, where it is valid.
    pub marker: Option<&'a Marker>,
    /// How large it is.
    pub sizes: Sizes,
    /// How far it is.
    pub state: BaseState,
    /// Whether a pull is at work on it, whatever its state.
    pub claim: Claimed<'a>,
    /// Whether the configuration wants this content.
    pub wanted: bool,
    /// Who uses it.
    pub users: Vec<String>,
}

/// Whether a pull is at work on a base image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed<'a> {
    /// Nobody claims it.
    Free,
    /// A pull that is dead did; its claim's content.
    Dead(&'a [u8]),
    /// Somebody does, or may, for this reason.
    Busy(String),
    /// The claim is something else.
    Doubt(String),
}

/// How far a base image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseState {
    /// Its marker vouches for it.
    Ready,
    /// No marker, and somebody may be at work on it.
    Pulling,
    /// No marker.
    Unfinished,
    /// The operator's own cache, which is never changed.
    Operator,
}

impl BaseState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            BaseState::Ready => "ready",
            BaseState::Pulling => "pulling",
            BaseState::Unfinished => "unfinished",
            BaseState::Operator => "operator",
        }
    }
}

/// All base images of a host, and the operator's.
pub fn bases<'a>(view: &'a HostView, images: &[Image], now: Timestamp) -> Vec<Base<'a>> {
    let rules = super::Rules {
        scope: crate::gc::Scope {
            instances: false,
            unfinished: true,
            images: true,
        },
        keep: None,
        min_age: std::time::Duration::ZERO,
        images,
        unread: Vec::new(),
        kept: BTreeSet::new(),
    };
    let judge = Judge::new(view, &rules, now);
    let wanted = wanted(view, images);
    let base = |volume: &'a VolumeInfo| {
        let users = || view.files.seen_users_of(&volume.path);
        let Some(name) = our_name(&volume.name, images) else {
            let (key, format) = operator_key(&volume.name)?;
            return Some(Base {
                key: key.to_owned(),
                id: None,
                marker: None,
                sizes: Sizes::of(None, volume, format),
                state: BaseState::Operator,
                claim: Claimed::Free,
                wanted: images
                    .iter()
                    .any(|image| image.key == key && image.format == format),
                users: users(),
                volume,
            });
        };
        let marker = valid_marker(view, &name);
        let claim = claimed(view, &judge, &name);
        Some(Base {
            state: match (marker, &claim) {
                (Some(_), _) => BaseState::Ready,
                (None, Claimed::Busy(_) | Claimed::Doubt(_)) => BaseState::Pulling,
                (None, Claimed::Free | Claimed::Dead(_)) => BaseState::Unfinished,
            },
            claim,
            wanted: marker.is_some() && wanted.contains(name.volume.as_str()),
            sizes: Sizes::of(marker, volume, name.format),
            key: name.key,
            id: Some(name.id),
            marker,
            users: users(),
            volume,
        })
    };
    let files = view.files.volumes.iter().filter(|volume| volume.is_file);
    files.filter_map(base).collect()
}

fn claimed<'a>(view: &'a HostView, judge: &Judge<'_>, name: &BaseName) -> Claimed<'a> {
    let Some(claim) = view.claims.get(&name.volume) else {
        return Claimed::Free;
    };
    match ensure_claim_dead(judge, name, claim) {
        Ok(()) => Claimed::Dead(&claim.content),
        Err(why) if claim.owner == ClaimOwner::Other => Claimed::Doubt(why),
        Err(why) => Claimed::Busy(why),
    }
}

fn valid_marker<'a>(view: &'a HostView, name: &BaseName) -> Option<&'a Marker> {
    match view.markers.get(&name.volume) {
        Some(MarkerView::Valid(marker)) => Some(marker),
        _ => None,
    }
}

pub(super) fn decide(judge: &Judge<'_>) -> Vec<Decision> {
    let view = judge.view;
    let wanted = wanted(view, judge.rules.images);
    let mut names: Vec<BaseName> = Vec::new();
    let files = view.files.volumes.iter().filter(|volume| volume.is_file);
    let volumes = files.map(|volume| &volume.name);
    let records = view.markers.keys().chain(view.claims.keys());
    for volume in volumes.chain(records) {
        if let Some(name) = our_name(volume, judge.rules.images) {
            names.push(name);
        }
    }
    names.sort_by(|a, b| a.volume.cmp(&b.volume));
    names.dedup();
    names
        .iter()
        .filter_map(|name| {
            let base = view.files.volume(&name.volume);
            let claim = view.claims.get(&name.volume);
            match (base, valid_marker(view, name)) {
                (Some(base), Some(marker)) => decide_ready(judge, name, base, marker, &wanted)
                    .or_else(|| dead_claim(judge, name, claim?)),
                (Some(base), None) => decide_unfinished(judge, name, base),
                (None, _) => decide_record(judge, name),
            }
        })
        .collect()
}

/// A base without a valid marker: what a pull left that was killed.
fn decide_unfinished(judge: &Judge<'_>, name: &BaseName, base: &VolumeInfo) -> Option<Decision> {
    if !judge.rules.scope.unfinished {
        return None;
    }
    let view = judge.view;
    let claim = view.claims.get(&name.volume);
    let verdict = ensure_nobody_pulls(judge, name, claim)
        .and_then(|()| match view.markers.get(&name.volume) {
            Some(MarkerView::Other) => Err("in doubt: its marker is something else".to_owned()),
            _ => Ok(()),
        })
        .and_then(|()| ensure_unused(judge, base))
        .and_then(|()| {
            let age = judge.quiet_age();
            judge
                .clock
                .file_is_older(base.modified, age)
                .map_err(|young| young.to_string())
        })
        .and_then(|()| judge.ensure_unshared())
        .map(|()| "no marker, and nobody writes it".to_owned());
    let target = Target::Base {
        base: name.volume.clone(),
        shown: name.volume.clone(),
        claim: claim.map(|claim| claim.content.clone()),
        ready: false,
    };
    Some(judge.decision(Kind::Unfinished, target, verdict))
}

/// An image that is ready: it goes only if nobody wants or uses it.
fn decide_ready(
    judge: &Judge<'_>,
    name: &BaseName,
    base: &VolumeInfo,
    marker: &Marker,
    wanted: &BTreeSet<&str>,
) -> Option<Decision> {
    if !judge.rules.scope.images || wanted.contains(name.volume.as_str()) {
        return None;
    }
    let claim = judge.view.claims.get(&name.volume);
    let verdict = marker
        .pulled()
        .ok_or_else(|| "in doubt: its marker isn't egressctl's".to_owned())
        .and_then(|pulled| {
            ensure_unused(judge, base)?;
            ensure_nobody_pulls(judge, name, claim)?;
            let age = judge.rules.min_age;
            judge
                .clock
                .mark_is_older(pulled, age)
                .map_err(|young| young.to_string())?;
            judge
                .clock
                .marked_file_is_older(base.modified, age)
                .map_err(|young| young.to_string())?;
            judge.ensure_unshared()?;
            Ok(format!(
                "unused, and not wanted any more; pulled at {}",
                units::timestamp(pulled)
            ))
        });
    let target = Target::Base {
        base: name.volume.clone(),
        shown: name.volume.clone(),
        claim: claim.map(|claim| claim.content.clone()),
        ready: true,
    };
    Some(judge.decision(Kind::Image, target, verdict))
}

/// A marker or a claim without a base.
fn decide_record(judge: &Judge<'_>, name: &BaseName) -> Option<Decision> {
    if !judge.rules.scope.unfinished {
        return None;
    }
    let view = judge.view;
    let claim = view.claims.get(&name.volume);
    let marker = view.markers.get(&name.volume);
    let shown = match marker {
        Some(_) => marker_volume(&name.volume),
        None => claim_volume(&name.volume),
    };
    let info = view.files.volume(&shown)?;
    let verdict = ensure_nobody_pulls(judge, name, claim)
        .and_then(|()| match marker {
            Some(MarkerView::Valid(marker)) if marker.pulled().is_none() => {
                Err("in doubt: a marker without its base that isn't egressctl's".to_owned())
            }
            Some(MarkerView::Other) => Err("in doubt: it is something else".to_owned()),
            _ => Ok(()),
        })
        .and_then(|()| {
            let age = judge.quiet_age();
            judge
                .clock
                .file_is_older(info.modified, age)
                .map_err(|young| young.to_string())
        })
        .and_then(|()| judge.ensure_unshared())
        .map(|()| match marker {
            Some(_) => "a marker without its base".to_owned(),
            None => "the claim of a pull that died".to_owned(),
        });
    let target = Target::Base {
        base: name.volume.clone(),
        shown,
        claim: claim.map(|claim| claim.content.clone()),
        ready: false,
    };
    Some(judge.decision(Kind::Unfinished, target, verdict))
}

/// The claim on an image that is ready: its owner died right before it gave it up.
fn dead_claim(judge: &Judge<'_>, name: &BaseName, claim: &ClaimView) -> Option<Decision> {
    if !judge.rules.scope.unfinished {
        return None;
    }
    let verdict = ensure_claim_dead(judge, name, claim)
        .and_then(|()| judge.ensure_unshared())
        .map(|()| "the claim of a pull that is over".to_owned());
    let target = Target::Claim {
        base: name.volume.clone(),
        shown: claim_volume(&name.volume),
        content: claim.content.clone(),
    };
    Some(judge.decision(Kind::Unfinished, target, verdict))
}

fn ensure_unused(judge: &Judge<'_>, base: &VolumeInfo) -> Result<(), String> {
    let users = judge.view.files.users_of_base(&base.path);
    if users.is_empty() {
        Ok(())
    } else {
        Err(used_by(&users))
    }
}

fn ensure_nobody_pulls(
    judge: &Judge<'_>,
    name: &BaseName,
    claim: Option<&ClaimView>,
) -> Result<(), String> {
    claim.map_or(Ok(()), |claim| ensure_claim_dead(judge, name, claim))
}

/// A claim lives until its owner is known to be dead, or it hasn't been touched for long.
fn ensure_claim_dead(judge: &Judge<'_>, name: &BaseName, claim: &ClaimView) -> Result<(), String> {
    let age = match claim.owner {
        ClaimOwner::Other => return Err("in doubt: its claim is something else".to_owned()),
        ClaimOwner::Process(Liveness::Alive) => return Err("it is being pulled".to_owned()),
        ClaimOwner::Process(Liveness::Gone) => judge.rules.min_age,
        ClaimOwner::Process(Liveness::Unknown) | ClaimOwner::Unwritten => judge.quiet_age(),
    };
    let touched = judge
        .view
        .files
        .volume(&claim_volume(&name.volume))
        .and_then(|info| info.modified);
    judge
        .clock
        .file_is_older(touched, age)
        .map_err(|why| format!("perhaps it is being pulled: its claim is {why}"))
}

/// The base volumes whose content the configuration wants: of a pinned image what has its digest, of a moving one the
/// newest of those that a create would take. Where there is none such (the URL was changed, and not pulled since), the
/// newest of its key and format stays.
fn wanted<'a>(view: &'a HostView, images: &[Image]) -> BTreeSet<&'a str> {
    let generations: Vec<(BaseName, &'a str, &'a Marker)> = view
        .markers
        .iter()
        .filter(|(base, _)| view.files.volume(base).is_some())
        .filter_map(|(base, marker)| match marker {
            MarkerView::Valid(marker) => Some((BaseName::parse(base)?, base.as_str(), &**marker)),
            _ => None,
        })
        .collect();
    let mut wanted = BTreeSet::new();
    for image in images {
        let mut own: Vec<(&'a str, &'a Marker)> = generations
            .iter()
            .filter(|(name, ..)| name.is_of(image))
            .map(|(_, base, marker)| (*base, *marker))
            .collect();
        if let Some(pin) = pin_of(image) {
            let identity = Identity::pinned(image, pin);
            own.retain(|(_, marker)| identity.is_vouched_by(marker));
        } else {
            if own.iter().any(|(_, marker)| serves(image, marker)) {
                own.retain(|(_, marker)| serves(image, marker));
            }
            let latest = own.iter().filter_map(|(_, marker)| marker.pulled()).max();
            own.retain(|(_, marker)| marker.pulled() == latest);
        }
        wanted.extend(own.into_iter().map(|(base, _)| base));
    }
    wanted
}
