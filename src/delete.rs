//! Deleting one instance from one host: destroy, undefine, then overlay, then seed. Idempotent.
//!
//! What may be deleted is decided by marks, never by names alone: a domain by its metadata, volumes without a domain
//! by the mark inside the seed, which therefore goes last.

mod action;
mod disk;
mod halfway;
mod leftovers;
mod nvram;
mod seed_owner;
mod users;

pub use action::Act;
use action::Action;
pub use disk::{disk_elsewhere, disk_path, moved_disk};
pub use nvram::nvram_policy;
pub use seed_owner::{SEED_HEAD, SeedOwner, owner_in, seed_mark, seed_owner};

use std::time::Duration;

use crate::awake::Awake;
use crate::error::{Error, Reason, Result};
use crate::find::{self, Managers};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::inventory::{self, Files};
use crate::libvirt::{Hypervisor, ListedPool, NvramPolicy};
use crate::name::InstanceName;
use crate::parallel;
use crate::shell::quote;
use crate::xml::domain_info::DomainInfo;
use crate::xml::metadata::Manager;
use crate::xml::pool::PoolInfo;
use crate::xml::volume::VolumeInfo;
use users::{ensure_unused, read_users};

/// How often volumes without a domain are looked at before they are said to be left alone, and the time between.
const LOOKS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// What was deleted, and what was left alone for a reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deleted {
    /// What is gone now, in order.
    pub gone: Vec<String>,
    /// What was found under the instance's name and left alone.
    pub kept: Vec<Kept>,
    /// What else is worth telling.
    pub notes: Vec<String>,
}

/// Something that was found and left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What, such as `volume web.qcow2`.
    pub what: String,
    /// Why.
    pub why: String,
    /// On what ground.
    pub stays: Stays,
}

/// On what ground something stays that was found under an instance's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// It is ours, and something uses it, or may, or needs it to be known by.
    Used,
    /// Nothing shows that it is ours, and nobody is seen to use it.
    Unowned,
    /// Nothing shows that it is ours, and somebody may use it: who, can't be seen.
    Perhaps,
    /// Nothing shows that it is ours, and somebody uses it.
    Anothers,
}

/// Deletes the instance of that name, or what is left of it.
///
/// Errors: [`Reason::ForeignDomain`] where the domain isn't ours (or not `managers`'), [`Reason::InDoubt`] where its
/// mark or disks can't be understood or are another instance's, or others use its volumes, here or (perhaps, then
/// Transient) on a host that shares the pool; in all cases nothing was touched.
pub fn delete(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &InstanceName,
    managers: Managers,
    act: Act,
) -> Result<Deleted> {
    let mut action = Action::from_now(act);
    let (pool, found) = parallel::both(
        || hypervisor.find_pool(host.pool()),
        || hypervisor.find_domain(name.as_str()),
    );
    let (pool, mut found) = (pool?, found?);
    let mut gone = Vec::new();
    let mut looks = LOOKS;
    loop {
        if let Some(found) = found {
            let instance = Instance::from_domain(host.name(), found)?;
            let instance = find::with_definition(hypervisor, instance)?;
            ensure_ours(&instance, managers)?;
            let mut deleted = delete_found(host, hypervisor, &instance, name, pool, None, action)?;
            deleted.gone.splice(0..0, gone);
            return Ok(deleted);
        }
        let mut left = leftovers::delete(host, hypervisor, name, pool.as_ref(), act)?;
        gone.append(&mut left.gone);
        looks -= 1;
        if left.kept.is_empty() || looks == 0 {
            return Ok(Deleted { gone, ..left });
        }
        // What is kept may be a create's that is under way: unmarked yet, or used by its domain a moment later.
        action = Action::from_now(act);
        found = hypervisor.find_domain(name.as_str())?;
        if found.is_none() {
            host.cancels().work.wait(PAUSE);
            host.cancels().work.check()?;
            action = Action::from_now(act);
            found = hypervisor.find_domain(name.as_str())?;
        }
    }
}

/// Deletes this instance, which the caller has looked up and found to be the one meant: its domain (by UUID, so
/// that no other of that name is ever hit), then its volumes.
///
/// `files` is what the caller has just read of the host, to see who else uses them; `awake` begins before that look.
pub fn delete_instance(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    instance: &Instance,
    name: &InstanceName,
    files: &Files,
    awake: Awake,
) -> Result<Deleted> {
    let act = Act::Delete;
    let pool = hypervisor.find_pool(host.pool())?;
    let (files, action) = (Some(files), Action { act, awake });
    delete_found(host, hypervisor, instance, name, pool, files, action)
}

fn delete_found(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    instance: &Instance,
    name: &InstanceName,
    configured: Option<ListedPool>,
    files: Option<&Files>,
    action: Action,
) -> Result<Deleted> {
    let mut deleted = Deleted::default();
    let pool = pool_of(host, instance, name);
    let found = if pool == host.pool() {
        configured
    } else {
        hypervisor.find_pool(pool)?
    };
    let found = active_pool(host, pool, found, name)?;
    let volumes = match &found {
        Some(found) => own_volumes(host, hypervisor, found, instance, name)?,
        None => Vec::new(),
    };
    if found.is_none() {
        let gone = "is gone: only the domain is left to delete";
        let disk = disk_path(instance).unwrap_or("unknown");
        deleted
            .notes
            .push(format!("storage pool {pool} {gone}; its disk was {disk}"));
    }
    // What the caller has read is fresh for the configured pool only.
    let read;
    let files = match (files.filter(|_| pool == host.pool()), &found) {
        (None, Some(found)) if !volumes.is_empty() => {
            read = read_users(host, hypervisor, found, instance, name, &volumes)?;
            Some(&read)
        }
        (files, _) => {
            if let Some(files) = files {
                ensure_unused(host, pool, instance, &volumes, files)?;
            }
            files
        }
    };
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    let mut done = || {
        delete_domain(hypervisor, instance, files, action, &mut deleted)?;
        for VolumeInfo {
            name: volume, path, ..
        } in &volumes
        {
            // The name is free now: who took it has cleared away what was there, and these are his.
            if action.is_due()? && is_anothers(hypervisor, name, path)? {
                let anew = "an instance of that name was made anew meanwhile, and has its volumes";
                deleted.notes.push(anew.to_owned());
                break;
            }
            delete_volume(hypervisor, pool, volume, action, &mut deleted)?;
        }
        Ok(())
    };
    match done() {
        Ok(()) => Ok(deleted),
        Err(error) => {
            let is_found_again = pool == host.pool() && is_known_by_seed(instance, name, &names);
            let by_hand = (!is_found_again).then_some(pool);
            Err(halfway::tell(error, &deleted.gone, &names, by_hand))
        }
    }
}

/// Whether these volumes of an instance would be known without their domain: by our mark in the seed, which the operator's
/// instances don't have.
fn is_known_by_seed(instance: &Instance, name: &InstanceName, volumes: &[&str]) -> bool {
    instance.manager() == Some(Manager::Egressctl) && volumes.contains(&&*name.seed_volume())
}

/// Whether a domain has the name by now, and this file as a disk.
fn is_anothers(hypervisor: &dyn Hypervisor, name: &InstanceName, path: &str) -> Result<bool> {
    let Some(found) = hypervisor.find_domain(name.as_str())? else {
        return Ok(false);
    };
    let info = DomainInfo::parse(&found.xml)?;
    Ok(info.paths().any(|named| named == path))
}

/// The pool that the instance's volumes are in: the recorded one, as the configuration may name another by now.
fn pool_of<'a>(host: &'a HostSession, instance: &'a Instance, name: &InstanceName) -> &'a str {
    let overlay = name.overlay_volume();
    let mut recorded = instance.metadata().into_iter().flat_map(|m| &m.volumes);
    recorded
        .find(|volume| volume.name == overlay)
        .map_or(host.pool(), |volume| volume.pool.as_str())
}

fn ensure_ours(instance: &Instance, managers: Managers) -> Result<()> {
    let name = &instance.domain.name;
    if instance.is_in_doubt() {
        let hint = format!("on the host: virsh dumpxml {}", quote(name));
        return Err(instance.in_doubt().hint(hint));
    }
    if managers.include(instance) {
        return instance.ensure_own_mark();
    }
    let error = match instance.manager() {
        Some(Manager::Egressctl) => Error::permanent(
            Reason::ForeignDomain,
            format!("instance {name} is egressctl's own, not the operator's: it was left alone"),
        )
        .hint("without --manager it is deleted"),
        Some(manager) => Error::permanent(
            Reason::ForeignDomain,
            format!(
                "instance {name} is the operator's ({}): it was left alone",
                manager.as_str()
            ),
        )
        .hint(format!(
            "--manager {} deletes it all the same",
            manager.as_str()
        )),
        None => Error::permanent(
            Reason::ForeignDomain,
            format!("domain {name} was not made by egressctl: it was left alone"),
        ),
    };
    Err(error.on_host(&instance.host))
}

/// The pool, if it exists. One that isn't active hides its volumes, and without their domain nobody would think of them:
/// that is an error.
fn active_pool(
    host: &HostSession,
    pool: &str,
    found: Option<ListedPool>,
    name: &InstanceName,
) -> Result<Option<PoolInfo>> {
    let Some(found) = found else {
        return Ok(None);
    };
    if found.active {
        return PoolInfo::parse(&found.xml).map(Some);
    }
    Err(not_active(
        host,
        pool,
        &format!("the volumes of {name} can't be deleted: nothing was touched"),
    ))
}

fn not_active(host: &HostSession, pool: &str, so: &str) -> Error {
    Error::permanent(
        Reason::PoolNotActive,
        format!("storage pool {pool} is not active, so {so}"),
    )
    .on_host(host.name())
    .hint(format!("on the host: virsh pool-start {}", quote(pool)))
}

/// The volumes to delete with the domain: overlay first, seed last.
///
/// Only our exact names, and only where the domain really has them as disks (or, for ours, recorded them).
fn own_volumes(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    pool: &PoolInfo,
    instance: &Instance,
    name: &InstanceName,
) -> Result<Vec<VolumeInfo>> {
    let find = |volume: &str| inventory::find_volume(hypervisor, &pool.name, volume);
    let volumes = [name.overlay_volume(), name.seed_volume()];
    let (overlay, seed) = parallel::both(|| find(&volumes[0]), || find(&volumes[1]));
    let (mut overlay, seed) = (overlay?, seed?);
    if overlay.is_none() {
        // libvirt knows only of what was there when it last looked.
        inventory::refresh(hypervisor, &pool.name)?;
        overlay = find(&volumes[0])?;
    }
    match &overlay {
        Some(overlay) => disk::ensure_is_overlay(host, &overlay.path, instance)?,
        None => disk::ensure_gone(host, hypervisor, pool, instance, &volumes[0])?,
    }
    let mut own: Vec<VolumeInfo> = overlay.into_iter().chain(seed).collect();
    own.retain(|volume| {
        let recorded = instance.metadata().is_some_and(|m| {
            m.volumes
                .iter()
                .any(|v| v.name == volume.name && v.pool == pool.name)
        });
        recorded || instance.info.paths().any(|path| path == volume.path)
    });
    Ok(own)
}

fn delete_domain(
    hypervisor: &dyn Hypervisor,
    instance: &Instance,
    files: Option<&Files>,
    action: Action,
    deleted: &mut Deleted,
) -> Result<()> {
    let name = &instance.domain.name;
    // What is defined counts: undefining deletes the file that is named there.
    let defined = instance.defined.as_deref().unwrap_or(&instance.info);
    let nvram = nvram_policy(hypervisor, defined, files)?;
    if action.is_due()? {
        let destroy = || {
            hypervisor
                .destroy_domain(&instance.domain)
                .map_err(|error| error.while_doing(format!("destroying domain {name}")))
        };
        if instance.state.is_active() {
            destroy()?;
        }
        hypervisor
            .undefine_domain(&instance.domain, nvram)
            .map_err(|error| error.while_doing(format!("undefining domain {name}")))?;
        // libvirt undefines a running domain, too, and lets it run on without a definition: this one, if somebody
        // started it meanwhile (its create may be under way).
        destroy()?;
    }
    deleted.gone.push(format!("domain {name}"));
    if let (NvramPolicy::Keep, Some(path)) = (nvram, &defined.nvram) {
        deleted.notes.push(format!(
            "{path} stays: it isn't the domain's own NVRAM file, or another domain names it"
        ));
    }
    Ok(())
}

fn delete_volume(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    volume: &str,
    action: Action,
    deleted: &mut Deleted,
) -> Result<()> {
    // In a dry run, the caller has just seen it.
    let was_there = !action.is_due()?
        || hypervisor.delete_volume(pool, volume).map_err(|error| {
            error.while_doing(format!("deleting volume {volume} of pool {pool}"))
        })?;
    if was_there {
        deleted.gone.push(format!("volume {volume}"));
    }
    Ok(())
}
