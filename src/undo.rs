//! What this run made on a host, so that a failure or an interruption can take it back.

use std::time::Duration;

use crate::awake::Awake;
use crate::delete::{SEED_HEAD, SeedOwner, owner_in};
use crate::error::{Class, Error, Result};
use crate::host::HostSession;
use crate::image::claim;
use crate::image::identity::MARKER_LIMIT;
use crate::inventory::{self, file_name, find_volume_path, is_blank};
use crate::leftover::overlay_fault;
use crate::libvirt::{DomainRef, Hypervisor, NvramPolicy};
use crate::name::InstanceName;
use crate::parallel;
use crate::xml::domain_info::DomainInfo;

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
    /// An instance's seed, which says in it that this process made it, once it is filled. Where another's is in its place,
    /// that one's overlay is there, too.
    Seed {
        /// The instance.
        name: InstanceName,
        /// Whether it was filled: a blank one is another's then.
        is_filled: bool,
    },
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
    /// Whether the same command would make another instance, as its name was chosen at random.
    is_once: bool,
}

/// Whether the volumes that have our names are still ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    /// They are.
    Ours,
    /// Nobody could tell.
    Unknown,
    /// They are another's, or used by another's domain.
    Lost,
}

impl Undo {
    /// Nothing made yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same for an instance whose name was chosen at random: the same command would make another one.
    pub fn of_nameless() -> Self {
        Undo {
            is_once: true,
            ..Self::default()
        }
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
        let is_once = self.is_once;
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
        let cause = cause.hint(format!(
            "left behind on {}: {}",
            host.name(),
            names.join(", ")
        ));
        match left.iter().find_map(instance_of) {
            _ if !is_once => cause.hint("run the same command again when the host is back: it finds and uses or replaces what is left"),
            Some(name) => cause.hint(format!(
                "when the host is back: egressctl delete hosts/{}/domains/{name}",
                host.name()
            )),
            None => cause.hint("when the host is back, egressctl gc deletes it once it is old enough"),
        }
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
            ..self
        }
    }

    /// Whether the volumes that have our names are another process's by now: it took our claim for a dead one's, or it
    /// makes the instance that somebody deleted while we were at it. Its domain may use them though we made them: it was
    /// defined a moment later by the same paths.
    fn hold(&self, hypervisor: &dyn Hypervisor, pool: &str) -> Hold {
        loop {
            let awake = Awake::from_now();
            let hold = self.look(hypervisor, pool);
            if awake.holds() {
                return hold;
            }
        }
    }

    fn look(&self, hypervisor: &dyn Hypervisor, pool: &str) -> Hold {
        let holds = self.made.iter().map(|made| match made {
            Made::Claim {
                volume,
                word,
                begun,
            } => {
                let held = claim::is_held_by(hypervisor, pool, volume, word, *begun);
                held.map_or(
                    Hold::Unknown,
                    |held| {
                        if held { Hold::Ours } else { Hold::Lost }
                    },
                )
            }
            Made::Seed { name, is_filled } => {
                let held = self.look_at_seed(hypervisor, pool, name, *is_filled);
                held.unwrap_or_else(|error| {
                    log::debug!("clean-up: {error}");
                    Hold::Unknown
                })
            }
            _ => Hold::Ours,
        });
        holds.max().unwrap_or(Hold::Ours)
    }

    fn look_at_seed(
        &self,
        hypervisor: &dyn Hypervisor,
        pool: &str,
        name: &InstanceName,
        is_filled: bool,
    ) -> Result<Hold> {
        let (domain, seed) = parallel::both(
            || hypervisor.find_domain(name.as_str()),
            || hypervisor.download_volume(pool, &name.seed_volume(), SEED_HEAD),
        );
        let (domain, seed) = (domain?, seed?);
        let used = match domain {
            Some(found) if !self.has_made(&found.domain) => {
                let volumes = [name.overlay_volume(), name.seed_volume()];
                let paths = volumes.map(|name| find_volume_path(hypervisor, pool, &name));
                let [overlay, seed] = paths;
                hold_against(&found.xml, &[overlay?, seed?])?
            }
            _ => Hold::Ours,
        };
        Ok(used.max(hold_by(name, is_filled, seed.as_deref())))
    }

    fn has_made(&self, domain: &DomainRef) -> bool {
        let mut made = self.made.iter();
        made.any(|made| matches!(made, Made::Domain(ours) if ours.uuid == domain.uuid))
    }

    fn take_back(self, host: &HostSession, hypervisor: &dyn Hypervisor) -> Vec<Made> {
        let mut hold = Hold::Ours;
        let mut left: Vec<Made> = Vec::new();
        // The domains once more at the end: a definition that got no answer may have been carried out meanwhile.
        let is_domain = |made: &&Made| matches!(made, Made::Domain(_));
        let again = self.made.iter().filter(is_domain);
        for made in self.made.iter().rev().chain(again) {
            // A domain is meant by its UUID: that is ours whoever has the name.
            if !is_domain(&made) {
                // Right before each. What was lost once stays lost: by its seed alone an overlay is known.
                hold = hold.max(self.hold(hypervisor, host.pool()));
            }
            let taken = match hold {
                _ if is_domain(&made) => take_back_one(host, hypervisor, made).map(|()| true),
                Hold::Lost => continue,
                Hold::Unknown => Ok(false),
                Hold::Ours if matches!(made, Made::Seed { .. }) && left.iter().any(is_overlay) => {
                    Ok(false)
                }
                Hold::Ours => take_back_one(host, hypervisor, made).map(|()| true),
            };
            let is_gone = taken.unwrap_or_else(|error| {
                log::debug!("clean-up: {error}");
                false
            });
            if !is_gone && !left.contains(made) {
                left.push(made.clone());
            }
        }
        left
    }
}

/// By what the instance's seed begins with now, if there is one. Pure.
fn hold_by(name: &InstanceName, is_filled: bool, seed: Option<&[u8]>) -> Hold {
    match seed.map(|head| owner_in(head, name)) {
        // Another's, or one that another has just made and not filled yet.
        Some(SeedOwner::Another) => Hold::Lost,
        Some(SeedOwner::Nobody) if is_filled => Hold::Lost,
        // Where it was deleted and nobody has it anew, what is left is ours.
        Some(SeedOwner::Us | SeedOwner::Nobody) | None => Hold::Ours,
    }
}

/// By the files that another's domain names: one of these paths, those of our volumes that are there, or one that is called
/// like them in another directory, which may be the same by another way. Pure.
fn hold_against(xml: &str, volumes: &[Option<String>]) -> Result<Hold> {
    let info = DomainInfo::parse(xml)?;
    let against = |volume: &str, path: &str| match path {
        path if path == volume => Hold::Lost,
        path if file_name(path) == file_name(volume) => Hold::Unknown,
        _ => Hold::Ours,
    };
    let volumes = volumes.iter().flatten();
    let holds = volumes.flat_map(|volume| info.paths().map(|path| against(volume, path)));
    Ok(holds.max().unwrap_or(Hold::Ours))
}

fn is_overlay(made: &Made) -> bool {
    matches!(made, Made::Volume(_) | Made::PerhapsOverlay { .. })
}

/// The instance that a thing left behind is known to belong to: what `delete` finds, as a seed that isn't filled says
/// nobody's name.
fn instance_of(made: &Made) -> Option<&str> {
    match made {
        Made::Seed {
            name,
            is_filled: true,
        } => Some(name.as_str()),
        Made::Domain(domain) => Some(&domain.name),
        _ => None,
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
        Made::Seed { name, .. } => volume(&name.seed_volume()),
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
        Ok(head.is_some_and(|head| !head.is_empty() && is_blank(&head)))
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
        Made::Seed { name, .. } => hypervisor
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

#[cfg(test)]
mod tests;
