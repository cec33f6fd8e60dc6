//! Disks that no pool shows: whose chain of backing files is read from the files themselves, over SSH.
//!
//! libvirt tells a disk's chain while its domain runs, and a volume's backing file. A domain that is off and has its disk
//! outside of all pools tells neither; and such a disk may be a clone of anything. Reading the first bytes of its
//! file is all it takes, where the user on the host may.

use std::collections::{BTreeMap, BTreeSet};

use super::{Files, questions};
use crate::error::Result;
use crate::image::head::may_have_parent;
use crate::image::qcow2;
use crate::libvirt::Hypervisor;
use crate::xml::domain_info::{DiskInfo, DiskSource};

/// A backing file's name stands within the first cluster, in practice right behind the header: qemu-img writes it
/// within the first 600 bytes, and a name has at most 1023.
const HEAD_BYTES: usize = 4096;
/// Paths asked for by one command: its answer stays below 128 KiB.
const PATHS_AT_ONCE: usize = 14;
/// Longer chains are taken for endless.
const DEEPEST: usize = 32;

/// A disk that no running domain has now, whose file is in no pool and not raw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenDisk {
    /// The domain's name.
    pub domain: String,
    /// The disk's path, as the domain's XML has it.
    pub path: String,
    /// Whether the domain runs, and has the disk only from its next start on.
    pub runs: bool,
}

impl std::fmt::Display for HiddenDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.runs {
            "not in use before its next start"
        } else {
            "off"
        };
        let HiddenDisk { domain, path, .. } = self;
        write!(
            f,
            "the disk {path} of domain {domain}, which is {state} and in no pool"
        )
    }
}

/// The chains of hidden disks that could be read to their ends, by the disk's path: what each is backed by.
pub type Chains = BTreeMap<String, Vec<String>>;

/// What is known of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Link {
    /// The end of a chain: backed by nothing, or not there any more.
    End,
    /// Backed by the file at this path.
    On(String),
    /// It can't be read or understood.
    Unread,
}

/// All disks that no pool shows.
pub(super) fn hidden_disks(files: &Files) -> Vec<HiddenDisk> {
    let known = known_paths(files);
    let mut hidden = Vec::new();
    for domain in &files.domains {
        let instance = &domain.instance;
        let now = &instance.info.disks;
        // libvirt shows a running domain's whole chain.
        let runs = instance.state.is_active();
        let used: BTreeSet<&str> = now.iter().filter(|_| runs).filter_map(path_of).collect();
        let later = domain.later.iter().flat_map(|(info, _)| &info.disks);
        for disk in now.iter().filter(|_| !runs).chain(later) {
            if let Some(path) = path_of(disk)
                && disk.backing.is_empty()
                && disk.format.as_deref() != Some("raw")
                && !known.contains(path)
                && !used.contains(path)
            {
                hidden.push(HiddenDisk {
                    domain: instance.domain.name.clone(),
                    path: path.to_owned(),
                    runs,
                });
            }
        }
    }
    hidden
}

fn path_of(disk: &DiskInfo) -> Option<&str> {
    match &disk.source {
        DiskSource::Path(path) => Some(path),
        _ => None,
    }
}

fn known_paths(files: &Files) -> BTreeSet<&str> {
    let elsewhere = files.elsewhere.iter().map(|other| &other.info);
    let all = files.volumes.iter().chain(elsewhere);
    all.map(|info| info.path.as_str()).collect()
}

/// Reads the chains of the host's hidden disks, as far as the user there may.
pub(super) fn read_chains(hypervisor: &dyn Hypervisor, files: &Files) -> Result<Chains> {
    let disks: BTreeSet<String> = hidden_disks(files).into_iter().map(|d| d.path).collect();
    let known = known_paths(files);
    let mut links = BTreeMap::new();
    let mut asked: Vec<String> = disks.iter().cloned().collect();
    for _ in 0..DEEPEST {
        if asked.is_empty() {
            break;
        }
        for some in asked.chunks(PATHS_AT_ONCE) {
            links.extend(ask(hypervisor, some)?);
        }
        let next = links.values().filter_map(|link| match link {
            // A volume's own backing file is known from its pool.
            Link::On(path) if !known.contains(path.as_str()) && !links.contains_key(path) => {
                Some(path.clone())
            }
            _ => None,
        });
        asked = next.collect::<BTreeSet<_>>().into_iter().collect();
    }
    let chain = |disk: String| Some((disk.clone(), follow(&links, &known, &disk)?));
    Ok(disks.into_iter().filter_map(chain).collect())
}

/// A disk's chain, if it could be read to its end or to a volume of a pool.
fn follow(
    links: &BTreeMap<String, Link>,
    known: &BTreeSet<&str>,
    disk: &str,
) -> Option<Vec<String>> {
    let mut chain = Vec::new();
    let mut at = disk;
    while chain.len() < DEEPEST {
        match links.get(at)? {
            Link::End => return Some(chain),
            Link::Unread => return None,
            Link::On(path) => {
                chain.push(path.clone());
                if known.contains(path.as_str()) {
                    return Some(chain);
                }
                at = path;
            }
        }
    }
    None
}

/// Asks the host's shell for the heads of some files.
fn ask(hypervisor: &dyn Hypervisor, paths: &[String]) -> Result<BTreeMap<String, Link>> {
    let answers = questions::ask(hypervisor, paths, &head_of_file())?;
    let links = answers.into_iter().map(|(path, answer)| {
        let link = answer.map_or(Link::Unread, |line| link_of(&path, &line));
        (path, link)
    });
    Ok(links.collect())
}

/// `head` and the file's first bytes in hexadecimal; none where it can't be read.
fn head_of_file() -> String {
    format!("echo \"head $(od -An -v -tx1 -N{HEAD_BYTES} \"$f\" 2>/dev/null | tr -d \" \\n\")\"")
}

fn link_of(path: &str, line: &str) -> Link {
    if line == questions::GONE {
        return Link::End;
    }
    let head = line.strip_prefix("head ").and_then(bytes_of);
    let Some(head) = head.filter(|head| !head.is_empty()) else {
        return Link::Unread;
    };
    match qcow2::backing_name(&head) {
        // Raw data, whatever the domain's XML says.
        Err(qcow2::Fault::NoMagic) if !may_have_parent(&head) => Link::End,
        Err(_) => Link::Unread,
        Ok(None) => Link::End,
        Ok(Some(name)) => resolve(path, &name).map_or(Link::Unread, Link::On),
    }
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) {
        return None;
    }
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// A backing file's name as a path: relative ones begin at the file that has the name. `None` for what isn't a local
/// file's name (`json:`, `nbd://`).
fn resolve(file: &str, name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let name = name.strip_prefix("file:").unwrap_or(name);
    // QEMU's rule: a colon before the first slash is a protocol's.
    if name.is_empty() || name.split('/').next()?.contains(':') {
        return None;
    }
    let full = if name.starts_with('/') {
        name.to_owned()
    } else {
        format!("{}/{name}", file.rsplit_once('/')?.0)
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in full.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A qcow2 head that names this backing file, as a line of the host's answer.
    fn line(backing: &str) -> String {
        let mut head = qcow2::tests::header();
        head[8..16].copy_from_slice(&256_u64.to_be_bytes());
        let length = u32::try_from(backing.len()).unwrap();
        head[16..20].copy_from_slice(&length.to_be_bytes());
        head[256..256 + backing.len()].copy_from_slice(backing.as_bytes());
        hex(&head)
    }

    fn hex(head: &[u8]) -> String {
        let digits: Vec<String> = head.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("head {}", digits.concat())
    }

    #[test]
    fn a_files_head_says_what_it_is_backed_by() {
        let on = |path: &str| Link::On(path.to_owned());
        let plain = hex(&qcow2::tests::header());
        let table = [
            (line("/p/web.qcow2"), on("/p/web.qcow2")),
            (line("web.qcow2"), on("/srv/web.qcow2")),
            (line("./a/../../p//web.qcow2"), on("/p/web.qcow2")),
            (line("file:/p/a:b.qcow2"), on("/p/a:b.qcow2")),
            (line("json:{\"driver\":\"qcow2\"}"), Link::Unread),
            (line("nbd://host/export"), Link::Unread),
            // The name isn't within what was read.
            (line("/p/web.qcow2")[..5 + 2 * 260].to_owned(), Link::Unread),
            (plain.clone(), Link::End),
            (plain[..100].to_owned(), Link::Unread),
            (hex(&[0; 512]), Link::End),
            (hex(b"QED\0 and more"), Link::Unread),
            (hex(b"KDMV and more"), Link::Unread),
            (hex(b"conectix and more"), Link::Unread),
            ("head ".to_owned(), Link::Unread),
            ("head 5".to_owned(), Link::Unread),
            (questions::GONE.to_owned(), Link::End),
            (questions::UNKNOWN.to_owned(), Link::Unread),
        ];
        for (line, link) in table {
            assert_eq!(link_of("/srv/x.qcow2", &line), link, "{line}");
        }
    }

    #[test]
    fn only_a_chain_that_was_read_to_its_end_counts() {
        let on = |path: &str| Link::On(path.to_owned());
        let links = BTreeMap::from(
            [
                ("/a", Link::End),
                ("/b", on("/a")),
                ("/c", on("/pool/v")),
                ("/d", Link::Unread),
                ("/e", on("/d")),
                ("/f", on("/f")),
                ("/g", on("/unasked")),
            ]
            .map(|(path, link)| (path.to_owned(), link)),
        );
        let known = BTreeSet::from(["/pool/v"]);
        let chain = |disk: &str| follow(&links, &known, disk);
        assert_eq!(chain("/a"), Some(Vec::new()));
        assert_eq!(chain("/b"), Some(vec!["/a".to_owned()]));
        assert_eq!(chain("/c"), Some(vec!["/pool/v".to_owned()]));
        for doubtful in ["/d", "/e", "/f", "/g", "/h"] {
            assert_eq!(chain(doubtful), None, "{doubtful}");
        }
    }
}
