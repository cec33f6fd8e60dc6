//! `egressctl get`.

use jiff::Timestamp;

use super::Context;
use crate::cli::GetArgs;
use crate::error::{Error, Result};
use crate::find::{self, Managers};
use crate::output::{Document, InstanceRecord};

pub(super) fn run(args: &GetArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<InstanceRecord>()?;
    let args = &args.target;
    let zone = args.zone.as_deref();
    let (wanted, hosts) = context.meant(&args.name, zone)?;
    let name = wanted.name().as_str();
    let managers: Managers = args.manager.into();
    let mut found = find::by_name(&hosts, name, managers);
    if let Err(error) = find::ensure_one(name, &found.instances) {
        return Ok(context.ui.failures::<InstanceRecord>(vec![error]));
    }
    let Some(instance) = found.instances.first().cloned() else {
        // A host that couldn't be asked may have it: then nobody can say that it doesn't exist.
        let errors = if found.errors.is_empty() {
            vec![find::not_among(name, wanted.host().or(zone), &found)]
        } else {
            found.errors
        };
        return Ok(context.ui.failures::<InstanceRecord>(errors));
    };
    let host = hosts.into_iter().find(|host| host.name() == instance.host);
    let mut missing = None;
    let instance = match host {
        Some(host) => match find::in_full(host, instance) {
            Ok(instance) => {
                missing = find::missing_volumes(host, &instance);
                instance
            }
            Err(error) => return Ok(context.ui.failures::<InstanceRecord>(vec![error])),
        },
        None => instance,
    };
    if !managers.include(&instance) {
        let host = Some(instance.host.clone());
        let in_doubt = instance.is_in_doubt().then_some(instance);
        found.in_doubt = in_doubt.into_iter().collect();
        let error = find::not_among(name, host.as_deref(), &found);
        return Ok(context.ui.failures::<InstanceRecord>(vec![error]));
    }
    for volume in missing.iter().flatten() {
        let (host, name) = (&instance.host, &instance.domain.name);
        let gone = format!("{host}: {name} can't be started as it is: its volume {volume} is gone");
        context.ui.warn(&gone);
    }
    let record = InstanceRecord::new(&instance, Timestamp::now()).with_missing_volumes(missing);
    Ok(context.ui.show(Document {
        items: vec![record],
        errors: found.errors,
    }))
}
