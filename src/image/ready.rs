//! Whether an image is ready on a host: base volume and marker are there, and the marker vouches for the content.

use std::cmp::Reverse;

use super::identity::{Identity, MARKER_LIMIT, Marker, marker_volume, pin_of, source_of};
use super::names::BaseName;
use crate::config::{Image, ImageFormat};
use crate::error::Result;
use crate::libvirt::{CALLS_AT_ONCE, Hypervisor};
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
    for (volume, marker) in newest_first(kept_generations(hypervisor, pool, image)?) {
        // One that is being deleted meanwhile is passed over.
        if let Some(xml) = hypervisor.find_volume_xml(pool, &volume)? {
            return described(volume, marker, &xml, image.format).map(Some);
        }
    }
    Ok(None)
}

/// Whether this generation of an image without a pin may be used without asking the server: it came from the image's URL,
/// and was verified where the configuration has it verified by now.
pub fn serves(image: &Image, marker: &Marker) -> bool {
    let verified = marker.verified.as_deref().is_some_and(|by| by != "nothing");
    marker.source.as_ref() == Some(&source_of(image)) && (verified || image.checksum_url.is_none())
}

fn kept_generations(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    image: &Image,
) -> Result<Vec<(String, Marker)>> {
    let named = named_generations(hypervisor, pool, image)?;
    with_markers(hypervisor, pool, image, named)
}

/// The base volumes on this host that the image's generations are among, by their names alone. One call.
pub(super) fn named_generations(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    image: &Image,
) -> Result<Vec<String>> {
    let mut volumes = hypervisor.list_volumes(pool)?;
    volumes.retain(|volume| BaseName::parse(volume).is_some_and(|name| name.is_of(image)));
    Ok(volumes)
}

/// Those of them that may be used without asking the server, with their markers, which are read all together.
pub(super) fn with_markers(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    image: &Image,
    volumes: Vec<String>,
) -> Result<Vec<(String, Marker)>> {
    let read = parallel::ask(volumes, CALLS_AT_ONCE, |volume| {
        let stored = hypervisor.download_volume(pool, &marker_volume(&volume), MARKER_LIMIT)?;
        let marker = stored.as_deref().and_then(Marker::parse);
        let marker = marker.filter(|marker| serves(image, marker));
        Ok(marker.map(|marker| (volume, marker)))
    });
    read.into_iter().filter_map(Result::transpose).collect()
}

fn newest_first(mut generations: Vec<(String, Marker)>) -> Vec<(String, Marker)> {
    generations.sort_by_key(|(_, marker)| Reverse(marker.pulled()));
    generations
}

/// The same image once more, where it is still what it was.
pub fn find_again(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    base: &BaseImage,
) -> Result<Option<BaseImage>> {
    let (marker, xml) = parallel::both(
        || hypervisor.download_volume(pool, &marker_volume(&base.volume), MARKER_LIMIT),
        || hypervisor.find_volume_xml(pool, &base.volume),
    );
    let marker = marker?.as_deref().and_then(Marker::parse);
    let is_same = marker.is_some_and(|marker| marker.sha256 == base.sha256);
    Ok(xml?.filter(|_| is_same).map(|_| base.clone()))
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
    let sizes = Sizes::of(Some(&marker), &info, format);
    Ok(BaseImage {
        volume,
        path: info.path,
        format,
        sha256: marker.sha256,
        size: sizes.stored,
        virtual_size: sizes.virtual_size,
        verified: marker.verified.unwrap_or_else(|| "sha256".to_owned()),
    })
}

/// How large a base image is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The volume's bytes.
    pub stored: u64,
    /// The disk as a guest sees it, where that is known.
    pub virtual_size: Option<u64>,
}

impl Sizes {
    /// By its marker, and where that doesn't say (the operator's holds the digest alone), by what libvirt says.
    pub fn of(marker: Option<&Marker>, info: &VolumeInfo, format: ImageFormat) -> Self {
        // Before the pool's next refresh libvirt may still call an image raw and its file size its capacity.
        let is_probed = info.format.as_deref() == Some(ImageFormat::Qcow2.as_str());
        let probed = (is_probed || format == ImageFormat::Raw).then_some(info.capacity);
        Sizes {
            stored: marker
                .and_then(|marker| marker.size)
                .or(info.physical)
                .unwrap_or(info.allocation),
            virtual_size: marker.and_then(|marker| marker.virtual_size).or(probed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::identity::source_of_url;
    use crate::image::identity::tests::image;

    #[test]
    fn sizes_are_the_markers_and_else_libvirts() {
        let mut info = crate::inventory::tests::volume("base-a.qcow2");
        (info.capacity, info.allocation, info.physical) = (30, 10, None);
        let of = |marker: Option<&Marker>, info: &VolumeInfo, format| {
            let sizes = Sizes::of(marker, info, format);
            (sizes.stored, sizes.virtual_size)
        };
        let marker = Marker {
            size: Some(7),
            virtual_size: Some(8),
            ..Marker::default()
        };
        let bare = Marker::default();
        info.format = Some("qcow2".into());
        assert_eq!(of(Some(&marker), &info, ImageFormat::Qcow2), (7, Some(8)));
        assert_eq!(of(Some(&bare), &info, ImageFormat::Qcow2), (10, Some(30)));
        info.physical = Some(20);
        assert_eq!(of(None, &info, ImageFormat::Qcow2), (20, Some(30)));
        // Not probed yet, the capacity is the file's; a raw disk's is its own.
        info.format = Some("raw".into());
        assert_eq!(of(None, &info, ImageFormat::Qcow2), (20, None));
        assert_eq!(of(None, &info, ImageFormat::Raw), (20, Some(30)));
    }

    #[test]
    fn what_came_from_the_url_and_is_verified_where_it_is_to_be_serves() {
        let image = image();
        let from = |url: &str, verified: &str| Marker {
            source: Some(source_of_url(&url.into())),
            verified: Some(verified.to_owned()),
            ..Marker::default()
        };
        let own = from(image.url.expose(), "nothing");
        assert!(serves(&image, &own));
        assert!(!serves(&image, &from("https://example.net/b", "sha256")));
        assert!(!serves(&image, &Marker::default()));
        let checked = Image {
            checksum_url: Some("https://example.net/SHA256SUMS".into()),
            ..image.clone()
        };
        assert!(!serves(&checked, &own));
        assert!(serves(&checked, &from(image.url.expose(), "sha256")));
    }

    #[test]
    fn the_newest_generation_is_taken() {
        let generation = |name: &str, pulled_at: &str| {
            let marker = Marker {
                pulled_at: Some(pulled_at.to_owned()),
                ..Marker::default()
            };
            (name.to_owned(), marker)
        };
        let sorted = newest_first(vec![
            generation("old", "2026-01-02T03:04:05Z"),
            generation("later", "2026-01-02T03:04:05.002Z"),
            generation("new", "2026-02-02T03:04:05Z"),
        ]);
        let names: Vec<&str> = sorted.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["new", "later", "old"]);
    }
}
