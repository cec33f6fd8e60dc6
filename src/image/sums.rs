//! Checksum files: SHA256SUMS, SHA512SUMS and their relatives.
//!
//! Read are GNU's form (`hex  name`, `hex *name`), BSD's (`SHA256 (name) = hex`), a hash alone, any of them with
//! Windows line ends, upper-case digits, `./` before names, and inside a PGP clear-signed message, whose signature is
//! not checked. What a hash is follows from its length; md5 and sha1 are passed over.

use std::fmt;

use crate::error::{Error, Reason, Result};

#[cfg(test)]
mod tests;

/// The hash functions that are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// Its name, in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// Which hash has so many hex digits.
    fn of_length(digits: usize) -> Option<Self> {
        match digits {
            64 => Some(Algorithm::Sha256),
            128 => Some(Algorithm::Sha512),
            _ => None,
        }
    }
}

/// A digest that some bytes should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// The hash function.
    pub algorithm: Algorithm,
    /// The digest in lower-case hex digits.
    pub hex: String,
}

impl Checksum {
    /// A digest from hex digits of either case; none if it is no sha256 or sha512.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let algorithm = Algorithm::of_length(hex.len())?;
        hex.bytes()
            .all(|byte| byte.is_ascii_hexdigit())
            .then(|| Checksum {
                algorithm,
                hex: hex.to_ascii_lowercase(),
            })
    }
}

impl fmt::Display for Checksum {
    /// `sha256:` and the digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.as_str(), self.hex)
    }
}

/// A line of a checksum file.
struct Line<'a> {
    checksum: Checksum,
    /// The file's name; none if the hash stands alone.
    name: Option<&'a str>,
}

/// How many names a message lists.
const NAMES_SHOWN: usize = 8;

/// Finds a file's checksum in a checksum file's text.
///
/// `name` is the whole file name, the last segment of the image's URL; `source` names the checksum file in
/// messages, such as its URL. With both hashes there, SHA-512 is taken; two different ones of a kind are refused.
pub fn find_checksum(source: &str, text: &str, name: &str) -> Result<Checksum> {
    let lines: Vec<_> = signed_part(text).filter_map(line).collect();
    let mut found: Vec<&Checksum> = lines
        .iter()
        .filter(|line| line.name.is_some_and(|listed| same_file(listed, name)))
        .map(|line| &line.checksum)
        .collect();
    // A hash without a name is the file's only where nothing else is in the way.
    if let [
        Line {
            checksum,
            name: None,
        },
    ] = lines.as_slice()
    {
        found.push(checksum);
    }
    let Some(best) = found.iter().map(|checksum| checksum.algorithm).max() else {
        return Err(not_listed(source, name, &lines));
    };
    found.retain(|checksum| checksum.algorithm == best);
    if found.iter().any(|checksum| *checksum != found[0]) {
        return Err(bad(format!(
            "{source} lists {name:?} with two different {} checksums",
            best.as_str()
        )));
    }
    Ok(found[0].clone())
}

/// The lines that a clear signature covers, or all if there is none (RFC 9580 section 7): what stands before
/// or behind was never signed, and dash-escaped lines lose their dash.
fn signed_part(text: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &str = "-----BEGIN PGP SIGNED MESSAGE-----";
    const END: &str = "-----BEGIN PGP SIGNATURE-----";
    let is = |marker: &'static str| move |line: &&str| line.trim_end() == marker;
    let signed = text.lines().any(|line| is(BEGIN)(&line));
    text.trim_start_matches('\u{feff}')
        .lines()
        .skip_while(move |line| signed && !is(BEGIN)(line))
        .take_while(move |line| !signed || !is(END)(line))
        .map(|line| line.strip_prefix("- ").unwrap_or(line))
}

fn line(line: &str) -> Option<Line<'_>> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    bsd(line).or_else(|| gnu(line))
}

/// `SHA256 (name) = hex`, and OpenSSL's `SHA2-256(name)= hex`. The name may hold parentheses.
fn bsd(line: &str) -> Option<Line<'_>> {
    let (start, hex) = line.rsplit_once('=')?;
    let (kind, name) = start.trim_end().strip_suffix(')')?.split_once('(')?;
    let checksum = Checksum::from_hex(hex.trim())?;
    let kind = kind.trim().to_ascii_lowercase().replace('-', "");
    let fits = match checksum.algorithm {
        Algorithm::Sha256 => ["sha256", "sha2256"].contains(&kind.as_str()),
        Algorithm::Sha512 => ["sha512", "sha2512"].contains(&kind.as_str()),
    };
    fits.then_some(Line {
        checksum,
        name: Some(name),
    })
}

/// `hex  name`, `hex *name` (binary mode), and `hex` alone. GNU puts a backslash before the hash of a name with
/// escapes; such names aren't images'.
fn gnu(line: &str) -> Option<Line<'_>> {
    let (hex, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let checksum = Checksum::from_hex(hex)?;
    let rest = rest.trim_start();
    let name = rest.strip_prefix('*').unwrap_or(rest);
    Some(Line {
        checksum,
        name: (!name.is_empty()).then_some(name),
    })
}

/// Whether a listed name is the file's: the same, but for `./` before it. Other paths are other files.
fn same_file(listed: &str, name: &str) -> bool {
    listed.strip_prefix("./").unwrap_or(listed) == name
}

fn not_listed(source: &str, name: &str, lines: &[Line<'_>]) -> Error {
    let names: Vec<_> = lines.iter().filter_map(|line| line.name).collect();
    if lines.is_empty() {
        return bad(format!("{source} has no sha256 or sha512 checksums in it"))
            .hint("open it: it may be a web page, or hold md5 or sha1 sums, which are not taken");
    }
    let listed = if names.is_empty() {
        format!("{} checksums without names", lines.len())
    } else {
        let shown = names.iter().take(NAMES_SHOWN).map(|name| shortened(name));
        let shown = shown.collect::<Vec<_>>().join(", ");
        match names.len().saturating_sub(NAMES_SHOWN) {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    };
    bad(format!("{source} doesn't list {name:?}")).because(format!("it lists {listed}"))
}

/// A listed name for a message: a file from the network, so quoted and bounded.
fn shortened(name: &str) -> String {
    let short: String = name.chars().take(100).collect();
    format!("{short:?}")
}

fn bad(message: String) -> Error {
    Error::permanent(Reason::ChecksumMismatch, message)
}
