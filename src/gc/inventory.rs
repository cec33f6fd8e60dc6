//! What gc sees of one host: domains, volumes, and what marks, markers and claims say. Reads only.

use std::collections::{BTreeMap, BTreeSet};

use crate::delete::SEED_HEAD;
use crate::error::Result;
use crate::facts;
use crate::host::HostSession;
use crate::image::claim;
use crate::image::identity::{MARKER_LIMIT, Marker};
use crate::image::names::{BaseName, base_of_claim, base_of_marker};
use crate::inventory::{Files, Start, is_blank, is_unreadable, is_unwritten_seed, read_start};
use crate::leftover::instance_of_seed;
use crate::libvirt::Hypervisor;
use crate::name::InstanceName;
use crate::owner::{Liveness, Owner};
use crate::parallel;
use crate::seed::{self, SeedMark};
use crate::sharing::{Sharing, sharing};
use crate::xml::pool::PoolInfo;
use crate::xml::volume::VolumeInfo;

/// Streams of one connection under way at once.
const READS_AT_ONCE: usize = 16;

/// Everything that gc decides by, of one host.
#[derive(Debug, Clone, Default)]
pub struct HostView {
    /// The host's name in the configuration.
    pub host: String,
    /// Domains and volumes.
    pub files: Files,
    /// The pool itself.
    pub pool: Option<PoolInfo>,
    /// The seeds that no domain has, by volume.
    pub seeds: BTreeMap<String, SeedView>,
    /// The markers of what is named like our base images, by base volume.
    pub markers: BTreeMap<String, MarkerView>,
    /// Claims on such base images, by base volume.
    pub claims: BTreeMap<String, ClaimView>,
    /// How many seconds the host's clock is ahead of ours, where it could be asked.
    pub clock_offset: Option<i64>,
    /// Whether other hosts may see the same pool.
    pub shared: Sharing,
    /// The machine's own UUID, where it has one and the provider has other hosts.
    pub machine: Option<String>,
}

impl HostView {
    /// Whether both are surely one machine, which the configuration has under two names: it has the same domains, too, running
    /// and not. Boards without a UUID of their own have their vendor's, all the same one.
    pub fn is_same_machine(&self, other: &HostView) -> bool {
        let domains = |view: &HostView| -> BTreeSet<(String, bool)> {
            let all = view.files.domains.iter().map(|domain| &domain.instance);
            all.map(|one| (one.domain.uuid.clone(), one.state.is_active()))
                .collect()
        };
        self.machine.is_some() && self.machine == other.machine && domains(self) == domains(other)
    }
}

/// What a seed's content says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeedView {
    /// It has our mark; and whether its maker is still at work.
    Marked(SeedMark, Liveness),
    /// It is as long as a seed, and nothing but zeros.
    Empty,
    /// It is something else.
    Other,
}

/// What a marker says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkerView {
    /// It vouches for its base.
    Valid(Box<Marker>),
    /// It is empty or zeros: a crash while it was written.
    Unwritten,
    /// It is something else.
    Other,
}

/// A claim: who is pulling an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimView {
    /// Its bytes, to know it again.
    pub content: Vec<u8>,
    /// What can be said of its owner.
    pub owner: ClaimOwner,
}

/// A claim's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimOwner {
    /// A process of some machine.
    Process(Liveness),
    /// Nothing was written yet.
    Unwritten,
    /// It isn't one of our claims.
    Other,
}

/// Reads a host; `fresh` as in [`Files::read_fresh`]. Errors: whatever can't be read, as acting on a partial view is how live machines get reaped.
pub fn read(host: &HostSession, fresh: bool) -> Result<HostView> {
    let hypervisor = host.connect()?;
    let hypervisor = &*hypervisor;
    let pool = crate::image::store::usable_pool(host, hypervisor)?;
    let clock_offset = facts::clock_offset(hypervisor)?;
    let (files, shared, machine) = std::thread::scope(|scope| {
        // Questions to the host's shell take several round trips, which needn't be waited for.
        let shared = parallel::begin(scope, || sharing(hypervisor, &pool));
        let machine = host
            .has_others()
            .then(|| parallel::begin(scope, || facts::machine(hypervisor).ok().flatten()));
        let files = if fresh {
            Files::read_fresh(host.name(), hypervisor, host.pool())
        } else {
            Files::read(host.name(), hypervisor, host.pool())
        };
        let shared = shared.join().unwrap_or(Ok(Sharing::Perhaps));
        let machine = machine.and_then(|machine| machine.join().ok().flatten());
        (files, shared, machine)
    });
    let files = files?;
    let seeds = read_seeds(hypervisor, &files)?;
    let (markers, claims) = read_records(hypervisor, &files)?;
    Ok(HostView {
        host: host.name().to_owned(),
        seeds,
        markers,
        claims,
        clock_offset,
        shared: shared?,
        machine,
        pool: Some(pool),
        files,
    })
}

/// Looks into every volume that is named like a seed, and whose instance isn't there.
fn read_seeds(hypervisor: &dyn Hypervisor, files: &Files) -> Result<BTreeMap<String, SeedView>> {
    let candidates: Vec<(&VolumeInfo, InstanceName)> = files
        .volumes
        .iter()
        .filter(|volume| volume.is_file)
        .filter_map(|volume| Some((volume, instance_of_seed(&volume.name)?)))
        .filter(|(_, name)| files.domain(name.as_str()).is_none())
        .collect();
    let read = parallel::map(candidates, READS_AT_ONCE, |(volume, _)| {
        let view = read_seed(hypervisor, &files.pool, volume)?;
        Ok(view.map(|view| (volume.name.clone(), view)))
    });
    read.into_iter().filter_map(Result::transpose).collect()
}

/// One seed's content; `None` where it vanished.
pub(super) fn read_seed(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    volume: &VolumeInfo,
) -> Result<Option<SeedView>> {
    let head = match read_start(hypervisor, pool, &volume.name, SEED_HEAD)? {
        Start::Bytes(head) => head,
        Start::Gone => return Ok(None),
        Start::Unreadable => return Ok(Some(SeedView::Other)),
    };
    if let Some(mark) = seed::read_mark(&head) {
        let owner = mark.owner.as_deref().and_then(Owner::parse);
        let liveness = owner.map_or(Liveness::Unknown, |owner| owner.liveness());
        return Ok(Some(SeedView::Marked(mark, liveness)));
    }
    if !is_blank(&head) {
        return Ok(Some(SeedView::Other));
    }
    match is_unwritten_seed(hypervisor, pool, volume) {
        Ok(Some(true)) => Ok(Some(SeedView::Empty)),
        Ok(Some(false)) => Ok(Some(SeedView::Other)),
        Ok(None) => Ok(None),
        Err(error) if is_unreadable(&error) => Ok(Some(SeedView::Other)),
        Err(error) => Err(error),
    }
}

/// Stands for the content of a record that can't be read: neither a marker nor a claim of ours, nor an empty one.
const UNREADABLE: &[u8] = b"?";

/// Markers and claims, each by its base volume.
type Records = (BTreeMap<String, MarkerView>, BTreeMap<String, ClaimView>);

fn read_records(hypervisor: &dyn Hypervisor, files: &Files) -> Result<Records> {
    let of_files = files.volumes.iter().filter(|volume| volume.is_file);
    let wanted: Vec<String> = of_files
        .map(|volume| volume.name.clone())
        .filter(|name| base_of_marker(name).is_some() || base_of_claim(name).is_some())
        .collect();
    let read = parallel::map(wanted, READS_AT_ONCE, |name| {
        Ok(
            match read_start(hypervisor, &files.pool, &name, MARKER_LIMIT)? {
                Start::Bytes(content) => Some((name, content)),
                Start::Gone => None,
                Start::Unreadable => Some((name, UNREADABLE.to_vec())),
            },
        )
    });
    let (mut markers, mut claims) = (BTreeMap::new(), BTreeMap::new());
    for record in read.into_iter().filter_map(Result::transpose) {
        let (name, content) = record?;
        if let Some(BaseName { volume, .. }) = base_of_marker(&name) {
            markers.insert(volume, view_marker(&content));
        } else if let Some(BaseName { volume, .. }) = base_of_claim(&name) {
            claims.insert(volume, view_claim(content));
        }
    }
    Ok((markers, claims))
}

/// What a marker's bytes say.
pub(super) fn view_marker(content: &[u8]) -> MarkerView {
    match Marker::parse(content) {
        Some(marker) => MarkerView::Valid(Box::new(marker)),
        None if is_blank(content) => MarkerView::Unwritten,
        None => MarkerView::Other,
    }
}

fn view_claim(content: Vec<u8>) -> ClaimView {
    let owner = match claim::owner_of(&content) {
        Some(owner) => ClaimOwner::Process(owner.liveness()),
        None if is_blank(&content) => ClaimOwner::Unwritten,
        None => ClaimOwner::Other,
    };
    ClaimView { content, owner }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_and_claims_are_told_from_what_a_crash_leaves() {
        let text = format!("{}\nverified: sha256\n", "ab".repeat(32));
        assert!(matches!(view_marker(text.as_bytes()), MarkerView::Valid(_)));
        assert_eq!(view_marker(b""), MarkerView::Unwritten);
        assert_eq!(view_marker(&[0; 90]), MarkerView::Unwritten);
        assert_eq!(view_marker(b"hello"), MarkerView::Other);
        assert_eq!(view_marker(UNREADABLE), MarkerView::Other);
        let mine = format!("{} 3\n", Owner::this_process().to_word());
        let claim = |bytes: &[u8]| view_claim(bytes.to_vec()).owner;
        assert_eq!(claim(mine.as_bytes()), ClaimOwner::Process(Liveness::Alive));
        assert_eq!(
            claim(b"0123456789abcdef:1:2 7 "),
            ClaimOwner::Process(Liveness::Unknown)
        );
        assert_eq!(claim(&[0; 512]), ClaimOwner::Unwritten);
        assert_eq!(claim(b"notes"), ClaimOwner::Other);
        assert_eq!(claim(UNREADABLE), ClaimOwner::Other);
    }
}
