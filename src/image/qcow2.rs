//! The header of a qcow2 image (QEMU's docs/interop/qcow2).

/// The bytes of the header that matter here; a version 2 header is 72 bytes, version 3 at least 104.
pub const HEADER_BYTES: usize = 104;

/// The magic number, `QFI` and 0xfb.
pub const MAGIC: &[u8; 4] = b"QFI\xfb";

/// The incompatible feature "external data file", bit 2.
const EXTERNAL_DATA_FILE: u64 = 1 << 2;

/// The incompatible features that an image at rest may have and QEMU can open: dirty (bit 0) is healed at open;
/// compression type (3) and extended L2 entries (4) are plain features. Corrupt (1) can't be opened for writing,
/// and an overlay only reads its base.
const KNOWN_FEATURES: u64 = 0b1_1111;

/// The largest cluster QEMU takes: 2 MiB; the smallest: 512 bytes.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;

/// What a qcow2 header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Version, 2 or 3.
    pub version: u32,
    /// The disk's size in bytes.
    pub virtual_size: u64,
    /// Bits of the cluster size.
    pub cluster_bits: u32,
    /// Whether it names a backing file.
    pub has_backing_file: bool,
    /// Whether its data is in another file.
    pub has_data_file: bool,
    /// Whether it is encrypted.
    pub encrypted: bool,
}

/// Why a header can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It doesn't begin with qcow2's magic number.
    NoMagic,
    /// It ends too early.
    Truncated,
    /// It has a version other than 2 and 3.
    Version(u32),
    /// It has incompatible features that are unknown here: these bits.
    Features(u64),
    /// A field has a value that QEMU refuses.
    Invalid,
}

impl Header {
    /// Reads the header from an image's first bytes.
    pub fn parse(head: &[u8]) -> Result<Self, Fault> {
        if !head.starts_with(MAGIC) {
            return Err(Fault::NoMagic);
        }
        let version = be32(head, 4)?;
        if !(2..=3).contains(&version) {
            return Err(Fault::Version(version));
        }
        let features = if version == 3 { be64(head, 72)? } else { 0 };
        if version == 3 && be32(head, 100)? < 104 {
            return Err(Fault::Invalid);
        }
        let header = Header {
            version,
            virtual_size: be64(head, 24)?,
            cluster_bits: be32(head, 20)?,
            // A backing file's name may be empty; its offset says whether there is one.
            has_backing_file: be64(head, 8)? != 0,
            has_data_file: features & EXTERNAL_DATA_FILE != 0,
            encrypted: be32(head, 32)? != 0,
        };
        // Version 2's last field ends at 72.
        be64(head, 64)?;
        if features & !KNOWN_FEATURES != 0 {
            return Err(Fault::Features(features & !KNOWN_FEATURES));
        }
        if !CLUSTER_BITS.contains(&header.cluster_bits) || header.virtual_size == 0 {
            return Err(Fault::Invalid);
        }
        Ok(header)
    }
}

/// The name of the image's backing file, if it has one, from its first bytes. Whatever else the header says.
///
/// Errors: [`Fault::NoMagic`] where it is no qcow2 image, [`Fault::Truncated`] where the name isn't within these bytes.
pub fn backing_name(head: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    if !head.starts_with(MAGIC) {
        return Err(Fault::NoMagic);
    }
    let at = usize::try_from(be64(head, 8)?).map_err(|_| Fault::Truncated)?;
    if at == 0 {
        return Ok(None);
    }
    let length = usize::try_from(be32(head, 16)?).map_err(|_| Fault::Truncated)?;
    let end = at.checked_add(length).ok_or(Fault::Truncated)?;
    let name = head.get(at..end).ok_or(Fault::Truncated)?;
    Ok(Some(name.to_vec()))
}

fn be32(head: &[u8], at: usize) -> Result<u32, Fault> {
    let bytes = head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_be_bytes).ok_or(Fault::Truncated)
}

fn be64(head: &[u8], at: usize) -> Result<u64, Fault> {
    let bytes = head.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_be_bytes).ok_or(Fault::Truncated)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A header of version 3 as qemu-img writes it, virtual size 2 GiB.
    pub(crate) fn header() -> Vec<u8> {
        let mut head = vec![0; 512];
        head[..4].copy_from_slice(MAGIC);
        head[7] = 3;
        head[23] = 16;
        head[24..32].copy_from_slice(&(2_u64 << 30).to_be_bytes());
        head[103] = 104;
        head
    }

    fn changed(at: usize, byte: u8) -> Vec<u8> {
        let mut head = header();
        head[at] = byte;
        head
    }

    #[test]
    fn good_headers_are_read() {
        let plain = Header {
            version: 3,
            virtual_size: 2 << 30,
            cluster_bits: 16,
            has_backing_file: false,
            has_data_file: false,
            encrypted: false,
        };
        let table = [
            (header(), plain),
            (header()[..104].to_vec(), plain),
            // Version 2 has no features: those bytes are something else.
            (
                {
                    let mut head = changed(7, 2);
                    head[72..80].fill(0xff);
                    head
                },
                Header {
                    version: 2,
                    ..plain
                },
            ),
            (
                changed(7, 2)[..72].to_vec(),
                Header {
                    version: 2,
                    ..plain
                },
            ),
            (
                changed(14, 4),
                Header {
                    has_backing_file: true,
                    ..plain
                },
            ),
            (
                changed(79, 4),
                Header {
                    has_data_file: true,
                    ..plain
                },
            ),
            (changed(79, 0b11), plain),
            (changed(79, 0b11000), plain),
            (
                changed(35, 2),
                Header {
                    encrypted: true,
                    ..plain
                },
            ),
            (
                changed(23, 21),
                Header {
                    cluster_bits: 21,
                    ..plain
                },
            ),
        ];
        for (head, expected) in table {
            assert_eq!(Header::parse(&head), Ok(expected));
        }
    }

    #[test]
    fn bad_headers_are_refused() {
        let mut empty = header();
        empty[24..32].fill(0);
        let table = [
            (Vec::new(), Fault::NoMagic),
            (b"QFI".to_vec(), Fault::NoMagic),
            (b"QFI\xfb".to_vec(), Fault::Truncated),
            (header()[..103].to_vec(), Fault::Truncated),
            (changed(7, 2)[..71].to_vec(), Fault::Truncated),
            (changed(7, 1), Fault::Version(1)),
            (changed(7, 4), Fault::Version(4)),
            (changed(79, 0x20), Fault::Features(0x20)),
            (changed(72, 0x80), Fault::Features(1 << 63)),
            (changed(23, 8), Fault::Invalid),
            (changed(23, 22), Fault::Invalid),
            (changed(103, 72), Fault::Invalid),
            (empty, Fault::Invalid),
        ];
        for (head, fault) in table {
            assert_eq!(Header::parse(&head), Err(fault));
        }
    }
}
