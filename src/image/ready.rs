//! Whether an image is ready on a host: base volume and marker are there, and the marker vouches for the content.

use super::identity::{Identity, MARKER_LIMIT, Marker, marker_volume};
use crate::config::ImageFormat;
use crate::error::Result;
use crate::libvirt::Hypervisor;
use crate::xml::volume::VolumeInfo;

/// A base image that is ready on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseImage {
    /// The base volume's name.
    pub volume: String,
    /// Its path on the host.
    pub path: String,
    /// The disk format of its bytes.
    pub format: ImageFormat,
    /// SHA-256 of its bytes.
    pub sha256: String,
    /// The volume's bytes.
    pub size: u64,
    /// The disk's size as a guest sees it, in bytes, where it is known.
    pub virtual_size: Option<u64>,
    /// What it was verified against: `sha256`, `sha512` or `nothing`.
    pub verified: String,
}

/// The image on this host, if it is ready: our own volume, else the operator's.
pub fn find_ready(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    identity: &Identity,
) -> Result<Option<BaseImage>> {
    if let Some(base) = find_vouched(hypervisor, pool, &identity.base_volume(), identity)? {
        return Ok(Some(base));
    }
    // The operator's name says nothing of the content: only a pinned digest can.
    if identity.pin.is_none() {
        return Ok(None);
    }
    find_vouched(hypervisor, pool, &identity.operator_volume(), identity)
}

fn find_vouched(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    volume: &str,
    identity: &Identity,
) -> Result<Option<BaseImage>> {
    let marker = hypervisor.download_volume(pool, &marker_volume(volume), MARKER_LIMIT)?;
    let Some(marker) = marker.as_deref().and_then(Marker::parse) else {
        return Ok(None);
    };
    if !identity.is_vouched_by(&marker) {
        return Ok(None);
    }
    let Some(xml) = hypervisor.find_volume_xml(pool, volume)? else {
        return Ok(None);
    };
    let info = VolumeInfo::parse(&xml)?;
    // Before the pool's next refresh libvirt may still call an image raw and its file size its capacity.
    let probed = (info.format.as_deref() == Some("qcow2")).then_some(info.capacity);
    let raw = (identity.format == ImageFormat::Raw).then_some(info.capacity);
    Ok(Some(BaseImage {
        volume: volume.to_owned(),
        path: info.path,
        format: identity.format,
        sha256: marker.sha256,
        size: marker.size.unwrap_or(info.allocation),
        virtual_size: marker.virtual_size.or(probed).or(raw),
        verified: marker.verified.unwrap_or_else(|| "sha256".to_owned()),
    }))
}
