//! `known_hosts`: parsed and matched by OpenSSH's own rules (sshd(8), "SSH known hosts file format").
//!
//! What SSH libraries bring for that doesn't know `@revoked` keys, or patterns, or gives up at the first bad line
//! (docs/decisions.md). Everything here is pure: no file and no network.

use std::net::Ipv6Addr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::wire;

/// The port that `known_hosts` leaves out.
const DEFAULT_PORT: u16 = 22;

/// A parsed `known_hosts` file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownHosts {
    entries: Vec<Entry>,
    skipped: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    line: usize,
    marker: Marker,
    names: Names,
    key_type: String,
    blob: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    Plain,
    Revoked,
    CertAuthority,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Names {
    /// `|1|salt|HMAC-SHA1(salt, name)`.
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
    /// A comma list of patterns, lower case.
    Patterns(Vec<Pattern>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    negated: bool,
    glob: String,
}

/// A key that the file lists for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its type, such as `ssh-ed25519`.
    pub key_type: String,
    /// Its fingerprint, `SHA256:…`.
    pub fingerprint: String,
}

/// What the file says about a key that a host offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The key is listed for the host.
    Match,
    /// No key of that type is listed for the host.
    Unknown {
        /// The keys of other types that are listed for it.
        known: Vec<KnownKey>,
    },
    /// Other keys of that type are listed for the host, this one isn't.
    Mismatch {
        /// The keys of all types that are listed for it.
        known: Vec<KnownKey>,
    },
    /// The key is marked `@revoked`, whatever else the file says.
    Revoked {
        /// The line of the mark, from 1.
        line: usize,
    },
    /// Nothing but `@cert-authority` lines apply to the host, and those aren't supported.
    OnlyCa {
        /// Their lines, from 1.
        lines: Vec<usize>,
    },
}

impl KnownHosts {
    /// Parses a whole file; lines that can't be read are skipped and listed by [`Self::skipped_lines`].
    pub fn parse(text: &str) -> Self {
        let mut parsed = KnownHosts::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match parse_line(index + 1, line) {
                Some(entry) => parsed.entries.push(entry),
                None => parsed.skipped.push(index + 1),
            }
        }
        parsed
    }

    /// The lines, from 1, that couldn't be read.
    pub fn skipped_lines(&self) -> &[usize] {
        &self.skipped
    }

    /// What the file says about `key_blob`, which the server at `host` and `port` offered.
    ///
    /// With another port than 22, `[host]:port` is looked up first, and the bare name only as a second
    /// chance: another key there may well be that of another machine, and proves nothing.
    pub fn verdict(&self, host: &str, port: u16, key_blob: &[u8]) -> Verdict {
        let key_type = wire::blob_type(key_blob).unwrap_or_default();
        let lookups = lookup_names(host, port);
        for names in &lookups {
            let revoked = self
                .matching(names, Marker::Revoked)
                .find(|entry| entry.blob == key_blob);
            if let Some(entry) = revoked {
                return Verdict::Revoked { line: entry.line };
            }
        }
        let mut first_known = Vec::new();
        for (index, names) in lookups.iter().enumerate() {
            let entries: Vec<&Entry> = self.matching(names, Marker::Plain).collect();
            if entries.iter().any(|entry| entry.blob == key_blob) {
                return Verdict::Match;
            }
            if index == 0 {
                first_known = entries;
                if first_known.iter().any(|entry| entry.key_type == key_type) {
                    let known = described(&first_known);
                    return Verdict::Mismatch { known };
                }
            }
        }
        self.unknown(&lookups, &first_known)
    }

    /// The types of the keys that count for the host, in file order, each once.
    ///
    /// Those of `[host]:port` and, behind them, those of the bare name.
    pub fn known_types(&self, host: &str, port: u16) -> Vec<String> {
        let mut types: Vec<String> = Vec::new();
        for names in lookup_names(host, port) {
            for entry in self.matching(&names, Marker::Plain) {
                if !types.contains(&entry.key_type) {
                    types.push(entry.key_type.clone());
                }
            }
        }
        types
    }

    fn unknown(&self, lookups: &[Vec<String>], known: &[&Entry]) -> Verdict {
        let authorities: Vec<usize> = lookups
            .iter()
            .flat_map(|names| self.matching(names, Marker::CertAuthority))
            .map(|entry| entry.line)
            .collect();
        if known.is_empty() && !authorities.is_empty() {
            return Verdict::OnlyCa { lines: authorities };
        }
        Verdict::Unknown {
            known: described(known),
        }
    }

    fn matching<'a>(
        &'a self,
        names: &'a [String],
        marker: Marker,
    ) -> impl Iterator<Item = &'a Entry> {
        self.entries
            .iter()
            .filter(move |entry| entry.marker == marker)
            .filter(move |entry| entry.names.matches(names))
    }
}

fn described(entries: &[&Entry]) -> Vec<KnownKey> {
    entries
        .iter()
        .map(|entry| KnownKey {
            line: entry.line,
            key_type: entry.key_type.clone(),
            fingerprint: wire::fingerprint(&entry.blob),
        })
        .collect()
}

/// The host's name as `known_hosts` writes it: `host`, or `[host]:port` for another port than 22.
pub fn host_name(host: &str, port: u16) -> String {
    if port == DEFAULT_PORT {
        host.to_owned()
    } else {
        format!("[{host}]:{port}")
    }
}

/// The spellings to look up, first with the port, then without.
fn lookup_names(host: &str, port: u16) -> Vec<Vec<String>> {
    let mut spellings = vec![host.to_lowercase()];
    let canonical = host.parse::<Ipv6Addr>().map(|address| address.to_string());
    for spelling in canonical.into_iter().chain([host.to_owned()]) {
        if !spellings.contains(&spelling) {
            spellings.push(spelling);
        }
    }
    let with_port = |spelling: &String| host_name(spelling, port);
    let mut lookups = vec![spellings.iter().map(with_port).collect()];
    if port != DEFAULT_PORT {
        lookups.push(spellings);
    }
    lookups
}

fn parse_line(number: usize, line: &str) -> Option<Entry> {
    let mut fields = line.split_ascii_whitespace();
    let mut names = fields.next()?;
    let marker = match names {
        "@revoked" => Marker::Revoked,
        "@cert-authority" => Marker::CertAuthority,
        other if other.starts_with('@') => return None,
        _ => Marker::Plain,
    };
    if marker != Marker::Plain {
        names = fields.next()?;
    }
    let key_type = fields.next()?;
    let blob = wire::decode_key(key_type, fields.next()?)?;
    Some(Entry {
        line: number,
        marker,
        names: Names::parse(names)?,
        key_type: key_type.to_owned(),
        blob,
    })
}

impl Names {
    fn parse(field: &str) -> Option<Self> {
        if let Some(hashed) = field.strip_prefix("|1|") {
            let (salt, hash) = hashed.split_once('|')?;
            return Some(Names::Hashed {
                salt: STANDARD.decode(salt).ok()?,
                hash: STANDARD.decode(hash).ok()?,
            });
        }
        if field.starts_with('|') {
            return None;
        }
        let pattern = |text: &str| {
            let glob = text.strip_prefix('!');
            Pattern {
                negated: glob.is_some(),
                glob: glob.unwrap_or(text).to_lowercase(),
            }
        };
        Some(Names::Patterns(field.split(',').map(pattern).collect()))
    }

    /// Whether the line is about a host with these spellings of its name.
    fn matches(&self, spellings: &[String]) -> bool {
        match self {
            Names::Hashed { salt, hash } => spellings.iter().any(|name| {
                Hmac::<Sha1>::new_from_slice(salt)
                    .is_ok_and(|mac| mac.chain_update(name).verify_slice(hash).is_ok())
            }),
            Names::Patterns(patterns) => {
                let hit = |pattern: &&Pattern| {
                    spellings
                        .iter()
                        .any(|name| glob_matches(&pattern.glob, &name.to_lowercase()))
                };
                // One negated hit rules the whole line out, wherever it stands.
                let mut hits = patterns.iter().filter(hit).peekable();
                hits.peek().is_some() && hits.all(|pattern| !pattern.negated)
            }
        }
    }
}

/// `*` stands for any run of characters, `?` for exactly one.
fn glob_matches(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    // Where to go back to when a literal fails: behind the last `*`, one more character skipped.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                g += 1;
                retry = Some((g, n));
            }
            Some(&byte) if byte == b'?' || byte == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match retry {
                Some((after_star, skipped)) => {
                    g = after_star;
                    n = skipped + 1;
                    retry = Some((after_star, n));
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests;
