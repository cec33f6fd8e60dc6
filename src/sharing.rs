//! Pools that several hosts see: whether one may be, and whether another host has the instance whose volumes are about
//! to go.

mod storage;

use jiff::SignedDuration;

use crate::error::{Error, Reason, Result};
use crate::facts;
use crate::host::HostSession;
use crate::instance::Instance;
use crate::inventory::Files;
use crate::libvirt::{self, DomainRef, Hypervisor};
use crate::name::InstanceName;
use crate::parallel;
use crate::xml::pool::PoolInfo;
use crate::xml::volume::VolumeInfo;

/// Whether a pool is on storage that other hosts see, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// It is the host's own.
    #[default]
    Own,
    /// It is, or may be, on a network file system, or in what the host exports by one.
    Perhaps,
}

/// File systems count as written at another time from here on: some keep no fractions of a second, FAT only even seconds.
const ANOTHER_TIME: SignedDuration = SignedDuration::from_secs(2);

/// Whether other hosts may see the pool's files: its type says so, or its file system, or the host exports them by NFS, or
/// nobody can be asked.
pub fn sharing(hypervisor: &dyn Hypervisor, pool: &PoolInfo) -> Result<Sharing> {
    if pool.kind == "netfs" {
        return Ok(Sharing::Perhaps);
    }
    let Some(path) = &pool.path else {
        return Ok(Sharing::Perhaps);
    };
    let answer = hypervisor.host_command(&storage::question(path))?;
    Ok(storage::sharing_of(&answer.unwrap_or_default()))
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
    let asked = ask_others(host, known, |other, hypervisor| {
        Files::read(other.name(), hypervisor, other.pool())
    });
    let other = |(host, files)| Other { host, files };
    asked.into_iter().map(other).collect()
}

/// What each of the provider's hosts answers, except this one and those `known` already.
fn ask_others<T: Send>(
    host: &HostSession,
    known: &[&str],
    ask: impl Fn(&HostSession, &dyn Hypervisor) -> Result<T> + Sync,
) -> Vec<(String, Result<T>)> {
    let mut others = host.others();
    others.retain(|other| !known.contains(&other.name()));
    let count = others.len();
    parallel::map(others, count, |other| {
        let answer = other
            .connect()
            .and_then(|hypervisor| ask(&other, &*hypervisor));
        let answer = answer.map_err(|error| error.on_host(other.name()));
        (other.name().to_owned(), answer)
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

/// Whether another host has an instance that stands here, or uses its volumes: there is a domain of the same UUID (somebody
/// migrated it, and its definition stayed here), or one with its files.
///
/// Two hosts may have an instance of one name each, on network file systems that aren't the same: then they have seeds that
/// differ. On the host's own file system only the very same seed counts, as in [`is_used_by`]. Disks there that nobody can
/// look into don't count: nothing of ours would ever go while any such VM is off on any host. Pure.
pub fn is_had_by(
    files: &Files,
    shared: Sharing,
    domain: &DomainRef,
    name: &InstanceName,
    seed: Option<&VolumeInfo>,
    overlay: Option<&VolumeInfo>,
) -> bool {
    if shared == Sharing::Own {
        return seed.is_some_and(|seed| is_used_by(files, shared, seed, name, overlay));
    }
    let mut domains = files.domains.iter();
    if domains.any(|other| other.instance.domain.uuid == domain.uuid) {
        return true;
    }
    let theirs = seed.and_then(|seed| files.volume(&seed.name));
    if let (Some(seed), Some(theirs)) = (seed, theirs)
        && is_another(seed, theirs)
    {
        return false;
    }
    let mut volumes = seed.into_iter().chain(overlay);
    volumes.any(|volume| !files.seen_users_of(&volume.path).is_empty())
}

/// Whether two hosts show files of one name that surely aren't one file.
fn is_another(ours: &VolumeInfo, theirs: &VolumeInfo) -> bool {
    let times = ours.modified.zip(theirs.modified);
    let apart = times.map(|(ours, theirs)| ours.duration_since(theirs).abs());
    ours.capacity != theirs.capacity || apart.is_some_and(|apart| apart >= ANOTHER_TIME)
}

/// Makes sure that no other host of the provider has the instance whose volumes stand here without a domain, before they
/// are taken for leftovers.
///
/// Errors: [`Reason::InDoubt`] where one has it, and (Transient) where one can't tell and the pool may be shared.
pub fn ensure_nobody_has(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    pool: &libvirt::ListedPool,
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
    let shared = shared?;
    let judged = judge(&others, shared, |files| {
        is_used_by(files, shared, seed, name, overlay)
    });
    let error = match judged {
        Verdict::Nobodys => return Ok(()),
        Verdict::On(other) => in_use_on(name, other)
            .hint(format!("the instance is hosts/{other}/domains/{name}")),
        Verdict::Unknown(other, error) => Error::transient(
            Reason::InDoubt,
            format!("volumes of {name} are there without a domain, and host {other}, which may share the pool and have it, can't be asked: they were left alone"),
        )
        .because(error)
        .hint(when_it_answers(other, error)),
    };
    Err(error.on_host(host.name()))
}

/// Makes sure that no other host of the provider has an instance's volumes, which are about to go with its domain here.
/// Where the pool is the host's own nobody else is asked: that is the ordinary case, and shall be quick.
///
/// Errors: as those of [`ensure_nobody_has`]; but an instance that runs here runs nowhere else, and needs no host that can't
/// be asked.
pub fn ensure_nobody_else_has(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    pool: &PoolInfo,
    instance: &Instance,
    name: &InstanceName,
    volumes: &[VolumeInfo],
) -> Result<()> {
    if !host.has_others() {
        return Ok(());
    }
    let shared = sharing(hypervisor, pool)?;
    if shared == Sharing::Own {
        return Ok(());
    }
    let domain = &instance.domain;
    let others = read_other_machines(host, hypervisor, instance)?;
    host.cancels().work.check()?;
    let volume = |name: String| volumes.iter().find(|volume| volume.name == name);
    let (seed, overlay) = (volume(name.seed_volume()), volume(name.overlay_volume()));
    let judged = judge(&others, shared, |files| {
        is_had_by(files, shared, domain, name, seed, overlay)
    });
    let error = match judged {
        Verdict::Nobodys => return Ok(()),
        Verdict::On(other) => in_use_on(name, other).hint(by_hand(&others, other, name)),
        Verdict::Unknown(..) if instance.state.runs() => return Ok(()),
        Verdict::Unknown(other, error) => Error::transient(
            Reason::InDoubt,
            format!("the pool of {name} may be shared with host {other}, which can't be asked whether it has the instance, too: nothing was touched"),
        )
        .because(error)
        .hint(when_it_answers(other, error))
        .hint(format!("{}'s own is a pool whose file system its shell says to be a local one, and which it doesn't export (docs/hypervisor-setup.md)", host.name())),
    };
    Err(error.on_host(host.name()))
}

/// When to try again after `other` couldn't say.
fn when_it_answers(other: &str, error: &Error) -> String {
    match error.reason() {
        Reason::PoolNotFound | Reason::PoolNotActive => {
            format!(
                "run it again when the pool on {other} is there (virsh pool-list --all), or {other} is out of the providers file"
            )
        }
        _ => format!("run it again when {other} can be asked, or is out of the providers file"),
    }
}

/// What to do about an instance that two hosts have, or whose volumes another domain uses.
fn by_hand(others: &[Other], on: &str, name: &InstanceName) -> String {
    let mut files = others.iter().filter(|other| other.host == on);
    let files = files.find_map(|other| other.files.as_ref().ok());
    if files.is_some_and(|files| files.domain(name.as_str()).is_some()) {
        return format!(
            "whichever of the two domains nobody needs, on its own host: virsh undefine --nvram --managed-save --snapshots-metadata {name} (which deletes no volumes); then run it again"
        );
    }
    format!(
        "a domain of another name has them on {on}: take them off it (virsh detach-disk), or leave the instance where it is"
    )
}

/// A host's name, and its files with the machine's own UUID, where that was asked for.
type Asked = (String, Result<(Files, Option<String>)>);

/// The provider's other hosts without those that are this very machine under another name: each shows the domain, too, and
/// as running where it runs here. Boards without a UUID of their own have their vendor's, all the same one.
fn read_other_machines(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    instance: &Instance,
) -> Result<Vec<Other>> {
    let ours = (&instance.domain.uuid, instance.state.is_active());
    let asked: Vec<Asked> = ask_others(host, &[], |other, hypervisor| {
        let files = Files::read(other.name(), hypervisor, other.pool())?;
        let mut domains = files.domains.iter();
        let shows_it =
            domains.any(|one| (&one.instance.domain.uuid, one.instance.state.is_active()) == ours);
        let machine = if shows_it {
            facts::machine(hypervisor)?
        } else {
            None
        };
        Ok((files, machine))
    });
    let is_asked = |(_, answer): &Asked| matches!(answer, Ok((_, Some(_))));
    let own = if asked.iter().any(is_asked) {
        facts::machine(hypervisor)?
    } else {
        None
    };
    let other = |(host, answer): Asked| {
        let is_own = matches!(&answer, Ok((_, machine)) if machine.is_some() && *machine == own);
        (!is_own).then(|| Other {
            host,
            files: answer.map(|(files, _)| files),
        })
    };
    Ok(asked.into_iter().filter_map(other).collect())
}

/// Who else has an instance or its volumes.
enum Verdict<'a> {
    /// No host that could.
    Nobodys,
    /// This one.
    On(&'a str),
    /// Perhaps this one, which can't be asked, for that reason.
    Unknown(&'a str, &'a Error),
}

/// What is known for sure goes first; a host that can't be asked counts only where the pool may be shared.
fn judge(others: &[Other], shared: Sharing, has: impl Fn(&Files) -> bool) -> Verdict<'_> {
    let mut unasked = None;
    for Other { host, files } in others {
        match files {
            Ok(files) if has(files) => return Verdict::On(host),
            Ok(_) => {}
            Err(error) => unasked = unasked.or(Some((host, error))),
        }
    }
    match unasked.filter(|_| shared == Sharing::Perhaps) {
        Some((host, error)) => Verdict::Unknown(host, error),
        None => Verdict::Nobodys,
    }
}

fn in_use_on(name: &InstanceName, other: &str) -> Error {
    Error::permanent(
        Reason::InDoubt,
        format!(
            "the volumes of {name} are in use on host {other}, which shares the pool: they were left alone"
        ),
    )
}

#[cfg(test)]
mod tests;
