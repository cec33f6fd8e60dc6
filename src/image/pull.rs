//! Making an image ready on many hosts from one download.
//!
//! Each host is asked first what it has. Those without the image claim it and are fed from one download; where
//! another process holds the claim, this one waits and uses what that one pulls, or takes over when it dies.

use std::sync::Arc;

use jiff::Timestamp;

use super::approach::Approach;
use super::claim::{self, Claim, Tried, Watch, try_claim};
use super::fan_out::FanOut;
use super::identify::{ensure_still_published, identify};
use super::identity::Identity;
use super::newest::make_newest;
use super::policy::{PullPolicy, look};
use super::ready::{BaseImage, find_ready};
use super::source::Pending;
use super::store::{Ground, usable_pool};
use crate::cancel::Cancel;
use crate::config::Image;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::libvirt::Hypervisor;
use crate::parallel::{self, panicked};
use crate::units;

/// What happens during a pull, for whoever shows it.
#[derive(Debug)]
pub enum PullEvent<'a> {
    /// Something to know that stops nothing.
    Warning(&'a str),
    /// Another process pulls the image to this host; comes again as long as it does.
    Waiting(&'a str),
    /// Bytes begin to flow to this host; their number, where it is known.
    Started(&'a str, Option<u64>),
    /// So many more bytes are with this host.
    Sent(&'a str, u64),
    /// This host is done, well or not.
    Ended(&'a str),
}

/// Who shows what happens.
pub trait PullObserver: Sync {
    /// Takes one event; called from several threads.
    fn event(&self, event: PullEvent<'_>);
}

/// What to pull.
pub struct PullRequest<'a> {
    /// The image.
    pub image: &'a Image,
    /// Refuse an image whose virtual size in bytes is larger: the disk asked for is this small.
    pub disk_limit: Option<u64>,
    /// Bytes needed in the pool besides the image.
    pub extra_room: u64,
    /// When the server is asked.
    pub policy: PullPolicy,
}

/// The result for one host.
#[derive(Debug, Clone)]
pub struct Pulled {
    /// The image there.
    pub base: BaseImage,
    /// Whether this run brought it.
    pub fresh: bool,
}

enum Prepared {
    Ready(BaseImage),
    Claimed(Claim, Ground),
    Held,
}

/// Makes the image ready on every host; one result for each, in the hosts' order.
pub fn pull(
    request: &PullRequest<'_>,
    hosts: &[&HostSession],
    observer: &dyn PullObserver,
    cancel: &Cancel,
) -> Vec<Result<Pulled>> {
    let looked = parallel::map(hosts.to_vec(), hosts.len(), |host| {
        look(host, request.image, request.policy).map_err(|error| error.on_host(host.name()))
    });
    let lacking: Vec<&HostSession> = hosts
        .iter()
        .zip(&looked)
        .filter(|(_, kept)| matches!(kept, Ok(None)))
        .map(|(host, _)| *host)
        .collect();
    let mut fetched = fetch(request, &lacking, observer, cancel).into_iter();
    looked
        .into_iter()
        .map(|kept| match kept.transpose() {
            Some(kept) => kept.map(|base| Pulled { base, fresh: false }),
            None => fetched.next().unwrap_or_else(|| Err(panicked())),
        })
        .collect()
}

/// What a pull would bring.
#[derive(Debug, Clone)]
pub struct Foreseen {
    /// Its content, by which its volume is called.
    pub identity: Identity,
    /// The disk's size as a guest sees it, in bytes, where the first bytes tell.
    pub virtual_size: Option<u64>,
    /// Bytes that its volume takes at least.
    pub at_least: u64,
}

/// Begins the download and looks at its first bytes, as [`pull`] does, and stores nothing.
///
/// Errors: those that [`pull`] would have had up to there.
pub fn foresee(
    request: &PullRequest<'_>,
    observer: &dyn PullObserver,
    cancel: &Cancel,
) -> Result<Foreseen> {
    let asked = Timestamp::now();
    let (identity, pending) = identify(request.image, observer, cancel)?;
    let fan_out = FanOut {
        request,
        identity: &identity,
        asked,
        observer,
        cancel,
    };
    let (incoming, ..) = fan_out.begin(&pending)?;
    Ok(Foreseen {
        virtual_size: incoming.virtual_size,
        at_least: incoming.length.unwrap_or(incoming.at_least),
        identity,
    })
}

/// Pulls the image to hosts that lack it, or may have an old one.
fn fetch(
    request: &PullRequest<'_>,
    hosts: &[&HostSession],
    observer: &dyn PullObserver,
    cancel: &Cancel,
) -> Vec<Result<Pulled>> {
    if hosts.is_empty() {
        return Vec::new();
    }
    let asked = Timestamp::now();
    let (identity, pending) = match identify(request.image, observer, cancel) {
        Ok(identified) => identified,
        Err(error) => return hosts.iter().map(|_| Err(error.clone())).collect(),
    };
    let prepared = parallel::map(hosts.to_vec(), hosts.len(), |host| {
        prepare(host, &identity, &pending)
    });
    let fan_out = FanOut {
        request,
        identity: &identity,
        asked,
        observer,
        cancel,
    };
    let had_it: Vec<bool> = prepared
        .iter()
        .map(|state| matches!(state, Ok(Prepared::Ready(_))))
        .collect();
    let results = finish(&fan_out, hosts, prepared, &pending);
    // Where it was ready at first, that was done beside the others' download.
    let results = hosts.iter().zip(results).zip(had_it).collect();
    parallel::map(results, hosts.len(), |((host, result), had_it)| {
        if had_it {
            return result;
        }
        let pulled = result.or_else(|error| others(host, &identity, error))?;
        keep_newest(&fan_out, host, pulled)
    })
}

/// What was found or brought is what the server has now: the next create is to take that.
fn keep_newest(fan_out: &FanOut<'_>, host: &HostSession, pulled: Pulled) -> Result<Pulled> {
    make_newest(host, fan_out.request.image, &pulled.base, fan_out.asked)
        .map_err(|error| error.on_host(host.name()))?;
    Ok(pulled)
}

/// Where another process was faster, what it has made: on storage that hosts share, libvirt may have learnt of it only now.
fn others(host: &HostSession, identity: &Identity, error: Error) -> Result<Pulled> {
    if error.reason() != Reason::PoolBusy {
        return Err(error);
    }
    let look = |hypervisor: Arc<dyn Hypervisor>| find_ready(&*hypervisor, host.pool(), identity);
    match host.connect().and_then(look) {
        Ok(Some(base)) => Ok(Pulled { base, fresh: false }),
        _ => Err(error),
    }
}

fn prepare(host: &HostSession, identity: &Identity, pending: &Pending<'_>) -> Result<Prepared> {
    let hypervisor = host.connect()?;
    let look = || find_ready(&*hypervisor, host.pool(), identity);
    let (ready, pool) = parallel::both(look, || usable_pool(host, &*hypervisor));
    pool?;
    if let Some(base) = ready? {
        claim::sweep(host, &*hypervisor, &identity.base_volume())?;
        return Ok(Prepared::Ready(base));
    }
    // Far away, the upload's connections take as long as all that comes before they are needed.
    let approach = Approach::begin(&hypervisor, host.pool());
    let base = identity.base_volume();
    // Whoever held the claim before may have finished between the two looks.
    let look_again = || {
        let seen = parallel::both(look, || Ground::look(host, &*hypervisor, &base, approach));
        if matches!(seen, (Ok(None), Ok(_))) {
            pending.ask();
        }
        seen
    };
    let (claim, ready, ground) = match try_claim(host, &hypervisor, &base, look_again)? {
        Tried::Held => return Ok(Prepared::Held),
        Tried::Claimed(claim, (ready, ground)) => (claim, ready, ground),
    };
    match ready.and_then(|ready| Ok((ready, ground?))) {
        Ok((None, ground)) => Ok(Prepared::Claimed(claim, ground)),
        Ok((Some(base), _)) => {
            claim.release()?;
            Ok(Prepared::Ready(base))
        }
        Err(error) => Err(claim.give_up(host, error)),
    }
}

/// Feeds the hosts that have a claim, and waits for those where another process has it; where it is ready, it is made the
/// newest meanwhile. One result for each, in order.
fn finish(
    fan_out: &FanOut<'_>,
    hosts: &[&HostSession],
    prepared: Vec<Result<Prepared>>,
    pending: &Pending<'_>,
) -> Vec<Result<Pulled>> {
    let mut results: Vec<Option<Result<Pulled>>> = hosts.iter().map(|_| None).collect();
    let mut claimants = Vec::new();
    let mut unfed = Vec::new();
    for (index, (state, host)) in prepared.into_iter().zip(hosts).enumerate() {
        match state {
            Ok(Prepared::Ready(base)) => unfed.push((index, (*host, Some(base)))),
            Ok(Prepared::Claimed(claim, ground)) => {
                claimants.push((index, *host, claim, ground));
            }
            Ok(Prepared::Held) => unfed.push((index, (*host, None))),
            Err(error) => results[index] = Some(Err(error.on_host(host.name()))),
        }
    }
    std::thread::scope(|scope| {
        let (mut jobs, mut later) = (Vec::new(), Vec::new());
        for (index, host) in unfed {
            match parallel::try_with(scope, host, |host| without_feed(fan_out, host)) {
                Ok(job) => jobs.push((index, job)),
                // The system gives no thread. The others aren't to wait for this one.
                Err((host, _)) => later.push((index, host)),
            }
        }
        for (index, result) in fan_out.feed(claimants, pending) {
            results[index] = Some(result);
        }
        for (index, host) in later {
            results[index] = Some(without_feed(fan_out, host));
        }
        for (index, job) in jobs {
            results[index] = Some(job.join().unwrap_or_else(|_| Err(panicked())));
        }
    });
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|| Err(panicked())))
        .collect()
}

/// What is done for a host that this run doesn't feed at first: one that has the image, or that another process feeds.
fn without_feed(
    fan_out: &FanOut<'_>,
    (host, ready): (&HostSession, Option<BaseImage>),
) -> Result<Pulled> {
    match ready {
        Some(base) => keep_newest(fan_out, host, Pulled { base, fresh: false }),
        None => wait_for_other(fan_out, host),
    }
}

/// Waits until the process that holds the host's claim is done or dead; then uses its image, or takes over.
fn wait_for_other(fan_out: &FanOut<'_>, host: &HostSession) -> Result<Pulled> {
    fan_out.observer.event(PullEvent::Waiting(host.name()));
    let base_volume = fan_out.identity.base_volume();
    let mut watch = Watch::new();
    loop {
        let hypervisor = host.connect()?;
        let free = watch
            .is_free(host, &*hypervisor, &base_volume)
            .map_err(|error| error.on_host(host.name()))?;
        if !free {
            log::debug!(
                "{}: another pull, silent for {:?}",
                host.name(),
                watch.silent_for()
            );
            fan_out.observer.event(PullEvent::Waiting(host.name()));
            continue;
        }
        let image = fan_out.request.image;
        let pending = Pending::new(image.url.expose(), fan_out.cancel);
        match prepare(host, fan_out.identity, &pending)? {
            Prepared::Ready(base) => return Ok(Pulled { base, fresh: false }),
            Prepared::Held => watch = Watch::new(),
            Prepared::Claimed(claim, ground) => {
                let settled = claim.settles(&host.cancels().work);
                let settled = settled.and_then(|is_ours| {
                    if is_ours {
                        ensure_still_published(image, fan_out.identity, fan_out.cancel)?;
                    }
                    Ok(is_ours)
                });
                match settled {
                    Ok(true) => {}
                    Ok(false) => {
                        watch = Watch::new();
                        continue;
                    }
                    Err(error) => return Err(claim.give_up(host, error)),
                }
                let fed = fan_out.feed(vec![(0, host, claim, ground)], &pending);
                return fed
                    .into_iter()
                    .next()
                    .map_or_else(|| Err(panicked()), |(_, r)| r);
            }
        }
    }
}

/// Refuses a disk that is smaller than the image's virtual size.
pub fn ensure_disk_fits(disk: u64, virtual_size: u64) -> Result<()> {
    if disk >= virtual_size {
        return Ok(());
    }
    Err(Error::permanent(
        Reason::DiskTooSmall,
        format!(
            "a disk of {} is smaller than the image's {}",
            units::bytes(disk),
            units::bytes(virtual_size)
        ),
    )
    .hint(format!(
        "--disk-size {} or more",
        virtual_size.div_ceil(1 << 30)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_must_hold_the_image() {
        ensure_disk_fits(1 << 30, 1 << 30).unwrap();
        let error = ensure_disk_fits(1 << 30, (1 << 30) + 1).unwrap_err();
        assert_eq!(error.hints(), ["--disk-size 2 or more"]);
    }
}
