//! A domain of ours whose disk is gone: it can never start, and stands in the way of one that can.
//!
//! A daemon may carry out a definition after its client gave up waiting and took the volumes back. Nothing but the
//! definition is left then, and there is nothing in it to lose.

use crate::delete::{disk_path, nvram_policy};
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::image::ready::BaseImage;
use crate::instance::Instance;
use crate::inventory;
use crate::libvirt::{DomainState, Hypervisor};
use crate::name::InstanceName;
use crate::shell;
use crate::xml::pool::PoolInfo;

/// Whether the instance, which is the one wanted, is hollow: shut off, and its overlay, which is its disk, isn't in the pool.
///
/// A pool that isn't active can't say, and its instances may still run: then it isn't. Neither is one whose disk is
/// anywhere else, since the pool was defined anew, say: it starts from there.
pub(super) fn is_hollow(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    instance: &Instance,
    name: &InstanceName,
) -> Result<bool> {
    if !matches!(instance.state, DomainState::Shutoff(_)) {
        return Ok(false);
    }
    let overlay = name.overlay_volume();
    let Some(pool) = hypervisor.find_pool(host.pool())? else {
        return Ok(false);
    };
    if !instance.is_recorded_in(host.pool()) || !pool.active {
        return Ok(false);
    }
    let expected = PoolInfo::parse(&pool.xml)?.path_of(&overlay);
    if expected.is_none() || disk_path(instance) != expected.as_deref() {
        return Ok(false);
    }
    // libvirt knows only of what was there when it last looked.
    hypervisor.refresh_pool(host.pool())?;
    Ok(inventory::find_volume_path(hypervisor, host.pool(), &overlay)?.is_none())
}

/// Forgets a hollow domain, so that the instance can be made anew.
///
/// Errors: those of [`ensure_base`].
pub(super) fn clear(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    instance: &Instance,
    base: Option<&BaseImage>,
) -> Result<()> {
    ensure_base(host, instance, base)?;
    let name = &instance.domain.name;
    let nvram = nvram_policy(hypervisor, &instance.info, None)?;
    log::info!("host={} undefining {name}, whose disk is gone", host.name());
    hypervisor
        .undefine_domain(&instance.domain, nvram)
        .map_err(|error| error.while_doing(format!("undefining domain {name}, whose disk is gone")))
}

/// Makes sure that a hollow domain's base image is there.
///
/// Errors: [`Reason::InDoubt`] where it isn't: a pool that lost everything may only be a file system that isn't mounted.
pub(super) fn ensure_base(
    host: &HostSession,
    instance: &Instance,
    base: Option<&BaseImage>,
) -> Result<()> {
    let name = &instance.domain.name;
    if base.is_none() {
        let what =
            format!("the disk of {name} is gone, and so is its base image: it was left alone");
        return Err(Error::permanent(Reason::InDoubt, what)
            .on_host(host.name())
            .hint(format!("is the file system of storage pool {} mounted? then: virsh pool-refresh {}", host.pool(), shell::quote(host.pool())))
            .hint(format!("if everything in it is lost for good, run the same command again after: egressctl delete {}", instance.id())));
    }
    Ok(())
}
