//! Whether an instance's disk is its overlay: by anything else, deleting would lose or leak it.

use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::inventory;
use crate::libvirt::Hypervisor;
use crate::shell::quote;
use crate::xml::domain_info::{DiskInfo, DiskSource};
use crate::xml::metadata::Manager;
use crate::xml::pool::PoolInfo;

/// An external snapshot puts another file in the overlay's place: deleting would lose or leak it.
pub(super) fn ensure_is_overlay(
    host: &HostSession,
    overlay: &str,
    instance: &Instance,
) -> Result<()> {
    let Some(source) = moved_disk(instance, overlay) else {
        return Ok(());
    };
    let name = &instance.domain.name;
    let what = format!("the disk of {name} is {source}, not its overlay");
    let error = |why: &str| {
        let error = Error::permanent(
            Reason::InDoubt,
            format!("{what}: {why}; nothing was touched"),
        );
        error.on_host(host.name())
    };
    // A running domain's chain is known: what isn't in it can't be merged into.
    let chain = disk_of(instance)
        .map(|disk| &disk.backing[..])
        .unwrap_or_default();
    let is_in_chain = chain
        .iter()
        .any(|one| matches!(one, DiskSource::Path(path) if path == overlay));
    if instance.state.is_active() && !is_in_chain {
        let hint = format!(
            "on the host: virsh domblklist {}; what egressctl made is {overlay}",
            quote(name)
        );
        return Err(error("was it copied, or the storage pool moved?").hint(hint));
    }
    let error = error("a snapshot made outside libvirt's metadata?");
    Err(error.hint(merge_hint(instance, overlay)))
}

/// Where its pool has no overlay, the disk is gone, or it is somewhere else: the pool may have been defined anew, or the
/// disk copied, and without its domain nobody would ever find it.
pub(super) fn ensure_gone(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    pool: &PoolInfo,
    instance: &Instance,
    overlay: &str,
) -> Result<()> {
    let Some(source) = disk_elsewhere(instance, pool, overlay) else {
        return Ok(());
    };
    if inventory::is_gone(hypervisor, source)? {
        return Ok(());
    }
    let (name, pool) = (&instance.domain.name, &pool.name);
    let stop = if instance.state.is_active() {
        format!("virsh destroy {} && ", quote(name))
    } else {
        String::new()
    };
    let what = format!(
        "the disk of {name} is {source}, and storage pool {pool} has no overlay of its: was it moved, or the pool? nothing was touched"
    );
    Err(Error::permanent(Reason::InDoubt, what)
        .on_host(host.name())
        .hint(format!(
            "where the pool is now, on the host: virsh pool-dumpxml {}",
            quote(pool)
        ))
        .hint(format!(
            "if nobody needs it, on the host: {stop}rm -- {}; then run it again",
            quote(source)
        )))
}

/// The file that an instance's disk is in, where that isn't where its pool has, or would have, its overlay. Pure.
pub fn disk_elsewhere<'a>(
    instance: &'a Instance,
    pool: &PoolInfo,
    overlay: &str,
) -> Option<&'a str> {
    moved_disk(instance, &pool.path_of(overlay)?)
}

/// The file that an instance's disk is in, where that isn't its overlay at this path. Pure.
pub fn moved_disk<'a>(instance: &'a Instance, overlay: &str) -> Option<&'a str> {
    if instance.manager() != Some(Manager::Egressctl) {
        return None;
    }
    disk_path(instance).filter(|path| *path != overlay)
}

/// The file that an instance's disk is in. Pure.
pub fn disk_path(instance: &Instance) -> Option<&str> {
    match &disk_of(instance)?.source {
        DiskSource::Path(path) => Some(path),
        _ => None,
    }
}

fn disk_of(instance: &Instance) -> Option<&DiskInfo> {
    let mut disks = instance.info.disks.iter();
    disks.find(|disk| !disk.readonly && disk.target == "vda")
}

/// A domain's disk is merged while it runs. Without --base it would be merged further down: into the base image, which
/// others share.
fn merge_hint(instance: &Instance, overlay: &str) -> String {
    let name = quote(&instance.domain.name);
    let overlay = quote(overlay);
    let merge = format!("virsh blockcommit {name} vda --base {overlay} --active --pivot --delete");
    if instance.state.is_active() {
        format!("merge it first, on the host: {merge}")
    } else {
        format!("start and merge it first, on the host: virsh start {name} && {merge}")
    }
}
