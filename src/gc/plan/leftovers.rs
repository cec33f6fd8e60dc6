//! Which volumes of instances go: overlay and seed without a domain, proved ours by the mark inside the seed.

use super::{Decision, Judge, Kind, Target, used_by};
use crate::gc::inventory::{HostView, SeedView};
use crate::image::names::BaseName;
use crate::inventory::{Files, file_name};
use crate::leftover::{instance_of_overlay, instance_of_seed, overlay_fault};
use crate::name::InstanceName;
use crate::owner::Liveness;
use crate::seed::SeedMark;
use crate::sharing::{Sharing, is_used_by};
use crate::units;
use crate::xml::volume::VolumeInfo;

pub(super) fn decide(judge: &Judge<'_>, views: &[HostView]) -> Vec<Decision> {
    let view = judge.view;
    let mut decisions: Vec<Decision> = view
        .seeds
        .iter()
        .filter_map(|(volume, seed)| decide_seed(judge, views, volume, seed))
        .collect();
    decisions.extend(
        view.files
            .volumes
            .iter()
            .filter_map(|volume| lone_overlay(judge, volume)),
    );
    decisions
}

fn decide_seed(
    judge: &Judge<'_>,
    views: &[HostView],
    volume: &str,
    seed: &SeedView,
) -> Option<Decision> {
    let files = &judge.view.files;
    let name = instance_of_seed(volume)?;
    let info = files.volume(volume)?;
    if files.domain(name.as_str()).is_some() {
        return None;
    }
    let overlay = files.volume(&name.overlay_volume());
    let (mark, verdict) = match seed {
        SeedView::Other => return None,
        SeedView::Marked(mark, liveness) => {
            if comes_later(views, judge.view, volume, mark) {
                return None;
            }
            let verdict = ensure_abandoned(judge, info, mark, *liveness)
                .and_then(|()| ensure_unused_anywhere(judge, views, info, mark))
                .and_then(|()| ensure_overlay_goes(judge, files, info, overlay));
            (Some(mark.clone()), verdict)
        }
        SeedView::Empty => {
            // Nothing in it says whose it is, and nothing in it could be missed.
            (None, ensure_empty_goes(judge, files, info, overlay))
        }
    };
    let verdict = verdict.map(|()| match &mark {
        Some(mark) => format!(
            "no domain; left by the create of {}",
            units::timestamp(mark.created_at)
        ),
        None => "no domain; a seed that was never written".to_owned(),
    });
    let overlay = overlay.map(|_| name.overlay_volume());
    let target = Target::Leftover {
        volumes: overlay.into_iter().chain([volume.to_owned()]).collect(),
        name,
        mark,
    };
    Some(judge.decision(Kind::Orphan, target, verdict))
}

/// The create that made the seed is over, long enough ago.
fn ensure_abandoned(
    judge: &Judge<'_>,
    info: &VolumeInfo,
    mark: &SeedMark,
    liveness: Liveness,
) -> Result<(), String> {
    let name = instance_of_seed(&info.name);
    if name.is_none_or(|name| name.as_str() != mark.name) {
        return Err(format!("in doubt: its mark is of instance {}", mark.name));
    }
    if liveness == Liveness::Alive {
        return Err("the egressctl that made it is still at work".to_owned());
    }
    let age = match liveness {
        Liveness::Gone => judge.rules.min_age,
        _ => judge.quiet_age(),
    };
    judge
        .clock
        .mark_is_older(mark.created_at, age)
        .map_err(|young| young.to_string())?;
    judge
        .clock
        .marked_file_is_older(info.modified, age)
        .map_err(|young| young.to_string())?;
    judge.ensure_unshared()
}

/// The seed has no user here; and where another host sees the very same file (on shared storage), neither it nor its
/// overlay has one there, and no domain there has the name.
fn ensure_unused_anywhere(
    judge: &Judge<'_>,
    views: &[HostView],
    volume: &VolumeInfo,
    mark: &SeedMark,
) -> Result<(), String> {
    let users = judge.view.files.users_of(&volume.path);
    if !users.is_empty() {
        return Err(used_by(&users));
    }
    let Some(name) = instance_of_seed(&volume.name) else {
        return Ok(());
    };
    let overlay = judge.view.files.volume(&name.overlay_volume());
    for view in views.iter().filter(|view| view.host != judge.view.host) {
        let sees_it = is_same(view, &volume.name, mark);
        // One that reads the very same mark there counts as on shared storage, whatever the file's times.
        let shared = if sees_it {
            Sharing::Perhaps
        } else {
            judge.view.shared
        };
        if is_used_by(&view.files, shared, volume, &name, overlay) {
            return Err(shared_by(&view.host));
        }
    }
    Ok(())
}

/// Why leftovers stay that are no leftovers, but another host's.
pub(in crate::gc) fn shared_by(host: &str) -> String {
    format!("host {host} shares the pool, and has its instance")
}

fn is_same(view: &HostView, volume: &str, mark: &SeedMark) -> bool {
    matches!(view.seeds.get(volume), Some(SeedView::Marked(other, _)) if other == mark)
}

/// Whether an earlier host sees the very same seed, and so decides about it.
fn comes_later(views: &[HostView], view: &HostView, volume: &str, mark: &SeedMark) -> bool {
    views
        .iter()
        .take_while(|earlier| earlier.host != view.host)
        .any(|earlier| is_same(earlier, volume, mark))
}

fn ensure_overlay_goes(
    judge: &Judge<'_>,
    files: &Files,
    seed: &VolumeInfo,
    overlay: Option<&VolumeInfo>,
) -> Result<(), String> {
    let Some(overlay) = overlay else {
        return Ok(());
    };
    let users = files.users_of(&overlay.path);
    if !users.is_empty() {
        return Err(format!("{} is {}", overlay.name, used_by(&users)));
    }
    if let Some(fault) = overlay_fault(seed, overlay) {
        return Err(format!("in doubt: {fault}"));
    }
    judge
        .clock
        .marked_file_is_older(overlay.modified, judge.rules.min_age)
        .map_err(|young| young.to_string())
}

fn ensure_empty_goes(
    judge: &Judge<'_>,
    files: &Files,
    info: &VolumeInfo,
    overlay: Option<&VolumeInfo>,
) -> Result<(), String> {
    if overlay.is_some() {
        return Err("in doubt: it is empty, but has an overlay".to_owned());
    }
    let users = files.users_of(&info.path);
    if !users.is_empty() {
        return Err(used_by(&users));
    }
    judge
        .clock
        .file_is_older(info.modified, judge.quiet_age())
        .map_err(|young| young.to_string())?;
    judge.ensure_unshared()
}

/// An overlay on one of our base images that has neither domain nor seed is perhaps ours: it is said, and kept.
fn lone_overlay(judge: &Judge<'_>, volume: &VolumeInfo) -> Option<Decision> {
    let files = &judge.view.files;
    let name: InstanceName = instance_of_overlay(&volume.name)?;
    let base = volume.backing.as_ref().map(|b| file_name(&b.path))?;
    BaseName::parse(base)?;
    let alone = files.domain(name.as_str()).is_none()
        && files.volume(&name.seed_volume()).is_none()
        && files.seen_users_of(&volume.path).is_empty();
    let target = Target::Leftover {
        name,
        volumes: vec![volume.name.clone()],
        mark: None,
    };
    let why = "in doubt: no domain, and no seed that shows whose it is".to_owned();
    alone.then(|| judge.decision(Kind::Orphan, target, Err(why)))
}
