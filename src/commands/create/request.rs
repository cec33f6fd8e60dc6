//! What a create was asked for, resolved before any host is asked, and on which hosts it shall be.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::input;
use crate::cli::CreateArgs;
use crate::commands::Context;
use crate::config::{Host, Image, MachineType};
use crate::create::survey::survey;
use crate::create::{CloudInit, CreateSpec, OVERLAY_ROOM};
use crate::error::{Error, Reason, Result};
use crate::find;
use crate::gc::keep;
use crate::host::HostSession;
use crate::image::policy::PullPolicy;
use crate::image::room::POOL_RESERVE;
use crate::name::InstanceName;
use crate::placement::{self, AUTO, Need};

/// One or several instances of the same kind.
pub(super) struct Request {
    identities: Vec<(InstanceName, String)>,
    /// Whether the caller chose name or uid: a repeated run then means the same instances.
    is_named: bool,
    uid_is_given: bool,
    image: Image,
    pull: PullPolicy,
    machine: MachineType,
    disk_bytes: u64,
    disk_is_given: bool,
    cloud_init: CloudInit,
    labels: BTreeMap<String, String>,
    ttl: Option<Duration>,
}

/// One instance and the host that it shall be on.
pub(super) struct Job<'a> {
    pub(super) host: &'a HostSession,
    pub(super) spec: CreateSpec,
}

impl Request {
    /// From the options and the configuration.
    ///
    /// Errors: of placement, of names, of cloud-init's files.
    pub(super) fn new(args: &CreateArgs, context: &Context<'_>) -> Result<Self> {
        let provider = &context.provider;
        let image = placement::image(provider, args.image.as_deref())?;
        let machine = placement::machine_type(provider, args.machine_type.as_deref())?.clone();
        let gib = args.disk_size.unwrap_or(provider.disk_size_gib);
        Ok(Request {
            identities: identities(args)?,
            is_named: args.name.is_some() || args.uid.is_some(),
            uid_is_given: args.uid.is_some(),
            image,
            pull: args.pull.into(),
            machine,
            disk_bytes: gib << 30,
            disk_is_given: args.disk_size.is_some(),
            cloud_init: input::cloud_init(args, context)?,
            labels: labels(&args.labels)?,
            ttl: args.ttl.or(provider.default_ttl),
        })
    }

    /// The image's key.
    pub(super) fn image_key(&self) -> &str {
        &self.image.key
    }

    /// What is to be made on a host for one of the identities.
    fn spec(&self, (name, uid): &(InstanceName, String), host: &Host) -> CreateSpec {
        CreateSpec {
            name: name.clone(),
            is_named: self.is_named,
            uid: uid.clone(),
            uid_is_given: self.uid_is_given,
            image: self.image.clone(),
            pull: self.pull,
            pulled: None,
            machine: self.machine.clone(),
            disk_bytes: self.disk_bytes,
            disk_is_given: self.disk_is_given,
            cloud_init: self.cloud_init.clone(),
            nic: host.nic.clone(),
            virt_type: host.virt_type,
            labels: self.labels.clone(),
            ttl: self.ttl,
        }
    }

    /// Each instance with its host: the one that `--zone` names, the only one, or the ones that have most room.
    pub(super) fn place<'a>(
        &self,
        zone: Option<&str>,
        context: &'a Context<'_>,
    ) -> Result<Placed<'a>> {
        if zone == Some(AUTO) {
            return self.place_by_room(context);
        }
        let zone = placement::zone(&context.provider, zone)?;
        let host = context.sessions(&[zone])[0];
        let job = |identity| Job {
            host,
            spec: self.spec(identity, zone),
        };
        Ok(Placed::Jobs(self.identities.iter().map(job).collect()))
    }

    fn place_by_room<'a>(&self, context: &'a Context<'_>) -> Result<Placed<'a>> {
        let hosts: Vec<&HostSession> = context.hosts.iter().collect();
        let names: Vec<&str> = self
            .identities
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let first = &self.identities[0];
        let mut found = survey(&hosts, &|host| self.spec(first, host.config()), &names);
        context.cancels.work.check()?;
        if found.rooms.is_empty() && found.existing.is_empty() {
            return Ok(Placed::Nowhere(found.passed_over));
        }
        if self.is_named {
            found.ensure_nowhere_else(&names)?;
        }
        for error in &found.passed_over {
            let host = error.host().unwrap_or_default();
            context
                .ui
                .note(&format!("{host}: passed over: {}", error.message()));
        }
        let need = Need {
            memory: self.machine.memory_mib.saturating_mul(1 << 20),
            pool: OVERLAY_ROOM + POOL_RESERVE,
            disk: self.disk_bytes,
        };
        let mut jobs = Vec::new();
        for identity in &self.identities {
            let name = identity.0.as_str();
            let (same, others) = std::mem::take(&mut found.existing)
                .into_iter()
                .partition(|instance| instance.domain.name == name);
            found.existing = others;
            find::ensure_one(name, &same)?;
            // Running the command again finds what the first run made, wherever there is most room by now.
            let chosen = if let Some(instance) = same.first() {
                instance.host.clone()
            } else {
                let place = placement::choose(&mut found.rooms, &need)?;
                found.rooms[place].host.clone()
            };
            let host = hosts.iter().find(|host| host.name() == chosen);
            jobs.extend(host.map(|host| Job {
                host,
                spec: self.spec(identity, host.config()),
            }));
        }
        Ok(Placed::Jobs(jobs))
    }
}

/// Where the instances shall be.
pub(super) enum Placed<'a> {
    /// Each has its host.
    Jobs(Vec<Job<'a>>),
    /// No host can take any; why not, for each.
    Nowhere(Vec<Error>),
}

/// The longest uid, in bytes: with a number and the name it must fit into the mark of a seed.
const LONGEST_UID: usize = 128;

/// Refuses a uid that a keep list couldn't name, and so would be one of an instance that gc takes.
fn ensure_uid(uid: &str) -> Result<()> {
    let fault = match keep::fault_in(uid) {
        _ if uid.is_empty() => "is empty".to_owned(),
        _ if uid.len() > LONGEST_UID => format!("has {} bytes", uid.len()),
        _ if uid.starts_with('#') => "begins a comment in a keep list".to_owned(),
        _ if uid.contains('/') => "has a / in it, as only IDs have".to_owned(),
        Some(fault) => fault,
        None => return Ok(()),
    };
    let shown: String = uid.chars().take(40).collect();
    Err(
        Error::usage(Reason::BadArgument, format!("--uid {shown:?} {fault}")).hint(format!(
            "a uid has 1 to {LONGEST_UID} bytes, without blanks, quotes, brackets and slashes, as in a list for gc --keep"
        )),
    )
}

/// Labels by their keys.
///
/// Errors: one key with two values.
fn labels(given: &[(String, String)]) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for (key, value) in given {
        match labels.insert(key.clone(), value.clone()) {
            Some(before) if before != *value => {
                return Err(Error::usage(
                    Reason::BadArgument,
                    format!("--label gives {key} two values: {before:?} and {value:?}"),
                ));
            }
            _ => {}
        }
    }
    Ok(labels)
}

/// The instances' names and uids: one, or `--count` of them, numbered from 1 where a name or uid was given.
fn identities(args: &CreateArgs) -> Result<Vec<(InstanceName, String)>> {
    let numbers: Vec<String> = match args.count {
        None => vec![String::new()],
        Some(count) => (1..=count).map(|number| format!("-{number}")).collect(),
    };
    if let Some(uid) = &args.uid {
        ensure_uid(uid)?;
    }
    let identity = |number: &String| {
        let uid = match &args.uid {
            Some(uid) => format!("{uid}{number}"),
            None => Uuid::new_v4().to_string(),
        };
        let name = match &args.name {
            Some(name) => InstanceName::new(&format!("{name}{number}"))?,
            None => InstanceName::from_uid(&uid),
        };
        Ok((name, uid))
    };
    numbers.iter().map(identity).collect()
}
