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
    let mut errors = show(context, outcome, args.dry_run, args.explain);
    if let Some(path) = &args.metrics {
        errors.extend(metrics::write(path, &text).err());
    }
    Ok(errors)
}

/// Prints what went, one line each; nothing where nothing did.
pub(super) fn show(
    context: &Context<'_>,
    mut outcome: Outcome,
    dry_run: bool,
    explain: bool,
) -> Vec<Error> {
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
    let errors = std::mem::take(&mut outcome.errors);
    let errors = print(
        context,
        Document {
            items: records,
            errors,
        },
        lines,
    );
    if !explain {
        // Not only on a terminal: its time never ends, so nobody would ever hear of it.
        let unreadable = outcome.items.iter().filter(|item| is_unreadable(item));
        for item in unreadable {
            let name = item.instance.as_deref().unwrap_or_default();
            context.ui.warn(&find::unreadable(&item.host, name));
        }
    }
    for item in &outcome.items {
        let name = item.instance.as_deref().unwrap_or_default();
        for note in &item.notes {
            context.ui.note(&format!("{}: {name}: {note}", item.host));
        }
    }
    if doubts > 0 && !explain {
        context.ui.note_on_terminal(&format!(
            "{doubts} more are in doubt, and were kept: add --explain"
        ));
    }
    errors
}

/// With what is gone, though nobody was told.
fn untold(error: Error, record: &SweptRecord) -> Error {
    if !record.is_deleted() {
        return error;
    }
    error.because(format!("deleted: {}", record.line().trim_end()))
}

/// Prints lines, or the document; what nobody was told of stands with the error that says so.
fn print(context: &Context<'_>, mut document: Document<SweptRecord>, lines: bool) -> Vec<Error> {
    if !lines {
        return context.ui.show_or(document, untold);
    }
    let printed = context.ui.sorted(&document.items).and_then(|records| {
        let lines: String = records.into_iter().map(SweptRecord::line).collect();
        context.ui.data(&lines)
    });
    if let Err(error) = printed {
        let error = document.items.iter().fold(error, untold);
        document.errors.push(error);
    }
    document.errors
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::plan::Kind;

    #[test]
    fn what_is_gone_is_told_where_it_cant_be_printed() {
        let record = |deleted| {
            SweptRecord::new(&Item {
                host: "nas1".to_owned(),
                kind: Kind::Expired,
                instance: Some("web1".to_owned()),
                volume: None,
                reason: "expired".to_owned(),
                goes: true,
                busy: false,
                deleted,
                notes: Vec::new(),
            })
        };
        let error = || Error::permanent(Reason::OutputFailed, "stdout can't be written");
        let told = untold(error(), &record(true));
        assert_eq!(told.causes(), ["deleted: nas1: instance web1: expired"]);
        assert_eq!(untold(error(), &record(false)), error());
    }
}
