//! Looking at all hosts for `--zone auto`: what room each has, and whether an instance of the name is there already.

use super::preflight::preflight;
use super::spec::CreateSpec;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::libvirt::Hypervisor;
use crate::parallel;
use crate::placement::Room;
use crate::xml::capabilities::HostCapabilities;
use crate::xml::domain_info::DomainInfo;
use crate::xml::metadata::Manager;

/// What the hosts said.
#[derive(Debug, Default)]
pub struct Survey {
    /// The room of those on which an instance can be made, in the configuration's order.
    pub rooms: Vec<Room>,
    /// Instances of ours that have one of the names already.
    pub existing: Vec<Instance>,
    /// Why the other hosts are out of the question.
    pub passed_over: Vec<Error>,
    /// Those among these errors whose hosts didn't tell what they have.
    pub unasked: Vec<Error>,
}

impl Survey {
    /// Makes sure that a name which isn't found is nowhere: a host that couldn't be asked may have it, and another
    /// instance of it elsewhere would be a second one.
    ///
    /// Errors: the host's own, which says whether it may answer later.
    pub fn ensure_nowhere_else(&self, names: &[&str]) -> Result<()> {
        let is_missing = |name: &&&str| !self.existing.iter().any(|i| i.domain.name == **name);
        let (Some(name), Some(error)) = (names.iter().find(is_missing), self.unasked.first())
        else {
            return Ok(());
        };
        let hosts: Vec<&str> = self.unasked.iter().filter_map(Error::host).collect();
        Err(error
            .clone()
            .while_doing(format!(
                "{name} may stand on {} already, which couldn't be asked: nothing was made",
                hosts.join(", ")
            ))
            .with_reason(Reason::PartialFailure)
            .hint("run it again when the host answers; or say with --zone where it shall be, if it stands nowhere else"))
    }
}

/// Asks all hosts at once. `spec` says what would be made on a host; `names` are all the names that it stands for.
pub fn survey(
    hosts: &[&HostSession],
    spec: &(dyn Fn(&HostSession) -> CreateSpec + Sync),
    names: &[&str],
) -> Survey {
    let mut survey = Survey::default();
    let answers = parallel::map(hosts.to_vec(), hosts.len(), |host| {
        look(host, &spec(host), names).map_err(|error| error.on_host(host.name()))
    });
    for answer in answers {
        match answer {
            Ok((room, existing)) => {
                survey.existing.extend(existing);
                match room {
                    Ok(room) => survey.rooms.push(room),
                    Err(error) => survey.passed_over.push(error),
                }
            }
            Err(error) => {
                survey.unasked.push(error.clone());
                survey.passed_over.push(error);
            }
        }
    }
    survey
}

/// A host's room, or why nothing can be made there, and the instances that it has of these names.
fn look(
    host: &HostSession,
    spec: &CreateSpec,
    names: &[&str],
) -> Result<(Result<Room>, Vec<Instance>)> {
    let hypervisor = host.connect()?;
    let mut existing = Vec::new();
    let mut given = 0;
    let mut taken = None;
    for domain in hypervisor.list_domains()? {
        if domain.state.is_active() {
            given += DomainInfo::parse(&domain.xml)?.memory_bytes;
        }
        if names.contains(&domain.domain.name.as_str()) {
            let name = domain.domain.name.clone();
            let instance = Instance::from_domain(host.name(), domain)?;
            if instance.manager() == Some(Manager::Egressctl) {
                existing.push(instance);
            } else {
                taken = Some(name);
            }
        }
    }
    let room = match taken {
        Some(name) => Err(Error::permanent(
            Reason::ForeignDomain,
            format!("domain {name} exists and isn't egressctl's"),
        )
        .on_host(host.name())),
        None => room(host, &*hypervisor, spec, given),
    };
    Ok((room, existing))
}

fn room(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    spec: &CreateSpec,
    given: u64,
) -> Result<Room> {
    let judged = preflight(host, hypervisor, spec)?.judged?;
    let memory = HostCapabilities::parse(&hypervisor.capabilities()?)?.memory_bytes;
    Ok(Room {
        host: host.name().to_owned(),
        image_is_cached: judged.ready.is_some(),
        memory: memory.saturating_sub(given),
        pool: judged.pool.available,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::tests::domain;

    #[test]
    fn a_name_may_stand_where_nobody_could_ask() {
        let survey = |unasked: bool| Survey {
            existing: vec![domain("web-1", "", "").instance],
            unasked: unasked
                .then(|| Error::transient(Reason::ConnectFailed, "no route").on_host("nas2"))
                .into_iter()
                .collect(),
            ..Survey::default()
        };
        assert_eq!(survey(false).ensure_nowhere_else(&["web-2"]), Ok(()));
        // What is found isn't made anew.
        assert_eq!(survey(true).ensure_nowhere_else(&["web-1"]), Ok(()));
        let error = survey(true)
            .ensure_nowhere_else(&["web-1", "web-2"])
            .unwrap_err();
        assert_eq!((error.class().exit_code(), error.host()), (4, Some("nas2")));
        assert!(
            error.message().starts_with("web-2 may stand on nas2"),
            "{error}"
        );
        assert!(error.hints()[0].contains("--zone"));
    }
}
