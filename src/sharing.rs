//! Pools that several hosts see: whether one may be, and whether another host has the instance that volumes without a
//! domain belong to.

use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::inventory::Files;
use crate::libvirt::{self, Hypervisor};
use crate::name::InstanceName;
use crate::parallel;
use crate::shell;
use crate::xml::pool::PoolInfo;
use crate::xml::volume::VolumeInfo;

/// Whether a pool is on storage that other hosts see, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// It is the host's own.
    #[default]
    Own,
    /// It is, or may be, on a network file system.
    Perhaps,
}

/// Whether other hosts may see the pool's files: its type says so, or its file system, or nobody can be asked.
pub fn sharing(hypervisor: &dyn Hypervisor, pool: &PoolInfo) -> Result<Sharing> {
    if pool.kind == "netfs" {
        return Ok(Sharing::Perhaps);
    }
    let Some(path) = &pool.path else {
        return Ok(Sharing::Perhaps);
    };
    // stat(1) of coreutils: the file system's type in words.
    let command = format!("stat -f -c %T -- {}", shell::quote(path));
    let answer = hypervisor.host_command(&command)?.unwrap_or_default();
    Ok(sharing_of(answer.trim()))
}

/// Local file systems by the names that coreutils' `stat -f` has for them.
fn sharing_of(file_system: &str) -> Sharing {
    const LOCAL: [&str; 10] = [
        "ext2/ext3",
        "xfs",
        "btrfs",
        "zfs",
        "tmpfs",
        "overlayfs",
        "f2fs",
        "jfs",
        "reiserfs",
        "bcachefs",
    ];
    if LOCAL.contains(&file_system) {
        Sharing::Own
    } else {
        Sharing::Perhaps
    }
}

/// A host of the provider beside the one whose volumes are in question, and what stands on it.
pub struct Other {
    /// Its name in the configuration.
    pub host: String,
    /// Its domains and the volumes of its pool, or why it can't tell.
    pub files: Result<Files>,
}

/// Reads the provider's hosts except this one and those `known` already, all at once, over connections of their own.
/// Only for when something without a domain is about to go: that is rare, and nobody else waits for it.
pub fn read_others(host: &HostSession, known: &[&str]) -> Vec<Other> {
    let mut others = host.others();
    others.retain(|other| !known.contains(&other.name()));
    let count = others.len();
    parallel::map(others, count, |other| {
        let read = || {
            let hypervisor = other.connect()?;
            Files::read(other.name(), &*hypervisor, other.pool())
        };
        Other {
            host: other.name().to_owned(),
            files: read().map_err(|error| error.on_host(other.name())),
        }
    })
}

/// Whether another host uses what looks like leftovers here: it has a domain of the instance's name or one with its
/// files, and it sees the same seed. On storage that may be shared a seed of the same name counts as the same one, on
/// the host's own only one of the same size and time of writing (to the nanosecond). Pure.
pub fn is_used_by(
    files: &Files,
    shared: Sharing,
    seed: &VolumeInfo,
    name: &InstanceName,
    overlay: Option<&VolumeInfo>,
) -> bool {
    let named = |info: &VolumeInfo| !files.users_of(&info.path).is_empty();
    if shared == Sharing::Perhaps && (named(seed) || overlay.is_some_and(named)) {
        return true;
    }
    let Some(theirs) = files.volume(&seed.name) else {
        return false;
    };
    let same = (theirs.modified, theirs.capacity) == (seed.modified, seed.capacity);
    if shared == Sharing::Own && !same {
        return false;
    }
    files.domain(name.as_str()).is_some()
        || named(theirs)
        || files.volume(&name.overlay_volume()).is_some_and(named)
}

/// Makes sure that no other host of the provider has the instance whose volumes stand here without a domain, before they
/// are taken for leftovers.
///
/// Errors: [`Reason::InDoubt`] where one has it, and (Transient) where one can't tell and the pool may be shared.
pub fn ensure_nobody_has(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    pool: &libvirt::PoolInfo,
    name: &InstanceName,
    seed: &VolumeInfo,
    overlay: Option<&VolumeInfo>,
) -> Result<()> {
    if !host.has_others() {
        return Ok(());
    }
    let (others, shared) = parallel::both(
        || read_others(host, &[]),
        || sharing(hypervisor, &PoolInfo::parse(&pool.xml)?),
    );
    host.cancels().work.check()?;
    judge(&others, shared?, name, seed, overlay).map_err(|error| error.on_host(host.name()))
}

fn judge(
    others: &[Other],
    shared: Sharing,
    name: &InstanceName,
    seed: &VolumeInfo,
    overlay: Option<&VolumeInfo>,
) -> Result<()> {
    let mut unasked = None;
    for Other { host, files } in others {
        match files {
            Ok(files) if is_used_by(files, shared, seed, name, overlay) => {
                return Err(Error::permanent(
                    Reason::InDoubt,
                    format!("the volumes of {name} are in use on host {host}, which shares the pool: they were left alone"),
                )
                .hint(format!("the instance is hosts/{host}/domains/{name}")));
            }
            Ok(_) => {}
            Err(error) => unasked = unasked.or(Some((host, error))),
        }
    }
    let Some((host, error)) = unasked.filter(|_| shared == Sharing::Perhaps) else {
        return Ok(());
    };
    Err(Error::transient(
        Reason::InDoubt,
        format!("volumes of {name} are there without a domain, and host {host}, which may share the pool and have it, can't be asked: they were left alone"),
    )
    .because(error)
    .hint(format!("run it again when {host} can be reached")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;
    use crate::inventory::tests::{DIR, disk, domain, volume, written};

    #[test]
    fn only_a_known_local_file_system_is_the_hosts_own() {
        for name in ["ext2/ext3", "xfs", "btrfs", "zfs", "overlayfs"] {
            assert_eq!(sharing_of(name), Sharing::Own, "{name}");
        }
        for name in [
            "nfs",
            "smb2",
            "fuseblk",
            "ceph",
            "gfs/gfs2",
            "",
            "UNKNOWN (0x1)",
        ] {
            assert_eq!(sharing_of(name), Sharing::Perhaps, "{name}");
        }
    }

    fn seed(second: i64) -> VolumeInfo {
        let at = jiff::Timestamp::from_second(second).unwrap();
        written(volume("web-seed.iso"), at)
    }

    /// Another host: its seed of that name, if it sees one, and its domain.
    fn other(seed: Option<VolumeInfo>, name: &str, devices: &str) -> Files {
        Files {
            domains: vec![domain(name, "", devices)],
            volumes: seed.into_iter().chain([volume("web.qcow2")]).collect(),
            pool: "default".to_owned(),
            ..Files::default()
        }
    }

    #[test]
    fn anothers_instance_is_known_by_its_seed() {
        use Sharing::{Own, Perhaps};
        let name = InstanceName::new("web").unwrap();
        let its_disk = disk(&format!("{DIR}/web.qcow2"));
        let table = [
            ("the same seed", other(Some(seed(7)), "web", ""), Own, true),
            (
                "one of its own",
                other(Some(seed(8)), "web", ""),
                Own,
                false,
            ),
            (
                "by name only",
                other(Some(seed(8)), "web", ""),
                Perhaps,
                true,
            ),
            ("no seed", other(None, "web", ""), Own, false),
            ("no seed", other(None, "web", ""), Perhaps, false),
            ("renamed", other(Some(seed(7)), "x", &its_disk), Own, true),
            ("its own path", other(None, "x", &its_disk), Own, false),
            ("a shared path", other(None, "x", &its_disk), Perhaps, true),
            ("nobody", other(Some(seed(7)), "x", ""), Own, false),
            ("nobody", other(Some(seed(7)), "x", ""), Perhaps, false),
        ];
        for (about, files, shared, used) in table {
            let overlay = volume("web.qcow2");
            let found = is_used_by(&files, shared, &seed(7), &name, Some(&overlay));
            assert_eq!(found, used, "{about}, {shared:?}");
        }
    }

    #[test]
    fn a_host_that_cant_be_asked_is_in_doubt_only_where_the_pool_may_be_shared() {
        let name = InstanceName::new("web").unwrap();
        let down = |host: &str| Other {
            host: host.to_owned(),
            files: Err(Error::transient(Reason::ConnectFailed, "no route")),
        };
        let up = |host: &str, files| Other {
            host: host.to_owned(),
            files: Ok(files),
        };
        let judge = |others: &[Other], shared| judge(others, shared, &name, &seed(7), None);
        assert!(judge(&[down("nas2")], Sharing::Own).is_ok());
        let error = judge(&[down("nas2")], Sharing::Perhaps).unwrap_err();
        assert_eq!(error.class(), Class::Transient);
        assert!(error.message().contains("nas2"), "{error}");
        // What is known for sure goes first.
        let has = up("nas3", other(Some(seed(7)), "web", ""));
        let error = judge(&[down("nas2"), has], Sharing::Own).unwrap_err();
        assert_eq!(error.class(), Class::Permanent);
        assert!(
            error.hints()[0].contains("hosts/nas3/domains/web"),
            "{error}"
        );
        let free = up("nas3", other(None, "x", ""));
        assert!(judge(&[free], Sharing::Perhaps).is_ok());
    }
}
