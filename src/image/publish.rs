//! Vouching for a stored image: its marker is written last, and only by whoever surely holds the claim.

use super::claim::Claim;
use super::digest::Hasher;
use super::identity::{MARKER_LIMIT, Marker, marker_volume};
use super::ready::{BaseImage, described};
use super::store::{Incoming, Published, create};
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::libvirt::Hypervisor;
use crate::parallel;
use crate::undo::Undo;
use crate::xml::volume::VolumeSpec;

/// Bytes that are read back at once: what comes within a call's time limit on a slow link, too.
const READ_BACK: usize = 1 << 20;

/// Makes the marker's volume, if the claim is still ours; empty, it vouches for nothing yet.
pub(super) fn begin_marker(
    host: &HostSession,
    claim: &Claim,
    incoming: &Incoming,
    published: &Published,
    undo: &mut Undo,
) -> Result<Marker> {
    let hypervisor = &**claim.hypervisor();
    let marker = marker_of(incoming, published);
    let text = marker.to_text();
    debug_assert!(text.len() <= MARKER_LIMIT, "markers are read back whole");
    let name = marker_volume(&incoming.identity.base_volume());
    claim.verify()?;
    let xml = VolumeSpec::File {
        name: name.clone(),
        size: text.len() as u64,
    }
    .to_xml()?;
    create(host, hypervisor, &name, &xml, undo)?;
    Ok(marker)
}

/// Writes the marker: from here on the image counts.
///
/// Errors: [`Reason::PoolBusy`] where what is stored may be, or is, another process's.
pub(super) fn publish(
    host: &HostSession,
    claim: &Claim,
    incoming: &Incoming,
    marker: &Marker,
) -> Result<BaseImage> {
    let (pool, hypervisor) = (host.pool(), &**claim.hypervisor());
    let base = incoming.identity.base_volume();
    let (name, text) = (marker_volume(&base), marker.to_text());
    claim.ensure_sure()?;
    if claim.has_lapsed() {
        read_back(host, hypervisor, &base, marker)?;
        claim.ensure_sure()?;
    }
    let (stored, written) = parallel::both(
        || hypervisor.find_volume_xml(pool, &base),
        || hypervisor.write_volume(pool, &name, text.as_bytes()),
    );
    written?;
    let stored = stored?.ok_or_else(|| {
        Error::transient(
            Reason::ImageNotReady,
            format!("volume {base} vanished after it was written"),
        )
    })?;
    described(base, marker.clone(), &stored, incoming.identity.format)
}

/// Fails unless what is stored is what the marker says.
fn read_back(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    base: &str,
    marker: &Marker,
) -> Result<()> {
    log::info!(
        "host={} the claim on {base} had no sign of life for long: reading back what is stored",
        host.name()
    );
    let mut hasher = Hasher::new(false);
    let size = marker.size.unwrap_or(0);
    let mut offset = 0;
    while offset < size {
        let limit = READ_BACK.min(usize::try_from(size - offset).unwrap_or(READ_BACK));
        let read = hypervisor.read_volume(host.pool(), base, offset, limit)?;
        let Some(bytes) = read.filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        hasher.update(&bytes);
        offset += bytes.len() as u64;
    }
    if hasher.finish().sha256 == marker.sha256 {
        return Ok(());
    }
    Err(Error::transient(
        Reason::PoolBusy,
        format!("another process writes to volume {base}, as this one had shown no sign of life"),
    )
    .hint("run the command again"))
}

/// What the marker says.
fn marker_of(incoming: &Incoming, published: &Published) -> Marker {
    Marker {
        sha256: published.volume_sha256.clone(),
        published_sha256: Some(published.digests.sha256.clone()),
        published_sha512: published.digests.sha512.clone(),
        size: Some(published.volume_size),
        virtual_size: incoming.virtual_size.or(
            // A raw disk is as large as its file.
            (incoming.identity.format == crate::config::ImageFormat::Raw)
                .then_some(published.volume_size),
        ),
        url: Some(published.url.clone()),
        source: Some(incoming.identity.source.clone()),
        pulled_at: Some(published.pulled_at.clone()),
        verified: Some(
            incoming
                .identity
                .pin
                .as_ref()
                .map_or("nothing", |pin| pin.algorithm.as_str())
                .to_owned(),
        ),
    }
}
