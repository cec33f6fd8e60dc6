//! Looking at the host before anything is made: all look-ups at once, over one connection.

use super::spec::{CreateSpec, OVERLAY_ROOM};
use crate::config::Firmware;
use crate::error::Result;
use crate::facts::{self, Emulator};
use crate::find;
use crate::host::HostSession;
use crate::image::identity::pin_of;
use crate::image::policy::{PullPolicy, not_kept};
use crate::image::ready::{BaseImage, find_again, find_kept};
use crate::image::room::ensure_room;
use crate::image::store::usable_pool;
use crate::instance::Instance;
use crate::libvirt::Hypervisor;
use crate::parallel::{Job, begin, panicked};
use crate::xml::domain::Accelerator;
use crate::xml::pool::PoolInfo;

/// What was found.
pub struct Preflight {
    /// The domain that has the name already.
    pub existing: Option<Instance>,
    /// Whether a new one could be made.
    pub judged: Result<Judged>,
}

/// A host on which a new instance can be made.
pub struct Judged {
    /// The pool.
    pub pool: PoolInfo,
    /// How it will run.
    pub emulator: Emulator,
    /// The base image, where it is known to be ready.
    pub ready: Option<BaseImage>,
    /// Worth telling, but no obstacle.
    pub warnings: Vec<String>,
}

/// Looks the host over for this instance.
pub fn preflight(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    spec: &CreateSpec,
) -> Result<Preflight> {
    std::thread::scope(|scope| {
        let existing = begin(scope, || find::by_its_name(host, hypervisor, &spec.name));
        let version = begin(scope, || {
            facts::ensure_libvirt(hypervisor.libvirt_version()?)
        });
        let pool = begin(scope, || usable_pool(host, hypervisor));
        let ready = begin(scope, || kept(host, hypervisor, spec));
        let emulator = begin(scope, || {
            let emulator = facts::emulator(hypervisor, spec.virt_type)?;
            facts::ensure_firmware(&emulator, spec.image.firmware)?;
            Ok(emulator)
        });
        let machine = begin(scope, || {
            facts::ensure_machine_fits(hypervisor, &spec.machine)
        });
        let nic = begin(scope, || {
            let state = facts::nic_state(hypervisor, &spec.nic)?;
            facts::ensure_nic(&state, host.config())
        });
        // gc compares the host's clock with what this machine's says now.
        let clocks = spec
            .ttl
            .map(|_| begin(scope, || facts::ensure_clocks_agree(hypervisor)));
        let existing = join(existing)?;
        let (version, pool) = (join(version), join(pool));
        // The most fundamental obstacle is reported, not the one that was found first.
        let judged = pool.and_then(|pool| {
            join(nic)?;
            let emulator = join(emulator)?;
            if spec.image.firmware == Firmware::Uefi || emulator.accelerator == Accelerator::Qemu {
                version?;
            }
            let too_few = join(machine)?;
            clocks.map_or(Ok(()), join)?;
            let pool = ensure_room(host, hypervisor, pool, OVERLAY_ROOM)?;
            let ready = join(ready)?;
            if ready.is_none() && spec.pull == PullPolicy::Never {
                return Err(not_kept(&spec.image));
            }
            let mut warnings: Vec<String> = too_few.into_iter().collect();
            if emulator.fell_back {
                warnings.push(crate::check::fell_back().message().to_owned());
            }
            Ok(Judged {
                pool,
                emulator,
                ready,
                warnings,
            })
        });
        Ok(Preflight {
            existing,
            judged: judged.map_err(|error| error.on_host(host.name())),
        })
    })
}

/// The image, where it is ready and its server needs no question: this run has asked it, or the image is pinned.
fn kept(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    spec: &CreateSpec,
) -> Result<Option<BaseImage>> {
    if let Some(pulled) = &spec.pulled {
        return find_again(hypervisor, host.pool(), pulled);
    }
    if pin_of(&spec.image).is_none() && spec.pull == PullPolicy::Always {
        return Ok(None);
    }
    // A pool that isn't there or not active is an error here, too; the judge reads the pool's own before it.
    find_kept(hypervisor, host.pool(), &spec.image)
}

fn join<T>(job: Job<'_, Result<T>>) -> Result<T> {
    job.join().unwrap_or_else(|_| Err(panicked()))
}
