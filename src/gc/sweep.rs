//! Deleting what was decided on one host. Each thing is looked at and judged again right before it goes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::inventory::{HostView, SeedView, read_seed, view_marker};
use super::plan::{Decision, Judge, Rules, Target, judge_instance};
use super::{Item, inventory};
use crate::awake::{Awake, boot_time};
use crate::delete::delete_instance;
use crate::error::{Class, Error, Reason, Result};
use crate::find;
use crate::host::HostSession;
use crate::image::identity::{MARKER_LIMIT, marker_volume};
use crate::image::remove::{Removal, remove, remove_claim};
use crate::instance::Instance;
use crate::inventory::Files;
use crate::leftover::overlay_fault;
use crate::libvirt::Hypervisor;
use crate::name::InstanceName;
use crate::seed::SeedMark;
use crate::sharing::Sharing;

/// A reading of the host's files still is "right before" for so long, or for as long as the reading itself took: on a
/// host of thousands of volumes its first half is that old when it ends.
const FRESH: Duration = Duration::from_secs(2);

/// So many calls without an answer, and it isn't one stuck VM but the host: the rest is left for the next run.
const MAX_TIMEOUTS: u32 = 3;

/// What became of one thing.
enum Done {
    /// These volumes are gone.
    Deleted,
    /// The instance is gone, and this is worth telling.
    DeletedInstance(Vec<String>),
    /// Somebody else had deleted it.
    Gone,
    /// It was kept after all.
    Kept(String),
    /// It was kept for now, as somebody else is at work on it.
    Busy(String),
}

/// Deletes what was decided to go on this host; what fails doesn't stop the rest. `hosts` are those of the run that may
/// share its pool.
pub fn sweep_host(
    host: &HostSession,
    hosts: &[&HostSession],
    view: &HostView,
    decisions: Vec<Decision>,
    rules: &Rules<'_>,
) -> (Vec<Item>, Vec<Error>) {
    let mut sweep = Sweep {
        host,
        hosts,
        view,
        rules,
        files: None,
    };
    let (mut items, mut errors) = (Vec::new(), Vec::new());
    let mut timeouts = 0;
    for decision in decisions {
        let mut shown = decision.items();
        if decision.verdict.is_err() {
            items.extend(shown);
            continue;
        }
        let done = host
            .cancels()
            .work
            .check()
            .and_then(|()| sweep.apply(&decision.target));
        match done {
            Ok(Done::Deleted) => shown.iter_mut().for_each(|item| item.deleted = true),
            Ok(Done::DeletedInstance(notes)) => {
                for item in &mut shown {
                    item.deleted = true;
                    item.notes.clone_from(&notes);
                }
            }
            Ok(Done::Gone) => shown.clear(),
            Ok(Done::Kept(why)) => keep(&mut shown, &why),
            Ok(Done::Busy(why)) => {
                keep(&mut shown, &why);
                for item in &mut shown {
                    item.busy = true;
                }
            }
            Err(error) if error.reason() == Reason::InDoubt => {
                keep(&mut shown, &format!("in doubt: {}", error.nearest()));
            }
            Err(error) => {
                timeouts += u32::from(error.reason() == Reason::TimedOut);
                let interrupted = matches!(error.class(), Class::Interrupted(_));
                let stop = interrupted || timeouts == MAX_TIMEOUTS || is_of_the_host(&error);
                errors.push(error.on_host(host.name()));
                items.extend(shown);
                if stop {
                    break;
                }
                continue;
            }
        }
        items.extend(shown);
    }
    (items, errors)
}

fn keep(items: &mut [Item], why: &str) {
    for item in items {
        item.goes = false;
        why.clone_into(&mut item.reason);
    }
}

/// Whether the next thing would meet the same: the host can't be reached any more.
fn is_of_the_host(error: &Error) -> bool {
    matches!(
        error.reason(),
        Reason::ResolveFailed
            | Reason::ConnectFailed
            | Reason::HandshakeFailed
            | Reason::HostKeyUnknown
            | Reason::HostKeyMismatch
            | Reason::HostKeyRevoked
            | Reason::CredentialsUnavailable
            | Reason::KeyUnusable
            | Reason::AuthenticationFailed
            | Reason::ForwardingRefused
            | Reason::SocketNotFound
            | Reason::LibvirtUnavailable
            | Reason::PermissionDenied
    )
}

struct Sweep<'a> {
    host: &'a HostSession,
    hosts: &'a [&'a HostSession],
    view: &'a HostView,
    rules: &'a Rules<'a>,
    /// The last reading of this host and, where the pool may be shared, of the others; and how long it is good.
    files: Option<(Duration, Vec<(String, Files)>)>,
}

impl Sweep<'_> {
    fn apply(&mut self, target: &Target) -> Result<Done> {
        // Dials again if the last deletion's time limit closed the connection.
        let hypervisor = self.host.connect()?;
        match target {
            Target::Instance { name, uuid } => self.delete_instance(&*hypervisor, name, uuid),
            Target::Leftover {
                name,
                volumes,
                mark,
            } => self.delete_leftover(&*hypervisor, name, volumes, mark.as_ref()),
            Target::Base {
                base, claim, ready, ..
            } => self.delete_base(&hypervisor, base, claim.as_deref(), *ready),
            Target::Claim { base, content, .. } => {
                let removed = remove_claim(self.host, &*hypervisor, base, content)?;
                Ok(if removed { Done::Deleted } else { Done::Gone })
            }
        }
    }

    /// This host's files first, then those of hosts that may share its pool; fresh by [`FRESH`]. What somebody made
    /// beside libvirt is looked for once.
    fn files(&mut self) -> Result<&[(String, Files)]> {
        let began = boot_time();
        let known = self.files.as_ref();
        if known.is_none_or(|(until, _)| began >= *until) {
            if self.files.is_none() {
                let hypervisor = self.host.connect()?;
                crate::inventory::refresh(&*hypervisor, self.host.pool())?;
            }
            let files = read_files(self.host, self.hosts, self.view.shared, false)?;
            let now = boot_time();
            self.files = Some((now + FRESH.max(now.saturating_sub(began)), files));
        }
        Ok(self.files.as_ref().map_or(&[], |(_, files)| files))
    }

    fn delete_instance(
        &mut self,
        hypervisor: &dyn Hypervisor,
        name: &str,
        uuid: &str,
    ) -> Result<Done> {
        let (host, rules, view) = (self.host, self.rules, self.view);
        let awake = Awake::from_now();
        let Some(((_, files), others)) = self.files()?.split_first() else {
            return Ok(Done::Gone);
        };
        let Some(found) = hypervisor.find_domain(name)? else {
            return Ok(Done::Gone);
        };
        if found.domain.uuid != uuid {
            return Ok(Done::Kept("another domain has its name now".to_owned()));
        }
        let instance = Instance::from_domain(host.name(), found)?;
        let instance = find::with_definition(hypervisor, instance)?;
        // Its mark again, by now: somebody may have extended its time, or taken it over.
        let judge = Judge::new(view, rules, Timestamp::now());
        let others: Vec<(&str, &Files)> = others
            .iter()
            .map(|(host, files)| (host.as_str(), files))
            .collect();
        match judge_instance(&judge, &instance, files, &others) {
            Some((_, Ok(_))) => {}
            Some((_, Err(why))) => return Ok(Done::Kept(why)),
            None => return Ok(Done::Kept("there is no reason any more".to_owned())),
        }
        let name = InstanceName::new(name)?;
        let deleted = delete_instance(host, hypervisor, &instance, &name, files, awake)
            .map_err(|error| error.while_doing(format!("deleting instance {name}")))?;
        Ok(Done::DeletedInstance(deleted.notes))
    }

    fn delete_leftover(
        &mut self,
        hypervisor: &dyn Hypervisor,
        name: &InstanceName,
        volumes: &[String],
        mark: Option<&SeedMark>,
    ) -> Result<Done> {
        let pool = self.host.pool();
        let awake = Awake::from_now();
        let all = self.files()?;
        let Some((_, files)) = all.first() else {
            return Ok(Done::Gone);
        };
        let seed = files.volume(&name.seed_volume());
        let (Some(seed), overlay) = (seed, files.volume(&name.overlay_volume())) else {
            return Ok(Done::Gone);
        };
        let fault = overlay.and_then(|overlay| overlay_fault(seed, overlay));
        if let Some(fault) = fault {
            return Ok(Done::Kept(format!("in doubt: {fault}")));
        }
        if overlay.is_some() && volumes.len() == 1 {
            return Ok(Done::Kept("it has an overlay now".to_owned()));
        }
        for info in overlay.into_iter().chain([seed]) {
            let users: Vec<String> = all
                .iter()
                .flat_map(|(_, files)| files.users_of(&info.path))
                .collect();
            if !users.is_empty() {
                return Ok(Done::Kept(format!("used by {}", users.join(", "))));
            }
        }
        let seed = seed.clone();
        // The quick questions last, before each deletion: nobody has the name, and the seed is the one judged.
        let mut any = false;
        for volume in volumes {
            if hypervisor.find_domain(name.as_str())?.is_some() {
                return Ok(Done::Kept("a domain has its name now".to_owned()));
            }
            let same = match (read_seed(hypervisor, pool, &seed)?, mark) {
                (Some(SeedView::Marked(now, _)), Some(mark)) => now == *mark,
                (Some(SeedView::Empty), None) => true,
                (None, _) => return Ok(Done::Gone),
                _ => false,
            };
            if !same {
                return Ok(Done::Kept("its seed has changed".to_owned()));
            }
            let deleted = awake
                .ensure()
                .and_then(|()| hypervisor.delete_volume(pool, volume));
            any |= deleted.map_err(|error| {
                error.while_doing(format!("deleting volume {volume} of pool {pool}"))
            })?;
        }
        Ok(if any { Done::Deleted } else { Done::Gone })
    }

    fn delete_base(
        &self,
        hypervisor: &Arc<dyn Hypervisor>,
        base: &str,
        claim: Option<&[u8]>,
        ready: bool,
    ) -> Result<Done> {
        let objection = || self.objection(&**hypervisor, base, ready);
        let removal = remove(self.host, hypervisor, base, claim, &objection)
            .map_err(|error| error.while_doing(format!("deleting base image {base}")))?;
        Ok(match removal {
            Removal::Removed(true) => Done::Deleted,
            Removal::Removed(false) => Done::Gone,
            Removal::Kept(why) => Done::Kept(why),
            Removal::Busy(why) => Done::Busy(why),
        })
    }

    /// Why a base image must stay, by a look at the host's directories right now.
    fn objection(
        &self,
        hypervisor: &dyn Hypervisor,
        base: &str,
        ready: bool,
    ) -> Result<Option<String>> {
        if !ready {
            let marker =
                hypervisor.download_volume(self.host.pool(), &marker_volume(base), MARKER_LIMIT)?;
            let finished = marker.is_some_and(|marker| {
                matches!(view_marker(&marker), inventory::MarkerView::Valid(_))
            });
            if finished && self.view.files.volume(base).is_some() {
                return Ok(Some("it was finished meanwhile".to_owned()));
            }
        }
        let all = read_files(self.host, self.hosts, self.view.shared, true)?;
        let Some(info) = all.first().and_then(|(_, files)| files.volume(base)) else {
            return Ok(None);
        };
        if self.view.files.volume(base).is_none() {
            return Ok(Some("a pull has made it meanwhile".to_owned()));
        }
        let users: Vec<String> = all
            .iter()
            .flat_map(|(_, files)| files.users_of_base(&info.path))
            .collect();
        Ok((!users.is_empty()).then(|| format!("used by {}", users.join(", "))))
    }
}

/// This host's files and, where its pool may be shared, those of all the run's hosts, with the hosts' names.
fn read_files(
    host: &HostSession,
    hosts: &[&HostSession],
    shared: Sharing,
    fresh: bool,
) -> Result<Vec<(String, Files)>> {
    let read = |host: &HostSession| {
        let hypervisor = host.connect()?;
        let files = if fresh {
            Files::read_fresh(host.name(), &*hypervisor, host.pool())
        } else {
            Files::read(host.name(), &*hypervisor, host.pool())
        };
        files.map(|files| (host.name().to_owned(), files))
    };
    let mut files = vec![read(host)?];
    if shared == Sharing::Perhaps {
        for other in hosts.iter().filter(|other| other.name() != host.name()) {
            files.push(read(other)?);
        }
    }
    Ok(files)
}
