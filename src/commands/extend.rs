//! `egressctl extend`.

use jiff::Timestamp;

use super::{Asked, Context, Stopped};
use crate::cli::ExtendArgs;
use crate::error::{Class, Error, Reason, Result};
use crate::facts;
use crate::find::{self, Managers};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::libvirt::Hypervisor;
use crate::output::{Document, InstanceRecord};
use crate::units;
use crate::xml::domain_info::DomainInfo;
use crate::xml::metadata::Manager;

pub(super) fn run(args: &ExtendArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<InstanceRecord>()?;
    let expires_at = expiry(args)?;
    context.meant(&args.name, args.zone.as_deref())?;
    let (extended, saved) = match find_and_extend(args, context, expires_at) {
        Ok(extended) => extended,
        Err(Stopped(errors)) => return Ok(context.ui.failures::<InstanceRecord>(errors)),
    };
    let record = InstanceRecord::new(&extended, Timestamp::now());
    let errors = context.ui.show(Document::of(vec![record]));
    let name = &extended.domain.name;
    context.ui.note(&match expires_at {
        Some(at) => format!("{name} expires at {}", units::timestamp(at)),
        None => format!("{name} never expires"),
    });
    if let Some(told) = saved.and_then(|saved| comes_back(&extended, &saved)) {
        context.ui.warn(&told);
    }
    Ok(errors)
}

fn find_and_extend(
    args: &ExtendArgs,
    context: &Context<'_>,
    expires_at: Option<Timestamp>,
) -> Asked<(Instance, Option<DomainInfo>)> {
    let managers = Managers::only(Manager::Egressctl);
    let found = context.instance(&args.name, args.zone.as_deref(), managers);
    let (host, instance) = found.map_err(|stopped| explain(args, context, stopped))?;
    Ok(extend(host, &instance, expires_at)?)
}

/// "There is no instance" would send somebody looking for what stands there, but isn't ours to extend.
fn explain(args: &ExtendArgs, context: &Context<'_>, stopped: Stopped) -> Stopped {
    let is_missing = |error: &Error| error.class() == Class::NotFound;
    if !stopped.0.iter().any(is_missing) {
        return stopped;
    }
    let Ok((_, other)) = context.instance(&args.name, args.zone.as_deref(), Managers::all()) else {
        return stopped;
    };
    let name = &other.domain.name;
    let error = match other.manager() {
        Some(manager) => Error::permanent(
            Reason::ForeignDomain,
            format!(
                "instance {name} is the operator's ({}), which decides how long it lives",
                manager.as_str()
            ),
        ),
        None => other.in_doubt(),
    };
    error.on_host(&other.host).into()
}

/// When it shall expire; none means never.
fn expiry(args: &ExtendArgs) -> Result<Option<Timestamp>> {
    let Some(duration) = args.duration else {
        return Ok(None);
    };
    let too_long = || {
        Error::usage(
            Reason::BadArgument,
            "the duration is longer than time is counted",
        )
        .hint("--never lets it live until it is deleted")
    };
    units::later(Timestamp::now(), duration)
        .map(Some)
        .ok_or_else(too_long)
}

/// That the time saved with its memory will count again, where it is later than the one just written: a start goes on with
/// what was saved, and of two times the later one counts.
fn comes_back(instance: &Instance, saved: &DomainInfo) -> Option<String> {
    let written = instance.metadata()?.expires_at?;
    let saved = saved.mark.metadata()?.expires_at;
    if saved.is_some_and(|saved| saved <= written) {
        return None;
    }
    let (host, name, id) = (&instance.host, &instance.domain.name, instance.id());
    let then = saved.map_or_else(
        || "never expires".to_owned(),
        |at| format!("expires at {}", units::timestamp(at)),
    );
    Some(format!(
        "{host}: {name} has saved memory, and once it is started from that it {then}, as it was saved: then run again: egressctl extend {id}"
    ))
}

/// What the instance's saved memory goes on as; nothing where it has none, or that can't be read: then it can't be
/// started from it either.
fn saved(hypervisor: &dyn Hypervisor, instance: &Instance) -> Option<DomainInfo> {
    if instance.state.is_active() {
        return None;
    }
    let read = hypervisor.find_saved_definition(&instance.domain);
    let parsed = read.and_then(|xml| xml.map(|xml| DomainInfo::parse(&xml)).transpose());
    parsed.unwrap_or_else(|error| {
        log::info!("host={} {error}", instance.host);
        None
    })
}

/// Writes the time into the domain's metadata, and reads it back. With what its saved memory goes on as.
fn extend(
    host: &HostSession,
    instance: &Instance,
    expires_at: Option<Timestamp>,
) -> Result<(Instance, Option<DomainInfo>)> {
    let hypervisor = host.connect()?;
    // What somebody wrote into its definition meanwhile stays.
    let instance = &find::with_definition(&*hypervisor, instance.clone())?;
    if instance.is_in_doubt() {
        return Err(instance.in_doubt());
    }
    let Some(metadata) = instance.metadata() else {
        return Err(find::not_found(&instance.domain.name, Some(host.name())));
    };
    if expires_at.is_some() {
        facts::ensure_clocks_agree(&*hypervisor).map_err(|error| {
            let hint = "--never needs no clock, and lets it live until it is deleted";
            error.on_host(host.name()).hint(hint)
        })?;
    }
    let mut metadata = metadata.clone();
    metadata.expires_at = expires_at;
    hypervisor.set_metadata(&instance.domain, &metadata.to_fragment()?)?;
    let lost = |why: &str| {
        Error::transient(Reason::InDoubt, format!("{} {why}", instance.id()))
            .on_host(host.name())
            .hint("run the same command again")
    };
    let again = hypervisor
        .find_domain(&instance.domain.name)?
        .ok_or_else(|| lost("vanished meanwhile"))?;
    let again = Instance::from_domain(host.name(), again)?;
    if again.metadata().map(|metadata| metadata.expires_at) != Some(expires_at) {
        return Err(lost("doesn't show the new time"));
    }
    let saved = saved(&*hypervisor, &again);
    Ok((find::with_addresses(host, again), saved))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::tests::domain;
    use crate::xml::metadata::tests::plain;

    #[test]
    fn only_a_later_time_that_was_saved_is_told() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let of = |expires_at| {
            let mut metadata = plain();
            metadata.expires_at = expires_at;
            domain("web", &metadata.to_xml().unwrap(), "").instance
        };
        let table = [
            (at(5), at(4), None),
            (at(5), at(5), None),
            (at(5), at(6), Some("expires at 1970-01-01T00:00:06Z")),
            (at(5), None, Some("never expires")),
            (None, at(6), None),
            (None, None, None),
        ];
        for (written, saved, told) in table {
            let found = comes_back(&of(written), &of(saved).info);
            match told {
                None => assert_eq!(found, None),
                Some(told) => {
                    let found = found.unwrap();
                    assert!(found.contains(told), "{found}");
                    assert!(found.ends_with("egressctl extend hosts/nas1/domains/web"));
                }
            }
        }
    }
}
