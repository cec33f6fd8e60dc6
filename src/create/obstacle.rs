//! What stands in the way of a new instance's volumes: a plan looks for it, and a create before it clears away what a dead
//! one left. Reads only.

use super::files::not_ours;
use crate::delete::SEED_HEAD;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::inventory::{self, is_blank, is_unwritten_seed};
use crate::leftover::overlay_fault;
use crate::libvirt::Hypervisor;
use crate::name::InstanceName;
use crate::parallel;
use crate::xml::volume::VolumeInfo;

/// Refuses where the create would: for a volume that nothing shows to be ours, or one that it can't clear away. What a
/// create that died left is no obstacle; nor is the seed of one that is at work, for which the create would wait.
pub(super) fn ensure_none(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &InstanceName,
) -> Result<()> {
    let find = |volume: String| inventory::find_volume(hypervisor, host.pool(), &volume);
    let (overlay, seed) =
        parallel::both(|| find(name.overlay_volume()), || find(name.seed_volume()));
    let (overlay, seed) = (overlay?, seed?);
    let head = match &seed {
        Some(seed) => hypervisor.download_volume(host.pool(), &seed.name, SEED_HEAD)?,
        None => None,
    };
    let content = match (&seed, head.as_deref()) {
        (Some(seed), Some(head)) => match content(head, name) {
            Content::Zeros if is_unwritten_seed(hypervisor, host.pool(), seed)? == Some(false) => {
                Content::Other
            }
            content => content,
        },
        _ => Content::Nothing,
    };
    if let Some(volume) = foreign(content, seed.as_ref(), overlay.as_ref()) {
        return Err(not_ours(host, &volume.name));
    }
    ensure_its_overlay(host, name, seed.as_ref(), overlay.as_ref())?;
    let mut there = overlay.iter().chain(&seed);
    there.try_for_each(|volume| ensure_no_user(host, hypervisor, volume))
}

/// Refuses to clear away an overlay that can't be the one made after this seed.
pub(super) fn ensure_its_overlay(
    host: &HostSession,
    name: &InstanceName,
    seed: Option<&VolumeInfo>,
    overlay: Option<&VolumeInfo>,
) -> Result<()> {
    let fault = seed
        .zip(overlay)
        .and_then(|(seed, overlay)| overlay_fault(seed, overlay));
    let what = || format!("what is left of {name} can't be cleared away");
    fault.map_or(Ok(()), |fault| Err(left_alone(host, &what(), &fault)))
}

/// Refuses to clear away a volume that somebody uses.
pub(super) fn ensure_no_user(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    volume: &VolumeInfo,
) -> Result<()> {
    let users = inventory::users_of_path(hypervisor, host.pool(), &volume.path)?;
    if users.is_empty() {
        return Ok(());
    }
    let what = format!("volume {} is in use: it was left alone", volume.name);
    let why = format!("used by {}", users.join(", "));
    Err(left_alone(host, &what, &why))
}

fn left_alone(host: &HostSession, what: &str, why: &str) -> Error {
    Error::permanent(Reason::InDoubt, what)
        .because(why)
        .on_host(host.name())
}

/// What a seed's volume holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// There is none.
    Nothing,
    /// Nothing but zeros: its maker died before it filled it, or is about to.
    Zeros,
    /// Our mark, of this name.
    Marked,
    /// Anything else.
    Other,
}

fn content(head: &[u8], name: &InstanceName) -> Content {
    if is_blank(head) {
        return Content::Zeros;
    }
    match crate::seed::read_mark(head) {
        Some(mark) if mark.name == name.as_str() => Content::Marked,
        _ => Content::Other,
    }
}

/// The volume that nothing shows to be ours, if there is one: only a seed with a mark vouches for the overlay.
fn foreign<'a>(
    content: Content,
    seed: Option<&'a VolumeInfo>,
    overlay: Option<&'a VolumeInfo>,
) -> Option<&'a VolumeInfo> {
    match content {
        Content::Marked => None,
        Content::Other => seed,
        Content::Nothing | Content::Zeros => overlay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::tests::volume;

    #[test]
    fn only_a_marked_seed_vouches_for_an_overlay() {
        let (seed, overlay) = (volume("w-seed.iso"), volume("w.qcow2"));
        let named = |content, has_seed: bool, has_overlay: bool| {
            let found = foreign(
                content,
                has_seed.then_some(&seed),
                has_overlay.then_some(&overlay),
            );
            found.map(|volume| volume.name.clone())
        };
        let table = [
            (Content::Nothing, false, false, None),
            (Content::Nothing, false, true, Some("w.qcow2")),
            (Content::Zeros, true, false, None),
            (Content::Zeros, true, true, Some("w.qcow2")),
            (Content::Marked, true, true, None),
            (Content::Other, true, false, Some("w-seed.iso")),
            (Content::Other, true, true, Some("w-seed.iso")),
        ];
        for (content, has_seed, has_overlay, expected) in table {
            assert_eq!(
                named(content, has_seed, has_overlay).as_deref(),
                expected,
                "{content:?}"
            );
        }
    }

    #[test]
    fn a_seed_of_another_name_is_somebody_elses() {
        let name = InstanceName::new("w").unwrap();
        assert_eq!(content(&[0; 64], &name), Content::Zeros);
        assert_eq!(content(b"anything", &name), Content::Other);
    }
}
