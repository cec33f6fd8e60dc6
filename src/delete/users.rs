//! Who else uses an instance's volumes, on this host or another.

use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::inventory::{self, Files, HiddenDisk};
use crate::libvirt::Hypervisor;
use crate::name::InstanceName;
use crate::parallel;
use crate::sharing::ensure_nobody_else_has;
use crate::shell::quote;
use crate::xml::pool::PoolInfo;
use crate::xml::volume::VolumeInfo;

/// Reads who uses the volumes on this host, and makes sure that nobody else does, here or on a host that may share the pool.
pub(super) fn read_users(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    pool: &PoolInfo,
    instance: &Instance,
    name: &InstanceName,
    volumes: &[VolumeInfo],
) -> Result<Files> {
    // Questions to the host's shell take several round trips, which needn't be waited for.
    let (unshared, files) = parallel::both(
        || ensure_nobody_else_has(host, hypervisor, pool, instance, name, volumes),
        || {
            inventory::refresh(hypervisor, &pool.name)?;
            Files::read(host.name(), hypervisor, &pool.name)
        },
    );
    let files = files?;
    ensure_unused(host, &pool.name, instance, volumes, &files)?;
    unshared.map(|()| files)
}

/// Somebody may have put a clone on the overlay: its contents would go with it.
pub(super) fn ensure_unused(
    host: &HostSession,
    pool: &str,
    instance: &Instance,
    volumes: &[VolumeInfo],
    files: &Files,
) -> Result<()> {
    let domain = &instance.domain.name;
    for volume in volumes {
        let users = files.others_seen_using(&volume.path, domain);
        if users.is_empty() {
            if let Some(disk) = files.unread_disks(Some(domain)).first() {
                return Err(cant_be_seen(host, &volume.name, disk));
            }
            continue;
        }
        let what = format!(
            "volume {} of {domain} is used by {}: nothing was touched",
            volume.name,
            users.join(", ")
        );
        let error = Error::permanent(Reason::InDoubt, what).on_host(host.name());
        let leftover = "what only a merged snapshot left there";
        return Err(error.hint(format!(
            "delete what isn't needed any more first; {leftover}, on the host: virsh vol-delete --pool {} NAME",
            quote(pool)
        )));
    }
    Ok(())
}

/// A disk that nobody can look into may be a clone of the volume. Each of the ways out shows what it is backed by, or that
/// nobody needs it.
fn cant_be_seen(host: &HostSession, volume: &str, disk: &HiddenDisk) -> Error {
    let HiddenDisk { domain, path, .. } = disk;
    let directory = path
        .rsplit_once('/')
        .map_or("/", |(directory, _)| directory);
    let what = format!("whether volume {volume} is used can't be seen: nothing was touched");
    let shown = format!(
        "virsh pool-create-as seen dir --target {}",
        quote(directory)
    );
    Error::permanent(Reason::InDoubt, what)
        .because(format!("{disk}, can't be read, and may be backed by it"))
        .on_host(host.name())
        .hint(format!("show libvirt what it is backed by, on the host: {shown}"))
        .hint(format!("then run the same command again, and on the host: virsh pool-destroy seen (which deletes nothing); or start domain {domain}, or have {path} be readable"))
}
