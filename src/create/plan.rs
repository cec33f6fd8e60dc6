//! What `create --dry-run` shows: the same look at the host and at the image's server as a create, and nothing made.

use std::sync::OnceLock;

use jiff::Timestamp;
use serde::Serialize;

use super::existing::{Decision, decide};
use super::hollow::{ensure_base, is_hollow};
use super::obstacle;
use super::preflight::{Judged, Preflight, preflight};
use super::spec::{CreateSpec, OVERLAY_ROOM, Overlay};
use crate::error::Result;
use crate::host::HostSession;
use crate::image::identity::{Identity, base_volume, pin_of};
use crate::image::pull::{Foreseen, PullObserver, foresee};
use crate::image::ready::{BaseImage, find_ready};
use crate::image::room::ensure_room;
use crate::libvirt::Hypervisor;
use crate::units;

/// What a create would make.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The host.
    pub host: String,
    /// The instance's name.
    pub name: String,
    /// The ID of the instance that is there already, and would be taken.
    pub existing: Option<String>,
    /// The pool of all its volumes.
    pub pool: String,
    /// The image's key.
    pub image: String,
    /// The base volume.
    pub base_volume: String,
    /// Whether it is there.
    pub base_is_ready: bool,
    /// The machine type's key.
    pub machine_type: String,
    /// Its CPUs.
    pub vcpus: u32,
    /// Its memory.
    #[serde(rename = "memoryMiB")]
    pub memory_mib: u64,
    /// What the NIC is plugged into, such as `bridge br0`.
    pub nic: String,
    /// The overlay's capacity.
    pub disk_bytes: u64,
    /// The overlay.
    pub overlay_volume: String,
    /// The seed.
    pub seed_volume: String,
    /// The files in the seed; their contents are nobody's business.
    pub seed_files: Vec<&'static str>,
    /// What libvirt would be given. The UUID is another one each time.
    pub domain_xml: String,
}

/// What the image's server has, asked once for all instances of one kind, and only where one would be pulled.
#[derive(Default)]
pub struct Outlook(OnceLock<Result<Foreseen>>);

impl Outlook {
    fn of(
        &self,
        host: &HostSession,
        spec: &CreateSpec,
        observer: &dyn PullObserver,
    ) -> Result<Foreseen> {
        let ask = || foresee(&super::image_of(spec), observer, &host.cancels().work);
        self.0.get_or_init(ask).clone()
    }
}

/// Looks at the host, and where the image isn't there at its server, and says what a create would make. Reads only.
///
/// Errors: those that a create would have before it makes anything.
pub fn plan(
    host: &HostSession,
    spec: &CreateSpec,
    outlook: &Outlook,
    observer: &dyn PullObserver,
) -> Result<Plan> {
    let hypervisor = host.connect()?;
    let found = preflight(host, &*hypervisor, spec)?;
    let (existing, judged) = judge(host, &*hypervisor, spec, found)?;
    let pool = judged.pool.clone();
    let path = |volume: &str| pool.path_of(volume).unwrap_or_default();
    let mut ready = judged.ready;
    let mut foreseen = None;
    // An instance that is there already keeps the image that it has.
    if ready.is_none() && existing.is_none() {
        let outlook = outlook.of(host, spec, observer)?;
        ready = find_ready(&*hypervisor, host.pool(), &outlook.identity)?;
        foreseen = Some(outlook);
    }
    let base_is_ready = ready.is_some();
    if let (false, Some(foreseen)) = (base_is_ready, &foreseen) {
        let needed = foreseen.at_least.saturating_add(OVERLAY_ROOM);
        ensure_room(host, &*hypervisor, judged.pool, needed)?;
    }
    let base = ready.unwrap_or_else(|| to_be_pulled(spec, foreseen, &path));
    let disk_bytes = if existing.is_none() {
        super::disk_bytes(spec, &base)?
    } else {
        spec.disk_bytes.max(base.virtual_size.unwrap_or(0))
    };
    let identity = spec.identify();
    let (overlay_volume, seed_volume) = (spec.name.overlay_volume(), spec.name.seed_volume());
    let (path, seed) = (path(&overlay_volume), path(&seed_volume));
    let overlay = Overlay {
        path,
        capacity: disk_bytes,
    };
    let accelerator = judged.emulator.accelerator;
    let domain = spec.domain(&identity, accelerator, &base, host.pool(), overlay, seed);
    Ok(Plan {
        host: host.name().to_owned(),
        name: spec.name.to_string(),
        existing,
        pool: host.pool().to_owned(),
        image: spec.image.key.clone(),
        base_volume: base.volume,
        base_is_ready,
        machine_type: spec.machine.key.clone(),
        vcpus: spec.machine.vcpus,
        memory_mib: spec.machine.memory_mib,
        nic: spec.nic.to_string(),
        disk_bytes,
        overlay_volume,
        seed_volume,
        seed_files: spec.seed(&identity).file_names(),
        domain_xml: domain.to_xml()?,
    })
}

/// The ID of the instance that a create would take, none where it would make one; and what the host is like.
///
/// Errors: those of a create that finds another domain, or volumes that aren't ours.
fn judge(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    spec: &CreateSpec,
    found: Preflight,
) -> Result<(Option<String>, Judged)> {
    let Some(instance) = found.existing else {
        // The host first: whether its pool can be looked into at all is known then.
        let judged = found.judged?;
        obstacle::ensure_none(host, hypervisor, &spec.name)?;
        return Ok((None, judged));
    };
    if let Decision::Refuse(error) = decide(&instance, spec, Timestamp::now()) {
        return Err(error.on_host(host.name()));
    }
    let hollow = is_hollow(host, hypervisor, &instance, &spec.name)?;
    let judged = found.judged?;
    if hollow {
        ensure_base(host, &instance, judged.ready.as_ref())?;
    }
    Ok(((!hollow).then(|| instance.id()), judged))
}

/// The base image as it would be called; one without a pinned digest is named only when its server was asked.
fn to_be_pulled(
    spec: &CreateSpec,
    foreseen: Option<Foreseen>,
    path: &dyn Fn(&str) -> String,
) -> BaseImage {
    let (identity, virtual_size) = match foreseen {
        Some(foreseen) => (Some(foreseen.identity), foreseen.virtual_size),
        None => (None, None),
    };
    let pinned = || pin_of(&spec.image).map(|pin| Identity::pinned(&spec.image, pin));
    let volume = match identity.or_else(pinned) {
        Some(identity) => identity.base_volume(),
        None => base_volume(&spec.image.key, "?", spec.image.format),
    };
    BaseImage {
        path: path(&volume),
        volume,
        format: spec.image.format,
        sha256: String::new(),
        size: 0,
        virtual_size,
        verified: String::new(),
    }
}

impl Plan {
    /// For people.
    pub fn to_text(&self) -> String {
        let base = if self.base_is_ready {
            "is ready"
        } else {
            "would be pulled"
        };
        let existing = self.existing.as_ref().map_or(String::new(), |id| {
            format!("# {id} exists: create would take it, and make nothing of this\n")
        });
        format!(
            "{existing}# instance {} on host {}, pool {}, {}\n# machine type {}: {} x CPU, {} of memory\n# base image {}: {base}\n# overlay {} ({})\n# seed {} with {}\n{}\n",
            self.name,
            self.host,
            self.pool,
            self.nic,
            self.machine_type,
            self.vcpus,
            units::bytes(self.memory_mib << 20),
            self.base_volume,
            self.overlay_volume,
            units::bytes(self.disk_bytes),
            self.seed_volume,
            self.seed_files.join(", "),
            self.domain_xml.trim_end()
        )
    }
}
