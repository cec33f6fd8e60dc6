//! Which instances go: expired ones, and with a keep list those not on it.

use super::{Decision, Judge, Kind, Target, used_by};
use crate::delete::{disk_elsewhere, moved_disk};
use crate::instance::Instance;
use crate::inventory::Files;
use crate::name::InstanceName;
use crate::sharing::is_had_by;
use crate::units;
use crate::xml::metadata::{Mark, Metadata, VolumeRole};

/// How the reason begins for which an instance stays whose mark can't be read.
pub const MARK_UNREADABLE: &str = "in doubt: its mark can't be read";

pub(super) fn decide(
    judge: &Judge<'_>,
    others: &[(&str, &Files)],
    instance: &Instance,
) -> Option<Decision> {
    let (kind, verdict) = self::judge(judge, instance, &judge.view.files, others)?;
    let target = Target::Instance {
        name: instance.domain.name.clone(),
        uuid: instance.domain.uuid.clone(),
    };
    Some(judge.decision(kind, target, verdict))
}

/// Whether an instance goes; nothing where there is no reason to look at it. `files` tells who else uses its disks here,
/// `others` who does on other machines, by their names.
pub(in crate::gc) fn judge(
    judge: &Judge<'_>,
    instance: &Instance,
    files: &Files,
    others: &[(&str, &Files)],
) -> Option<(Kind, Result<String, String>)> {
    let rules = judge.rules;
    let listed = rules
        .keep
        .map(|keep| keep.lists(instance) || rules.kept.contains(&instance.domain.uuid));
    let metadata = match &instance.info.mark {
        // Nobody's, or the operator's.
        Mark::None | Mark::Operator(_) => return None,
        Mark::Unreadable { why, .. } => {
            let why = format!("{MARK_UNREADABLE}: {why}");
            return match listed {
                Some(true) => None,
                Some(false) => Some((Kind::Unlisted, Err(why))),
                // Whether its time is over is in the mark.
                None => Some((Kind::Expired, Err(why))),
            };
        }
        Mark::Egressctl(metadata) => metadata,
    };
    let expires = metadata.expires_at.filter(|at| *at <= judge.clock.here);
    let (kind, why) = match (expires, listed) {
        (Some(at), Some(false)) if !judge.clock.is_past(at) => unlisted(),
        (Some(at), _) => (
            Kind::Expired,
            format!("expired at {}", units::timestamp(at)),
        ),
        (None, Some(false)) => unlisted(),
        (None, _) => return None,
    };
    let verdict = ensure_due(judge, instance, metadata, listed).and_then(|name| {
        ensure_disk_goes(judge, instance, &name, files)?;
        ensure_nobody_else_has(judge, instance, &name, files, others)
    });
    Some((kind, verdict.map(|()| why)))
}

fn unlisted() -> (Kind, String) {
    (Kind::Unlisted, "not on the keep list".to_owned())
}

/// Its time is over and nobody wants it, by all that is known of the instance itself; gives its name.
fn ensure_due(
    judge: &Judge<'_>,
    instance: &Instance,
    metadata: &Metadata,
    listed: Option<bool>,
) -> Result<InstanceName, String> {
    if listed == Some(true) {
        return Err("expired, but on the keep list".to_owned());
    }
    if let (Some(keep), Some(false)) = (judge.rules.keep, listed) {
        let name = &instance.domain.name;
        let mut unread = judge.rules.unread.iter();
        if let Some(host) = unread.find(|host| keep.lists_id(host, name)) {
            return Err(format!(
                "in doubt: the keep list names it on host {host}, which wasn't read and may be the same machine"
            ));
        }
    }
    if let Some(at) = metadata.expires_at.filter(|_| listed.is_none())
        && !judge.clock.is_past(at)
    {
        return Err("by the host's clock it hasn't expired yet".to_owned());
    }
    if !metadata.managed {
        return Err("its metadata says managed: false".to_owned());
    }
    let name = InstanceName::new(&instance.domain.name)
        .map_err(|_| "in doubt: egressctl gives no such names; was it renamed?".to_owned())?;
    ensure_records_its_own(metadata, &name)?;
    judge
        .clock
        .mark_is_older(metadata.created_at, judge.rules.min_age)
        .map_err(|young| young.to_string())?;
    Ok(name)
}

/// Its disk is the overlay that is known to be its own, and nobody else on this host uses that or the seed.
fn ensure_disk_goes(
    judge: &Judge<'_>,
    instance: &Instance,
    name: &InstanceName,
    files: &Files,
) -> Result<(), String> {
    let overlay = name.overlay_volume();
    let recorded = recorded_pool(instance, &overlay).unwrap_or(&files.pool);
    let found = files.volume_in(recorded, &overlay);
    let moved = match (found, &judge.view.pool) {
        (Some(overlay), _) => moved_disk(instance, &overlay.path),
        // The disk is gone, or somewhere else.
        (None, Some(pool)) if recorded == pool.name => disk_elsewhere(instance, pool, &overlay),
        (None, _) if recorded == files.pool => None,
        // Its disk would be left, and without the domain nobody would ever find it.
        (None, _) => {
            return Err(format!(
                "in doubt: storage pool {recorded}, which its disk was made in, isn't there or doesn't show it"
            ));
        }
    };
    if let Some(disk) = moved {
        return Err(format!("in doubt: its disk is {disk}, not its overlay"));
    }
    for volume in [overlay, name.seed_volume()] {
        let Some(info) = files.volume_in(recorded, &volume) else {
            continue;
        };
        let users = files.others_using(&info.path, name.as_str());
        if !users.is_empty() {
            return Err(format!("in doubt: {volume} is {}", used_by(&users)));
        }
    }
    Ok(())
}

/// The pool that the metadata records for this overlay.
fn recorded_pool<'a>(instance: &'a Instance, overlay: &str) -> Option<&'a str> {
    let mut volumes = instance.metadata()?.volumes.iter();
    let found = volumes.find(|volume| volume.name == overlay);
    found.map(|volume| volume.pool.as_str())
}

/// No other machine has the instance or uses its volumes; where one may that wasn't read, they stay.
fn ensure_nobody_else_has(
    judge: &Judge<'_>,
    instance: &Instance,
    name: &InstanceName,
    files: &Files,
    others: &[(&str, &Files)],
) -> Result<(), String> {
    let overlay = name.overlay_volume();
    let pool = recorded_pool(instance, &overlay).unwrap_or(&files.pool);
    let (seed, overlay) = (
        files.volume_in(pool, &name.seed_volume()),
        files.volume_in(pool, &overlay),
    );
    if seed.is_none() && overlay.is_none() {
        return Ok(());
    }
    let (domain, shared) = (&instance.domain, judge.view.shared);
    let mut others = others.iter();
    match others.find(|(_, files)| is_had_by(files, shared, domain, name, seed, overlay)) {
        Some((host, _)) => Err(format!(
            "in doubt: host {host} shares the pool, and has it, too, or uses its volumes"
        )),
        // What runs here runs on no host that wasn't read.
        None if instance.state.runs() => Ok(()),
        None => judge.ensure_unshared(),
    }
}

/// A clone made with virt-clone has the original's mark: then the volumes that the mark names aren't this domain's. Where
/// [`Instance::ensure_own_mark`] refuses only a mark that names another instance's overlay, as somebody has named this
/// domain, here nothing but one overlay and one seed of its own will do.
fn ensure_records_its_own(metadata: &Metadata, name: &InstanceName) -> Result<(), String> {
    let names = [
        (VolumeRole::Overlay, name.overlay_volume()),
        (VolumeRole::Seed, name.seed_volume()),
    ];
    let own = names.iter().all(|(role, volume)| {
        let mut recorded = metadata.volumes.iter().filter(|v| v.role == *role);
        recorded.next().is_some_and(|v| v.name == *volume) && recorded.next().is_none()
    });
    if own {
        Ok(())
    } else {
        Err("in doubt: its mark names other volumes; is it a copy of another instance?".to_owned())
    }
}
