//! Removing a base image: under its claim, so that no pull is in between, and unpublished before it is deleted, so
//! that no create takes it up.
//!
//! A create makes its overlay first and looks for the marker once more after that; a removal deletes the marker
//! first and looks for overlays once more after that. Whichever way they meet, one of them sees the other.

use std::sync::Arc;

use super::claim::{Claim, Tried, owner_of, try_claim};
use super::identity::{MARKER_LIMIT, claim_volume, marker_volume};
use crate::awake::Awake;
use crate::error::Result;
use crate::host::HostSession;
use crate::libvirt::Hypervisor;
use crate::xml::volume::VolumeSpec;

/// What became of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// It is gone; whether anything was there at all.
    Removed(bool),
    /// It was left alone, for this reason.
    Kept(String),
    /// It was left alone for now: somebody else is at work on it.
    Busy(String),
}

/// Removes the base volume and its marker. `dead` is the claim of a dead pull that may be taken over, exactly as it
/// was seen; `objection` looks at the host and says why the image must stay, and is asked before anything is
/// touched and again once the image is unpublished.
pub fn remove(
    host: &HostSession,
    hypervisor: &Arc<dyn Hypervisor>,
    base: &str,
    dead: Option<&[u8]>,
    objection: &dyn Fn() -> Result<Option<String>>,
) -> Result<Removal> {
    if let Some(why) = objection()? {
        return Ok(Removal::Kept(why));
    }
    if let Some(dead) = dead
        && !remove_claim(host, &**hypervisor, base, dead)?
    {
        return Ok(Removal::Busy("its claim has changed".to_owned()));
    }
    let claim = match try_claim(host, hypervisor, base, || ())? {
        Tried::Held => return Ok(Removal::Busy("it is being pulled".to_owned())),
        Tried::Claimed(claim, ()) => claim,
    };
    let settled = match dead {
        Some(_) => claim.settles(&host.cancels().work),
        None => Ok(true),
    };
    let removed = match settled {
        Ok(true) => remove_claimed(host, &claim, base, objection),
        Ok(false) => Ok(Removal::Busy("it is being pulled".to_owned())),
        Err(error) => return Err(claim.give_up(host, error)),
    };
    let released = claim.release();
    let removal = removed?;
    released.map(|()| match removal {
        // The dead claim was a thing that went, too.
        Removal::Removed(any) => Removal::Removed(any || dead.is_some()),
        kept => kept,
    })
}

/// Removes a dead pull's claim; `false` where it isn't as it was seen.
pub fn remove_claim(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    base: &str,
    dead: &[u8],
) -> Result<bool> {
    let volume = claim_volume(base);
    let awake = Awake::from_now();
    match hypervisor.download_volume(host.pool(), &volume, MARKER_LIMIT)? {
        Some(now) if now == dead => {
            awake.ensure()?;
            log::info!(
                "host={} removing claim {volume} of {:?}",
                host.name(),
                owner_of(dead)
            );
            hypervisor.delete_volume(host.pool(), &volume)
        }
        // Another has it, or nobody any more.
        _ => Ok(false),
    }
}

/// Whatever is named here can be another pull's once the claim isn't surely ours.
fn remove_claimed(
    host: &HostSession,
    claim: &Claim,
    base: &str,
    objection: &dyn Fn() -> Result<Option<String>>,
) -> Result<Removal> {
    let (pool, marker) = (host.pool(), marker_volume(base));
    let hypervisor = &**claim.hypervisor();
    let record = hypervisor.download_volume(pool, &marker, MARKER_LIMIT)?;
    claim.ensure_sure()?;
    let had_marker = hypervisor.delete_volume(pool, &marker)?;
    let awake = Awake::from_now();
    let checked = objection().and_then(|why| awake.ensure().map(|()| why));
    claim.ensure_sure()?;
    match (checked, record) {
        (Ok(None), _) => {
            let had_base = hypervisor.delete_volume(pool, base)?;
            Ok(Removal::Removed(had_base || had_marker))
        }
        (other, Some(record)) if had_marker => {
            write_back(hypervisor, pool, &marker, &record)?;
            other.map(|why| Removal::Kept(why.unwrap_or_default()))
        }
        (other, _) => other.map(|why| Removal::Kept(why.unwrap_or_default())),
    }
}

/// Publishes the image again.
fn write_back(hypervisor: &dyn Hypervisor, pool: &str, marker: &str, record: &[u8]) -> Result<()> {
    let xml = VolumeSpec::File {
        name: marker.to_owned(),
        size: record.len() as u64,
    }
    .to_xml()?;
    hypervisor.create_volume(pool, marker, &xml)?;
    hypervisor.write_volume(pool, marker, record)
}
