//! Collecting what nobody needs: every host is read, what to delete is decided by pure functions, and each deletion
//! is judged again right before it happens.
//!
//! Any doubt means "keep", with the reason recorded. See docs/gc.md.

mod clock;
pub mod inventory;
pub mod keep;
pub mod plan;
mod sweep;

use std::time::Duration;

use crate::config::Image;
use crate::error::{Class, Error, Reason, Result};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::parallel;
use crate::sharing::{is_used_by, read_others};
use inventory::HostView;
use keep::KeepList;
use plan::{Decision, Kind, Rules, Target};

pub use clock::Clock;
pub use sweep::sweep_host;

/// What a run may collect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Expired instances, those not on the keep list, and volumes without a domain.
    pub instances: bool,
    /// Unfinished base images.
    pub unfinished: bool,
    /// Unused base images that the configuration doesn't want any more.
    pub images: bool,
}

/// What to collect, and how carefully.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Which kinds of things.
    pub scope: Scope,
    /// The desired state, if the caller has one.
    pub keep: Option<&'a KeepList>,
    /// Nothing younger goes.
    pub min_age: Duration,
    /// Sweep the hosts that could be read even where others couldn't.
    pub partial: bool,
    /// That a host couldn't be read is of class Transient, whatever the cause: nothing was decided about it, and a
    /// later run of the same kind may see it. Else the error keeps its own class.
    pub is_repeated: bool,
    /// Decide, and delete nothing.
    pub dry_run: bool,
    /// The images of every provider in the configuration file: pools may be shared between providers.
    pub images: &'a [Image],
    /// The provider's hosts that this run leaves out.
    pub left_out: Vec<String>,
}

/// One thing, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The host.
    pub host: String,
    /// Why it was looked at.
    pub kind: Kind,
    /// The instance's name, for an instance and for the volumes of one.
    pub instance: Option<String>,
    /// The volume's name, for a volume.
    pub volume: Option<String>,
    /// Why it goes, or why it stays.
    pub reason: String,
    /// Whether it goes.
    pub goes: bool,
    /// Whether it is gone.
    pub deleted: bool,
    /// Whether it stays only for now: somebody else is at work on it.
    pub busy: bool,
    /// What else is worth telling of what went or stayed with it.
    pub notes: Vec<String>,
}

/// What a run found and did.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Everything that was deleted or is to be deleted, and what was kept for a reason, host by host.
    pub items: Vec<Item>,
    /// What failed.
    pub errors: Vec<Error>,
    /// Each host, and whether it could be read in full.
    pub hosts: Vec<(String, bool)>,
    /// One line for each entry of the keep list that names nothing.
    pub unmatched: Vec<String>,
}

/// Reads the hosts, decides, and deletes.
pub fn collect(hosts: &[&HostSession], request: &Request<'_>) -> Result<Outcome> {
    let (mut views, mut outcome) = read_for(request, hosts, false)?;
    let mut decisions = decide(&views, &outcome, request);
    if decisions.iter().any(Decision::takes_a_base) {
        // What others may use goes only by a look into the directories: in the plan, too, so that it is the same as
        // what will be done.
        (views, outcome) = read_for(request, hosts, true)?;
        decisions = decide(&views, &outcome, request);
    }
    if !request.left_out.is_empty() {
        heed_others(hosts, &views, &mut decisions)?;
    }
    if !outcome.errors.is_empty() && !request.partial {
        outcome.errors.push(
            Error::transient(
                Reason::PartialFailure,
                "nothing was deleted, as not every host could be read in full",
            )
            .hint("--partial sweeps the hosts that can be read"),
        );
        return Ok(outcome);
    }
    if let Some(keep) = request.keep
        && let Err(error) = ensure_keeps_any(keep, &views, &decisions)
    {
        outcome.errors.push(error);
        return Ok(outcome);
    }
    outcome.unmatched = unmatched(&views, request);
    let rules = rules(&views, &outcome, request);
    if request.dry_run {
        outcome.items = decisions.iter().flat_map(Decision::items).collect();
        return Ok(outcome);
    }
    let swept = parallel::map(hosts.to_vec(), hosts.len(), |host| {
        let Some(view) = views.iter().find(|view| view.host == host.name()) else {
            return (Vec::new(), Vec::new());
        };
        // Who is this very machine under another name shows nothing new.
        let is_other = |other: &&HostSession| {
            let mut views = views.iter();
            let found = views.find(|view| view.host == other.name());
            found.is_none_or(|found| !found.is_same_machine(view))
        };
        let others: Vec<&HostSession> = hosts.iter().copied().filter(is_other).collect();
        let own: Vec<Decision> = decisions
            .iter()
            .filter(|decision| decision.host == view.host)
            .cloned()
            .collect();
        sweep_host(host, &others, view, own, &rules)
    });
    for (items, errors) in swept {
        outcome.items.extend(items);
        outcome.errors.extend(errors);
    }
    Ok(outcome)
}

/// Keeps leftovers that belong to an instance of a host that isn't in this run, but sees the same files.
fn heed_others(
    hosts: &[&HostSession],
    views: &[HostView],
    decisions: &mut [Decision],
) -> Result<()> {
    let going = |decision: &&mut Decision| {
        decision.verdict.is_ok() && matches!(decision.target, Target::Leftover { .. })
    };
    let mut going = decisions.iter_mut().filter(going).peekable();
    let (Some(first), Some(_)) = (hosts.first(), going.peek()) else {
        return Ok(());
    };
    let known: Vec<&str> = hosts.iter().map(|host| host.name()).collect();
    let others = read_others(first, &known);
    first.cancels().work.check()?;
    for decision in going {
        let Target::Leftover { name, .. } = &decision.target else {
            continue;
        };
        let Some(view) = views.iter().find(|view| view.host == decision.host) else {
            continue;
        };
        let Some(seed) = view.files.volume(&name.seed_volume()) else {
            continue;
        };
        let overlay = view.files.volume(&name.overlay_volume());
        // One that can't be asked: what may be shared is kept by now, and the rest is the host's own.
        let mut answers = others
            .iter()
            .filter_map(|other| Some((&other.host, other.files.as_ref().ok()?)));
        let user = answers.find(|(_, files)| is_used_by(files, view.shared, seed, name, overlay));
        if let Some((host, _)) = user {
            decision.verdict = Err(plan::shared_by(host));
        }
    }
    Ok(())
}

/// Whether the keep list can be meant: of the instances of ours, it must name one, or nothing goes for want of that.
fn ensure_keeps_any(keep: &KeepList, views: &[HostView], decisions: &[Decision]) -> Result<()> {
    let instances = views
        .iter()
        .flat_map(|view| view.files.domains.iter())
        .map(|domain| &domain.instance)
        .filter(|instance| instance.metadata().is_some());
    let going: Vec<String> = decisions
        .iter()
        .filter(|decision| decision.kind == Kind::Unlisted && decision.verdict.is_ok())
        .flat_map(Decision::items)
        .filter_map(|item| Some(format!("{} on {}", item.instance?, item.host)))
        .collect();
    keep.ensure_keeps_any(instances, &going)
}

/// The keep list's entries that name nothing on the hosts that were read.
fn unmatched(views: &[HostView], request: &Request<'_>) -> Vec<String> {
    let domains = views.iter().flat_map(|view| &view.files.domains);
    let ours: Vec<&Instance> = domains
        .map(|domain| &domain.instance)
        .filter(|instance| instance.metadata().is_some() || instance.is_in_doubt())
        .collect();
    let known: Vec<&str> = views.iter().map(|view| view.host.as_str()).collect();
    let told = request.keep.map(|keep| keep.unmatched(&ours, &known));
    told.unwrap_or_default()
}

fn rules<'a>(views: &[HostView], read: &Outcome, request: &Request<'a>) -> Rules<'a> {
    let failed = read.hosts.iter().filter(|(_, is_read)| !is_read);
    let failed = failed.map(|(host, _)| host.clone());
    Rules {
        scope: request.scope,
        keep: request.keep,
        min_age: request.min_age,
        images: request.images,
        unread: failed.chain(request.left_out.iter().cloned()).collect(),
        kept: plan::kept(views, request.keep),
    }
}

fn decide(views: &[HostView], read: &Outcome, request: &Request<'_>) -> Vec<Decision> {
    if !read.errors.is_empty() && !request.partial {
        return Vec::new();
    }
    plan::plan(views, &rules(views, read, request), jiff::Timestamp::now())
}

/// Reads all hosts, with errors of the class that the request wants.
fn read_for(
    request: &Request<'_>,
    hosts: &[&HostSession],
    fresh: bool,
) -> Result<(Vec<HostView>, Outcome)> {
    let (views, mut outcome) = read_hosts(hosts, fresh)?;
    if request.is_repeated {
        let errors = outcome.errors.into_iter();
        let errors = errors.map(|error| error.with_class(Class::Transient));
        outcome.errors = errors.collect();
    }
    Ok((views, outcome))
}

/// Reads all hosts at once; `fresh` as in [`inventory::read`]. Each that can't be read in full has an error, of the
/// class of its cause.
pub fn read_hosts(hosts: &[&HostSession], fresh: bool) -> Result<(Vec<HostView>, Outcome)> {
    let mut outcome = Outcome::default();
    let mut views = Vec::new();
    let read = parallel::map(hosts.to_vec(), hosts.len(), |host| {
        inventory::read(host, fresh).map_err(|error| error.on_host(host.name()))
    });
    for (host, result) in hosts.iter().zip(read) {
        outcome.hosts.push((host.name().to_owned(), result.is_ok()));
        match result {
            Ok(view) => views.push(view),
            Err(error) if matches!(error.class(), Class::Interrupted(_)) => return Err(error),
            Err(error) => outcome.errors.push(error),
        }
    }
    Ok((views, outcome))
}
