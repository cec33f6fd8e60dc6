//! What check says of a host's pool, and of the base images in it.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{HostReport, Severity};
use crate::config::Image;
use crate::create::OVERLAY_ROOM;
use crate::error::Result;
use crate::host::HostSession;
use crate::image::identity::{MARKER_LIMIT, Marker, marker_volume};
use crate::image::names::{operator_key, our_name};
use crate::image::room::ensure_room;
use crate::image::store::ensure_usable;
use crate::inventory::{self, Start, read_start};
use crate::libvirt::{self, Hypervisor};
use crate::parallel;
use crate::xml::pool;

/// Markers of one pool that are read at once.
const READS_AT_ONCE: usize = 16;

/// The pool, as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolReport {
    /// Its name.
    pub name: String,
    /// `active` or `inactive`.
    pub state: &'static str,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes in all, while it is active.
    pub capacity_bytes: Option<u64>,
    /// Bytes free, while it is active.
    pub available_bytes: Option<u64>,
}

impl PoolReport {
    /// Of a pool that was found; one whose XML can't be read is told as a problem.
    fn of(found: &libvirt::ListedPool) -> Option<Self> {
        let info = pool::PoolInfo::parse(&found.xml).ok()?;
        Some(PoolReport {
            state: if found.active { "active" } else { "inactive" },
            kind: info.kind,
            // What libvirt remembers of an inactive one is from another day, or 0.
            capacity_bytes: found.active.then_some(info.capacity),
            available_bytes: found.active.then_some(info.available),
            name: info.name,
        })
    }
}

/// A base image's volume that is in the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CachedImage {
    /// The image's key, by the volume's name.
    pub key: String,
    /// The volume.
    pub volume: String,
    /// Whether its marker is there and vouches for a digest: without one it is no image yet.
    pub ready: bool,
}

/// Looks at the pool, by a look into its directory right now: what libvirt remembers of its room may be from days ago.
/// Gives the names of its volumes, asked for beside that; none where it can't be used.
pub(super) fn check_pool(
    report: &mut HostReport,
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
) -> Option<Vec<String>> {
    let find = || hypervisor.find_pool(host.pool());
    let list = || hypervisor.list_volumes(host.pool());
    let remembered = report.take(find())?;
    report.pool = remembered.as_ref().and_then(PoolReport::of);
    let usable = report.take(ensure_usable(host, hypervisor, remembered))?;
    let (pool, volumes) = match inventory::refresh(hypervisor, host.pool()) {
        Ok(_) => {
            let (found, volumes) = parallel::both(find, list);
            let found = report.take(found)?;
            report.pool = found.as_ref().and_then(PoolReport::of);
            let usable = ensure_usable(host, hypervisor, found);
            (report.take(usable)?, volumes)
        }
        // A socket for reading only: what else it forbids says so.
        Err(error) if error.stage() == Some("permission") => (usable, list()),
        Err(error) => {
            report.add(Severity::Error, &error);
            // libvirt may have stopped it.
            let found = find().ok().flatten();
            report.pool = found.as_ref().and_then(PoolReport::of);
            return None;
        }
    };
    // The least that a create asks for, of an image that is there.
    report.take(ensure_room(host, hypervisor, pool, OVERLAY_ROOM));
    report.take(volumes)
}

/// The base images among these volumes of the pool, each with what its marker says; none where this connection may read
/// no marker.
pub(super) fn find_images(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    volumes: &[String],
    configured: &[Image],
) -> Result<Option<Vec<CachedImage>>> {
    let found = parallel::map(named_images(volumes, configured), READS_AT_ONCE, |image| {
        // Without a marker there is nothing to read.
        let ready = image.ready && is_vouched_for(hypervisor, pool, &image.volume)?;
        Ok(CachedImage { ready, ..image })
    });
    match found.into_iter().collect::<Result<_>>() {
        Ok(images) => Ok(Some(images)),
        Err(error) if error.stage() == Some("permission") => Ok(None),
        Err(error) => Err(error),
    }
}

/// The base images by the volumes' names alone; ready are those that have a marker, whatever it says.
fn named_images(volumes: &[String], configured: &[Image]) -> Vec<CachedImage> {
    let all: BTreeSet<&str> = volumes.iter().map(String::as_str).collect();
    let image = |volume: &&str| {
        let key = match our_name(volume, configured) {
            Some(name) => name.key,
            None => operator_key(volume)?.0.to_owned(),
        };
        Some(CachedImage {
            key,
            ready: all.contains(marker_volume(volume).as_str()),
            volume: (*volume).to_owned(),
        })
    };
    all.iter().filter_map(image).collect()
}

/// One that can't be read (a link to nowhere, say) vouches for nothing; for the others that says nothing.
fn is_vouched_for(hypervisor: &dyn Hypervisor, pool: &str, volume: &str) -> Result<bool> {
    let start = read_start(hypervisor, pool, &marker_volume(volume), MARKER_LIMIT)?;
    Ok(matches!(start, Start::Bytes(bytes) if Marker::parse(&bytes).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::identity::tests::image;

    fn found(active: bool, xml: &str) -> libvirt::ListedPool {
        libvirt::ListedPool {
            name: "p".into(),
            active,
            xml: xml.into(),
        }
    }

    #[test]
    fn a_pool_is_told_whatever_its_state_and_sizes_only_of_an_active_one() {
        let xml = "<pool type='logical'><name>p</name><capacity>10</capacity><available>4</available></pool>";
        let active = PoolReport::of(&found(true, xml)).unwrap();
        assert_eq!((active.state, active.kind.as_str()), ("active", "logical"));
        assert_eq!(
            (active.capacity_bytes, active.available_bytes),
            (Some(10), Some(4))
        );
        let inactive = PoolReport::of(&found(false, xml)).unwrap();
        assert_eq!(
            (inactive.state, inactive.kind.as_str()),
            ("inactive", "logical")
        );
        assert_eq!(
            (inactive.capacity_bytes, inactive.available_bytes),
            (None, None)
        );
        assert_eq!(PoolReport::of(&found(true, "<volume/>")), None);
    }

    #[test]
    fn images_are_told_by_names_and_ready_only_with_a_marker() {
        let volumes = [
            "base-a-0123456789abcdef.qcow2",
            "base-a-0123456789abcdef.qcow2.sha256",
            "base-b-0123456789abcdef.raw",
            "base-b-0123456789abcdef.raw.claim",
            "base-c.qcow2",
            "base-c.qcow2.sha256",
            "base-d.qcow2.sha256",
            "base-x-0123456789abcdef.qcow2",
            "notes.qcow2",
            "web-1.qcow2",
            "web-1-seed.iso",
        ]
        .map(str::to_owned);
        // A key that makes the operator's own cache look like ours.
        let mut configured = image();
        configured.key = "x-0123456789abcdef".into();
        let found = named_images(&volumes, &[configured]);
        let found: Vec<(&str, &str, bool)> = found
            .iter()
            .map(|image| (image.key.as_str(), image.volume.as_str(), image.ready))
            .collect();
        let expected = [
            ("a", "base-a-0123456789abcdef.qcow2", true),
            ("b", "base-b-0123456789abcdef.raw", false),
            ("c", "base-c.qcow2", true),
            ("x-0123456789abcdef", "base-x-0123456789abcdef.qcow2", false),
        ];
        assert_eq!(found, expected);
    }
}
