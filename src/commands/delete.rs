//! `egressctl delete`.

use std::collections::BTreeSet;

use super::{Asked, Context, Stopped};
use crate::cli::DeleteArgs;
use crate::delete::{Act, Kept, Stays, delete};
use crate::error::{Error, Reason, Result};
use crate::find::{self, Managers};
use crate::host::HostSession;
use crate::name::{InstanceName, InstanceRef};
use crate::output::{DeletePlanRecord, DeletedRecord, Document};
use crate::shell;
use crate::{parallel, placement};

/// Deletions under way at once.
const AT_ONCE: usize = 8;

pub(super) fn run(args: &DeleteArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    if args.dry_run {
        context.ui.ensure_columns::<DeletePlanRecord>()?;
    } else {
        context.ui.ensure_columns::<DeletedRecord>()?;
    }
    // All names are understood before anything is touched.
    let wanted = args
        .names
        .iter()
        .map(|name| name.parse())
        .collect::<Result<Vec<InstanceRef>>>()?;
    let wanted = once_each(wanted, args.zone.as_deref(), context);
    if args.zone.is_some() {
        placement::zone(&context.provider, args.zone.as_deref())?;
    }
    for one in &wanted {
        context.hosts_of(one, args.zone.as_deref())?;
    }
    let wanted = without_second_names(wanted, args, context);
    let act = if args.dry_run {
        Act::DryRun
    } else {
        Act::Delete
    };
    let results = parallel::map(wanted, AT_ONCE, |one| delete_one(args, context, &one, act));
    let mut document = Document {
        items: Vec::new(),
        errors: Vec::new(),
    };
    for result in results {
        let failures = match result {
            Ok((record, failures)) => {
                document.items.extend(record);
                failures
            }
            Err(Stopped(errors)) => errors,
        };
        for error in failures {
            // A host that is down has one failure, however many names were looked for on it.
            if !document.errors.contains(&error) {
                document.errors.push(error);
            }
        }
    }
    if args.dry_run {
        let items = document
            .items
            .into_iter()
            .map(DeletePlanRecord::new)
            .collect();
        let errors = document.errors;
        return Ok(context.ui.show(Document { items, errors }));
    }
    Ok(context.ui.show_or(document, untold))
}

/// With what is gone, though nobody was told.
fn untold(error: Error, record: &DeletedRecord) -> Error {
    if record.deleted.is_empty() {
        return error;
    }
    let host = record.host.as_deref().unwrap_or_default();
    error.because(format!("{host}: deleted: {}", record.deleted.join(", ")))
}

/// Each instance once, however often and in whichever of its forms it is named: two deletions of one at the same
/// time would report it twice.
fn once_each(
    wanted: Vec<InstanceRef>,
    zone: Option<&str>,
    context: &Context<'_>,
) -> Vec<InstanceRef> {
    let only = match context.hosts.as_slice() {
        [only] => Some(only.name()),
        _ => None,
    };
    let mut seen = BTreeSet::new();
    let mut is_new = |one: &InstanceRef| {
        let host = one.host().or(zone).or(only);
        seen.insert((host.map(str::to_owned), one.name().clone()))
    };
    wanted.into_iter().filter(|one| is_new(one)).collect()
}

/// The same where a name stands beside an ID of that name: whether both are one instance, only the hosts know. A name
/// that can't be told, or stands on several hosts, stays, and fails by itself.
fn without_second_names(
    mut wanted: Vec<InstanceRef>,
    args: &DeleteArgs,
    context: &Context<'_>,
) -> Vec<InstanceRef> {
    if args.zone.is_some() || context.hosts.len() < 2 {
        return wanted;
    }
    let hosts: Vec<&HostSession> = context.hosts.iter().collect();
    let is_configured = |name: &str| hosts.iter().any(|host| host.name() == name);
    let plain: Vec<InstanceName> = wanted
        .iter()
        .filter(|one| one.host().is_none())
        .map(|one| one.name().clone())
        .collect();
    for name in plain {
        let same = wanted.iter().filter(|one| *one.name() == name);
        let in_ids: Vec<&str> = same.filter_map(InstanceRef::host).collect();
        if in_ids.is_empty() {
            continue;
        }
        let found = find::by_name(&hosts, name.as_str(), args.manager.into());
        match &found.instances[..] {
            _ if !found.errors.is_empty() => {}
            [only] if in_ids.contains(&only.host.as_str()) => {
                wanted.retain(|one| *one.name() != name || one.host().is_some());
            }
            // What a crash left of it is looked for on all hosts, so on those of the IDs, too.
            [] => wanted.retain(|one| {
                *one.name() != name || one.host().is_none_or(|host| !is_configured(host))
            }),
            _ => {}
        }
    }
    wanted
}

/// What became of one name, and an error for each host where that isn't known or something of that name was left alone.
/// No record where nothing was deleted and some host failed: "already absent" might be wrong.
fn delete_one(
    args: &DeleteArgs,
    context: &Context<'_>,
    wanted: &InstanceRef,
    act: Act,
) -> Asked<(Option<DeletedRecord>, Vec<Error>)> {
    let name = wanted.name();
    let managers: Managers = args.manager.into();
    let absent = || DeletedRecord {
        name: name.to_string(),
        host: None,
        deleted: Vec::new(),
        kept: Vec::new(),
        not_looked_at: false,
    };
    let Some(hosts) = context.hosts_of(wanted, args.zone.as_deref())? else {
        // A success, as the host may be gone for good; a mistyped one must not look like one unseen.
        let unconfigured = placement::unconfigured(&context.provider, wanted);
        context.ui.warning(&unconfigured);
        let record = DeletedRecord {
            host: wanted.host().map(str::to_owned),
            not_looked_at: true,
            ..absent()
        };
        return Ok((Some(record), Vec::new()));
    };
    let candidates = candidates(context, &hosts, wanted, managers)?;
    let (mut record, mut errors, mut failed) = (absent(), Vec::new(), false);
    // Several only where none of them has the instance: what a crash left of it may be on any.
    let count = candidates.len();
    let done = parallel::map(candidates, count, |host| {
        let deleted = host
            .connect()
            .and_then(|hypervisor| delete(host, &*hypervisor, name, managers, act));
        (host, deleted.map_err(|error| error.on_host(host.name())))
    });
    for (host, deleted) in done {
        let deleted = match deleted {
            Ok(deleted) => deleted,
            Err(error) => {
                errors.push(error);
                failed = true;
                continue;
            }
        };
        for note in &deleted.notes {
            context.ui.note(&format!("{}: {note}", host.name()));
        }
        if !deleted.gone.is_empty() || !deleted.kept.is_empty() {
            record.host = Some(host.name().to_owned());
            record.deleted.extend(deleted.gone);
        }
        if !deleted.kept.is_empty() {
            errors.push(left_alone(host, name.as_str(), &deleted.kept));
            record
                .kept
                .extend(deleted.kept.into_iter().map(|kept| kept.what));
        }
    }
    let is_told = !failed || !record.deleted.is_empty() || !record.kept.is_empty();
    Ok((is_told.then_some(record), errors))
}

/// Something of that name is there and stays: "already absent" would be wrong, and a script would never look again.
fn left_alone(host: &HostSession, name: &str, kept: &[Kept]) -> Error {
    let what = format!("not everything that is called like {name} was deleted");
    let error = Error::permanent(Reason::InDoubt, what).on_host(host.name());
    let error = kept.iter().fold(error, |error, Kept { what, why, .. }| {
        error.because(format!("{what} was left alone: {why}"))
    });
    // No hint may delete what somebody builds on.
    let any = |stays| kept.iter().any(|kept| kept.stays == stays);
    if any(Stays::Anothers) {
        return error.hint("it belongs to what uses it: there is nothing to delete");
    }
    if any(Stays::Perhaps) {
        return error.hint("whether anybody needs it can't be seen: start those domains, or have their disks be readable, then run it again");
    }
    if any(Stays::Used) {
        return error.hint("what uses it goes first, if nobody needs it; then run it again");
    }
    let first = kept
        .iter()
        .find_map(|kept| kept.what.strip_prefix("volume "));
    error.hint(format!(
        "what nobody needs, on the host: virsh vol-delete --pool {} {}",
        shell::quote(host.pool()),
        shell::quote(first.unwrap_or("NAME"))
    ))
}

/// The hosts to delete on: the one that has the instance, else all that may have leftovers of it.
fn candidates<'a>(
    context: &Context<'_>,
    hosts: &[&'a HostSession],
    wanted: &InstanceRef,
    managers: Managers,
) -> Asked<Vec<&'a HostSession>> {
    let name = wanted.name().as_str();
    if hosts.len() == 1 {
        return Ok(hosts.to_vec());
    }
    let found = find::by_name(hosts, name, managers);
    find::ensure_one(name, &found.instances)?;
    context.ensure_all_asked(name, hosts, &found.errors, "deleted")?;
    let Some(instance) = found.instances.first() else {
        // Without an instance, a domain of that name that isn't meant stays out of it.
        return Ok(hosts.to_vec());
    };
    Ok(hosts
        .iter()
        .filter(|host| host.name() == instance.host)
        .copied()
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_told_where_it_cant_be_printed() {
        let record = |deleted: &[&str]| DeletedRecord {
            name: "web1".to_owned(),
            host: Some("nas1".to_owned()),
            deleted: deleted.iter().map(|what| (*what).to_owned()).collect(),
            kept: Vec::new(),
            not_looked_at: false,
        };
        let error = || Error::permanent(Reason::OutputFailed, "stdout can't be written");
        let told = untold(error(), &record(&["domain web1", "volume web1.qcow2"]));
        assert_eq!(
            told.causes(),
            ["nas1: deleted: domain web1, volume web1.qcow2"]
        );
        assert_eq!(untold(error(), &record(&[])), error());
    }
}
