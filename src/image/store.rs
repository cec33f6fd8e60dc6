//! One host's side of a pull: the base volume is made, filled, and vouched for by its marker, written last.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::approach::Approach;
use super::claim::Claim;
use super::digest::Digests;
use super::identity::{Identity, marker_volume};
use super::lanes::{Target, upload};
use super::publish::{begin_marker, publish};
use super::ranges::Next;
use super::ready::BaseImage;
use super::room::{self, POOL_RESERVE, ensure_room, pool_full};
use crate::error::{Class, Error, Reason, Result};
use crate::host::HostSession;
use crate::inventory::{self, Files};
use crate::libvirt::{self, Hypervisor};
use crate::parallel::{self, panicked};
use crate::shell;
use crate::undo::{Made, Undo};
use crate::units;
use crate::xml::pool::PoolInfo;
use crate::xml::volume::VolumeSpec;

/// A block of the image, shared by all hosts that get it.
pub type Block = Arc<Vec<u8>>;

/// What a host is fed with.
pub enum Feed {
    /// The next bytes.
    Block(Block),
    /// That was all, and its digest is right: publish it.
    Verified(Arc<Published>),
}

/// What is known of the image before its first byte is stored.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// What it is.
    pub identity: Identity,
    /// The volume's bytes, where they are known beforehand.
    pub length: Option<u64>,
    /// Bytes that the volume takes at least, as far as is known: a compressed file's own.
    pub at_least: u64,
    /// The disk's size as a guest sees it, in bytes, where the header says.
    pub virtual_size: Option<u64>,
    /// Bytes that the caller needs in the pool besides, for an overlay.
    pub extra_room: u64,
}

/// What a host that is to be fed has, as seen under its claim, and the way to it.
pub(super) struct Ground {
    approach: Approach,
    pool: PoolInfo,
    /// Whether an earlier pull left anything.
    unfinished: bool,
}

impl Ground {
    /// Looks at the pool, and at what has the names of the image's volumes.
    pub(super) fn look(
        host: &HostSession,
        hypervisor: &dyn Hypervisor,
        base: &str,
        approach: Approach,
    ) -> Result<Self> {
        let find = |name: &str| hypervisor.find_volume_xml(host.pool(), name);
        let (pool, (volume, marker)) = parallel::both(
            || usable_pool(host, hypervisor),
            || parallel::both(|| find(base), || find(&marker_volume(base))),
        );
        Ok(Ground {
            approach,
            pool: pool?,
            unfinished: volume?.is_some() || marker?.is_some(),
        })
    }
}

/// What is known once all bytes have passed.
#[derive(Debug, Clone)]
pub struct Published {
    /// Digests of the published bytes.
    pub digests: Digests,
    /// SHA-256 of the volume's bytes.
    pub volume_sha256: String,
    /// The volume's bytes.
    pub volume_size: u64,
    /// Where it came from, after redirects.
    pub url: String,
    /// When its server was asked for it (RFC 3339, UTC, with milliseconds).
    pub pulled_at: String,
}

/// Looks at the host's pool before anything is written to it.
///
/// Errors: [`Reason::PoolNotFound`], [`Reason::PoolNotActive`], [`Reason::PoolTypeUnsupported`].
pub fn usable_pool(host: &HostSession, hypervisor: &dyn Hypervisor) -> Result<PoolInfo> {
    ensure_usable(host, hypervisor, hypervisor.find_pool(host.pool())?)
}

/// The same for the host's pool as it was found just now.
pub fn ensure_usable(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    found: Option<libvirt::ListedPool>,
) -> Result<PoolInfo> {
    let pool = host.pool();
    let on_host = |error: Error| error.on_host(host.name());
    let Some(found) = found else {
        let pools = hypervisor.list_pools()?;
        let there = if pools.is_empty() {
            "none".to_owned()
        } else {
            pools.join(", ")
        };
        return Err(on_host(
            Error::permanent(
                Reason::PoolNotFound,
                format!("there is no storage pool {pool}"),
            )
            .because(format!("pools on the host: {there}"))
            .hint(define_hint(pool)),
        ));
    };
    let info = PoolInfo::parse(&found.xml)?;
    if !info.holds_qcow2() {
        return Err(on_host(
            Error::permanent(
                Reason::PoolTypeUnsupported,
                format!(
                    "storage pool {pool} is of type {}, which can't hold qcow2 overlays",
                    info.kind
                ),
            )
            .hint("use a pool of type dir, fs or netfs (hosts[].pool)"),
        ));
    }
    if !found.active {
        return Err(on_host(
            Error::permanent(
                Reason::PoolNotActive,
                format!("storage pool {pool} is not active"),
            )
            .hint(format!(
                "on the host: virsh pool-start {0} && virsh pool-autostart {0}",
                shell::quote(pool)
            )),
        ));
    }
    Ok(info)
}

/// How to make a pool that isn't there.
fn define_hint(pool: &str) -> String {
    format!(
        "on the host: virsh pool-define-as {0} dir --target {1} && virsh pool-build {0} && virsh pool-start {0} && virsh pool-autostart {0}; or name another by hosts[].pool",
        shell::quote(pool),
        shell::quote(&pool_directory(pool))
    )
}

/// A directory for a new pool: libvirt refuses two pools in one.
fn pool_directory(pool: &str) -> String {
    if pool == "default" {
        "/var/lib/libvirt/images".to_owned()
    } else {
        format!("/var/lib/libvirt/{pool}")
    }
}

/// Stores one image on one host from `feed`. When it fails, what was made is taken back.
///
/// The upload has connections of its own: no query waits behind its bytes in libvirt's client library.
/// `feed` ending without [`Feed::Verified`] means that the download failed, whose error is the caller's: then there is no
/// image and no error, unless something is left behind.
pub(super) fn store(
    host: &HostSession,
    claim: Claim,
    ground: Ground,
    incoming: &Incoming,
    feed: &Receiver<Feed>,
    sent: &(dyn Fn(u64) + Sync),
) -> Result<Option<BaseImage>> {
    let mut undo = Undo::new();
    undo.made(claim.made());
    let filled = fill(host, &claim, ground, incoming, feed, sent, &mut undo);
    match filled {
        Ok(Some(base)) => {
            // The image is ready, whatever becomes of the claim: the next pull sees the marker first.
            if let Err(error) = claim.release() {
                log::warn!("{}: the claim could not be removed: {error}", host.name());
            }
            Ok(Some(base))
        }
        Ok(None) => {
            let failed = || Error::transient(Reason::DownloadFailed, "the download failed");
            let aborted = host.cancels().work.check().err().unwrap_or_else(failed);
            drop(claim);
            let told = undo.roll_back(host, aborted.on_host(host.name()));
            // The download's own error tells why; only this one tells what is left.
            if told.hints().is_empty() {
                Ok(None)
            } else {
                Err(told)
            }
        }
        Err(error) => {
            drop(claim);
            Err(undo.roll_back(host, error.on_host(host.name())))
        }
    }
}

fn fill(
    host: &HostSession,
    claim: &Claim,
    ground: Ground,
    incoming: &Incoming,
    feed: &Receiver<Feed>,
    sent: &(dyn Fn(u64) + Sync),
    undo: &mut Undo,
) -> Result<Option<BaseImage>> {
    let hypervisor = &**claim.hypervisor();
    let base = incoming.identity.base_volume();
    let pool = make_base(host, claim, ground.pool, ground.unfinished, incoming, undo)?;
    let target = Target {
        pool: host.pool(),
        volume: &base,
        key: &hypervisor.volume_key(host.pool(), &base)?,
        length: incoming.length,
        ensure_ours: &|| claim.ensure_sure(),
    };
    let lanes = ground.approach.wait()?;
    let reserved = POOL_RESERVE + incoming.extra_room;
    let room = pool.available.saturating_sub(reserved);
    let mut total = 0_u64;
    let published = OnceCell::new();
    let mut next = || match feed.recv() {
        Ok(Feed::Block(block)) => {
            total += block.len() as u64;
            if total > room {
                return Err(outgrown(host, room));
            }
            Ok(Next::Block(block))
        }
        Ok(Feed::Verified(details)) => {
            let _ = published.set(details);
            Ok(Next::End)
        }
        Err(_) => Ok(Next::Abort),
    };
    // Far away, the claim is looked at and the marker made while the last bytes are on their way.
    let mut marker = None;
    let mut at_end = || {
        let published = published.get().ok_or_else(panicked)?;
        marker = Some(begin_marker(host, claim, incoming, published, undo)?);
        Ok(())
    };
    let complete = upload(&target, &lanes, &mut next, sent, &mut at_end)?;
    let Some(marker) = marker.filter(|_| complete) else {
        return Ok(None);
    };
    undo.made(Made::Published {
        base: base.clone(),
        marker: marker_volume(&base),
        text: marker.to_text(),
    });
    // The lanes part from the daemon while the marker is written.
    let (base, ()) = parallel::both(|| publish(host, claim, incoming, &marker), || drop(lanes));
    base.map(Some)
}

/// Makes the base's volume, as long as the image where its length is known, in place of one that nobody finished; and tells what
/// the pool was before.
fn make_base(
    host: &HostSession,
    claim: &Claim,
    pool: PoolInfo,
    unfinished: bool,
    incoming: &Incoming,
    undo: &mut Undo,
) -> Result<PoolInfo> {
    let hypervisor = &**claim.hypervisor();
    let base = incoming.identity.base_volume();
    let needed = incoming.length.unwrap_or(incoming.at_least);
    let needed = needed.saturating_add(incoming.extra_room);
    let pool = match incoming.length {
        Some(_) => pool,
        // It isn't allocated beforehand, so what libvirt remembers of the room isn't enough.
        None => room::look_again(host, hypervisor)?,
    };
    let pool = ensure_room(host, hypervisor, pool, needed)?;
    if unfinished {
        remove_unfinished(host, claim, &base)?;
    }
    // Capacity and allocation are the exact size: libvirt preallocates, so that a lack of room is a clean error
    // here, and nothing trails the image. Without a known length the file grows as it is written.
    let xml = VolumeSpec::File {
        name: base.clone(),
        size: incoming.length.unwrap_or(0),
    }
    .to_xml()?;
    create(host, hypervisor, &base, &xml, undo)?;
    Ok(pool)
}

/// Creates a volume under our claim. Noted before the call: should its answer be lost, the volume is ours all the same.
pub(super) fn create(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &str,
    xml: &str,
    undo: &mut Undo,
) -> Result<()> {
    let made = Made::Volume(name.to_owned());
    undo.made(made.clone());
    let created = hypervisor.create_volume(host.pool(), name, xml);
    let is_unanswered =
        |error: &Error| matches!(error.class(), Class::Transient | Class::Interrupted(_));
    match created {
        Ok(true) => return Ok(()),
        Err(error) if is_unanswered(&error) => return Err(error),
        // Refused: whatever has the name, a file that libvirt didn't know of say, isn't ours.
        refused => {
            undo.forget(&made);
            refused?;
        }
    }
    Err(Error::transient(
        Reason::PoolBusy,
        format!("volume {name} was made by another process meanwhile"),
    ))
}

fn outgrown(host: &HostSession, room: u64) -> Error {
    let what = format!(
        "the image is larger than the {} that storage pool {} has room for",
        units::bytes(room),
        host.pool()
    );
    pool_full(host, what)
}

/// Removes what an earlier pull left without a marker; refuses when anything is backed by it.
fn remove_unfinished(host: &HostSession, claim: &Claim, base: &str) -> Result<()> {
    let hypervisor = &**claim.hypervisor();
    let Some(path) = inventory::find_volume_path(hypervisor, host.pool(), base)? else {
        claim.ensure_sure()?;
        hypervisor.delete_volume(host.pool(), &marker_volume(base))?;
        return Ok(());
    };
    inventory::refresh(hypervisor, host.pool())?;
    // Only who is seen: what was never finished has no clones that nobody knows of.
    let users = Files::read(host.name(), hypervisor, host.pool())?.seen_users_of(&path);
    if !users.is_empty() {
        return Err(Error::permanent(
            Reason::InDoubt,
            format!("volume {base} has no valid marker, but is in use: it was left alone"),
        )
        .because(format!("used by {}", users.join(", ")))
        .hint(format!(
            "if its content is right, restore {}",
            marker_volume(base)
        )));
    }
    claim.ensure_sure()?;
    hypervisor.delete_volume(host.pool(), &marker_volume(base))?;
    hypervisor.delete_volume(host.pool(), base).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_of_any_name_is_made_by_the_hint_as_it_is() {
        assert_eq!(
            define_hint("default"),
            "on the host: virsh pool-define-as default dir --target /var/lib/libvirt/images && virsh pool-build default && virsh pool-start default && virsh pool-autostart default; or name another by hosts[].pool"
        );
        assert_eq!(
            define_hint("my pool"),
            "on the host: virsh pool-define-as 'my pool' dir --target '/var/lib/libvirt/my pool' && virsh pool-build 'my pool' && virsh pool-start 'my pool' && virsh pool-autostart 'my pool'; or name another by hosts[].pool"
        );
    }
}
