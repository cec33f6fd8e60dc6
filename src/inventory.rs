//! What stands on a host: domains, volumes, and who uses a file. Read first, then asked; the asking is pure.

mod hidden;
mod questions;
mod same;
mod start;

use std::collections::BTreeSet;

pub use hidden::{Chains, HiddenDisk};
pub use same::Identities;
pub use start::{Start, is_blank, is_unreadable, is_unwritten_seed, read_start};

use crate::error::{Reason, Result};
use crate::instance::Instance;
use crate::libvirt::{self, CALLS_AT_ONCE, Definition, Hypervisor, When};
use crate::parallel;
use crate::xml::domain_info::{DiskInfo, DiskSource, DomainInfo};
use crate::xml::volume::VolumeInfo;

/// A volume's path on the host, if the volume is there.
pub fn find_volume_path(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    name: &str,
) -> Result<Option<String>> {
    Ok(find_volume(hypervisor, pool, name)?.map(|info| info.path))
}

/// What libvirt says of a volume, if it is there.
pub fn find_volume(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    name: &str,
) -> Result<Option<VolumeInfo>> {
    let xml = hypervisor.find_volume_xml(pool, name)?;
    xml.map(|xml| VolumeInfo::parse(&xml)).transpose()
}

/// Everything that uses the file at `path`: domains with it in a disk's chain, and volumes backed by it.
///
/// Whoever made them, and after a look into the pool's directory, as the file is about to go. An object that vanishes
/// meanwhile uses nothing; one that can't be read is an error, so that doubt never looks like "unused".
pub fn users_of_path(hypervisor: &dyn Hypervisor, pool: &str, path: &str) -> Result<Vec<String>> {
    refresh(hypervisor, pool)?;
    Ok(Files::read("", hypervisor, pool)?.users_of(path))
}

/// Whether there surely is no such file on the host: where it runs no commands for us, nobody can say.
pub fn is_gone(hypervisor: &dyn Hypervisor, path: &str) -> Result<bool> {
    let answers = questions::ask(hypervisor, &[path.to_owned()], "echo there")?;
    let mut answers = answers.into_iter();
    Ok(answers.any(|(_, answer)| answer.as_deref() == Some(questions::GONE)))
}

/// Lets libvirt look into the pool's directory: it doesn't know of a file that somebody made beside it, an overlay by
/// `qemu-img` say. A pool that is busy, with an upload or a volume that is being made, can't be looked into now.
///
/// Errors: libvirt stops a pool that it fails to refresh.
pub fn refresh(hypervisor: &dyn Hypervisor, pool: &str) -> Result<Refreshed> {
    match hypervisor.refresh_pool(pool) {
        Ok(()) => Ok(Refreshed::Yes),
        Err(error) if error.reason() == Reason::PoolBusy => Ok(Refreshed::Busy),
        // libvirt hasn't tried.
        Err(error) if error.stage() == Some("permission") => Err(error),
        Err(error) => Err(error.hint(format!(
            "libvirt stops a pool that it can't refresh: remove what it stumbles over (a broken image?), then virsh pool-start {}", crate::shell::quote(pool)
        ))),
    }
}

/// Whether libvirt has looked into a pool's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refreshed {
    /// It has.
    Yes,
    /// The pool was busy.
    Busy,
}

/// A domain with every path that its XML names.
#[derive(Debug, Clone)]
pub struct DomainFiles {
    /// The domain.
    pub instance: Instance,
    /// All paths in its XML, as written there: also those in places that nothing here reads (mirrors, external data
    /// files).
    pub mentions: BTreeSet<String>,
    /// What it will be at its next start, or when its saved memory goes on.
    pub later: Vec<(DomainInfo, BTreeSet<String>)>,
}

impl DomainFiles {
    /// From a listed domain; `host` is the host's name in the configuration.
    pub fn new(host: &str, listed: libvirt::ListedDomain) -> Result<Self> {
        let mentions = mentions(&listed.xml);
        Ok(DomainFiles {
            instance: Instance::from_domain(host, listed)?,
            mentions,
            later: Vec::new(),
        })
    }

    /// Takes note of what it will be.
    pub fn define(&mut self, definition: &Definition) -> Result<()> {
        let info = DomainInfo::parse(&definition.xml)?;
        if definition.when == When::NextStart {
            self.instance.define(info.clone());
        }
        self.later.push((info, mentions(&definition.xml)));
        Ok(())
    }

    /// What it is, and what it will be.
    fn all(&self) -> impl Iterator<Item = (&DomainInfo, &BTreeSet<String>)> {
        let later = self.later.iter().map(|(info, mentions)| (info, mentions));
        std::iter::once((&self.instance.info, &self.mentions)).chain(later)
    }
}

/// The paths in a domain's XML: attributes' values and elements' texts.
fn mentions(xml: &str) -> BTreeSet<String> {
    let words = xml.split(['\'', '"', '<', '>']);
    let paths = words.filter(|word| word.starts_with('/'));
    paths.map(str::to_owned).collect()
}

/// A volume and the pool it is in.
#[derive(Debug, Clone)]
pub struct PoolVolume {
    /// The pool's name.
    pub pool: String,
    /// The volume.
    pub info: VolumeInfo,
}

/// One host's domains and volumes at one moment.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Every domain, whoever's.
    pub domains: Vec<DomainFiles>,
    /// Every volume of our own pool.
    pub volumes: Vec<VolumeInfo>,
    /// The volumes of the host's other pools.
    pub elsewhere: Vec<PoolVolume>,
    /// Other pools that can't be looked into.
    pub blind: Vec<String>,
    /// What the disks that no pool shows are backed by, as far as it could be read.
    pub chains: Chains,
    /// Which files paths of one name lead to.
    pub identities: Identities,
    /// Our own pool's name.
    pub pool: String,
}

impl Files {
    /// Reads all of it. `host` is the host's name in the configuration.
    ///
    /// Errors: anything that can't be read, our own pool being inactive among it; another pool that can't be read
    /// is only noted.
    pub fn read(host: &str, hypervisor: &dyn Hypervisor, pool: &str) -> Result<Self> {
        let mut files = Files {
            pool: pool.to_owned(),
            ..Files::default()
        };
        files.volumes = read_volumes(hypervisor, pool)?;
        for other in hypervisor.list_pools()?.into_iter().filter(|p| p != pool) {
            match read_other_pool(hypervisor, &other)? {
                Some(volumes) => {
                    let in_pool = |info| PoolVolume {
                        pool: other.clone(),
                        info,
                    };
                    files.elsewhere.extend(volumes.into_iter().map(in_pool));
                }
                None => files.blind.push(other),
            }
        }
        // Domains last: one that takes a volume meanwhile is seen.
        let (listed, definitions) = parallel::both(
            || hypervisor.list_domains(),
            || hypervisor.list_definitions(),
        );
        files.domains = parallel::map(listed?, parallel::processors(), |listed| {
            DomainFiles::new(host, listed)
        })
        .into_iter()
        .collect::<Result<_>>()?;
        for definition in definitions? {
            let of_it = |one: &&mut DomainFiles| one.instance.domain == definition.domain;
            // One that has come since is seen the next time.
            if let Some(domain) = files.domains.iter_mut().find(of_it) {
                domain.define(&definition)?;
            }
        }
        files.chains = hidden::read_chains(hypervisor, &files)?;
        files.identities = same::read(hypervisor, &files)?;
        Ok(files)
    }

    /// Like [`read`](Self::read), after a [`refresh`] of every active pool. Only for when something that others may
    /// use is about to go.
    pub fn read_fresh(host: &str, hypervisor: &dyn Hypervisor, pool: &str) -> Result<Self> {
        let mut busy = Vec::new();
        for name in hypervisor.list_pools()? {
            if name != pool {
                let found = blind_where_unreadable(&name, hypervisor.find_pool(&name))?;
                if found.is_none_or(|found| !found.active) {
                    continue;
                }
            }
            if refresh(hypervisor, &name)? == Refreshed::Busy {
                busy.push(name);
            }
        }
        let mut files = Self::read(host, hypervisor, pool)?;
        files.blind.extend(busy);
        Ok(files)
    }

    /// The domain of that name.
    pub fn domain(&self, name: &str) -> Option<&Instance> {
        let found = self
            .domains
            .iter()
            .find(|domain| domain.instance.domain.name == name);
        found.map(|domain| &domain.instance)
    }

    /// The volume of our own pool of that name.
    pub fn volume(&self, name: &str) -> Option<&VolumeInfo> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// The volume of that name in any pool that could be read.
    pub fn volume_in(&self, pool: &str, name: &str) -> Option<&VolumeInfo> {
        if pool == self.pool {
            return self.volume(name);
        }
        let mut elsewhere = self.elsewhere.iter();
        let found = elsewhere.find(|other| other.pool == pool && other.info.name == name);
        found.map(|other| &other.info)
    }

    /// Who uses the file at `path`, as far as can be seen, for people: domains that name it, and volumes and disks that
    /// are backed by it.
    pub fn seen_users_of(&self, path: &str) -> Vec<String> {
        self.users(path, None)
    }

    /// Who uses the file at `path`, or might: where nobody is seen to, disks that are backed by nobody can see what.
    pub fn users_of(&self, path: &str) -> Vec<String> {
        let mut users = self.seen_users_of(path);
        if users.is_empty() {
            users.extend(self.unread_disks(None).iter().map(perhaps));
        }
        users
    }

    /// Who else uses a file of this domain's, or might, for people.
    pub fn others_using(&self, path: &str, domain: &str) -> Vec<String> {
        let mut users = self.others_seen_using(path, domain);
        if users.is_empty() {
            users.extend(self.unread_disks(Some(domain)).iter().map(perhaps));
        }
        users
    }

    /// Who else uses a file of this domain's, as far as can be seen, for people.
    pub fn others_seen_using(&self, path: &str, domain: &str) -> Vec<String> {
        self.users(path, Some(domain))
    }

    /// The disks of domains (but for one) that are off and in no pool, whose backing files couldn't be read: they may be
    /// clones of anything.
    pub fn unread_disks(&self, except: Option<&str>) -> Vec<HiddenDisk> {
        let mut disks = hidden::hidden_disks(self);
        disks.retain(|disk| {
            !self.chains.contains_key(&disk.path) && except != Some(disk.domain.as_str())
        });
        disks
    }

    /// Who uses a base image, or might: also whatever can't be seen from here.
    pub fn users_of_base(&self, path: &str) -> Vec<String> {
        let mut users = self.users(path, None);
        if users.is_empty() {
            users.extend(self.doubts());
        }
        users
    }

    /// Whether something that names the file `backing` means, or may mean, the one at `path`: by that path or another one
    /// (through a symbolic link, say) with the same file name, unless that is surely another file.
    pub fn is_named_by(&self, path: &str, backing: &str) -> bool {
        let alike = file_name(backing) == file_name(path);
        backing == path || (alike && !self.is_another(path, backing))
    }

    /// Whether the file at `other` is surely not the one at `path`: both are volumes, made at different times, or, where
    /// that isn't known, written at different times. Paths alone don't tell: two pools may see one directory, through a
    /// link or a mount.
    fn is_another(&self, path: &str, other: &str) -> bool {
        if let Some(one) = same::are_one(&self.identities, path, other) {
            return !one;
        }
        let differ = |ours: &VolumeInfo, theirs: &VolumeInfo| {
            let born = ours.born.zip(theirs.born);
            let times = born.or(ours.modified.zip(theirs.modified));
            times.is_some_and(|(ours, theirs)| ours != theirs)
        };
        let at = |path| self.all_volumes().filter(move |info| info.path == path);
        at(other).next().is_some()
            && at(path).next().is_some()
            && at(path).all(|ours| at(other).all(|theirs| differ(ours, theirs)))
    }

    /// The volumes of every pool that could be read.
    fn all_volumes(&self) -> impl Iterator<Item = &VolumeInfo> {
        let elsewhere = self.elsewhere.iter().map(|other| &other.info);
        self.volumes.iter().chain(elsewhere)
    }

    fn users(&self, path: &str, except: Option<&str>) -> Vec<String> {
        let mut users = Vec::new();
        let quoted = escaped(path);
        for domain in &self.domains {
            let info = &domain.instance.info;
            if except == Some(info.name.as_str()) {
                continue;
            }
            let uses = |(info, mentions): (&DomainInfo, &BTreeSet<String>)| {
                let mut disks = info.disks.iter();
                disks.any(|disk| self.has(disk, path)) || mentions.contains(&quoted)
            };
            if domain.all().any(uses) {
                users.push(format!("domain {}", info.name));
            }
        }
        let all = self.volumes.iter().map(|info| (&self.pool, info));
        let others = self.elsewhere.iter().map(|v| (&v.pool, &v.info));
        for (pool, info) in all.chain(others) {
            let backing = info.backing.as_ref();
            let backed = backing.is_some_and(|b| self.is_named_by(path, &b.path));
            if backed && *pool == self.pool {
                users.push(format!("volume {}", info.name));
            } else if backed {
                users.push(format!("volume {} of pool {pool}", info.name));
            }
        }
        for disk in hidden::hidden_disks(self) {
            let chain = self.chains.get(&disk.path).into_iter().flatten();
            let mut names = chain.filter(|p| self.is_named_by(path, p));
            if except != Some(disk.domain.as_str())
                && let Some(backing) = names.next()
            {
                users.push(format!("{disk} (it is backed by {backing})"));
            }
        }
        users
    }

    fn has(&self, disk: &DiskInfo, path: &str) -> bool {
        let is_path = |source: &DiskSource| match source {
            DiskSource::Path(named) => self.is_named_by(path, named),
            DiskSource::Volume { pool, volume } => match self.path_in(pool, volume) {
                Some(known) => self.is_named_by(path, known),
                // A pool that can't be seen into: the name is all there is to go by.
                None => volume == file_name(path),
            },
            DiskSource::Other => false,
        };
        disk.backing.iter().chain([&disk.source]).any(is_path)
    }

    /// The path of a volume of any pool that could be read.
    fn path_in(&self, pool: &str, volume: &str) -> Option<&str> {
        self.volume_in(pool, volume).map(|info| info.path.as_str())
    }

    /// What may be backed by a base image without showing it: pools that can't be looked into, and disks of
    /// domains that are off whose files are in no pool and couldn't be read.
    fn doubts(&self) -> Vec<String> {
        let pools = self
            .blind
            .iter()
            .map(|pool| format!("whatever is in pool {pool}, which can't be looked into now"));
        let disks = self.unread_disks(None);
        pools.chain(disks.iter().map(perhaps)).collect()
    }
}

fn perhaps(disk: &HiddenDisk) -> String {
    format!("perhaps {disk}")
}

fn read_volumes(hypervisor: &dyn Hypervisor, pool: &str) -> Result<Vec<VolumeInfo>> {
    let names = hypervisor.list_volumes(pool)?;
    let read = parallel::ask(names, CALLS_AT_ONCE, |name| {
        let xml = hypervisor.find_volume_xml(pool, &name)?;
        xml.map(|xml| VolumeInfo::parse(&xml)).transpose()
    });
    read.into_iter().filter_map(Result::transpose).collect()
}

/// The volumes of a pool that isn't ours; `None` where it can't be looked into.
fn read_other_pool(hypervisor: &dyn Hypervisor, pool: &str) -> Result<Option<Vec<VolumeInfo>>> {
    let read = hypervisor.find_pool(pool).and_then(|found| match found {
        // Undefined since it was listed.
        None => Ok(Some(Vec::new())),
        Some(found) if !found.active => Ok(None),
        Some(_) => read_volumes(hypervisor, pool).map(Some),
    });
    blind_where_unreadable(pool, read)
}

/// `None` instead of libvirt's own failure with a pool that isn't ours: one whose type the daemon has no driver for
/// fails in every call. A lost connection stays an error.
fn blind_where_unreadable<T>(pool: &str, read: Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(error) if matches!(error.reason(), Reason::LibvirtError | Reason::PoolBusy) => {
            log::debug!("pool {pool} can't be read: {error}");
            Ok(None)
        }
        read => read,
    }
}

/// The part of a path after its last slash.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A path as libvirt writes it in XML.
fn escaped(path: &str) -> String {
    path.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
        .replace('"', "&quot;")
}

#[cfg(test)]
#[path = "inventory/tests.rs"]
pub(crate) mod tests;
