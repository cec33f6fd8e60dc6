//! A writer of small ISO 9660 images: one flat directory, Rock Ridge and Joliet, the same bytes for the same input.
//!
//! The layout, one 2048-byte sector each unless said otherwise (ECMA-119 section 6.2):
//!
//! | sectors | what |
//! |---|---|
//! | 0–15 | system area, zeros |
//! | 16 | primary volume descriptor (ECMA-119 8.4) |
//! | 17 | Joliet's supplementary volume descriptor (ECMA-119 8.5, Joliet specification) |
//! | 18 | volume descriptor set terminator (8.3) |
//! | 19–22 | path tables: primary L and M, Joliet L and M (6.9, 9.4) |
//! | 23… | the root directory (6.8, 9.1) |
//! | next | the Rock Ridge extension's reference (SUSP 5.5), continuing the root's `.` record |
//! | next… | Joliet's root directory |
//! | … | the files |
//!
//! The plain names are mangled (`USER_DATA.;1`), so that a reader without either extension would not find
//! `user-data`; Linux reads Rock Ridge, others Joliet.

use crate::error::{Error, Reason, Result};

mod record;
#[cfg(test)]
mod tests;

use record::{Names, directory, root_record};

/// Bytes per sector and logical block.
pub(super) const SECTOR: usize = 2048;

/// Where the primary volume descriptor begins, in bytes.
pub(super) const DESCRIPTOR: usize = 16 * SECTOR;

/// The application-use area inside a volume descriptor (ECMA-119 8.4.32): offset and length in bytes.
pub(super) const APPLICATION_USE: (usize, usize) = (883, 512);

/// The application identifier inside a volume descriptor (8.4.20): offset and length in bytes.
pub(super) const APPLICATION: (usize, usize) = (574, 128);

/// The volume identifier inside a volume descriptor (8.4.7): offset and length in bytes.
pub(super) const VOLUME: (usize, usize) = (40, 32);

const PATH_TABLES: usize = 19;
const ROOT: usize = 23;

/// The length of a path table that holds the root alone: 8 bytes, a one-byte name and its padding.
const PATH_TABLE_BYTES: u32 = 10;

/// A file for an image.
#[derive(Clone, Copy)]
pub(super) struct File<'a> {
    /// Its name: letters, digits, `-`, `_` and one `.` at most, 30 characters at most.
    pub(super) name: &'a str,
    /// Its bytes.
    pub(super) data: &'a [u8],
}

/// A volume's identifiers.
pub(super) struct Volume<'a> {
    /// The label, 16 characters at most for Joliet's sake.
    pub(super) label: &'a str,
    /// The application identifier.
    pub(super) application: &'a str,
    /// The start of the application-use area.
    pub(super) application_use: &'a [u8],
}

/// Where a file's bytes are.
struct Extent {
    sector: u32,
    length: u32,
}

/// The image's bytes.
pub(super) fn write(volume: &Volume<'_>, files: &[File<'_>]) -> Result<Vec<u8>> {
    check(volume, files)?;
    // The directories' lengths don't depend on where the files are, so they are made twice.
    let nowhere = extents(files, 0)?;
    let primary_sectors = directory(Names::RockRidge, files, &nowhere, 0).len() / SECTOR;
    let joliet_sectors = directory(Names::Joliet, files, &nowhere, 0).len() / SECTOR;
    let joliet_root = ROOT + primary_sectors + 1;
    let extents = extents(files, joliet_root + joliet_sectors)?;
    let primary = directory(Names::RockRidge, files, &extents, sector(ROOT)?);
    let joliet = directory(Names::Joliet, files, &extents, sector(joliet_root)?);
    let end = extents
        .iter()
        .zip(files)
        .fold(joliet_root + joliet_sectors, |end, (_, file)| {
            end + file.data.len().div_ceil(SECTOR)
        });

    let mut image = vec![0; DESCRIPTOR];
    for (names, at, bytes) in [
        (Names::RockRidge, ROOT, primary.len()),
        (Names::Joliet, joliet_root, joliet.len()),
    ] {
        let root = root_record(sector(at)?, sector(bytes)?);
        image.extend(descriptor(names, volume, sector(end)?, &root)?);
    }
    image.extend(terminator());
    for root in [ROOT, joliet_root] {
        image.extend(path_table(sector(root)?.to_le_bytes(), 1_u16.to_le_bytes()));
        image.extend(path_table(sector(root)?.to_be_bytes(), 1_u16.to_be_bytes()));
    }
    image.extend(primary);
    image.extend(padded(record::extension_reference()));
    image.extend(joliet);
    for file in files {
        image.extend(padded(file.data.to_vec()));
    }
    Ok(image)
}

fn check(volume: &Volume<'_>, files: &[File<'_>]) -> Result<()> {
    let fits = volume.label.len() <= 16
        && volume.application.len() <= APPLICATION.1
        && volume.application_use.len() <= APPLICATION_USE.1;
    if !fits {
        return Err(refused("its identifiers are too long"));
    }
    let good = |name: &str| {
        (1..=30).contains(&name.len())
            && name.chars().filter(|&c| c == '.').count() <= 1
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    if let Some(bad) = files.iter().find(|file| !good(file.name)) {
        return Err(refused(&format!("{:?} can't be a file's name", bad.name)));
    }
    let mut names: Vec<_> = files
        .iter()
        .map(|file| record::mangled(file.name))
        .collect();
    names.sort();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(refused("two of its files have the same name"));
    }
    Ok(())
}

fn refused(why: &str) -> Error {
    Error::permanent(
        Reason::InvalidUserData,
        format!("the seed image can't be made: {why}"),
    )
}

/// A sector number or length as the format has it.
fn sector(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| refused("it is too big"))
}

/// Where the files are, one after the other from a sector on.
fn extents(files: &[File<'_>], first: usize) -> Result<Vec<Extent>> {
    let mut next = first;
    let mut extents = Vec::new();
    for file in files {
        extents.push(Extent {
            // An empty file has no extent; readers never look at its place.
            sector: if file.data.is_empty() {
                0
            } else {
                sector(next)?
            },
            length: sector(file.data.len())?,
        });
        next += file.data.len().div_ceil(SECTOR);
    }
    Ok(extents)
}

/// Bytes and zeros up to the end of the sector.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    bytes
}

/// A 32-bit number in both byte orders (ECMA-119 7.3.3).
fn both32(number: u32) -> [u8; 8] {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&number.to_le_bytes());
    both[4..].copy_from_slice(&number.to_be_bytes());
    both
}

/// A 16-bit number in both byte orders (ECMA-119 7.2.3).
fn both16(number: u16) -> [u8; 4] {
    let (le, be) = (number.to_le_bytes(), number.to_be_bytes());
    [le[0], le[1], be[0], be[1]]
}

/// A path table with the root directory alone (ECMA-119 9.4): name length, no extended attributes, place,
/// parent, name 0 and its padding.
fn path_table(place: [u8; 4], parent: [u8; 2]) -> Vec<u8> {
    let mut table = vec![1, 0];
    table.extend(place);
    table.extend(parent);
    table.extend([0, 0]);
    padded(table)
}

fn terminator() -> Vec<u8> {
    let mut bytes = vec![255];
    bytes.extend(b"CD001\x01");
    padded(bytes)
}

/// A volume descriptor, primary or Joliet's (ECMA-119 8.4 and 8.5; offsets are its BP minus one).
fn descriptor(names: Names, volume: &Volume<'_>, sectors: u32, root: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = vec![0; SECTOR];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    let text = |text: &str, length: usize| names.padded_text(text, length);
    let (kind, first_table) = match names {
        Names::RockRidge => (1, PATH_TABLES),
        Names::Joliet => (2, PATH_TABLES + 2),
    };
    put(0, &[kind]);
    put(1, b"CD001\x01");
    put(8, &text("", 32));
    put(VOLUME.0, &text(volume.label, VOLUME.1));
    put(80, &both32(sectors));
    if names == Names::Joliet {
        // UCS-2 level 3, Joliet specification section "SVD Escape Sequences Field".
        put(88, b"%/E");
    }
    put(120, &both16(1));
    put(124, &both16(1));
    put(128, &both16(2048));
    put(132, &both32(PATH_TABLE_BYTES));
    put(140, &sector(first_table)?.to_le_bytes());
    put(148, &sector(first_table + 1)?.to_be_bytes());
    put(156, root);
    for (at, length) in [
        (190, 128),
        (318, 128),
        (446, 128),
        (702, 37),
        (739, 37),
        (776, 37),
    ] {
        put(at, &text("", length));
    }
    put(APPLICATION.0, &text(volume.application, APPLICATION.1));
    // Created and modified at a fixed time, so that the same input makes the same bytes; no expiry.
    put(813, b"2000010100000000\0");
    put(830, b"2000010100000000\0");
    put(847, b"0000000000000000\0");
    put(864, b"0000000000000000\0");
    put(881, &[1]);
    put(APPLICATION_USE.0, volume.application_use);
    Ok(bytes)
}
