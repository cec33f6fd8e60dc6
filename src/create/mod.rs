//! Creating one instance on one host: idempotent, resumable after a crash at any step, undone when it fails.

mod existing;
mod files;
mod hollow;
mod obstacle;
pub mod plan;
mod preflight;
mod running;
mod spec;
pub mod survey;
pub mod wait;

pub use plan::plan;
pub use preflight::{Preflight, preflight};
pub use spec::{CloudInit, CreateSpec, OVERLAY_ROOM};

use jiff::Timestamp;

use crate::error::{Class, Error, Reason, Result};
use crate::find;
use crate::host::HostSession;
use crate::image::pull::{PullObserver, PullRequest, ensure_disk_fits, pull};
use crate::image::ready::BaseImage;
use crate::instance::Instance;
use crate::libvirt::{DomainRef, DomainState, Hypervisor, ListedDomain};
use crate::name::InstanceName;
use crate::parallel;
use crate::undo::{Made, Undo};
use existing::Decision;
use files::Seeded;
use running::{ensure_running, start, wake};
use spec::Overlay;

/// Names of instances that one host is asked for at once.
const LOOKS_AT_ONCE: usize = 16;

/// An instance that exists and runs, as the host had it then.
#[derive(Debug, Clone)]
pub struct Ensured {
    /// The instance.
    pub instance: Instance,
    /// Whether this run made it.
    pub is_new: bool,
}

/// Makes sure that the instance exists and runs; gives it back as the host has it then.
///
/// What vanishes under it was deleted by somebody else, and can be made again: that is Transient, not `NotFound`.
pub fn ensure(
    host: &HostSession,
    spec: &CreateSpec,
    observer: &dyn PullObserver,
    warn: &dyn Fn(&str),
) -> Result<Ensured> {
    try_ensure(host, spec, observer, warn).map_err(|error| {
        let error = match error.class() {
            Class::NotFound => error.with_class(Class::Transient),
            _ => error,
        };
        match error.reason() {
            Reason::InstanceNotFound => {
                error.hint("somebody deleted it meanwhile; run it again to make it anew")
            }
            _ => error,
        }
    })
}

fn try_ensure(
    host: &HostSession,
    spec: &CreateSpec,
    observer: &dyn PullObserver,
    warn: &dyn Fn(&str),
) -> Result<Ensured> {
    let is = |is_new| move |instance| Ensured { instance, is_new };
    let hypervisor = host.connect()?;
    let facts = preflight(host, &*hypervisor, spec)?;
    let mut hollow = None;
    if let Some(instance) = facts.existing {
        let wanted = existing::decide(&instance, spec, Timestamp::now()) == Decision::Adopt;
        if !wanted || !hollow::is_hollow(host, &*hypervisor, &instance, &spec.name)? {
            return adopt(host, &*hypervisor, instance, spec).map(is(false));
        }
        hollow = Some(instance);
    }
    let facts = facts.judged?;
    if let Some(instance) = hollow {
        hollow::clear(host, &*hypervisor, &instance, facts.ready.as_ref())?;
        warn(&format!(
            "the disk of {} was gone: it is made anew",
            spec.name
        ));
    }
    for warning in &facts.warnings {
        warn(warning);
    }
    let base = match facts.ready {
        Some(base) => base,
        None => pull_base(host, spec, observer)?,
    };
    let disk = disk_bytes(spec, &base)?;
    let mut undo = if spec.is_named {
        Undo::new()
    } else {
        Undo::of_nameless()
    };
    let made = make(
        host,
        &*hypervisor,
        spec,
        &facts.emulator,
        &base,
        disk,
        &mut undo,
    );
    match made {
        Ok(Outcome::Made(found)) => Instance::from_domain(host.name(), found).map(is(true)),
        Ok(Outcome::Appeared(instance)) => {
            // Another create of the same name won; what this one made so far is nothing.
            adopt(host, &*hypervisor, *instance, spec).map(is(false))
        }
        Err(error) => Err(undo.roll_back(host, error.on_host(host.name()))),
    }
}

/// What [`make_image_ready`] did on one host.
pub struct Readied {
    /// The image, where it was pulled, or found as what the server has; none where nobody needed it.
    pub base: Result<Option<BaseImage>>,
    /// The names that are there already, and need no image, as far as that was looked at.
    pub there: Vec<InstanceName>,
}

/// Makes the image ready for several instances of one kind, on hosts that are fit for them and lack any of them: one
/// download for all. One result for each host.
pub fn make_image_ready(
    wanted: &[(&HostSession, Vec<&CreateSpec>)],
    observer: &dyn PullObserver,
    warn: &(dyn Fn(&HostSession, &str) + Sync),
) -> Vec<Readied> {
    let looks = parallel::map(wanted.iter().collect(), wanted.len(), |(host, specs)| {
        let mut there = Vec::new();
        let lacks = lacks_image(host, specs, warn, &mut there);
        (lacks, there)
    });
    let hosts: Vec<&HostSession> = wanted
        .iter()
        .zip(&looks)
        .filter(|(_, (lacks, _))| matches!(lacks, Ok(true)))
        .map(|((host, _), _)| *host)
        .collect();
    let spec = wanted.iter().find_map(|(_, specs)| specs.first());
    let mut pulled = match (spec, hosts.first()) {
        (Some(spec), Some(host)) => pull(&image_of(spec), &hosts, observer, &host.cancels().work),
        _ => Vec::new(),
    }
    .into_iter();
    looks
        .into_iter()
        .map(|(lacks, there)| {
            let base = match lacks {
                Ok(true) => {
                    let pulled = pulled.next().unwrap_or_else(no_result);
                    pulled.map(|pulled| Some(pulled.base))
                }
                other => other.map(|_| None),
            };
            Readied { base, there }
        })
        .collect()
}

/// Whether the image has to be pulled for any of these. Where the first of them is there already, notes which are.
fn lacks_image(
    host: &HostSession,
    specs: &[&CreateSpec],
    warn: &(dyn Fn(&HostSession, &str) + Sync),
    there: &mut Vec<InstanceName>,
) -> Result<bool> {
    let Some((first, others)) = specs.split_first() else {
        return Ok(false);
    };
    let hypervisor = host.connect()?;
    let facts = preflight(host, &*hypervisor, first)?;
    if facts.existing.is_some() {
        there.push(first.name.clone());
        let looks = parallel::map(others.to_vec(), LOOKS_AT_ONCE, |spec| {
            let found = hypervisor.find_domain(spec.name.as_str());
            found.map(|found| found.map(|_| spec.name.clone()))
        });
        for found in looks {
            there.extend(found?);
        }
        if there.len() == specs.len() {
            return Ok(false);
        }
    }
    let facts = facts.judged?;
    for warning in &facts.warnings {
        warn(host, warning);
    }
    Ok(facts.ready.is_none())
}

fn image_of(spec: &CreateSpec) -> PullRequest<'_> {
    PullRequest {
        image: &spec.image,
        disk_limit: spec.disk_is_given.then_some(spec.disk_bytes),
        extra_room: OVERLAY_ROOM,
        policy: spec.pull,
    }
}

fn no_result<T>() -> Result<T> {
    Err(Error::transient(
        Reason::ImageNotReady,
        "the pull gave no result",
    ))
}

fn pull_base(
    host: &HostSession,
    spec: &CreateSpec,
    observer: &dyn PullObserver,
) -> Result<BaseImage> {
    let pulled = pull(&image_of(spec), &[host], observer, &host.cancels().work);
    pulled
        .into_iter()
        .next()
        .unwrap_or_else(no_result)
        .map(|pulled| pulled.base)
}

/// The overlay's capacity: what was asked for, or at least what the image needs where nothing was.
fn disk_bytes(spec: &CreateSpec, base: &BaseImage) -> Result<u64> {
    let Some(virtual_size) = base.virtual_size else {
        return Ok(spec.disk_bytes);
    };
    if spec.disk_is_given {
        ensure_disk_fits(spec.disk_bytes, virtual_size)?;
    }
    Ok(spec.disk_bytes.max(virtual_size))
}

/// Takes an existing domain of that name for the wanted one, if it is, and makes sure that it runs.
fn adopt(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    instance: Instance,
    spec: &CreateSpec,
) -> Result<Instance> {
    match existing::decide(&instance, spec, Timestamp::now()) {
        Decision::Refuse(error) => Err(error.on_host(&instance.host)),
        Decision::Adopt => {
            let domain = &instance.domain;
            match instance.state {
                DomainState::Running | DomainState::Blocked | DomainState::NoState => {
                    return Ok(instance);
                }
                DomainState::Paused(_) => hypervisor.resume_domain(domain)?,
                DomainState::PmSuspended => wake(hypervisor, domain)?,
                _ => start(hypervisor, domain)
                    .map_err(|error| files::explain_restart(host, &instance, &spec.name, error))?,
            }
            let state = hypervisor.domain_state(domain)?;
            ensure_running(hypervisor, domain, state)?;
            let Some(found) = hypervisor.read_domain(domain)? else {
                return Ok(Instance { state, ..instance });
            };
            // Saved memory goes on with the times that it was saved with.
            find::as_it_counts(hypervisor, Instance::from_domain(&instance.host, found)?)
        }
    }
}

enum Outcome {
    Made(ListedDomain),
    Appeared(Box<Instance>),
}

fn make(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    spec: &CreateSpec,
    emulator: &crate::facts::Emulator,
    base: &BaseImage,
    disk: u64,
    undo: &mut Undo,
) -> Result<Outcome> {
    let identity = spec.identify();
    let seed = match files::make_seed(host, hypervisor, spec, &identity, undo)? {
        Seeded::Made(seed) => seed,
        Seeded::DomainAppeared(instance) => return Ok(Outcome::Appeared(instance)),
    };
    let ensure_ours = || seed.ensure_ours(host, hypervisor, &spec.name);
    ensure_ours()?;
    let overlay = files::make_overlay(host, hypervisor, spec, base, disk, undo)?;
    let xml = spec
        .domain(
            &identity,
            emulator.accelerator,
            base,
            host.pool(),
            Overlay {
                path: overlay,
                capacity: disk,
            },
            seed.path.clone(),
        )
        .to_xml()?;
    host.cancels().work.check()?;
    ensure_ours()?;
    // Noted first: a daemon whose answer never came may have defined it all the same.
    undo.made(Made::Domain(DomainRef {
        name: spec.name.to_string(),
        uuid: identity.uuid.to_string(),
    }));
    let domain = hypervisor
        .define_domain(&xml)
        .map_err(|error| error.while_doing(format!("defining domain {}", spec.name)))?;
    // From here on others see the domain. One that took over right before that has put its own seed there.
    ensure_ours()?;
    start(hypervisor, &domain)
        .map_err(|error| files::explain_start(host, hypervisor, &spec.name, error))?;
    // Not beside the start: storage that hangs costs the connection, and with it a start that is on its way.
    let (kept, found) = parallel::both(
        || files::ensure_kept(host, hypervisor, &spec.name),
        || hypervisor.read_domain(&domain),
    );
    kept?;
    if let Ok(Some(found)) = found {
        ensure_running(hypervisor, &domain, found.state)?;
        return Ok(Outcome::Made(found));
    }
    // That connection may be lost by now, and the domain runs on.
    let hypervisor = &*host.connect()?;
    let state = hypervisor.domain_state(&domain)?;
    ensure_running(hypervisor, &domain, state)?;
    // It runs, and nobody is to make it again for want of an answer: until it is looked at, it is what was defined.
    Ok(Outcome::Made(ListedDomain { domain, state, xml }))
}
