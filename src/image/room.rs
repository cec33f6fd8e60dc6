//! Whether a pool has room enough. libvirt remembers the room of a pool from when it last looked into its directory.

use super::store::usable_pool;
use crate::error::{Class, Error, Reason, Result};
use crate::host::HostSession;
use crate::inventory;
use crate::libvirt::{Hypervisor, MAKE_ROOM};
use crate::units;
use crate::xml::pool::PoolInfo;

/// Room that must stay free in a pool beyond what is written, in bytes: libvirtd 11.3 dies when a stream meets a
/// full disk, and other writers don't ask us.
pub const POOL_RESERVE: u64 = 16 << 20;

/// The pool by a look into its directory right now; one that is busy, as libvirt remembers it.
pub fn look_again(host: &HostSession, hypervisor: &dyn Hypervisor) -> Result<PoolInfo> {
    inventory::refresh(hypervisor, host.pool())?;
    usable_pool(host, hypervisor)
}

/// Refuses when the pool has less room than `needed` bytes and the reserve, also by a look right now. Gives the pool as it
/// was seen last.
///
/// Errors: [`Reason::PoolFull`] (`QuotaExceeded`).
pub fn ensure_room(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    pool: PoolInfo,
    needed: u64,
) -> Result<PoolInfo> {
    let needed = needed.saturating_add(POOL_RESERVE);
    if pool.available >= needed {
        return Ok(pool);
    }
    let pool = look_again(host, hypervisor)?;
    if pool.available >= needed {
        return Ok(pool);
    }
    let what = format!(
        "storage pool {} has too little room: {} available, {} needed",
        host.pool(),
        units::bytes(pool.available),
        units::bytes(needed)
    );
    Err(pool_full(host, what))
}

/// The error for a pool without room for what is meant to go there.
pub(super) fn pool_full(host: &HostSession, what: String) -> Error {
    Error::new(Class::QuotaExceeded, Reason::PoolFull, what)
        .on_host(host.name())
        .hint(MAKE_ROOM)
}
