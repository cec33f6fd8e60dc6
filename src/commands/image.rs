//! `egressctl image …`.

mod asked;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use asked::Asked;

use super::{Context, gc, show_each_host};
use crate::cli::{ImageCommand, ImageListArgs, ImageRmArgs, PruneArgs, PullArgs};
use crate::error::{Error, Reason, Result};
use crate::gc::inventory::HostView;
use crate::gc::plan::{self, Base, BaseState, Claimed, Decision, Kind, Rules, Target};
use crate::gc::{Outcome, Request, Scope, collect, read_hosts, sweep_host};
use crate::host::HostSession;
use crate::image::names::BaseName;
use crate::image::pull::{PullRequest, pull};
use crate::output::{Document, ImageRecord, PullBars, PulledRecord, SweptRecord};
use crate::sharing::Sharing;
use crate::{parallel, placement};

/// What the image commands may delete.
const IMAGES_ONLY: Scope = Scope {
    instances: false,
    unfinished: true,
    images: true,
};

pub(super) fn run(command: &ImageCommand, context: &Context<'_>) -> Result<Vec<Error>> {
    match command {
        ImageCommand::Pull(args) => run_pull(args, context),
        ImageCommand::List(args) => run_list(args, context),
        ImageCommand::Prune(args) => run_prune(args, context),
        ImageCommand::Rm(args) => run_rm(args, context),
    }
}

fn run_pull(args: &PullArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<PulledRecord>()?;
    let hosts = context.sessions(&placement::zones(&context.provider, &args.zone)?);
    let image = placement::image(&context.provider, Some(&args.image))?;
    let bars = PullBars::new(context.ui, &image.key);
    let request = PullRequest {
        image: &image,
        disk_limit: None,
        extra_room: 0,
        policy: args.pull.into(),
    };
    let results = pull(&request, &hosts, &bars, &context.cancels.work);
    let (mut items, mut failed) = (Vec::new(), Vec::new());
    for (host, result) in hosts.iter().zip(results) {
        match result {
            Ok(pulled) => items.push(PulledRecord::new(host.name(), &image.key, &pulled)),
            Err(error) => failed.push((host.name(), error)),
        }
    }
    Ok(show_each_host(context.ui, failed, |errors| {
        context.ui.show(Document { items, errors })
    }))
}

fn run_list(args: &ImageListArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<ImageRecord>()?;
    let hosts = context.sessions(&placement::zones(&context.provider, &args.zone)?);
    let (views, found) = read_hosts(&hosts, false)?;
    let now = Timestamp::now();
    let mut document = Document {
        items: Vec::new(),
        errors: found.errors,
    };
    for view in &views {
        for base in plan::bases(view, &context.all_images, now) {
            let instances = instances_on(view, &base);
            document
                .items
                .push(ImageRecord::new(&view.host, &base, instances, now));
        }
    }
    Ok(context.ui.show(document))
}

/// The domains that run on this base image: their disk is an overlay on it.
fn instances_on(view: &HostView, base: &Base<'_>) -> Vec<String> {
    let overlays = view.files.volumes.iter().filter(|volume| {
        let backing = volume.backing.as_ref();
        backing.is_some_and(|backing| view.files.is_named_by(&base.volume.path, &backing.path))
    });
    let paths: BTreeSet<&str> = overlays.map(|volume| volume.path.as_str()).collect();
    view.files
        .domains
        .iter()
        .map(|domain| &domain.instance)
        .filter(|instance| instance.info.paths().any(|path| paths.contains(path)))
        .map(|instance| instance.domain.name.clone())
        .collect()
}

fn run_prune(args: &PruneArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<SweptRecord>()?;
    let hosts = context.sessions(&placement::zones(&context.provider, &args.zone)?);
    let request = Request {
        scope: IMAGES_ONLY,
        keep: None,
        min_age: args.older_than,
        // A host's images are its own business; where its pool may be shared, all hosts must be seen.
        partial: true,
        is_repeated: false,
        dry_run: args.dry_run,
        images: &context.all_images,
        left_out: context.left_out(&hosts),
    };
    let outcome = collect(&hosts, &request)?;
    Ok(gc::show(context, outcome, args.dry_run, args.explain))
}

fn run_rm(args: &ImageRmArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<SweptRecord>()?;
    let asked = Asked::new(&args.image)?;
    let hosts = context.sessions(&placement::zones(&context.provider, &args.zone)?);
    let (views, mut outcome) = read_hosts(&hosts, false)?;
    let failed = outcome.hosts.iter().filter(|(_, is_read)| !is_read);
    let failed = failed.map(|(host, _)| host.clone());
    let rules = Rules {
        scope: IMAGES_ONLY,
        keep: None,
        min_age: Duration::ZERO,
        images: &context.all_images,
        unread: failed.chain(context.left_out(&hosts)).collect(),
        kept: BTreeSet::new(),
    };
    let now = Timestamp::now();
    let bases = views.iter().flat_map(|view| {
        let host = hosts.iter().find(|host| host.name() == view.host);
        let bases = plan::bases(view, &context.all_images, now);
        bases
            .into_iter()
            .filter_map(move |base| Some((view, host?, base)))
    });
    let all_seen = outcome.errors.is_empty();
    let meant = match asked.choose(bases.collect(), |(_, _, base)| base, all_seen) {
        Ok(meant) => meant,
        Err(error) => {
            outcome.errors.push(error);
            return Ok(gc::show(context, outcome, false, false));
        }
    };
    let doomed = doomed(&meant, context, &mut outcome);
    sweep(&hosts, context, doomed, &rules, &mut outcome);
    if meant.is_empty() && all_seen {
        match ensure_known(&asked, context) {
            Ok(()) => {
                let absent = format!("{}: already absent", asked.shown());
                context.ui.note(&absent);
            }
            Err(error) => outcome.errors.push(error),
        }
    }
    Ok(gc::show(context, outcome, false, false))
}

/// What of the images that were meant is to go; the rest is told.
fn doomed<'a>(
    meant: &[(&'a HostView, &&'a HostSession, Base<'_>)],
    context: &Context<'_>,
    outcome: &mut Outcome,
) -> Vec<(&'a HostView, &'a HostSession, Decision)> {
    let is_operators = |base: &Base<'_>| base.state == BaseState::Operator;
    let has_ours = meant.iter().any(|(_, _, base)| !is_operators(base));
    let mut doomed = Vec::new();
    for (view, host, base) in meant {
        match removal(&view.host, base) {
            Ok(decision) => doomed.push((*view, **host, decision)),
            // What there is of ours goes all the same, and then nothing has failed.
            Err(error) if is_operators(base) && has_ours => {
                let left = format!("{}: {}", host.name(), error.message());
                context.ui.note(&left);
            }
            Err(error) => outcome.errors.push(error.on_host(host.name())),
        }
    }
    doomed
}

/// Deletes what was asked for, on all hosts at once where that can be.
fn sweep(
    hosts: &[&HostSession],
    context: &Context<'_>,
    doomed: Vec<(&HostView, &HostSession, Decision)>,
    rules: &Rules<'_>,
    outcome: &mut Outcome,
) {
    // Hosts that see one file would take each other's claim for a pull's.
    let shared = |(view, ..): &(&HostView, &HostSession, Decision)| view.shared == Sharing::Perhaps;
    let (threads, hosts) = if doomed.iter().any(shared) {
        // Whoever may see the files may use them, asked for or not.
        (1, context.hosts.iter().collect())
    } else {
        (doomed.len(), hosts.to_vec())
    };
    let swept = parallel::map(doomed, threads, |(view, host, decision)| {
        (host, sweep_host(host, &hosts, view, vec![decision], rules))
    });
    for (host, (items, errors)) in swept {
        let stays = items.iter().filter(|item| !item.goes);
        outcome.errors.extend(stays.map(|item| {
            let volume = item.volume.as_deref().unwrap_or_default();
            let error = if item.busy { busy } else { in_use };
            error(&item.reason, volume).on_host(host.name())
        }));
        outcome.items.extend(items);
        outcome.errors.extend(errors);
    }
}

/// The deletion that was asked for by name.
fn removal(host: &str, base: &Base<'_>) -> Result<Decision> {
    let volume = &base.volume.name;
    let claim = match &base.claim {
        Claimed::Free => None,
        Claimed::Dead(content) => Some(content.to_vec()),
        Claimed::Busy(why) => return Err(busy(why, volume)),
        Claimed::Doubt(why) => return Err(in_use(why, volume)),
    };
    match base.state {
        // By whatever name it was meant.
        BaseState::Operator => Err(Error::permanent(
            Reason::ForeignDomain,
            format!("volume {volume} is the operator's cache: it was left alone"),
        )),
        BaseState::Ready if base.marker.is_none_or(|m| m.pulled().is_none()) => {
            Err(Error::permanent(
                Reason::InDoubt,
                format!("volume {volume} has a marker that isn't egressctl's: it was left alone"),
            ))
        }
        BaseState::Ready | BaseState::Pulling | BaseState::Unfinished => Ok(Decision {
            host: host.to_owned(),
            kind: Kind::Image,
            target: Target::Base {
                base: volume.clone(),
                shown: volume.clone(),
                claim,
                ready: base.state == BaseState::Ready,
            },
            verdict: Ok("as asked".to_owned()),
        }),
    }
}

fn in_use(why: &str, volume: &str) -> Error {
    Error::permanent(
        Reason::InDoubt,
        format!("volume {volume} was left alone: {why}"),
    )
}

fn busy(why: &str, volume: &str) -> Error {
    Error::transient(
        Reason::PoolBusy,
        format!("volume {volume} was left alone: {why}"),
    )
    .hint("run it again when that is over")
}

/// What is nowhere was deleted before, if it has a name that an image could have.
fn ensure_known(asked: &Asked<'_>, context: &Context<'_>) -> Result<()> {
    let name = match asked {
        Asked::Url { url, .. } => url.expose(),
        Asked::Name(name) => name,
    };
    let is_key = context.all_images.iter().any(|image| image.key == name);
    if is_key || BaseName::parse(name).is_some() {
        return Ok(());
    }
    placement::image(&context.provider, Some(name)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ImageFormat;
    use crate::error::Class;
    use crate::image::identity::Marker;
    use crate::image::ready::Sizes;
    use crate::inventory::tests::volume;

    #[test]
    fn what_a_pull_holds_can_be_removed_later_and_what_is_in_doubt_never() {
        let volume = volume("base-a-0123456789abcdef.qcow2");
        let marker = Marker {
            pulled_at: Some("2026-01-02T03:04:05.678Z".into()),
            ..Marker::default()
        };
        let removal = |state, claim| {
            let marker = (state == BaseState::Ready).then_some(&marker);
            let base = Base {
                volume: &volume,
                key: "a".into(),
                id: None,
                marker,
                sizes: Sizes::of(marker, &volume, ImageFormat::Qcow2),
                state,
                claim,
                wanted: true,
                users: Vec::new(),
            };
            removal("nas1", &base).map(|decision| match decision.target {
                Target::Base { claim, .. } => claim,
                _ => panic!("it is a base"),
            })
        };
        for state in [BaseState::Ready, BaseState::Pulling] {
            let error = removal(state, Claimed::Busy("it is being pulled".into())).unwrap_err();
            let told = (error.class(), error.reason());
            assert_eq!(told, (Class::Transient, Reason::PoolBusy), "{state:?}");
            let error = removal(state, Claimed::Doubt("in doubt".into())).unwrap_err();
            let told = (error.class(), error.reason());
            assert_eq!(told, (Class::Permanent, Reason::InDoubt), "{state:?}");
        }
        for state in [BaseState::Ready, BaseState::Unfinished] {
            let dead = removal(state, Claimed::Dead(b"word 1")).unwrap();
            assert_eq!(dead.as_deref(), Some(&b"word 1"[..]));
            assert_eq!(removal(state, Claimed::Free).unwrap(), None);
        }
    }
}
