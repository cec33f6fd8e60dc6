//! Directory records, and the Rock Ridge entries in them.

use super::{Extent, File, SECTOR, both16, both32, padded};

/// 2000-01-01 00:00:00 UTC as a directory record has it (ECMA-119 9.1.5).
const DATE: [u8; 7] = [100, 1, 1, 0, 0, 0, 0];

/// The file flags' directory bit (ECMA-119 9.1.6).
const DIRECTORY: u8 = 2;

/// POSIX modes: cloud-init's files hold secrets.
const FILE_MODE: u32 = 0o100_600;
const ROOT_MODE: u32 = 0o040_700;

/// Which of the image's two directory trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// The primary one: mangled names, the real ones in Rock Ridge entries.
    RockRidge,
    /// Joliet's: the real names in UCS-2.
    Joliet,
}

impl Names {
    /// Text of a descriptor, padded with blanks in its own encoding.
    pub(super) fn padded_text(self, text: &str, length: usize) -> Vec<u8> {
        match self {
            Names::RockRidge => {
                let mut bytes = text.as_bytes().to_vec();
                bytes.resize(length, b' ');
                bytes
            }
            Names::Joliet => {
                let blanks = std::iter::repeat(u16::from(b' '));
                let units = text.encode_utf16().chain(blanks).take(length / 2);
                let mut bytes: Vec<u8> = units.flat_map(u16::to_be_bytes).collect();
                // A field of odd length ends with one unused byte.
                bytes.resize(length, 0);
                bytes
            }
        }
    }

    /// A file's identifier in a directory record.
    fn identifier(self, name: &str) -> Vec<u8> {
        match self {
            Names::RockRidge => mangled(name),
            Names::Joliet => name.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        }
    }
}

/// A name in d-characters with the version that ECMA-119 7.5.1 wants: `USER_DATA.;1`.
pub(super) fn mangled(name: &str) -> Vec<u8> {
    let upper = name.to_ascii_uppercase().replace('-', "_");
    let dot = if upper.contains('.') { "" } else { "." };
    format!("{upper}{dot};1").into_bytes()
}

/// A whole directory, sectors of records: itself, its parent (itself again), and the files in order of
/// their identifiers (ECMA-119 9.3). No record crosses a sector's end (6.8.1.1).
pub(super) fn directory(names: Names, files: &[File<'_>], extents: &[Extent], at: u32) -> Vec<u8> {
    let mut entries: Vec<_> = files.iter().zip(extents).collect();
    entries.sort_by_key(|(file, _)| names.identifier(file.name));
    let rock_ridge = names == Names::RockRidge;
    let build = |length: u32| {
        let (own, parent) = if rock_ridge {
            // The continuation comes right behind: libarchive reads forwards only.
            let sectors = length / u32::try_from(SECTOR).unwrap_or(1);
            (root_entries(at + sectors), attributes(ROOT_MODE, 2))
        } else {
            (Vec::new(), Vec::new())
        };
        let mut bytes = Vec::new();
        append(&mut bytes, record(&[0], at, length, DIRECTORY, &own));
        append(&mut bytes, record(&[1], at, length, DIRECTORY, &parent));
        for (file, extent) in &entries {
            let system_use = if rock_ridge {
                file_entries(file.name)
            } else {
                Vec::new()
            };
            let identifier = names.identifier(file.name);
            append(
                &mut bytes,
                record(&identifier, extent.sector, extent.length, 0, &system_use),
            );
        }
        padded(bytes)
    };
    // The first two records hold the directory's own length.
    let length = build(0).len();
    build(u32::try_from(length).unwrap_or(u32::MAX))
}

/// The root's record in a volume descriptor: 34 bytes, no system use.
pub(super) fn root_record(at: u32, length: u32) -> Vec<u8> {
    record(&[0], at, length, DIRECTORY, &[])
}

fn append(directory: &mut Vec<u8>, record: Vec<u8>) {
    let room = SECTOR - directory.len() % SECTOR;
    if record.len() > room {
        directory.resize(directory.len() + room, 0);
    }
    directory.extend(record);
}

/// ECMA-119 9.1. Lengths are even: the identifier is padded to an odd length, system use to an even one.
fn record(identifier: &[u8], at: u32, length: u32, flags: u8, system_use: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(both32(at));
    bytes.extend(both32(length));
    bytes.extend(DATE);
    bytes.extend([flags, 0, 0]);
    bytes.extend(both16(1));
    bytes.push(short(identifier));
    bytes.extend(identifier);
    if identifier.len().is_multiple_of(2) {
        bytes.push(0);
    }
    bytes.extend(system_use);
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    bytes[0] = short(&bytes);
    bytes
}

/// A length in one byte. Names of 30 characters at most keep every record below 150.
fn short(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).unwrap_or(u8::MAX)
}

/// A System Use entry: signature, length, version 1, data (SUSP 4.1).
fn entry(signature: [u8; 2], data: &[u8]) -> Vec<u8> {
    let mut bytes = signature.to_vec();
    bytes.extend([0, 1]);
    bytes.extend(data);
    bytes[2] = short(&bytes);
    bytes
}

/// PX, POSIX file attributes: mode, links, owner and group root (RRIP 4.1.1).
fn attributes(mode: u32, links: u32) -> Vec<u8> {
    let numbers = [mode, links, 0, 0];
    let data: Vec<u8> = numbers.into_iter().flat_map(both32).collect();
    entry(*b"PX", &data)
}

/// A file's entries: PX, and NM, its alternate name (RRIP 4.1.4).
fn file_entries(name: &str) -> Vec<u8> {
    let mut data = vec![0];
    data.extend(name.as_bytes());
    let mut bytes = attributes(FILE_MODE, 1);
    bytes.extend(entry(*b"NM", &data));
    bytes
}

/// The entries of the root's own record: SP, which says that System Use is there at all (SUSP 5.3); PX;
/// and CE, the sector where the rest is (SUSP 5.1).
fn root_entries(rest: u32) -> Vec<u8> {
    let mut bytes = entry(*b"SP", &[0xBE, 0xEF, 0]);
    bytes.extend(attributes(ROOT_MODE, 2));
    let length = u32::try_from(extension_reference().len()).unwrap_or_default();
    let data: Vec<u8> = [rest, 0, length].into_iter().flat_map(both32).collect();
    bytes.extend(entry(*b"CE", &data));
    bytes
}

/// ER, which says that the entries are Rock Ridge's (SUSP 5.5, RRIP 4.3): the identifier, and the texts
/// that RRIP 1.09 prescribes with it.
pub(super) fn extension_reference() -> Vec<u8> {
    let identifier = b"RRIP_1991A";
    let description =
        b"THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS";
    let source: &[u8] = b"PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER \
        IDENTIFIER IN PRIMARY VOLUME DESCRIPTOR FOR CONTACT INFORMATION.";
    let mut data = vec![short(identifier), short(description), short(source), 1];
    data.extend(identifier);
    data.extend(description);
    data.extend(source);
    entry(*b"ER", &data)
}
