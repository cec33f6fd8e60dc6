//! What libvirt says of a storage pool.

use super::domain_info::bytes;
use super::tree::{Element, parse, unreadable};
use crate::error::Result;

/// A pool as its XML (`virStoragePoolGetXMLDesc`) describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolInfo {
    /// Its name.
    pub name: String,
    /// Its type: `dir`, `fs`, `netfs`, `logical`, `zfs` and others.
    pub kind: String,
    /// Where its volumes are on the host.
    pub path: Option<String>,
    /// Its size in bytes; 0 while it isn't active.
    pub capacity: u64,
    /// The bytes in use.
    pub allocation: u64,
    /// The bytes free.
    pub available: u64,
}

impl PoolInfo {
    /// Reads a pool's XML.
    pub fn parse(xml: &str) -> Result<Self> {
        let root = parse("a pool", xml)?;
        let name = match root.find("name").map(Element::content) {
            Some(name) if root.local == "pool" && !name.is_empty() => name,
            _ => {
                return Err(unreadable(
                    "a pool",
                    "it is another element, or has no name",
                ));
            }
        };
        let size = |element: &str| match root.find(element) {
            None => Ok(0),
            Some(size) => bytes(size, "bytes")
                .ok_or_else(|| unreadable(&format!("pool {name}"), "a size is no number")),
        };
        Ok(PoolInfo {
            kind: root.attribute("type").unwrap_or_default().to_owned(),
            path: root.text_at(&["target", "path"]),
            capacity: size("capacity")?,
            allocation: size("allocation")?,
            available: size("available")?,
            name,
        })
    }

    /// Where a volume of that name is on the host, or would be.
    pub fn path_of(&self, volume: &str) -> Option<String> {
        let path = self.path.as_ref()?;
        Some(format!("{}/{volume}", path.trim_end_matches('/')))
    }

    /// Whether its volumes are files that can be qcow2 overlays: directories, local or network file systems.
    /// In the others (logical, zfs, rbd, disk…) a volume is a block device or remote object of fixed format.
    pub fn holds_qcow2(&self) -> bool {
        matches!(self.kind.as_str(), "dir" | "fs" | "netfs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_dump_is_read() {
        let info = PoolInfo::parse(include_str!("../../tests/fixtures/xml/pool-dir.xml")).unwrap();
        assert_eq!((info.name.as_str(), info.kind.as_str()), ("default", "dir"));
        assert_eq!(info.path.as_deref(), Some("/var/lib/libvirt/images"));
        assert!(
            info.capacity > info.available && info.available > 1 << 30,
            "{info:?}"
        );
        assert!(info.allocation > 0);
        assert!(info.holds_qcow2());
    }

    #[test]
    fn only_pools_of_files_hold_qcow2() {
        for (kind, holds) in [
            ("dir", true),
            ("fs", true),
            ("netfs", true),
            ("logical", false),
            ("zfs", false),
            ("rbd", false),
            ("disk", false),
            ("iscsi", false),
            ("gluster", false),
            ("", false),
        ] {
            let xml = format!("<pool type='{kind}'><name>p</name></pool>");
            assert_eq!(
                PoolInfo::parse(&xml).unwrap().holds_qcow2(),
                holds,
                "{kind}"
            );
        }
    }

    #[test]
    fn sizes_are_bytes_or_errors() {
        let xml = "<pool type='dir'><name>p</name><capacity unit='GiB'>2</capacity></pool>";
        let info = PoolInfo::parse(xml).unwrap();
        assert_eq!(
            (info.capacity, info.available, info.path),
            (2 << 30, 0, None)
        );
        for xml in [
            "<volume><name>p</name></volume>",
            "<pool type='dir'/>",
            "<pool><name>p</name><available>lots</available></pool>",
        ] {
            assert!(PoolInfo::parse(xml).is_err(), "{xml}");
        }
    }
}
