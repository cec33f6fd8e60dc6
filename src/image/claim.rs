//! Who is pulling an image to a host right now: a small volume beside the base, created atomically and kept alive.
//!
//! libvirt has no locks, but creating a volume either succeeds or says that it exists. The claim's content is its
//! owner and a counter that the owner raises; a claim that hasn't changed for [`STALE`] has a dead owner, and one
//! whose owner is a dead process of this machine is known to be dead at once. An owner that was overtaken
//! (suspended for too long, say) finds that its [lease](Lease) is over before it writes anything, looks, and gives up. One
//! that might have been, and finds its claim as it was, reads back what is stored before it vouches for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::identity::claim_volume;
use crate::awake::{Awake, boot_time};
use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::inventory::is_blank;
use crate::lease::{Lease, SETTLING, patience};
use crate::libvirt::Hypervisor;
use crate::owner::Owner;
use crate::parallel;
use crate::undo::{Made, Undo};
use crate::xml::volume::VolumeSpec;

/// How often the owner shows that it lives.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a claim may stay as it is before its owner counts as dead.
const STALE: Duration = Duration::from_secs(30);
/// How often one who waits looks.
const POLL: Duration = Duration::from_secs(1);
/// The claim volume's size in bytes; a word and a counter, padded with blanks.
const SIZE: usize = 512;

/// This process's claim on one base volume of one host.
pub(super) struct Claim {
    keeper: Arc<Keeper>,
    stop: Cancel,
    heartbeat: Option<std::thread::JoinHandle<()>>,
}

/// Keeps a claim alive as long as it is ours.
struct Keeper {
    hypervisor: Arc<dyn Hypervisor>,
    pool: String,
    volume: String,
    word: String,
    begun: Duration,
    beats: AtomicU64,
    lease: Lease,
}

/// What a try to claim found.
pub(super) enum Tried<T> {
    /// The claim is ours; with it what was done meanwhile.
    Claimed(Claim, T),
    /// Another process holds it.
    Held,
}

/// Tries to become the one who pulls `base` to the host; does `meanwhile` once the claim is ours, while our word is
/// written into it.
pub(super) fn try_claim<T>(
    host: &HostSession,
    hypervisor: &Arc<dyn Hypervisor>,
    base: &str,
    meanwhile: impl FnOnce() -> T,
) -> Result<Tried<T>> {
    let volume = claim_volume(base);
    let xml = VolumeSpec::File {
        name: volume.clone(),
        size: SIZE as u64,
    }
    .to_xml()?;
    let (begun, lease) = (boot_time(), Lease::begin(STALE));
    match hypervisor.create_volume(host.pool(), &volume, &xml) {
        Ok(true) => {}
        Ok(false) => return Ok(Tried::Held),
        Err(error) => {
            let mut undo = Undo::new();
            undo.perhaps_made(&volume, &error);
            return Err(undo.roll_back(host, error));
        }
    }
    let mut claim = Claim {
        keeper: Arc::new(Keeper {
            hypervisor: Arc::clone(hypervisor),
            pool: host.pool().to_owned(),
            volume,
            word: Owner::this_process().to_word(),
            begun,
            beats: AtomicU64::new(0),
            lease,
        }),
        stop: Cancel::new(),
        heartbeat: None,
    };
    let (written, done) = parallel::both(|| claim.keeper.write(), meanwhile);
    if let Err(error) = written {
        return Err(claim.give_up(host, error));
    }
    claim.start_heartbeat();
    Ok(Tried::Claimed(claim, done))
}

/// Removes the claim of an owner that surely died after the image was ready.
pub(super) fn sweep(host: &HostSession, hypervisor: &dyn Hypervisor, base: &str) -> Result<()> {
    let volume = claim_volume(base);
    let awake = Awake::from_now();
    let content = hypervisor.download_volume(host.pool(), &volume, SIZE)?;
    if content
        .as_deref()
        .and_then(owner_of)
        .is_some_and(|owner| owner.is_gone())
        && awake.holds()
    {
        hypervisor.delete_volume(host.pool(), &volume)?;
    }
    Ok(())
}

/// Watches a claim that another holds.
pub(super) struct Watch {
    last: Option<Vec<u8>>,
    since: Instant,
}

impl Watch {
    /// Starts watching now.
    pub(super) fn new() -> Self {
        Watch {
            last: None,
            since: Instant::now(),
        }
    }

    /// Waits a little, then says whether the claim is free to be taken: gone, or its owner is dead. A dead owner's
    /// claim is removed.
    pub(super) fn is_free(
        &mut self,
        host: &HostSession,
        hypervisor: &dyn Hypervisor,
        base: &str,
    ) -> Result<bool> {
        host.cancels().work.wait(POLL);
        host.cancels().work.check()?;
        let volume = claim_volume(base);
        let awake = Awake::from_now();
        let Some(content) = hypervisor.download_volume(host.pool(), &volume, SIZE)? else {
            return Ok(true);
        };
        if self.last.as_ref() != Some(&content) {
            self.since = Instant::now();
        }
        let dead = self.since.elapsed() >= patience(STALE)
            || owner_of(&content).is_some_and(|o| o.is_gone());
        self.last = Some(content);
        if dead && awake.holds() {
            log::info!(
                "host={} the owner of {volume} is gone: taking over",
                host.name()
            );
            hypervisor.delete_volume(host.pool(), &volume)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// How long the owner has shown no sign of life.
    pub(super) fn silent_for(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Claim {
    /// The connection it was made over.
    pub(super) fn hypervisor(&self) -> &Arc<dyn Hypervisor> {
        &self.keeper.hypervisor
    }

    /// The claim as something to take back.
    pub(super) fn made(&self) -> Made {
        Made::Claim {
            volume: self.keeper.volume.clone(),
            word: self.keeper.word.clone(),
            begun: self.keeper.begun,
        }
    }

    /// Whether the claim stays ours, where another's was there before: whoever found that one dead, too, may have removed
    /// this one instead. To be asked before anything is made under it.
    ///
    /// Errors: an interrupt, and a connection's.
    pub(super) fn settles(&self, cancel: &Cancel) -> Result<bool> {
        cancel.wait(patience(SETTLING));
        cancel.check()?;
        let is_ours = self.keeper.is_ours()?;
        if !is_ours {
            self.keeper.lease.lose();
        }
        Ok(is_ours)
    }

    /// Looks whether the claim is still ours.
    ///
    /// Errors: [`Reason::PoolBusy`] when it isn't.
    pub(super) fn verify(&self) -> Result<()> {
        if self.keeper.is_ours()? {
            return Ok(());
        }
        Err(overtaken())
    }

    /// Fails unless nobody can have taken the claim over by now; to be asked right before anything is written. Asks the
    /// host only when it has been silent for long.
    ///
    /// Errors: [`Reason::PoolBusy`], and a connection's.
    pub(super) fn ensure_sure(&self) -> Result<()> {
        let lease = &self.keeper.lease;
        if !lease.is_lost() && !lease.is_sure() {
            self.keeper.beat()?;
        }
        if lease.is_sure() {
            return Ok(());
        }
        Err(overtaken())
    }

    /// Whether another may have held the claim for a time, unnoticed: then what was stored has to be read again.
    pub(super) fn has_lapsed(&self) -> bool {
        self.keeper.lease.has_lapsed()
    }

    /// Gives the claim up, when the image is ready; not one that is another's by now.
    pub(super) fn release(mut self) -> Result<()> {
        self.stop_heartbeat();
        let keeper = &self.keeper;
        let lease = &keeper.lease;
        if lease.is_lost() || !lease.is_sure() && !keeper.is_ours()? {
            return Ok(());
        }
        keeper
            .hypervisor
            .delete_volume(&keeper.pool, &keeper.volume)
            .map(drop)
    }

    /// Gives the claim up because of an error, under which nothing was made.
    pub(super) fn give_up(self, host: &HostSession, cause: Error) -> Error {
        let mut undo = Undo::new();
        undo.made(self.made());
        drop(self);
        undo.roll_back(host, cause)
    }

    fn start_heartbeat(&mut self) {
        let (keeper, stop) = (Arc::clone(&self.keeper), self.stop.clone());
        let beat = move || {
            // None before the claim has settled: it could only go over a successor's word.
            let mut pause = SETTLING + HEARTBEAT;
            while !keeper.lease.is_lost() && !stop.wait(pause) {
                pause = HEARTBEAT;
                // A missed beat is no failure yet: the lease decides.
                if let Err(error) = keeper.beat() {
                    log::debug!("heartbeat of {}: {error}", keeper.volume);
                }
            }
        };
        self.heartbeat = std::thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn(beat)
            .ok();
    }

    fn stop_heartbeat(&mut self) {
        self.stop.set(0);
        if let Some(thread) = self.heartbeat.take() {
            let _ = thread.join();
        }
    }
}

impl Keeper {
    fn is_ours(&self) -> Result<bool> {
        is_held_by(
            &*self.hypervisor,
            &self.pool,
            &self.volume,
            &self.word,
            self.begun,
        )
    }

    /// Shows that the owner lives; not in a claim that is another's by now.
    fn beat(&self) -> Result<()> {
        if !self.lease.is_sure() && !self.is_ours()? {
            log::debug!("{} is another's by now", self.volume);
            self.lease.lose();
            return Ok(());
        }
        self.write()
    }

    fn write(&self) -> Result<()> {
        if !self.lease.is_sure() && self.beats.load(Ordering::Relaxed) == 0 {
            // Nobody knows yet whose it is: whoever waited for it may have it by now.
            return Err(overtaken());
        }
        let sent = boot_time();
        let count = self.beats.fetch_add(1, Ordering::Relaxed);
        let text = format!("{} {count}\n", self.word);
        let content = format!("{text:<SIZE$}");
        self.hypervisor
            .write_volume(&self.pool, &self.volume, content.as_bytes())?;
        self.lease.renew(sent);
        Ok(())
    }
}

fn overtaken() -> Error {
    Error::transient(
        Reason::PoolBusy,
        "another process took over this pull, as this one had shown no sign of life",
    )
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.stop_heartbeat();
    }
}

/// Whether the claim in this volume is the one with this word; or that one, made at this [`boot_time`], before the word
/// was written into it.
pub(crate) fn is_held_by(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    volume: &str,
    word: &str,
    begun: Duration,
) -> Result<bool> {
    let content = hypervisor.download_volume(pool, volume, SIZE)?;
    Ok(content.is_some_and(|content| {
        // So soon nobody can have taken it over.
        is_blank(&content) && Lease::begun_at(STALE, begun).is_sure()
            || owner_of(&content).is_some_and(|owner| owner.to_word() == word)
    }))
}

pub(crate) fn owner_of(content: &[u8]) -> Option<Owner> {
    let text = std::str::from_utf8(content).ok()?;
    Owner::parse(text.split_whitespace().next()?)
}
