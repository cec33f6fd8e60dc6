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

/// `compat` 1.1, qcow2 version 3, has zero clusters: what the guest discards on top of the base takes no room.
/// It is said because libvirt's own default is 0.10 where it can't ask QEMU.
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
    /// Whether it is a file: libvirt lists directories as volumes, too (`virStorageVolType`).
    pub is_file: bool,
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
            is_file: root.attribute("type").is_none_or(|kind| kind == "file"),
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

/// libvirt's `seconds.nanoseconds` since 1970, the fraction in up to nine digits. 0 stands for a time that the
/// file system doesn't keep.
fn seconds(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = fraction.len().min(9);
    let fraction: i32 = fraction.get(..digits)?.parse().ok()?;
    let scale = 10_i32.pow(9 - u32::try_from(digits).ok()?);
    let time = Timestamp::new(whole.parse().ok()?, fraction * scale).ok()?;
    (time != Timestamp::UNIX_EPOCH).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: &str = include_str!("../../tests/fixtures/xml/volume-raw.xml");
    const BASE: &str = include_str!("../../tests/fixtures/xml/volume-base.xml");
    const OVERLAY: &str = include_str!("../../tests/fixtures/xml/volume-overlay.xml");

    #[test]
    fn an_overlay_names_its_backing_file_and_format() {
        let spec = VolumeSpec::Overlay {
            name: "web-1.qcow2".into(),
            capacity: 10 << 30,
            backing_path: "/p/base-a&b.qcow2".into(),
            backing_format: ImageFormat::Qcow2,
        };
        let expected = "<volume>
  <name>web-1.qcow2</name>
  <capacity unit=\"bytes\">10737418240</capacity>
  <allocation unit=\"bytes\">0</allocation>
  <target>
    <format type=\"qcow2\"/>
    <compat>1.1</compat>
  </target>
  <backingStore>
    <path>/p/base-a&amp;b.qcow2</path>
    <format type=\"qcow2\"/>
  </backingStore>
</volume>";
        assert_eq!(spec.to_xml().unwrap(), expected);
        assert_eq!(spec.name(), "web-1.qcow2");
    }

    #[test]
    fn a_file_is_raw_and_reserves_its_room() {
        let spec = VolumeSpec::File {
            name: "base-x.qcow2".into(),
            size: 12345,
        };
        let expected = "<volume>
  <name>base-x.qcow2</name>
  <capacity unit=\"bytes\">12345</capacity>
  <allocation unit=\"bytes\">12345</allocation>
  <target>
    <format type=\"raw\"/>
  </target>
</volume>";
        assert_eq!(spec.to_xml().unwrap(), expected);
    }

    #[test]
    fn real_dumps_are_read() {
        let at = |name: &str| format!("/var/lib/libvirt/images/{name}");
        let overlay = VolumeInfo::parse(OVERLAY).unwrap();
        assert_eq!(overlay.name, "web-1.qcow2");
        assert_eq!(
            (overlay.key, overlay.path),
            (at("web-1.qcow2"), at("web-1.qcow2"))
        );
        assert_eq!(overlay.format.as_deref(), Some("qcow2"));
        assert_eq!((overlay.capacity, overlay.allocation), (2 << 30, 204_800));
        assert_eq!(overlay.physical, Some(196_640));
        let backing = BackingInfo {
            path: at("base-debian-13-0011.qcow2"),
            format: Some("qcow2".into()),
        };
        assert_eq!(overlay.backing, Some(backing));
        assert_eq!(
            overlay.modified.unwrap().as_nanosecond(),
            1_795_981_965_076_493_322
        );
        // This host's file system keeps no birth time, which libvirt says as 0.
        assert_eq!(overlay.born, None);
        let base = VolumeInfo::parse(BASE).unwrap();
        assert_eq!(
            (base.capacity, base.allocation, base.backing),
            (1 << 30, 262_144, None)
        );
        let raw = VolumeInfo::parse(RAW).unwrap();
        assert_eq!(
            (raw.format.as_deref(), raw.capacity),
            (Some("raw"), 262_144)
        );
        assert!(raw.is_file);
        let directory = RAW.replace("type='file'", "type='dir'");
        assert!(!VolumeInfo::parse(&directory).unwrap().is_file);
        // As libvirt wrote it before 1.2.
        let untold = RAW.replace(" type='file'", "");
        assert!(VolumeInfo::parse(&untold).unwrap().is_file);
    }

    #[test]
    fn what_is_no_volume_is_an_error() {
        for xml in [
            "<pool><name>a</name></pool>".to_owned(),
            "<volume><name>a</name></volume>".to_owned(),
            BASE.replace("<capacity unit='bytes'>", "<capacity unit='bytes'>x"),
            BASE.replace("allocation", "location"),
            BASE.replacen("<path>", "<way>", 1)
                .replacen("</path>", "</way>", 1),
            BASE.replace("<name>base-debian-13-0011.qcow2</name>", ""),
        ] {
            assert!(VolumeInfo::parse(&xml).is_err(), "{xml}");
        }
    }

    #[test]
    fn times_are_read_to_the_nanosecond() {
        let table = [
            ("1795981965.016485115", Some(1_795_981_965_016_485_115)),
            ("1795981965.5", Some(1_795_981_965_500_000_000)),
            ("1795981965", Some(1_795_981_965_000_000_000)),
            ("0", None),
            ("0.000000000", None),
            ("x", None),
            ("1.x", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(
                seconds(text).map(Timestamp::as_nanosecond),
                expected,
                "{text}"
            );
        }
    }
}
