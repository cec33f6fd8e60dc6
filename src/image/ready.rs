//! Whether an image is ready on a host: base volume and marker are there, and the marker vouches for the content.

use std::cmp::Reverse;

use super::identity::{
    Identity, MARKER_LIMIT, Marker, is_generation_of, marker_volume, pin_of, source_of,
};
use crate::config::{Image, ImageFormat};
use crate::error::Result;
use crate::libvirt::Hypervisor;
use crate::parallel;
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
    let find = |volume: String| find_vouched(hypervisor, pool, &volume, identity);
    // The operator's name says nothing of the content: only a pinned digest can.
    if identity.pin.is_none() {
        return find(identity.base_volume());
    }
    let (ours, operators) = parallel::both(
        || find(identity.base_volume()),
        || find(identity.operator_volume()),
    );
    match ours? {
        Some(base) => Ok(Some(base)),
        None => operators,
    }
}

/// The image on this host as far as that is known without asking its server: the pinned content, or else the newest
/// ready generation that came from the image's URL.
pub fn find_kept(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    image: &Image,
) -> Result<Option<BaseImage>> {
    if let Some(pin) = pin_of(image) {
        return find_ready(hypervisor, pool, &Identity::pinned(image, pin));
    }
    let mut generations = Vec::new();
    for volume in hypervisor.list_volumes(pool)? {
        if !is_generation_of(image, &volume) {
            continue;
        }
        let marker = hypervisor.download_volume(pool, &marker_volume(&volume), MARKER_LIMIT)?;
        let marker = marker.as_deref().and_then(Marker::parse);
        generations.extend(marker.map(|marker| (volume, marker)));
    }
    for (volume, marker) in newest_first(image, generations) {
        // One that is being deleted meanwhile is passed over.
        if let Some(xml) = hypervisor.find_volume_xml(pool, &volume)? {
            return described(volume, marker, &xml, image.format).map(Some);
        }
    }
    Ok(None)
}

/// The generations that came from the image's URL, verified where the configuration has them verified by now.
fn newest_first(image: &Image, mut generations: Vec<(String, Marker)>) -> Vec<(String, Marker)> {
    let source = source_of(image);
    generations.retain(|(_, marker)| {
        let verified = marker.verified.as_deref().is_some_and(|by| by != "nothing");
        marker.source.as_ref() == Some(&source) && (verified || image.checksum_url.is_none())
    });
    generations.sort_by_key(|(_, marker)| Reverse(marker.pulled()));
    generations
}

fn find_vouched(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    volume: &str,
    identity: &Identity,
) -> Result<Option<BaseImage>> {
    // In any order: of the volume only its path and sizes are read here, which its name, made of the content, settles;
    // a create looks for the marker once more when its overlay is there.
    let (marker, xml) = parallel::both(
        || hypervisor.download_volume(pool, &marker_volume(volume), MARKER_LIMIT),
        || hypervisor.find_volume_xml(pool, volume),
    );
    let marker = marker?.as_deref().and_then(Marker::parse);
    let Some((marker, xml)) = marker.zip(xml?) else {
        return Ok(None);
    };
    if !identity.is_vouched_by(&marker) {
        return Ok(None);
    }
    described(volume.to_owned(), marker, &xml, identity.format).map(Some)
}

/// The image as its marker and libvirt describe it.
pub(super) fn described(
    volume: String,
    marker: Marker,
    xml: &str,
    format: ImageFormat,
) -> Result<BaseImage> {
    let info = VolumeInfo::parse(xml)?;
    // Before the pool's next refresh libvirt may still call an image raw and its file size its capacity.
    let probed = (info.format.as_deref() == Some("qcow2")).then_some(info.capacity);
    let raw = (format == ImageFormat::Raw).then_some(info.capacity);
    Ok(BaseImage {
        volume,
        path: info.path,
        format,
        sha256: marker.sha256,
        size: marker.size.unwrap_or(info.allocation),
        virtual_size: marker.virtual_size.or(probed).or(raw),
        verified: marker.verified.unwrap_or_else(|| "sha256".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Firmware;

    #[test]
    fn the_newest_generation_of_the_same_url_is_taken() {
        let image = Image {
            key: "url".into(),
            url: "https://example.net/a.qcow2".into(),
            sha256: None,
            sha512: None,
            checksum_url: None,
            format: ImageFormat::Qcow2,
            firmware: Firmware::Uefi,
        };
        let generation = |name: &str, source: Option<String>, pulled_at: &str| {
            let marker = Marker {
                source,
                pulled_at: Some(pulled_at.to_owned()),
                ..Marker::default()
            };
            (name.to_owned(), marker)
        };
        let other = Image {
            url: "https://example.net/b.qcow2".into(),
            ..image.clone()
        };
        let generations = vec![
            generation("old", Some(source_of(&image)), "2026-01-02T03:04:05Z"),
            generation("later", Some(source_of(&image)), "2026-01-02T03:04:05.002Z"),
            generation("new", Some(source_of(&image)), "2026-02-02T03:04:05Z"),
            generation("other", Some(source_of(&other)), "2026-03-02T03:04:05Z"),
            generation("unknown", None, "2026-03-02T03:04:05Z"),
        ];
        let sorted = newest_first(&image, generations);
        let names: Vec<&str> = sorted.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["new", "later", "old"]);
        let checked = Image {
            checksum_url: Some("https://example.net/SHA256SUMS".into()),
            ..image
        };
        assert_eq!(newest_first(&checked, sorted), []);
    }
}
