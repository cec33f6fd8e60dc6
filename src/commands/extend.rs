//! `egressctl extend`.

use jiff::Timestamp;

use super::Context;
use crate::cli::ExtendArgs;
use crate::error::{Class, Error, Reason, Result};
use crate::facts;
use crate::find::{self, Managers};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::output::{Document, InstanceRecord};
use crate::units;
use crate::xml::metadata::Manager;

pub(super) fn run(args: &ExtendArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<InstanceRecord>()?;
    let expires_at = expiry(args)?;
    context.meant(&args.name, args.zone.as_deref())?;
    let extended = match find_and_extend(args, context, expires_at) {
        Ok(extended) => extended,
        Err(error) => return context.ui.failures::<InstanceRecord>(vec![error]),
    };
    let record = InstanceRecord::new(&extended, Timestamp::now());
    context.ui.document(&Document::of(vec![record]))?;
    let name = &extended.domain.name;
    context.ui.note(&match expires_at {
        Some(at) => format!("{name} expires at {}", units::timestamp(at)),
        None => format!("{name} never expires"),
    });
    Ok(Vec::new())
}

fn find_and_extend(
    args: &ExtendArgs,
    context: &Context<'_>,
    expires_at: Option<Timestamp>,
) -> Result<Instance> {
    let managers = Managers::only(Manager::Egressctl);
    let found = context.instance(&args.name, args.zone.as_deref(), managers);
    let (host, instance) = found.map_err(|error| explain(args, context, error))?;
    extend(host, &instance, expires_at)
}

/// "There is no instance" would send somebody looking for what stands there, but isn't ours to extend.
fn explain(args: &ExtendArgs, context: &Context<'_>, error: Error) -> Error {
    if error.class() != Class::NotFound {
        return error;
    }
    let Ok((_, other)) = context.instance(&args.name, args.zone.as_deref(), Managers::all()) else {
        return error;
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
    error.on_host(&other.host)
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

/// Writes the time into the domain's metadata, and reads it back.
fn extend(
    host: &HostSession,
    instance: &Instance,
    expires_at: Option<Timestamp>,
) -> Result<Instance> {
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
    Ok(find::with_addresses(host, again))
}
