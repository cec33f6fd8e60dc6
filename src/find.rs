//! Finding instances by name over the hosts, and listing them.

mod once;

use std::cell::RefCell;
use std::collections::HashMap;

use crate::address::Asker;
use crate::error::{Class, Error, Reason, Result};
use crate::facts;
use crate::host::HostSession;
use crate::instance::{Addresses, Instance};
use crate::inventory;
use crate::libvirt::Hypervisor;
use crate::name::{InstanceName, InstanceRef};
use crate::parallel;
use crate::shell;
use crate::xml::domain_info::DomainInfo;
use crate::xml::metadata::{Manager, Mark};
use crate::xml::pool::PoolInfo;
use once::once_each;

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

    /// Whether ours are meant, and this is one of ours whose mark can't be read: not among them, but worth saying.
    fn leave_in_doubt(self, instance: &Instance) -> bool {
        self.only == Some(Manager::Egressctl) && instance.is_in_doubt()
    }
}

/// What stands on the hosts, and the hosts that couldn't tell.
#[derive(Debug, Default)]
pub struct Found {
    /// The instances, in the hosts' order, then by name.
    pub instances: Vec<Instance>,
    /// Those of ours whose mark can't be read, where they aren't among the instances meant.
    pub in_doubt: Vec<Instance>,
    /// One error for each host that couldn't be asked.
    pub errors: Vec<Error>,
}

/// That a domain has a mark of ours that can't be read, for people.
pub fn unreadable(host: &str, name: &str) -> String {
    format!(
        "{host}: domain {name} has a mark of egressctl that can't be read, so gc never deletes it; on the host: virsh dumpxml {}",
        shell::quote(name)
    )
}

/// Asks all hosts at once; of what they answer, those in doubt are set apart unless they are meant.
fn gather(
    hosts: &[&HostSession],
    managers: Managers,
    ask: impl Fn(&HostSession) -> Result<Vec<Instance>> + Sync,
) -> Found {
    let mut found = Found::default();
    let answers = parallel::map(hosts.to_vec(), hosts.len(), |host| {
        ask(host).map_err(|error| error.on_host(host.name()))
    });
    for answer in answers {
        match answer {
            Ok(instances) => {
                let (meant, in_doubt): (Vec<_>, Vec<_>) = instances
                    .into_iter()
                    .partition(|instance| managers.include(instance));
                found.instances.extend(meant);
                found.in_doubt.extend(in_doubt);
            }
            Err(error) => found.errors.push(error),
        }
    }
    let session = |name: &str| hosts.iter().find(|host| host.name() == name);
    let pool = |instance: &Instance| session(&instance.host).map_or("", |host| host.pool());
    let known = RefCell::new(HashMap::new());
    let machine = |name: &str| {
        let ask = || {
            let hypervisor = session(name)?.connect().ok()?;
            facts::machine(&*hypervisor).ok()?
        };
        let mut known = known.borrow_mut();
        known.entry(name.to_owned()).or_insert_with(ask).clone()
    };
    let is_own = |instance: &Instance| instance.is_recorded_in(pool(instance));
    found.instances = once_each(found.instances, &is_own, &machine);
    found.in_doubt = once_each(found.in_doubt, &is_own, &machine);
    found
}

/// Lists the instances of all hosts at once, with addresses.
pub fn list(
    hosts: &[&HostSession],
    managers: Managers,
    wanted: &(dyn Fn(&Instance) -> bool + Sync),
) -> Found {
    gather(hosts, managers, |host| {
        let hypervisor = host.connect()?;
        let domains = hypervisor.list_domains()?;
        let mut instances = parallel::map(domains, parallel::processors(), |domain| {
            Instance::from_domain(host.name(), domain)
        })
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
        // What is wanted of it (a label) may be written in the definition alone, which is asked for below.
        instances.retain(|instance| {
            managers.include(instance) && (wanted(instance) || instance.counts_as_defined())
                || managers.leave_in_doubt(instance)
        });
        let asker = Asker::new(host);
        let is_shown = |instance: &Instance| managers.include(instance) && wanted(instance);
        let ask = |instance| look_closer(&asker, instance, &is_shown);
        let mut instances = parallel::ask(instances, ADDRESSES_AT_ONCE, ask)
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        instances.retain(|instance| is_shown(instance) || managers.leave_in_doubt(instance));
        Ok(instances)
    })
}

/// The instance by what counts of it, and with its addresses if it is then one to be shown. Both are asked for together
/// where it looks like one already, which nearly always stays so.
fn look_closer(
    asker: &Asker<'_>,
    mut instance: Instance,
    is_shown: &(dyn Fn(&Instance) -> bool + Sync),
) -> Result<Instance> {
    let looks_shown = is_shown(&instance);
    let (addresses, definition) = parallel::both(
        || looks_shown.then(|| asker.find(&instance).0),
        || asker.definition(&instance),
    );
    if let Some(definition) = definition? {
        instance.define(definition);
    }
    instance.addresses = match addresses {
        Some(addresses) => addresses,
        None if is_shown(&instance) => asker.find(&instance).0,
        None => Addresses::default(),
    };
    Ok(instance)
}

/// The instance by what counts of it, with its addresses, for whoever shows it. It may turn out to be nobody's, or in
/// doubt, by its definition.
///
/// Errors: those of reading its definition; what is only written there may keep it.
pub fn in_full(host: &HostSession, instance: Instance) -> Result<Instance> {
    look_closer(&Asker::new(host), instance, &|_| true).map_err(|error| error.on_host(host.name()))
}

/// The volumes of an instance of ours that is off and that are surely gone from where its domain has them; `None` where nobody
/// asks, as it runs or isn't ours, or where its pools can't be looked into.
pub fn missing_volumes(host: &HostSession, instance: &Instance) -> Option<Vec<String>> {
    let metadata = instance.metadata()?;
    if instance.state.is_active() || instance.ensure_own_mark().is_err() {
        return None;
    }
    let hypervisor = host.connect().ok()?;
    let looks = parallel::map(metadata.volumes.clone(), metadata.volumes.len(), |volume| {
        if hypervisor
            .find_volume_xml(&volume.pool, &volume.name)?
            .is_some()
        {
            return Ok(None);
        }
        // A disk in another directory than the pool's isn't gone.
        let pool = hypervisor.find_pool(&volume.pool)?;
        let pool = pool.map(|pool| PoolInfo::parse(&pool.xml)).transpose()?;
        let path = pool.and_then(|pool| pool.path_of(&volume.name));
        let Some(path) = path.filter(|path| instance.info.paths().any(|named| named == path))
        else {
            return Ok(None);
        };
        // libvirt knows only of what was there when it last looked.
        let is_gone = inventory::is_gone(&*hypervisor, &path)?;
        Ok(is_gone.then_some(volume.name))
    });
    let looked: Result<Vec<Option<String>>> = looks.into_iter().collect();
    let looked = looked.inspect_err(|error| log::info!("its volumes can't be seen: {error}"));
    Some(looked.ok()?.into_iter().flatten().collect())
}

/// The instance by what counts of it: one of ours that runs, with its definition for its next start. For whoever judges
/// it as gc does.
pub fn as_it_counts(hypervisor: &dyn Hypervisor, instance: Instance) -> Result<Instance> {
    if instance.counts_as_defined() {
        return with_definition(hypervisor, instance);
    }
    Ok(instance)
}

/// The domain of that name on one host, whoever's it is, by what counts of it.
pub fn by_its_name(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    name: &InstanceName,
) -> Result<Option<Instance>> {
    let Some(found) = hypervisor.find_domain(name.as_str())? else {
        return Ok(None);
    };
    let instance = Instance::from_domain(host.name(), found)?;
    as_it_counts(hypervisor, instance).map(Some)
}

/// The instance with its definition for its next start, if it runs: for whoever is about to change or delete it.
pub fn with_definition(hypervisor: &dyn Hypervisor, mut instance: Instance) -> Result<Instance> {
    if instance.state.is_active()
        && let Some(xml) = hypervisor.find_definition(&instance.domain)?
    {
        instance.define(DomainInfo::parse(&xml)?);
    }
    Ok(instance)
}

/// The instance with its addresses asked for.
pub fn with_addresses(host: &HostSession, mut instance: Instance) -> Instance {
    instance.addresses = Asker::new(host).find(&instance).0;
    instance
}

/// Looks one name up on all the hosts at once.
pub fn by_name(hosts: &[&HostSession], name: &str, managers: Managers) -> Found {
    gather(hosts, managers, |host| {
        let found = host.connect()?.find_domain(name)?;
        let instance = found
            .map(|domain| Instance::from_domain(host.name(), domain))
            .transpose()?;
        Ok(instance
            .into_iter()
            .filter(|instance| managers.include(instance) || managers.leave_in_doubt(instance))
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

/// The error for a name that isn't among the instances meant, on `host` where that alone was asked: in doubt where its
/// domain has a mark of ours that can't be read.
pub fn not_among(name: &str, host: Option<&str>, found: &Found) -> Error {
    let Some(instance) = found.in_doubt.first() else {
        return not_found(name, host);
    };
    let host = &instance.host;
    let name = &instance.domain.name;
    let why = match &instance.info.mark {
        Mark::Unreadable { why, .. } => why.as_str(),
        _ => "",
    };
    Error::permanent(
        Reason::InDoubt,
        format!("domain {name} has a mark of egressctl that can't be read: it was left alone"),
    )
    .because(why)
    .on_host(host)
    .hint(format!("on the host: virsh dumpxml {}", shell::quote(name)))
    .hint(format!(
        "that shows the mark; to mend it, on the host: virsh edit {}",
        shell::quote(name)
    ))
}

/// The error for a name that is nowhere, or not on the one host that was asked.
pub fn not_found(name: &str, host: Option<&str>) -> Error {
    let error = Error::new(
        Class::NotFound,
        Reason::InstanceNotFound,
        format!("there is no instance {name}"),
    );
    let error = match host {
        Some(host) => error.on_host(host),
        None => error,
    };
    error
        .hint("egressctl list")
        .hint("it shows those there are, and with --manager all also the operator's")
}

#[cfg(test)]
mod tests {
    use super::once::tests::seen;
    use super::*;

    #[test]
    fn a_domain_of_any_name_is_shown_by_the_hint() {
        let hint = |name: &str| {
            let in_doubt = vec![seen("nas1", name, "default")];
            let found = Found {
                in_doubt,
                ..Found::default()
            };
            not_among(name, None, &found).hints().join("; ")
        };
        let shows = |name: &str, quoted: &str| {
            assert_eq!(
                hint(name),
                format!(
                    "on the host: virsh dumpxml {quoted}; that shows the mark; to mend it, on the host: virsh edit {quoted}"
                )
            );
            let told = unreadable("nas1", name);
            assert!(told.contains(&format!("domain {name} has")), "{told}");
            assert!(told.ends_with(&format!("virsh dumpxml {quoted}")), "{told}");
        };
        shows("web1", "web1");
        shows("it's a domain", "'it'\\''s a domain'");
    }
}
