//! What is left of an instance whose domain is gone: overlay and seed, deleted by the mark inside the seed.

use super::seed_owner::mark_of;
use super::{Act, Action, Deleted, Kept, SEED_HEAD, Stays, delete_volume, halfway, not_active};
use crate::error::Result;
use crate::host::HostSession;
use crate::inventory::{self, Files};
use crate::leftover::overlay_fault;
use crate::libvirt::{Hypervisor, ListedPool};
use crate::name::InstanceName;
use crate::parallel;
use crate::sharing::ensure_nobody_has;
use crate::xml::volume::VolumeInfo;

/// Overlay and seed without a domain: ours only if the seed says so, and only if nothing uses them.
pub(super) fn delete(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &InstanceName,
    pool: Option<&ListedPool>,
    act: Act,
) -> Result<Deleted> {
    let action = Action::from_now(act);
    let pool = match pool {
        Some(pool) if pool.active => pool,
        // "Already absent" might be wrong, and nobody would look again.
        Some(_) => {
            return Err(not_active(
                host,
                host.pool(),
                &format!("whether volumes of {name} are left can't be seen"),
            ));
        }
        None => return Ok(Deleted::default()),
    };
    let find = |volume: String| inventory::find_volume(hypervisor, host.pool(), &volume);
    let (overlay, seed) =
        parallel::both(|| find(name.overlay_volume()), || find(name.seed_volume()));
    let (overlay, seed) = (overlay?, seed?);
    let fault = match (&seed, &overlay) {
        (Some(seed), Some(overlay)) => overlay_fault(seed, overlay),
        _ => None,
    };
    let there: Vec<VolumeInfo> = overlay.into_iter().chain(seed).collect();
    if there.is_empty() {
        return Ok(Deleted::default());
    }
    let head = head_of_seed(host, hypervisor, name)?;
    if mark_of(head.as_deref(), name).is_none() {
        let why = "nothing shows that egressctl made it";
        return keep_anothers(host, hypervisor, &there, why);
    }
    if let Some(fault) = fault {
        return keep_anothers(host, hypervisor, &there, &fault);
    }
    if let Some(seed) = there.last() {
        // With a mark there is a seed, and it is the last.
        let overlay = there.first().filter(|first| first.name != seed.name);
        ensure_nobody_has(host, hypervisor, pool, name, seed, overlay)?;
    }
    delete_unused(host, hypervisor, name, &there, head.as_deref(), action)
}

/// What the instance's seed begins with, if it is there.
fn head_of_seed(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &InstanceName,
) -> Result<Option<Vec<u8>>> {
    hypervisor.download_volume(host.pool(), &name.seed_volume(), SEED_HEAD)
}

/// Deletes one after the other, up to the first that is used; each is looked at right before, and so is the seed, which has to
/// begin as it did.
fn delete_unused(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &InstanceName,
    there: &[VolumeInfo],
    head: Option<&[u8]>,
    action: Action,
) -> Result<Deleted> {
    let mut deleted = Deleted::default();
    let names: Vec<&str> = there.iter().map(|volume| volume.name.as_str()).collect();
    for (at, volume) in there.iter().enumerate() {
        let one = inventory::users_of_path(hypervisor, host.pool(), &volume.path);
        let done = one.and_then(|users| {
            // Who takes over from what was left makes a seed of his own: then this isn't what was looked at.
            let (domain, now) = parallel::both(
                || hypervisor.find_domain(name.as_str()),
                || head_of_seed(host, hypervisor, name),
            );
            if domain?.is_some() || now?.as_deref() != head {
                return Ok(vec!["another process, which is making it anew".to_owned()]);
            }
            if users.is_empty() {
                delete_volume(hypervisor, host.pool(), &volume.name, action, &mut deleted)?;
            }
            Ok(users)
        });
        let users = done.map_err(|error| halfway::tell(error, &deleted.gone, &names, None))?;
        if !users.is_empty() {
            let why = format!("used by {}", users.join(", "));
            keep(&there[at..=at], &why, Stays::Used, &mut deleted);
            // The seed is the mark: it stays as long as the overlay does.
            let why = format!("it shows whose {} is", volume.name);
            keep(&there[at + 1..], &why, Stays::Used, &mut deleted);
            break;
        }
    }
    Ok(deleted)
}

/// Leaves alone what may not be ours, and finds out whether anybody uses it: nobody is to be told to delete that.
fn keep_anothers(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    there: &[VolumeInfo],
    why: &str,
) -> Result<Deleted> {
    let mut deleted = Deleted::default();
    inventory::refresh(hypervisor, host.pool())?;
    let files = Files::read(host.name(), hypervisor, host.pool())?;
    for volume in there {
        let seen = !files.seen_users_of(&volume.path).is_empty();
        let users = files.users_of(&volume.path);
        let used = format!("{why}, and it is used by {}", users.join(", "));
        let (why, stays) = match (users.is_empty(), seen) {
            (true, _) => (why.to_owned(), Stays::Unowned),
            (false, true) => (used, Stays::Anothers),
            (false, false) => (used, Stays::Perhaps),
        };
        keep(std::slice::from_ref(volume), &why, stays, &mut deleted);
    }
    Ok(deleted)
}

fn keep(volumes: &[VolumeInfo], why: &str, stays: Stays, deleted: &mut Deleted) {
    deleted.kept.extend(volumes.iter().map(|volume| Kept {
        what: format!("volume {}", volume.name),
        why: why.to_owned(),
        stays,
    }));
}
