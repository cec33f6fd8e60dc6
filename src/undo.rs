//! What this run made on a host, so that a failure or an interruption can take it back.

use std::time::Duration;

use crate::awake::Awake;
use crate::delete::{SEED_HEAD, SeedOwner, seed_owner};
use crate::error::{Class, Error, Result};
use crate::host::HostSession;
use crate::image::claim;
use crate::image::identity::MARKER_LIMIT;
use crate::inventory;
use crate::leftover::overlay_fault;
use crate::libvirt::{DomainRef, Hypervisor, NvramPolicy};
use crate::name::InstanceName;

/// An interrupt closes the connection under a call, which the daemon may still carry out: what it makes is looked for only
/// that much later.
const CARRIED_OUT: Duration = Duration::from_millis(300);

/// Longer than anybody takes to fill what he has just made.
const BLANK: Duration = Duration::from_secs(3);

/// One thing made, and so one thing to take back. Taking it back twice does no harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// The claim on a base image, with our word in it. Where it isn't ours any more, neither is anything else.
    Claim {
        /// The claim's volume.
        volume: String,
        /// Our word.
        word: String,
        /// When it was made, by [`crate::awake::boot_time`].
        begun: Duration,
    },
    /// An instance's seed, which says in it that this process made it. Where another's is in its place, that one's
    /// overlay is there, too.
    Seed(InstanceName),
    /// A volume of the host's pool.
    Volume(String),
    /// An overlay whose creation got no answer: it goes if it is the one that belongs to this seed.
    PerhapsOverlay {
        /// The overlay's volume.
        overlay: String,
        /// The seed's.
        seed: String,
    },
    /// A volume whose creation got no answer, so that nothing was written into it: it goes if it stays empty for 3 s,
    /// as another process would fill its own at once.
    PerhapsBlank(String),
    /// An image's marker, about to be written: where its content is stored and the base is there, the image counts and others
    /// may use it already, so that nothing is taken back but the claim.
    Published {
        /// The base's volume.
        base: String,
        /// The marker's volume.
        marker: String,
        /// What is written into it.
        text: String,
    },
    /// A domain was defined, and perhaps started.
    Domain(DomainRef),
}

/// The things made on one host, oldest first.
#[derive(Debug, Default)]
pub struct Undo {
    made: Vec<Made>,
}

impl Undo {
    /// Nothing made yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a thing right after it was made; or before, where a call without an answer may have made it.
    pub fn made(&mut self, thing: Made) {
        self.made.push(thing);
    }

    /// Notes a volume to be looked for, unless this error says for sure that it wasn't made.
    pub fn perhaps_made(&mut self, volume: &str, error: &Error) {
        if matches!(error.class(), Class::Transient | Class::Interrupted(_)) {
            self.made(Made::PerhapsBlank(volume.to_owned()));
        }
    }

    /// Notes that a thing is gone again.
    pub fn forget(&mut self, thing: &Made) {
        self.made.retain(|made| made != thing);
    }

    /// Takes everything back, newest first, over the clean-up connection; gives `cause` back with what is left
    /// behind, if anything is.
    pub fn roll_back(self, host: &HostSession, cause: Error) -> Error {
        if self.made.is_empty() {
            return cause;
        }
        let whole = "the image is complete there: run the same command again, it uses it";
        let (left, cause) = match host.connect_for_cleanup() {
            Ok(hypervisor) => {
                if matches!(cause.class(), Class::Interrupted(_)) {
                    host.cancels().cleanup.wait(CARRIED_OUT);
                }
                match self.is_published(&*hypervisor, host.pool()) {
                    Ok(false) => (self.take_back(host, &*hypervisor), cause),
                    Ok(true) => {
                        let kept = self.without_image();
                        (kept.take_back(host, &*hypervisor), cause.hint(whole))
                    }
                    Err(error) => {
                        log::debug!("clean-up: {error}");
                        (self.made, cause)
                    }
                }
            }
            Err(error) => {
                log::debug!("clean-up: {error}");
                (self.made, cause)
            }
        };
        if left.is_empty() {
            return cause;
        }
        let names: Vec<String> = left
            .iter()
            .filter_map(|made| left_behind(host.pool(), made))
            .collect();
        cause
            .hint(format!("left behind on {}: {}", host.name(), names.join(", ")))
            .hint("run the same command again when the host is back: it finds and uses or replaces what is left")
    }

    /// Whether the image counts by now: its marker was written, though that failed as far as we know.
    fn is_published(&self, hypervisor: &dyn Hypervisor, pool: &str) -> Result<bool> {
        for made in &self.made {
            if let Made::Published { base, marker, text } = made {
                let stored = hypervisor.download_volume(pool, marker, MARKER_LIMIT)?;
                let is_written = stored.is_some_and(|stored| stored == text.as_bytes());
                return Ok(is_written && hypervisor.find_volume_xml(pool, base)?.is_some());
            }
        }
        Ok(false)
    }

    /// All but what an image is made of.
    fn without_image(self) -> Self {
        let stays = |made: &Made| !matches!(made, Made::Volume(_) | Made::Published { .. });
        Undo {
            made: self.made.into_iter().filter(stays).collect(),
        }
    }

    /// Whether the volumes that have our names are another process's by now: it took our claim for a dead one's, or it
    /// makes the instance that somebody deleted while we were at it.
    fn was_overtaken(&self, hypervisor: &dyn Hypervisor, pool: &str) -> bool {
        self.made.iter().any(|made| match made {
            Made::Claim {
                volume,
                word,
                begun,
            } => {
                let held = claim::is_held_by(hypervisor, pool, volume, word, *begun);
                !matches!(held, Ok(true))
            }
            Made::Seed(name) => {
                matches!(seed_owner(hypervisor, pool, name), Ok(SeedOwner::Another))
            }
            _ => false,
        })
    }

    fn take_back(self, host: &HostSession, hypervisor: &dyn Hypervisor) -> Vec<Made> {
        let pool = host.pool();
        let mut awake = Awake::from_now();
        let mut overtaken = self.was_overtaken(hypervisor, pool);
        let mut left = Vec::new();
        // The domains once more at the end: a definition that got no answer may have been carried out meanwhile.
        let is_domain = |made: &&Made| matches!(made, Made::Domain(_));
        let again = self.made.iter().filter(is_domain);
        for made in self.made.iter().rev().chain(again) {
            if !awake.holds() {
                awake = Awake::from_now();
                overtaken |= self.was_overtaken(hypervisor, pool);
            }
            // A domain is meant by its UUID: that is ours whoever has the name.
            if overtaken && !is_domain(&made) {
                continue;
            }
            if let Err(error) = take_back_one(host, hypervisor, made) {
                log::debug!("clean-up: {error}");
                if !left.contains(made) {
                    left.push(made.clone());
                }
            }
        }
        left
    }
}

/// A thing that couldn't be taken back, for people.
fn left_behind(pool: &str, made: &Made) -> Option<String> {
    let volume = |name: &str| Some(format!("volume {name} in pool {pool}"));
    match made {
        Made::Claim { volume: name, .. }
        | Made::Volume(name)
        | Made::PerhapsBlank(name)
        | Made::PerhapsOverlay { overlay: name, .. } => volume(name),
        Made::Seed(name) => volume(&name.seed_volume()),
        // The volume is among the others.
        Made::Published { .. } => None,
        Made::Domain(domain) => Some(format!("domain {}", domain.name)),
    }
}

/// Deletes the overlay if it was made after the seed and on a base image, as ours would be.
fn take_back_overlay(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    overlay: &str,
    seed: &str,
) -> Result<()> {
    let find = |name: &str| inventory::find_volume(hypervisor, pool, name);
    let (Some(overlay), Some(seed)) = (find(overlay)?, find(seed)?) else {
        return Ok(());
    };
    if overlay_fault(&seed, &overlay).is_none() {
        hypervisor.delete_volume(pool, &overlay.name)?;
    }
    Ok(())
}

/// Deletes a volume of zeros that nobody fills.
fn take_back_blank(host: &HostSession, hypervisor: &dyn Hypervisor, volume: &str) -> Result<()> {
    let is_blank = || {
        let head = hypervisor.download_volume(host.pool(), volume, SEED_HEAD)?;
        Ok(head.is_some_and(|head| !head.is_empty() && head.iter().all(|byte| *byte == 0)))
    };
    if !is_blank()? {
        return Ok(());
    }
    let cancel = &host.cancels().cleanup;
    cancel.wait(BLANK);
    cancel.check()?;
    let awake = Awake::from_now();
    if is_blank()? {
        awake.ensure()?;
        hypervisor.delete_volume(host.pool(), volume)?;
    }
    Ok(())
}

fn take_back_one(host: &HostSession, hypervisor: &dyn Hypervisor, made: &Made) -> Result<()> {
    let pool = host.pool();
    match made {
        Made::PerhapsBlank(volume) => take_back_blank(host, hypervisor, volume),
        Made::Published { .. } => Ok(()),
        Made::Claim { volume: name, .. } | Made::Volume(name) => {
            hypervisor.delete_volume(pool, name).map(drop)
        }
        Made::Seed(name) => hypervisor
            .delete_volume(pool, &name.seed_volume())
            .map(drop),
        Made::PerhapsOverlay { overlay, seed } => {
            take_back_overlay(hypervisor, pool, overlay, seed)
        }
        Made::Domain(domain) => {
            let taken = hypervisor
                .destroy_domain(domain)
                .and_then(|()| hypervisor.undefine_domain(domain, NvramPolicy::Remove));
            match taken {
                // Never defined, or gone already.
                Err(error) if error.class() == Class::NotFound => Ok(()),
                taken => taken,
            }
        }
    }
}
