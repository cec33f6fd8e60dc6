//! Volume XML: what is created, and what libvirt says of a volume.

use jiff::Timestamp;

use super::domain_info::bytes;
use super::tree::{Element, parse, unreadable};
use crate::config::ImageFormat;
use crate::error::Result;

/// A volume that is wanted. Owner, group and mode are the pool's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSpec {
    /// A qcow2 file on top of a base image.
    Overlay {
        /// The volume's name.
        name: String,
        /// The disk's size in bytes.
        capacity: u64,
        /// The base image's path on the host, as libvirt reports it.
        backing_path: String,
        /// The base image's format, as verified from its bytes; QEMU must never guess it.
        backing_format: ImageFormat,
    },
    /// A plain file to be uploaded into: a base image of any format, a marker, a seed.
    File {
        /// The volume's name.
        name: String,
        /// Its exact size in bytes.
        size: u64,
    },
}

impl VolumeSpec {
    /// The volume's name.
    pub fn name(&self) -> &str {
        match self {
            VolumeSpec::Overlay { name, .. } | VolumeSpec::File { name, .. } => name,
        }
    }

    /// The XML for `virStorageVolCreateXML`.
    pub fn to_xml(&self) -> Result<String> {
        match self {
            VolumeSpec::Overlay {
                name,
                capacity,
                backing_path,
                backing_format,
            } => overlay(name, *capacity, backing_path, *backing_format),
            VolumeSpec::File { name, size } => file(name, *size),
        }
        .to_xml()
    }
}

/// Version 1.1 (QEMU 1.1, libvirt's default since 6.x only where QEMU agrees) gives zero clusters, which
/// make the guest's discards cheap on top of a backing file.
fn overlay(name: &str, capacity: u64, path: &str, format: ImageFormat) -> Element {
    volume(name, capacity, 0)
        .child(
            Element::new("target")
                .child(Element::new("format").with("type", "qcow2"))
                .child(Element::new("compat").text("1.1")),
        )
        .child(
            Element::new("backingStore")
                .child(Element::new("path").text(path))
                .child(Element::new("format").with("type", format.as_str())),
        )
}

/// `raw` whatever is uploaded: libvirt then writes no header of its own, and with the allocation it
/// reserves the room, so that a full pool is a clean error here instead of one in mid-upload.
fn file(name: &str, size: u64) -> Element {
    volume(name, size, size)
        .child(Element::new("target").child(Element::new("format").with("type", "raw")))
}

fn volume(name: &str, capacity: u64, allocation: u64) -> Element {
    let size = |element: &str, value: u64| Element::new(element).with("unit", "bytes").text(value);
    Element::new("volume")
        .child(Element::new("name").text(name))
        .child(size("capacity", capacity))
        .child(size("allocation", allocation))
}

/// A volume as its XML (`virStorageVolGetXMLDesc`) describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// Its key, in file pools the same as its path.
    pub key: String,
    /// Its path on the host.
    pub path: String,
    /// Its format as libvirt probed it, such as `qcow2`.
    pub format: Option<String>,
    /// The disk's size in bytes, for qcow2 the virtual one.
    pub capacity: u64,
    /// The bytes it takes up in the pool.
    pub allocation: u64,
    /// The file's length in bytes; older libvirts don't say.
    pub physical: Option<u64>,
    /// What it is backed by.
    pub backing: Option<BackingInfo>,
    /// When its bytes last changed.
    pub modified: Option<Timestamp>,
    /// When it was made, where the file system knows.
    pub born: Option<Timestamp>,
}

/// A volume's backing store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingInfo {
    /// Its path on the host.
    pub path: String,
    /// Its format.
    pub format: Option<String>,
}

impl VolumeInfo {
    /// Reads a volume's XML.
    pub fn parse(xml: &str) -> Result<Self> {
        let root = parse("a volume", xml)?;
        let name = match root.find("name").map(Element::content) {
            Some(name) if root.local == "volume" && !name.is_empty() => name,
            _ => {
                return Err(unreadable(
                    "a volume",
                    "it is another element, or has no name",
                ));
            }
        };
        let what = format!("volume {name}");
        let size = |element: &str| {
            let found = root.find(element).and_then(|size| bytes(size, "bytes"));
            found.ok_or_else(|| unreadable(&what, "a size is missing or no number"))
        };
        let format = |path: &[&str]| root.attribute_at(path, "type").map(str::to_owned);
        let stamp = |which: &str| seconds(&root.text_at(&["target", "timestamps", which])?);
        Ok(VolumeInfo {
            key: root.find("key").map(Element::content).unwrap_or_default(),
            path: root
                .at(&["target", "path"])
                .map(Element::content)
                .ok_or_else(|| unreadable(&what, "it has no path"))?,
            format: format(&["target", "format"]),
            capacity: size("capacity")?,
            allocation: size("allocation")?,
            physical: root.find("physical").and_then(|size| bytes(size, "bytes")),
            backing: root.at(&["backingStore", "path"]).map(|path| BackingInfo {
                path: path.content(),
                format: format(&["backingStore", "format"]),
            }),
            modified: stamp("mtime"),
            born: stamp("btime"),
            name,
        })
    }
}

/// libvirt's `seconds.nanoseconds` since 1970. The fraction is `%09lu`, but shorter ones are read too.
fn seconds(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = fraction.len().min(9);
    let fraction: i32 = fraction.get(..digits)?.parse().ok()?;
    let scale = 10_i32.pow(9 - u32::try_from(digits).ok()?);
    Timestamp::new(whole.parse().ok()?, fraction * scale).ok()
}
