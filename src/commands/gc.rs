//! `egressctl gc`, and what it shares with `image prune`.

use std::path::Path;
use std::time::Instant;

use super::Context;
use crate::cancel::Cancel;
use crate::cli::GcArgs;
use crate::error::{Error, Reason, Result};
use crate::find;
use crate::gc::keep::KeepList;
use crate::gc::{Item, Outcome, Request, Scope, collect, plan};
use crate::output::{Document, SweptRecord};
use crate::{input, metrics, placement};

/// The most that is read of a keep list, in bytes.
const KEEP_LIMIT: u64 = 64 << 20;

pub(super) fn run(args: &GcArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    let started = Instant::now();
    context.ui.ensure_columns::<SweptRecord>()?;
    if let Some(path) = &args.metrics {
        metrics::ensure_writable(path)?;
    }
    // Understood in full before any host is asked.
    let keep = args
        .keep
        .as_deref()
        .map(|path| read_keep_list(path, args.keep_none, &context.cancels.work))
        .transpose()?;
    let hosts = context.sessions(&placement::zones(&context.provider, &args.zone)?);
    let request = Request {
        scope: Scope {
            instances: true,
            unfinished: true,
            images: args.images,
        },
        keep: keep.as_ref(),
        min_age: args.min_age,
        partial: args.partial,
        is_repeated: true,
        dry_run: args.dry_run,
        images: &context.all_images,
        left_out: context.left_out(&hosts),
    };
    let outcome = collect(&hosts, &request)?;
    let now = jiff::Timestamp::now();
    let text = metrics::of_gc(&outcome, args.dry_run, started.elapsed(), now);
    if args.dry_run || args.explain {
        for line in &outcome.unmatched {
            context.ui.note(line);
        }
    }
    // First what was done: a disk that is full here must not hide what is gone there.
    let mut errors = show(context, outcome, args.dry_run, args.explain)?;
    if let Some(path) = &args.metrics {
        errors.extend(metrics::write(path, &text).err());
    }
    Ok(errors)
}

/// Prints what went, one line each; nothing where nothing did.
pub(super) fn show(
    context: &Context<'_>,
    outcome: Outcome,
    dry_run: bool,
    explain: bool,
) -> Result<Vec<Error>> {
    let doubts = outcome
        .items
        .iter()
        .filter(|item| !item.goes && item.reason.starts_with("in doubt"))
        .filter(|item| !is_unreadable(item))
        .count();
    // In lines, what was to go and didn't is told by its error.
    let lines = !context.ui.format_is_named();
    let records: Vec<SweptRecord> = outcome
        .items
        .iter()
        .filter(|item| {
            if item.goes {
                item.deleted || dry_run || !lines
            } else {
                explain
            }
        })
        .map(SweptRecord::new)
        .collect();
    if lines {
        let lines = context.ui.sorted(&records)?;
        let lines: String = lines.into_iter().map(SweptRecord::line).collect();
        context.ui.data(&lines)?;
    } else {
        context.ui.document(&Document {
            items: records,
            errors: outcome.errors.clone(),
        })?;
    }
    if !explain {
        // Not only on a terminal: its time never ends, so nobody would ever hear of it.
        let unreadable = outcome.items.iter().filter(|item| is_unreadable(item));
        for item in unreadable {
            let name = item.instance.as_deref().unwrap_or_default();
            context.ui.warn(&find::unreadable(&item.host, name));
        }
    }
    if doubts > 0 && !explain {
        context.ui.note_on_terminal(&format!(
            "{doubts} more are in doubt, and were kept: add --explain"
        ));
    }
    Ok(outcome.errors)
}

fn is_unreadable(item: &Item) -> bool {
    !item.goes && item.reason.starts_with(plan::MARK_UNREADABLE)
}

fn read_keep_list(path: &Path, may_be_empty: bool, cancel: &Cancel) -> Result<KeepList> {
    let source = format!("from {}", input::name(path));
    let failed = |error: std::io::Error| {
        Error::usage(
            Reason::BadArgument,
            format!("the keep list {source} can't be read: nothing was touched"),
        )
        .because(error)
    };
    let bytes = input::read(path, KEEP_LIMIT, cancel, failed)?;
    KeepList::parse(&source, &bytes, may_be_empty)
}
