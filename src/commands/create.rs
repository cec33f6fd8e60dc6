//! `egressctl create`.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use jiff::Timestamp;
use uuid::Uuid;

use super::Context;
use crate::cli::{CreateArgs, Format, WaitArg};
use crate::config::Host;
use crate::create::wait::{CloudInitResult, Ready, WaitFor, wait};
use crate::create::{CloudInit, CreateSpec, ensure, plan};
use crate::error::{Error, Reason, Result};
use crate::find;
use crate::host::HostSession;
use crate::name::InstanceName;
use crate::output::{Document, InstanceRecord, PullBars};
use crate::placement;
use crate::seed;

/// The most that cloud-init's parts may take, in bytes; far beyond what makes sense.
const PART_LIMIT: u64 = 16 << 20;

pub(super) fn run(args: &CreateArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<InstanceRecord>()?;
    let zone = placement::zone(&context.provider, args.zone.as_deref())?;
    let spec = resolve(args, context, zone)?;
    let hosts = context.sessions(&[zone]);
    let host = hosts[0];
    if args.dry_run {
        let plan = plan(host, &spec)?;
        return match context.ui.format() {
            Format::Json => context.ui.data(&format!("{:#}\n", plan.to_json())),
            Format::Name => context.ui.data(&format!("{}\n", spec.name)),
            _ => context.ui.data(&plan.to_text()),
        }
        .map(|()| Vec::new());
    }
    let bars = PullBars::new(context.ui, &spec.image.key);
    let instance = ensure(host, &spec, &bars, &|text| {
        context.ui.warn(&format!("{}: {text}", host.name()));
    })?;
    show_when_ready(args, context, host, &instance)?;
    Ok(Vec::new())
}

fn show_when_ready(
    args: &CreateArgs,
    context: &Context<'_>,
    host: &HostSession,
    instance: &crate::instance::Instance,
) -> Result<()> {
    let what = args.wait.map(|what| match what {
        WaitArg::Ip => WaitFor::Ip,
        WaitArg::Agent => WaitFor::Agent,
        WaitArg::CloudInit => WaitFor::CloudInit,
        WaitArg::Port(port) => WaitFor::Port(port),
    });
    let ready = match what {
        Some(what) => {
            let tell = |text: &str| context.ui.note(text);
            wait(host, instance, what, args.timeout, &tell).map_err(|error| {
                let id = instance.id();
                error.hint(format!("it was made and kept as {id}"))
            })?
        }
        None => Ready {
            instance: find::with_addresses(&*host.connect()?, instance.clone()),
            cloud_init: None,
        },
    };
    let mut record = InstanceRecord::new(&ready.instance, Timestamp::now());
    if let Some(result) = ready.cloud_init {
        tell_result(context, &instance.domain.name, result);
        record = record.with_cloud_init(result);
    }
    context.ui.document(&Document::of(vec![record]))
}

fn tell_result(context: &Context<'_>, name: &str, result: CloudInitResult) {
    match result {
        CloudInitResult::Done => context.ui.note(&format!("{name}: cloud-init is done")),
        CloudInitResult::Degraded(count) => context.ui.warn(&format!(
            "{name}: cloud-init is done, degraded by {count} recoverable errors: \
             egressctl exec {name} -- cloud-init status --long"
        )),
    }
}

/// Everything about the instance, before any host is asked.
fn resolve(args: &CreateArgs, context: &Context<'_>, zone: &Host) -> Result<CreateSpec> {
    let provider = &context.provider;
    let image = placement::image(provider, args.image.as_deref())?;
    let machine = placement::machine_type(provider, args.machine_type.as_deref())?;
    let uid = args
        .uid
        .clone()
        .unwrap_or_else(|| Uuid::new_v4().to_string());
    let name = match &args.name {
        Some(name) => InstanceName::new(name)?,
        None => InstanceName::from_uid(&uid),
    };
    let cloud_init = cloud_init(args, context)?;
    let gib = args.disk_size.unwrap_or(provider.disk_size_gib);
    Ok(CreateSpec {
        name,
        uid,
        uid_is_given: args.uid.is_some(),
        image,
        pull: args.pull.into(),
        machine: machine.clone(),
        disk_bytes: gib << 30,
        disk_is_given: args.disk_size.is_some(),
        cloud_init,
        nic: zone.nic.clone(),
        virt_type: zone.virt_type,
        labels: args.labels.iter().cloned().collect(),
        ttl: args.ttl.or(provider.default_ttl),
    })
}

fn cloud_init(args: &CreateArgs, context: &Context<'_>) -> Result<CloudInit> {
    let user_data = match &args.user_data {
        Some(path) => {
            let data = read_part(path, "user-data")?;
            for warning in seed::check_user_data(&source(path), &data)?.warnings {
                context.ui.warn(&warning);
            }
            data
        }
        None => seed::DEFAULT_USER_DATA.to_vec(),
    };
    let network_config = match &args.network_config {
        Some(path) => {
            let data = read_part(path, "network-config")?;
            seed::check_network_config(&source(path), &data)?;
            Some(data)
        }
        None => None,
    };
    let provider = &context.provider;
    if let Some(text) = &provider.vendor_data {
        seed::check_vendor_data("vendorData", text, provider.install_guest_agent)?;
    }
    let vendor_data = seed::vendor_data(
        provider.install_guest_agent,
        provider.vendor_data.as_deref(),
    );
    Ok(CloudInit {
        user_data,
        vendor_data,
        network_config,
    })
}

/// What a file is called in messages.
fn source(path: &Path) -> String {
    if path == Path::new("-") {
        "stdin".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Reads a file, or stdin for `-`.
fn read_part(path: &Path, what: &str) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| {
        Error::usage(
            Reason::InvalidUserData,
            format!("the {what} file {} can't be read", path.display()),
        )
        .because(error)
    };
    let mut data = Vec::new();
    if path == Path::new("-") {
        std::io::stdin()
            .take(PART_LIMIT + 1)
            .read_to_end(&mut data)
            .map_err(failed)?;
    } else {
        let file = fs::File::open(path).map_err(failed)?;
        file.take(PART_LIMIT + 1)
            .read_to_end(&mut data)
            .map_err(failed)?;
    }
    if data.len() as u64 > PART_LIMIT {
        return Err(Error::usage(
            Reason::InvalidUserData,
            format!("the {what} file {} is larger than 16 MiB", path.display()),
        ));
    }
    Ok(data)
}
