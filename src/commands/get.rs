//! `egressctl get`.

use jiff::Timestamp;

use super::Context;
use crate::cli::GetArgs;
use crate::error::{Error, Result};
use crate::find;
use crate::name::InstanceRef;
use crate::output::{Document, InstanceRecord};
use crate::placement;

pub(super) fn run(args: &GetArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<InstanceRecord>()?;
    let args = &args.target;
    let wanted: InstanceRef = args.name.parse()?;
    if args.zone.is_some() {
        placement::zone(&context.provider, args.zone.as_deref())?;
    }
    let name = wanted.name().as_str();
    let Some(hosts) = find::hosts_of(&context.hosts, &wanted, args.zone.as_deref())? else {
        return Err(placement::unconfigured(&context.provider, &wanted));
    };
    let found = find::by_name(&hosts, name, args.manager.into());
    find::ensure_one(name, &found.instances)?;
    let Some(instance) = found.instances.first().cloned() else {
        // A host that couldn't be asked may have it: then nobody can say that it doesn't exist.
        return if found.errors.is_empty() {
            Err(find::not_among(
                name,
                wanted.host().or(args.zone.as_deref()),
                &found,
            ))
        } else {
            Ok(found.errors)
        };
    };
    let host = hosts.into_iter().find(|host| host.name() == instance.host);
    let instance = match host {
        Some(host) => find::with_addresses(host, instance),
        None => instance,
    };
    let record = InstanceRecord::new(&instance, Timestamp::now());
    context.ui.document(&Document {
        items: vec![record],
        errors: found.errors.clone(),
    })?;
    Ok(found.errors)
}
