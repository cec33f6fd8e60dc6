//! `egressctl create`.

mod adopted;
mod input;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use jiff::Timestamp;

use super::{Context, show_each_host};
use crate::cli::{CreateArgs, Format, WaitArg};
use crate::create::plan::{Outlook, plan};
use crate::create::wait::{CloudInitResult, WaitFor, wait};
use crate::create::{CreateSpec, Ensured, Readied, ensure, make_image_ready};
use crate::error::{Error, Reason, Result};
use crate::find;
use crate::host::HostSession;
use crate::instance::Instance;
use crate::output::{Document, InstanceRecord, PlanRecord, PullBars, WaitLine};
use crate::parallel::{self, lock};
use request::{Job, Placed, Request};

/// Creates under way at once, over all hosts.
const AT_ONCE: usize = 8;
/// Instances waited for at once.
const WAITS_AT_ONCE: usize = 64;

pub(super) fn run(args: &CreateArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    if args.dry_run {
        context.ui.ensure_columns::<PlanRecord>()?;
    } else {
        context.ui.ensure_columns::<InstanceRecord>()?;
    }
    let request = Request::new(args, context)?;
    let jobs = match request.place(args.zone.as_deref(), context)? {
        Placed::Jobs(jobs) => jobs,
        Placed::Nowhere(errors) if args.dry_run => {
            return Ok(show_plans(context, Vec::new(), errors));
        }
        Placed::Nowhere(errors) => return Ok(show(context, Vec::new(), errors)),
    };
    if args.dry_run {
        let bars = PullBars::new(context.ui, request.image_key());
        let outlook = Outlook::default();
        let plans = parallel::map(jobs, AT_ONCE, |job| {
            let planned = plan(job.host, &job.spec, &outlook, &bars);
            (job.host.name(), planned)
        });
        let (mut records, mut failed) = (Vec::new(), Vec::new());
        for (host, planned) in plans {
            match planned {
                Ok(plan) => records.push(PlanRecord::new(plan)),
                Err(error) => failed.push((host, error)),
            }
        }
        return Ok(show_each_host(context.ui, failed, |errors| {
            show_plans(context, records, errors)
        }));
    }
    let bars = PullBars::new(context.ui, request.image_key());
    let warned = Warned::default();
    let (jobs, mut errors) =
        with_image(jobs, &bars, &|host, text| warned.warn(context, host, text));
    let made = parallel::map(jobs, AT_ONCE, |job| {
        let warn = |text: &str| warned.warn(context, job.host, text);
        let made = ensure(job.host, &job.spec, &bars, &warn);
        if let Ok(made) = &made {
            for note in adopted::not_applied(&job.spec, args.ttl.is_some(), &made.instance) {
                context.ui.note(&format!("{}: {note}", job.host.name()));
            }
        }
        made.map(|made| (job.host, made))
            .map_err(|error| error.on_host(job.host.name()))
    });
    let (made, failed) = part(made);
    errors.extend(failed);
    // Waiting is nothing but looking: they boot all together.
    let count = made.len().min(WAITS_AT_ONCE);
    let ready = parallel::map(made, count, |(host, made)| {
        when_ready(args, context, host, made)
    });
    let (records, failed): (Vec<_>, Vec<_>) = ready.into_iter().unzip();
    errors.extend(failed.into_iter().flatten());
    Ok(show(
        context,
        records.into_iter().flatten().collect(),
        errors,
    ))
}

/// Results and errors apart.
fn part<T>(results: Vec<Result<T>>) -> (Vec<T>, Vec<Error>) {
    let (mut good, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(one) => good.push(one),
            Err(error) => errors.push(error),
        }
    }
    (good, errors)
}

fn show(context: &Context<'_>, items: Vec<InstanceRecord>, errors: Vec<Error>) -> Vec<Error> {
    // Nobody was told of these instances: they are there, and stay.
    context
        .ui
        .show_or(Document { items, errors }, |error, item| {
            error.hint(format!(
                "{} is there, and stays: egressctl get {0}",
                item.id()
            ))
        })
}

fn show_plans(context: &Context<'_>, items: Vec<PlanRecord>, mut errors: Vec<Error>) -> Vec<Error> {
    if !matches!(context.ui.format(), Format::Table | Format::Wide) {
        return context.ui.show(Document { items, errors });
    }
    let printed = context.ui.sorted(&items).and_then(|items| {
        let texts: Vec<String> = items.into_iter().map(PlanRecord::text).collect();
        context.ui.data(&texts.join("\n"))
    });
    errors.extend(printed.err());
    errors
}

/// Makes the image ready for several instances first, once on each host, as each of them would pull it otherwise.
/// A host where that fails costs those that it lacks one error together.
fn with_image<'a>(
    jobs: Vec<Job<'a>>,
    bars: &PullBars<'_>,
    warn: &(dyn Fn(&HostSession, &str) + Sync),
) -> (Vec<Job<'a>>, Vec<Error>) {
    if jobs.len() < 2 {
        return (jobs, Vec::new());
    }
    let mut wanted: Vec<(&HostSession, Vec<&CreateSpec>)> = Vec::new();
    for job in &jobs {
        let same = |(host, _): &&mut (&HostSession, _)| host.name() == job.host.name();
        match wanted.iter_mut().find(same) {
            Some((_, specs)) => specs.push(&job.spec),
            None => wanted.push((job.host, vec![&job.spec])),
        }
    }
    let results = make_image_ready(&wanted, bars, warn);
    let (mut ready, mut errors) = (BTreeMap::new(), Vec::new());
    let mut there = BTreeSet::new();
    for ((host, _), Readied { base, there: names }) in wanted.iter().zip(results) {
        there.extend(names.into_iter().map(|name| (host.name(), name)));
        match base {
            Ok(base) => drop(ready.insert(host.name(), base)),
            Err(error) => errors.push(error.on_host(host.name())),
        }
    }
    let mut jobs = jobs;
    jobs.retain_mut(|job| {
        let host = job.host.name();
        if let Some(base) = ready.get(host) {
            job.spec.pulled.clone_from(base);
            return true;
        }
        there.contains(&(host, job.spec.name.clone()))
    });
    (jobs, errors)
}

/// Warnings, each once for a host.
#[derive(Default)]
struct Warned(Mutex<BTreeSet<String>>);

impl Warned {
    fn warn(&self, context: &Context<'_>, host: &HostSession, text: &str) {
        let text = format!("{}: {text}", host.name());
        let mut told = lock(&self.0);
        if told.insert(text.clone()) {
            context.ui.warn(&text);
        }
    }
}

/// The record of an instance that was made, once what was asked for is there; or, beside the error, as it was seen
/// last: it was kept, and whoever asked for it has to know its name. One that is gone has none.
fn when_ready(
    args: &CreateArgs,
    context: &Context<'_>,
    host: &HostSession,
    made: Ensured,
) -> (Option<InstanceRecord>, Option<Error>) {
    let mut instance = made.instance;
    let what = args.wait.map(|what| match what {
        WaitArg::Ip => WaitFor::Ip,
        WaitArg::Agent => WaitFor::Agent,
        WaitArg::CloudInit => WaitFor::CloudInit,
        WaitArg::Port(port) => WaitFor::Port(port),
    });
    let waited = match what {
        Some(what) => {
            let name = &instance.domain.name;
            let line = WaitLine::new(context.ui, host.name(), name, &what.to_string());
            let tell = |seen: &str| line.seen(seen);
            wait(host, &mut instance, what, args.timeout, &tell)
        }
        // Nobody has an address in its first moment, and an ARP table may remember an earlier one of its name.
        None if made.is_new => Ok(None),
        // It is there, whatever happens to the connection from now on: only its address may stay unknown.
        None => {
            instance = find::with_addresses(host, instance);
            Ok(None)
        }
    };
    let record = InstanceRecord::new(&instance, Timestamp::now());
    match waited {
        Ok(Some(result)) => {
            tell_result(context, &instance, result);
            (Some(record.with_cloud_init(result)), None)
        }
        Ok(None) => (Some(record), None),
        Err(error) if error.reason() == Reason::InstanceNotFound => {
            (None, Some(error.on_host(host.name())))
        }
        Err(error) => {
            let kept = kept(&instance.id(), made.is_new);
            (Some(record), Some(error.on_host(host.name()).hint(kept)))
        }
    }
}

/// What became of an instance that wasn't ready.
fn kept(id: &str, is_new: bool) -> String {
    if is_new {
        format!("it was made and kept as {id}")
    } else {
        format!("it was there already, and was kept: {id}")
    }
}

fn tell_result(context: &Context<'_>, instance: &Instance, result: CloudInitResult) {
    let name = &instance.domain.name;
    match result {
        CloudInitResult::Done => context.ui.note(&format!("{name}: cloud-init is done")),
        CloudInitResult::Degraded(count) => context.ui.warn(&format!(
            "{name}: cloud-init is done, degraded by {count} recoverable errors: \
             egressctl exec {} -- cloud-init status --long",
            instance.id()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_already_was_not_made() {
        assert!(kept("hosts/a/domains/b", true).starts_with("it was made"));
        let old = kept("hosts/a/domains/b", false);
        assert!(
            !old.contains("made") && old.contains("hosts/a/domains/b"),
            "{old}"
        );
    }
}
