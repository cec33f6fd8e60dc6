//! A new instance's volumes: the seed, whose creation claims the name, and the overlay.

use std::time::{Duration, Instant};

use super::obstacle::{ensure_its_overlay, ensure_no_user};
use super::spec::{CreateSpec, InstanceIdentity};
use crate::awake::{Awake, boot_time};
use crate::delete::{SEED_HEAD, SeedOwner, seed_mark, seed_owner};
use crate::error::{Error, Reason, Result};
use crate::find;
use crate::host::HostSession;
use crate::image::identity::marker_volume;
use crate::image::ready::BaseImage;
use crate::instance::Instance;
use crate::inventory::{self, is_unwritten_seed};
use crate::lease::{Lease, SETTLING, patience};
use crate::libvirt::Hypervisor;
use crate::name::InstanceName;
use crate::owner::Owner;
use crate::parallel;
use crate::seed;
use crate::sharing::ensure_nobody_has;
use crate::undo::{Made, Undo};
use crate::xml::volume::VolumeSpec;

/// How long another create of the same name may take from its seed to its domain, before it counts as dead. From
/// another machine nothing else can be known; a dead process of this machine is known to be dead at once.
const SEED_STALE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(500);

/// What came of making the seed.
pub(super) enum Seeded {
    /// It is made.
    Made(OwnSeed),
    /// Another create of this name was faster.
    DomainAppeared(Box<Instance>),
}

/// A seed that this process made, and with it the instance's name, as long as nobody takes it over.
pub(super) struct OwnSeed {
    /// Its path on the host.
    pub(super) path: String,
    lease: Lease,
}

impl OwnSeed {
    /// Fails where another create may have taken the name over; to be asked right before anything is made by that name. Asks
    /// the host only where this one has been at it for so long that another may think it dead.
    ///
    /// Errors, both Transient: [`Reason::PoolBusy`], and [`Reason::InstanceNotFound`] where the seed was deleted; and a
    /// connection's.
    pub(super) fn ensure_ours(
        &self,
        host: &HostSession,
        hypervisor: &dyn Hypervisor,
        name: &InstanceName,
    ) -> Result<()> {
        if self.lease.is_sure() {
            return Ok(());
        }
        match seed_owner(hypervisor, host.pool(), name)? {
            SeedOwner::Us => Ok(()),
            SeedOwner::Nobody => Err(lost(&name.seed_volume())),
            SeedOwner::Another => Err(overtaken(name)),
        }
    }
}

/// Fails where the seed isn't this process's any more, however young it is; to be asked once the domain has the name. A
/// delete of the name that came before takes the volumes, and another create makes its own at the same paths: its define
/// fails, and it takes back what it made, under the domain that has been started with it. A host that doesn't answer that is
/// asked once more, over another connection if need be; a domain that runs isn't taken down for want of an answer.
///
/// Errors: as those of [`OwnSeed::ensure_ours`], but no connection's.
pub(super) fn ensure_kept(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &InstanceName,
) -> Result<()> {
    let ask = |hypervisor: &dyn Hypervisor| seed_owner(hypervisor, host.pool(), name);
    match ask(hypervisor).or_else(|_| host.connect().and_then(|again| ask(&*again))) {
        Ok(SeedOwner::Us) => Ok(()),
        Ok(SeedOwner::Nobody) => Err(lost(&name.seed_volume())),
        Ok(SeedOwner::Another) => Err(made_anew(name)),
        Err(error) => {
            log::warn!("{}: whose the seed of {name} is: {error}", host.name());
            Ok(())
        }
    }
}

/// Why the domain didn't start, where that is for want of a volume: a `delete` of the name that came before there was a
/// domain takes whatever there is of seed and overlay, and another create may have made its own by now.
pub(super) fn explain_start(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &InstanceName,
    error: Error,
) -> Error {
    if error.reason() != Reason::LibvirtError {
        return error;
    }
    let overlay = name.overlay_volume();
    let (owner, found) = parallel::both(
        || seed_owner(hypervisor, host.pool(), name),
        || hypervisor.find_volume_xml(host.pool(), &overlay),
    );
    let cause = match (owner, found) {
        (Ok(SeedOwner::Nobody), _) => lost(&name.seed_volume()),
        (Ok(SeedOwner::Another), _) => made_anew(name),
        (_, Ok(None)) => lost(&overlay),
        _ => return error,
    };
    cause.because(error)
}

/// Why an instance that was there already didn't start, where that is for want of its seed.
pub(super) fn explain_restart(
    host: &HostSession,
    instance: &Instance,
    name: &InstanceName,
    error: Error,
) -> Error {
    if error.reason() != Reason::LibvirtError {
        return error;
    }
    let seed = name.seed_volume();
    let missing = find::missing_volumes(host, instance).unwrap_or_default();
    if !missing.contains(&seed) {
        return error;
    }
    let id = instance.id();
    let what = format!("volume {seed} is gone, without which {name} can't start");
    let anew = format!(
        "the same command makes it anew, without what is on its disk, after: egressctl delete {id}"
    );
    Error::permanent(Reason::InDoubt, what)
        .because(error)
        .hint(anew)
}

fn lost(volume: &str) -> Error {
    let what = format!("volume {volume} was deleted while the instance was being made");
    Error::transient(Reason::InstanceNotFound, what)
}

fn made_anew(name: &InstanceName) -> Error {
    let what =
        format!("this instance's volumes were deleted, and another process is making {name} now");
    Error::transient(Reason::PoolBusy, what)
        .hint("run the same command again: it takes what the other has made")
}

fn overtaken(name: &InstanceName) -> Error {
    Error::transient(
        Reason::PoolBusy,
        format!("another process took over the creation of {name}, as this one had shown no sign of life"),
    )
    .hint("run the same command again: it takes what the other has made")
}

/// Makes the seed volume. Creating it is atomic, so of two creates of one name only one gets past here.
pub(super) fn make_seed(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    spec: &CreateSpec,
    identity: &InstanceIdentity,
    undo: &mut Undo,
) -> Result<Seeded> {
    let volume = spec.name.seed_volume();
    let image = spec.seed(identity).to_image()?;
    let xml = VolumeSpec::File {
        name: volume.clone(),
        size: image.len() as u64,
    }
    .to_xml()?;
    let mut was_anothers = false;
    loop {
        host.cancels().work.check()?;
        let lease = Lease::begin(SEED_STALE);
        let created = hypervisor
            .create_volume(host.pool(), &volume, &xml)
            .inspect_err(|error| undo.perhaps_made(&volume, error))
            .map_err(|error| error.while_doing(format!("creating volume {volume}")))?;
        if !created {
            was_anothers = true;
            if let Some(instance) = settle_other(host, hypervisor, spec)? {
                return Ok(Seeded::DomainAppeared(Box::new(instance)));
            }
            continue;
        }
        let made = |is_filled| Made::Seed {
            name: spec.name.clone(),
            is_filled,
        };
        undo.made(made(false));
        let seed = fill(host, hypervisor, &spec.name, &image, lease)?;
        undo.forget(&made(false));
        undo.made(made(true));
        if !was_anothers || settles(host, hypervisor, &spec.name)? {
            return Ok(Seeded::Made(seed));
        }
        undo.forget(&made(true));
    }
}

fn fill(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &InstanceName,
    image: &[u8],
    lease: Lease,
) -> Result<OwnSeed> {
    if !lease.is_sure() {
        // It says nobody's name yet: whoever waited for it may have made one of its own by now.
        return Err(overtaken(name));
    }
    let volume = name.seed_volume();
    let sent = boot_time();
    let (path, filled) = parallel::both(
        || hypervisor.volume_path(host.pool(), &volume),
        || hypervisor.write_volume(host.pool(), &volume, image),
    );
    filled?;
    lease.renew(sent);
    let path = path?;
    Ok(OwnSeed { path, lease })
}

/// Whether the seed stays ours, where another's was there before: whoever found that one dead, too, may have removed this
/// one instead.
fn settles(host: &HostSession, hypervisor: &dyn Hypervisor, name: &InstanceName) -> Result<bool> {
    let cancel = &host.cancels().work;
    cancel.wait(patience(SETTLING));
    cancel.check()?;
    Ok(seed_owner(hypervisor, host.pool(), name)? == SeedOwner::Us)
}

/// Another create's seed has the name: waits for its domain, or clears away what a dead one left.
fn settle_other(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    spec: &CreateSpec,
) -> Result<Option<Instance>> {
    let volume = spec.name.seed_volume();
    let first = hypervisor.download_volume(host.pool(), &volume, SEED_HEAD)?;
    let since = Instant::now();
    loop {
        let awake = Awake::from_now();
        if let Some(instance) = find::by_its_name(host, hypervisor, &spec.name)? {
            return Ok(Some(instance));
        }
        let head = hypervisor.download_volume(host.pool(), &volume, SEED_HEAD)?;
        let Some(head) = head else { return Ok(None) };
        if Some(&head) != first.as_ref() {
            // Another create has it now, or its maker is just filling it: look again from the start.
            host.cancels().work.wait(POLL);
            return Ok(None);
        }
        let mark = seed::read_mark(&head).filter(|mark| mark.name == spec.name.as_str());
        // No seed of ours is as short as that, however new: it needs no patience.
        if head.len() < seed::MARK_BYTES && since.elapsed() >= POLL {
            return Err(not_ours(host, &volume));
        }
        let owner = mark
            .as_ref()
            .and_then(|mark| Owner::parse(mark.owner.as_deref()?));
        if owner.is_some_and(|owner| owner.is_gone()) || since.elapsed() >= patience(SEED_STALE) {
            clear(host, hypervisor, spec, &head, awake)?;
            return Ok(None);
        }
        host.cancels().work.wait(POLL);
        host.cancels().work.check()?;
    }
}

/// Removes a dead create's overlay and seed, unless anything uses them, or the seed isn't the one that begins with `head`
/// any more: another may have taken over meanwhile.
fn clear(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    spec: &CreateSpec,
    head: &[u8],
    awake: Awake,
) -> Result<()> {
    let find = |volume: String| inventory::find_volume(hypervisor, host.pool(), &volume);
    let Some(seed) = find(spec.name.seed_volume())? else {
        return Ok(());
    };
    let marked = seed_mark(hypervisor, host.pool(), &spec.name)?.is_some();
    if !marked && is_unwritten_seed(hypervisor, host.pool(), &seed)? == Some(false) {
        return Err(not_ours(host, &seed.name));
    }
    let overlay = find(spec.name.overlay_volume())?;
    // An overlay is made only once the seed is filled: this one is somebody else's, and so may the seed be.
    if let (false, Some(overlay)) = (marked, &overlay) {
        return Err(not_ours(host, &overlay.name));
    }
    ensure_its_overlay(host, &spec.name, Some(&seed), overlay.as_ref())?;
    if let Some(pool) = hypervisor.find_pool(host.pool())? {
        let name = &spec.name;
        ensure_nobody_has(host, hypervisor, &pool, name, &seed, overlay.as_ref())
            .map_err(|error| error.hint("or choose another --name"))?;
    }
    for found in overlay.into_iter().chain([seed]) {
        ensure_no_user(host, hypervisor, &found)?;
        let volume = found.name;
        let (domain, now) = parallel::both(
            || hypervisor.find_domain(spec.name.as_str()),
            || hypervisor.download_volume(host.pool(), &spec.name.seed_volume(), SEED_HEAD),
        );
        if domain?.is_some() || now?.as_deref() != Some(head) {
            return Ok(());
        }
        log::info!(
            "host={} removing {volume}, left by a create that died",
            host.name()
        );
        awake.ensure()?;
        hypervisor.delete_volume(host.pool(), &volume)?;
    }
    Ok(())
}

pub(super) fn not_ours(host: &HostSession, volume: &str) -> Error {
    Error::permanent(
        Reason::ForeignDomain,
        format!(
            "volume {volume} exists in pool {}, and nothing shows that egressctl made it: it was left alone",
            host.pool()
        ),
    )
    .on_host(host.name())
    .hint("choose another --name")
}

/// Makes the overlay on top of the base image. Not before the seed is filled: its mark is what shows whose an overlay
/// without a domain is.
pub(super) fn make_overlay(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    spec: &CreateSpec,
    base: &BaseImage,
    capacity: u64,
    undo: &mut Undo,
) -> Result<String> {
    host.cancels().work.check()?;
    let volume = spec.name.overlay_volume();
    let xml = VolumeSpec::Overlay {
        name: volume.clone(),
        capacity,
        backing_path: base.path.clone(),
        backing_format: base.format,
    }
    .to_xml()?;
    let perhaps = Made::PerhapsOverlay {
        overlay: volume.clone(),
        seed: spec.name.seed_volume(),
    };
    undo.made(perhaps.clone());
    let created = hypervisor
        .create_volume(host.pool(), &volume, &xml)
        .map_err(|error| error.while_doing(format!("creating volume {volume}")))
        .map_err(|error| explain_overlay(host, hypervisor, base, error))?;
    undo.forget(&perhaps);
    if !created {
        return Err(match seed_owner(hypervisor, host.pool(), &spec.name)? {
            // The seed is this run's, so an overlay that is there already was left by nobody we know.
            SeedOwner::Us => not_ours(host, &volume),
            SeedOwner::Nobody => lost(&spec.name.seed_volume()),
            SeedOwner::Another => overtaken(&spec.name),
        });
    }
    undo.made(Made::Volume(volume.clone()));
    let (path, published) = parallel::both(
        || hypervisor.volume_path(host.pool(), &volume),
        || ensure_published(host, hypervisor, base),
    );
    published?;
    path
}

/// Why the overlay couldn't be made, where that is for want of its base.
fn explain_overlay(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    base: &BaseImage,
    error: Error,
) -> Error {
    if error.reason() != Reason::LibvirtError {
        return error;
    }
    match ensure_published(host, hypervisor, base) {
        Err(gone) if gone.reason() == Reason::ImageNotReady => gone.because(error),
        _ => error,
    }
}

/// Looks for the base's marker once more, now that the overlay shows that the base is used: whoever removes a base
/// deletes its marker first and looks for overlays after that, so one of the two sees the other.
fn ensure_published(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    base: &BaseImage,
) -> Result<()> {
    let marker = marker_volume(&base.volume);
    if hypervisor.find_volume_xml(host.pool(), &marker)?.is_some() {
        return Ok(());
    }
    Err(Error::transient(
        Reason::ImageNotReady,
        format!("base image {} was removed meanwhile", base.volume),
    )
    .on_host(host.name())
    .hint("run the same command again: it pulls the image"))
}
