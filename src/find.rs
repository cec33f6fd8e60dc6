//! Finding instances by name over the hosts, and listing them.

use crate::address::Asker;
use crate::error::{Class, Error, Reason, Result};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::name::InstanceRef;
use crate::parallel;
use crate::xml::metadata::Manager;

/// Addresses of one host's instances that are asked for at once.
const ADDRESSES_AT_ONCE: usize = 24;

/// Whose instances are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Managers {
    only: Option<Manager>,
}

impl Managers {
    /// One manager's.
    pub fn only(manager: Manager) -> Self {
        Managers {
            only: Some(manager),
        }
    }

    /// Everybody's that egressctl knows.
    pub fn all() -> Self {
        Managers { only: None }
    }

    /// Whether this instance is meant. One that is nobody's never is; one of ours whose mark can't be read is shown
    /// among all.
    pub fn include(self, instance: &Instance) -> bool {
        match self.only {
            Some(manager) => instance.manager() == Some(manager),
            None => instance.manager().is_some() || instance.is_in_doubt(),
        }
    }
}

/// What stands on the hosts, and the hosts that couldn't tell.
#[derive(Debug, Default)]
pub struct Found {
    /// The instances, in the hosts' order, then by name.
    pub instances: Vec<Instance>,
    /// One error for each host that couldn't be asked.
    pub errors: Vec<Error>,
}

fn gather(
    hosts: &[&HostSession],
    ask: impl Fn(&HostSession) -> Result<Vec<Instance>> + Sync,
) -> Found {
    let mut found = Found::default();
    let answers = parallel::map(hosts.to_vec(), hosts.len(), |host| {
        ask(host).map_err(|error| error.on_host(host.name()))
    });
    for answer in answers {
        match answer {
            Ok(instances) => found.instances.extend(instances),
            Err(error) => found.errors.push(error),
        }
    }
    found
}

/// Lists the instances of all hosts at once, with addresses.
pub fn list(
    hosts: &[&HostSession],
    managers: Managers,
    wanted: &(dyn Fn(&Instance) -> bool + Sync),
) -> Found {
    gather(hosts, |host| {
        let hypervisor = host.connect()?;
        let domains = hypervisor.list_domains()?;
        let mut instances = parallel::map(domains, parallel::processors(), |domain| {
            Instance::from_domain(host.name(), domain)
        })
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
        instances.retain(|instance| managers.include(instance) && wanted(instance));
        let asker = Asker::new(host);
        let ask = |mut instance: Instance| {
            instance.addresses = asker.find(&instance).0;
            instance
        };
        Ok(parallel::map(instances, ADDRESSES_AT_ONCE, ask))
    })
}

/// The instance with its addresses asked for.
pub fn with_addresses(host: &HostSession, mut instance: Instance) -> Instance {
    instance.addresses = Asker::new(host).find(&instance).0;
    instance
}

/// Looks one name up on all the hosts at once.
pub fn by_name(hosts: &[&HostSession], name: &str, managers: Managers) -> Found {
    gather(hosts, |host| {
        let found = host.connect()?.find_domain(name)?;
        let instance = found
            .map(|domain| Instance::from_domain(host.name(), domain))
            .transpose()?;
        Ok(instance
            .into_iter()
            .filter(|instance| managers.include(instance))
            .collect())
    })
}

/// The hosts a NAME argument may be on: the one it names, the one `--zone` names, or all.
///
/// `None` where the ID names a host that isn't configured any more.
pub fn hosts_of<'a>(
    hosts: &'a [HostSession],
    wanted: &InstanceRef,
    zone: Option<&str>,
) -> Result<Option<Vec<&'a HostSession>>> {
    if let (Some(in_id), Some(zone)) = (wanted.host(), zone)
        && in_id != zone
    {
        return Err(Error::usage(
            Reason::BadArgument,
            format!("the ID names host {in_id}, but --zone says {zone}"),
        ));
    }
    match wanted.host().or(zone) {
        None => Ok(Some(hosts.iter().collect())),
        Some(name) => Ok(hosts
            .iter()
            .find(|host| host.name() == name)
            .map(|host| vec![host])),
    }
}

/// Refuses a name that stands on several hosts.
pub fn ensure_one(name: &str, instances: &[Instance]) -> Result<()> {
    if instances.len() < 2 {
        return Ok(());
    }
    let ids: Vec<String> = instances.iter().map(Instance::id).collect();
    Err(Error::permanent(
        Reason::AmbiguousName,
        format!("{name} stands on {} hosts: which one?", instances.len()),
    )
    .because(ids.join(", "))
    .hint("name one of them by its ID, or add --zone"))
}

/// The error for a name that is nowhere.
pub fn not_found(name: &str) -> Error {
    Error::new(
        Class::NotFound,
        Reason::InstanceNotFound,
        format!("there is no instance {name}"),
    )
    .hint("egressctl list shows those there are; --manager all includes the operator's")
}
