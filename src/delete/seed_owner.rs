//! Whose an instance's seed volume is, by the mark inside it.

use crate::error::Result;
use crate::libvirt::Hypervisor;
use crate::name::InstanceName;
use crate::owner::Owner;
use crate::seed::SeedMark;

/// Enough of a seed to hold its mark, in bytes.
pub const SEED_HEAD: usize = 40 * 1024;

/// The mark inside the instance's seed volume, if there is one.
pub fn seed_mark(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    name: &InstanceName,
) -> Result<Option<SeedMark>> {
    let head = hypervisor.download_volume(pool, &name.seed_volume(), SEED_HEAD)?;
    Ok(mark_of(head.as_deref(), name))
}

/// The mark in a seed that begins with these bytes, if it is this instance's.
pub(super) fn mark_of(head: Option<&[u8]>, name: &InstanceName) -> Option<SeedMark> {
    head.and_then(crate::seed::read_mark)
        .filter(|mark| mark.name == name.as_str())
}

/// Whose seed has an instance's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeedOwner {
    /// There is none, or none that says who made it.
    Nobody,
    /// This process made it.
    Us,
    /// Another one did.
    Another,
}

/// Whose the instance's seed is now: a create may take over a name whose owner shows no sign of life, and a delete may
/// find a seed before there is a domain.
pub fn seed_owner(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    name: &InstanceName,
) -> Result<SeedOwner> {
    let head = hypervisor.download_volume(pool, &name.seed_volume(), SEED_HEAD)?;
    Ok(owner_in(head.as_deref().unwrap_or_default(), name))
}

/// Whose a seed is that begins with these bytes. Pure.
pub fn owner_in(head: &[u8], name: &InstanceName) -> SeedOwner {
    let owner = mark_of(Some(head), name).and_then(|mark| mark.owner);
    match owner {
        None => SeedOwner::Nobody,
        Some(owner) if owner == Owner::this_process().to_word() => SeedOwner::Us,
        Some(_) => SeedOwner::Another,
    }
}
