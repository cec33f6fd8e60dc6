//! Whether two paths lead to one file: through a symbolic link or a mount, libvirt takes them for two.

use std::collections::{BTreeMap, BTreeSet};

use super::{DomainFiles, Files, file_name, questions};
use crate::error::Result;
use crate::libvirt::Hypervisor;
use crate::xml::domain_info::DiskSource;

/// Paths asked for by one command.
const PATHS_AT_ONCE: usize = 100;

/// The files that paths lead to, in the host's own words, as far as they could be asked for. Only paths that end like
/// another one are in it: what has another name isn't taken for the same file.
pub type Identities = BTreeMap<String, String>;

/// Whether two paths are known to lead to one file, or to two.
pub(super) fn are_one(identities: &Identities, one: &str, other: &str) -> Option<bool> {
    if one == other {
        return Some(true);
    }
    let (one, other) = (identities.get(one)?, identities.get(other)?);
    // Two that are gone may have been one.
    let is_there = one != questions::GONE || other != questions::GONE;
    is_there.then_some(one == other)
}

/// Asks for the identities of our pool's volumes that something names by another path, and of what is at these paths.
pub(super) fn read(hypervisor: &dyn Hypervisor, files: &Files) -> Result<Identities> {
    let asked: Vec<String> = doubtful(files).into_iter().map(str::to_owned).collect();
    let mut identities = Identities::new();
    let question = question();
    for some in asked.chunks(PATHS_AT_ONCE) {
        let answers = questions::ask(hypervisor, some, &question)?;
        let known = answers
            .into_iter()
            .filter_map(|(path, answer)| Some((path, answer?)));
        identities.extend(known);
    }
    Ok(identities)
}

/// stat(1) of coreutils: device and inode of what the path leads to.
fn question() -> String {
    let unknown = questions::UNKNOWN;
    format!("stat -L -c %d:%i \"$f\" 2>/dev/null || echo {unknown}")
}

fn doubtful(files: &Files) -> BTreeSet<&str> {
    let own: BTreeMap<&str, &str> = files
        .volumes
        .iter()
        .map(|info| (file_name(&info.path), info.path.as_str()))
        .collect();
    let mut doubtful = BTreeSet::new();
    for path in named(files) {
        if let Some(volume) = own.get(file_name(path))
            && *volume != path
            // Their times may tell already.
            && !files.is_another(volume, path)
        {
            doubtful.extend([*volume, path]);
        }
    }
    doubtful
}

/// Every path that something on the host names.
fn named(files: &Files) -> impl Iterator<Item = &str> {
    let domains = files.domains.iter().flat_map(DomainFiles::all);
    let disks = domains.flat_map(|(info, _)| &info.disks);
    let sources = disks.flat_map(|disk| std::iter::once(&disk.source).chain(&disk.backing));
    let sources = sources.filter_map(|source| match source {
        DiskSource::Path(path) => Some(path.as_str()),
        _ => None,
    });
    let backing = files.all_volumes().filter_map(|info| info.backing.as_ref());
    let elsewhere = files.elsewhere.iter().map(|other| other.info.path.as_str());
    let chains = files.chains.values().flatten().map(String::as_str);
    sources
        .chain(backing.map(|backing| backing.path.as_str()))
        .chain(elsewhere)
        .chain(chains)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_known_by_device_and_inode() {
        let identities: Identities = [
            ("/a/x", "1:2"),
            ("/b/x", "1:2"),
            ("/c/x", "1:3"),
            ("/d/x", questions::GONE),
            ("/e/x", questions::GONE),
        ]
        .map(|(path, is)| (path.to_owned(), is.to_owned()))
        .into();
        let table = [
            ("/a/x", "/a/x", Some(true)),
            ("/a/x", "/b/x", Some(true)),
            ("/a/x", "/c/x", Some(false)),
            ("/a/x", "/d/x", Some(false)),
            ("/d/x", "/e/x", None),
            ("/a/x", "/unknown/x", None),
        ];
        for (one, other, expected) in table {
            assert_eq!(are_one(&identities, one, other), expected, "{one} {other}");
        }
    }
}
