//! The calls about domains.

use std::collections::HashMap;

use virt::domain::Domain;
use virt::sys;

use super::super::error::{LibvirtError, NO_DOMAIN, OPERATION_INVALID};
use super::super::{
    AddressSource, CALLS_AT_ONCE, Console, Definition, DomainCalls, DomainRef, DomainState,
    InterfaceInfo, ListedDomain, NvramPolicy, When,
};
use super::console::ConsoleStream;
use super::{About, Connection, raw};
use crate::error::{Error, Reason, Result};
use crate::parallel::{self, lock};
use crate::shell;
use crate::xml::metadata::{NAMESPACE, PREFIX};

impl Connection {
    fn domain_ref(&self, domain: Domain) -> Result<DomainRef> {
        let name = self.local(domain.name())?;
        let uuid = self.local(domain.uuid_string())?;
        lock(&self.domains).insert(uuid.clone(), domain);
        Ok(DomainRef { name, uuid })
    }

    pub(super) fn handle(&self, domain: &DomainRef) -> Result<Domain> {
        if let Some(handle) = lock(&self.domains).get(&domain.uuid) {
            return Ok(handle.clone());
        }
        let handle = self.rpc(
            "virDomainLookupByUUIDString",
            &About("domain", &domain.name),
            || self.connect().lookup_domain_by_uuid_string(&domain.uuid),
        )?;
        lock(&self.domains).insert(domain.uuid.clone(), handle.clone());
        Ok(handle)
    }

    fn xml(&self, domain: &DomainRef) -> Result<Option<String>> {
        let handle = self.handle(domain)?;
        let about = About("domain", &domain.name);
        let xml = self.find("virDomainGetXMLDesc", &about, NO_DOMAIN, || {
            handle.xml_desc(0)
        })?;
        if let Some(xml) = &xml {
            log::debug!("host={} domain={} xml={xml}", self.host, domain.name);
        }
        Ok(xml)
    }

    fn info(&self, domain: DomainRef, state: Option<DomainState>) -> Result<Option<ListedDomain>> {
        let (state, xml) = match state {
            Some(state) => (Ok(Some(state)), self.xml(&domain)),
            None => parallel::both(|| self.state_if_there(&domain), || self.xml(&domain)),
        };
        let found = xml?.zip(state?);
        Ok(found.map(|(xml, state)| ListedDomain { domain, state, xml }))
    }

    /// The failure to read what a saved domain goes on with, where libvirt itself can't read the file: then it fails until
    /// somebody does something about that.
    fn unreadable_save(&self, domain: &DomainRef, failure: Error) -> Error {
        if failure.reason() != Reason::LibvirtError {
            return failure;
        }
        let name = &domain.name;
        let error = Error::permanent(
            Reason::InDoubt,
            format!("the saved memory of domain {name} can't be read, so what it uses isn't known"),
        );
        let causes = failure.causes().iter().cloned();
        let quoted = shell::quote(name);
        causes
            .fold(error.on_host(&self.host), Error::because)
            .hint(format!("whether it still can't be read, on the host: virsh managedsave-dumpxml {quoted}"))
            .hint(format!(
                "to throw the saved memory away, so that the domain's next start is a fresh one, on the host: virsh managedsave-remove {quoted}"
            ))
    }

    /// One call that lets a domain go on; refused where it runs by now, it was somebody else's doing: what was wanted.
    fn go_on(
        &self,
        rpc: &'static str,
        domain: &DomainRef,
        call: impl FnOnce() -> super::VirtResult<()>,
    ) -> Result<()> {
        let about = About("domain", &domain.name);
        let runs = |state| matches!(state, DomainState::Running | DomainState::Blocked);
        match self.attempt(rpc, &about, self.limits.rpc, call) {
            Ok(()) => Ok(()),
            Err(failure) if failure.is(OPERATION_INVALID) && runs(self.domain_state(domain)?) => {
                Ok(())
            }
            Err(failure) => Err(self.error(&failure)),
        }
    }

    fn state_if_there(&self, domain: &DomainRef) -> Result<Option<DomainState>> {
        let handle = self.handle(domain)?;
        let about = About("domain", &domain.name);
        let state = self.find("virDomainGetState", &about, NO_DOMAIN, || {
            raw::domain_state(&handle).ok_or_else(virt::error::Error::last_error)
        })?;
        Ok(state.map(|(state, reason)| DomainState::from_raw(state, reason)))
    }

    fn all_states(&self) -> Result<HashMap<String, DomainState>> {
        let mut states = None;
        self.rpc("virConnectGetAllDomainStats", &"", || {
            states = raw::all_domain_states(self.connect());
            if states.is_some() {
                Ok(())
            } else {
                Err(virt::error::Error::last_error())
            }
        })?;
        Ok(states
            .unwrap_or_default()
            .into_iter()
            .map(|record| {
                (
                    record.uuid,
                    DomainState::from_raw(record.state, record.reason),
                )
            })
            .collect())
    }
}

impl DomainCalls for Connection {
    fn list_domains(&self) -> Result<Vec<ListedDomain>> {
        // A domain that only one of the two answers knows came or went meanwhile: it is asked for alone, or left out.
        let (states, handles) = parallel::both(
            || self.all_states(),
            || {
                self.rpc("virConnectListAllDomains", &"", || {
                    self.connect().list_all_domains(0)
                })
            },
        );
        let (states, handles) = (states?, handles?);
        let domains = handles
            .into_iter()
            .map(|d| self.domain_ref(d))
            .collect::<Result<Vec<_>>>()?;
        let infos = parallel::ask(domains, CALLS_AT_ONCE, |domain| {
            let state = states.get(&domain.uuid).copied();
            self.info(domain, state)
        });
        let mut infos: Vec<ListedDomain> = infos
            .into_iter()
            .filter_map(Result::transpose)
            .collect::<Result<_>>()?;
        infos.sort_by(|a, b| a.domain.name.cmp(&b.domain.name));
        Ok(infos)
    }

    fn find_domain(&self, name: &str) -> Result<Option<ListedDomain>> {
        let about = About("domain", &name);
        let found = self.find("virDomainLookupByName", &about, NO_DOMAIN, || {
            self.connect().lookup_domain_by_name(name)
        })?;
        match found {
            None => Ok(None),
            Some(handle) => {
                let domain = self.domain_ref(handle)?;
                self.info(domain, None)
            }
        }
    }

    fn read_domain(&self, domain: &DomainRef) -> Result<Option<ListedDomain>> {
        self.info(domain.clone(), None)
    }

    fn find_definition(&self, domain: &DomainRef) -> Result<Option<String>> {
        let handle = self.handle(domain)?;
        let about = About("domain", &domain.name);
        self.find("virDomainGetXMLDesc", &about, NO_DOMAIN, || {
            handle.xml_desc(sys::VIR_DOMAIN_XML_INACTIVE)
        })
    }

    fn find_saved_definition(&self, domain: &DomainRef) -> Result<Option<String>> {
        let handle = self.handle(domain)?;
        let about = About("domain", &domain.name);
        let read = self.attempt(
            "virDomainManagedSaveGetXMLDesc",
            &about,
            self.limits.rpc,
            || raw::saved_xml(&handle).ok_or_else(virt::error::Error::last_error),
        );
        match read {
            Ok(xml) => Ok(Some(xml)),
            Err(failure) if failure.is(NO_DOMAIN) || failure.is(OPERATION_INVALID) => Ok(None),
            Err(failure) => Err(self.unreadable_save(domain, self.error(&failure))),
        }
    }

    fn list_definitions(&self) -> Result<Vec<Definition>> {
        let list = |flags| {
            let listed = self.rpc("virConnectListAllDomains", &"", || {
                self.connect().list_all_domains(flags)
            })?;
            let domains = listed.into_iter().map(|d| self.domain_ref(d));
            domains.collect::<Result<Vec<_>>>()
        };
        let running =
            sys::VIR_CONNECT_LIST_DOMAINS_ACTIVE | sys::VIR_CONNECT_LIST_DOMAINS_PERSISTENT;
        let saved = sys::VIR_CONNECT_LIST_DOMAINS_MANAGEDSAVE;
        let (running, saved) = parallel::both(|| list(running), || list(saved));
        let running = running?.into_iter().map(|domain| (domain, When::NextStart));
        let saved = saved?.into_iter().map(|domain| (domain, When::Restored));
        let read = parallel::ask(
            running.chain(saved).collect(),
            CALLS_AT_ONCE,
            |(domain, when)| {
                let xml = match when {
                    When::NextStart => self.find_definition(&domain)?,
                    When::Restored => self.find_saved_definition(&domain)?,
                };
                Ok(xml.map(|xml| Definition { domain, when, xml }))
            },
        );
        read.into_iter().filter_map(Result::transpose).collect()
    }

    fn domain_state(&self, domain: &DomainRef) -> Result<DomainState> {
        self.state_if_there(domain)?.ok_or_else(|| {
            Error::transient(
                Reason::InstanceNotFound,
                format!("domain {} vanished meanwhile", domain.name),
            )
            .on_host(&self.host)
        })
    }

    fn define_domain(&self, xml: &str) -> Result<DomainRef> {
        log::debug!("host={} define xml={xml}", self.host);
        let handle = self.rpc("virDomainDefineXMLFlags", &"", || {
            self.connect()
                .define_domain_xml_flags(xml, super::host::DEFINE_VALIDATE)
        })?;
        self.domain_ref(handle)
    }

    fn create_domain(&self, domain: &DomainRef) -> Result<()> {
        let handle = self.handle(domain)?;
        let about = About("domain", &domain.name);
        match self.attempt("virDomainCreate", &about, self.limits.start, || {
            handle.create()
        }) {
            Ok(()) => Ok(()),
            // Somebody else started it meanwhile: what was wanted.
            Err(failure)
                if failure.is(OPERATION_INVALID) && self.domain_state(domain)?.is_active() =>
            {
                Ok(())
            }
            Err(failure) => Err(self.error(&failure)),
        }
    }

    fn resume_domain(&self, domain: &DomainRef) -> Result<()> {
        let handle = self.handle(domain)?;
        // Refused where it was paused as it was being started.
        self.go_on("virDomainResume", domain, || handle.resume())
    }

    fn wake_domain(&self, domain: &DomainRef) -> Result<()> {
        let handle = self.handle(domain)?;
        self.go_on("virDomainPMWakeup", domain, || handle.pm_wakeup(0))
    }

    fn destroy_domain(&self, domain: &DomainRef) -> Result<()> {
        let handle = self.handle(domain)?;
        let about = About("domain", &domain.name);
        match self.attempt("virDomainDestroy", &about, self.limits.rpc, || {
            handle.destroy()
        }) {
            Ok(()) => Ok(()),
            Err(failure) if failure.is(NO_DOMAIN) => Ok(()),
            Err(failure) if failure.is(OPERATION_INVALID) => match self.state_if_there(domain)? {
                Some(state) if state.is_active() => Err(self.error(&failure)),
                _ => Ok(()),
            },
            Err(failure) => Err(self.error(&failure)),
        }
    }

    fn undefine_domain(&self, domain: &DomainRef, nvram: NvramPolicy) -> Result<()> {
        let handle = self.handle(domain)?;
        let about = About("domain", &domain.name);
        let nvram = match nvram {
            NvramPolicy::Remove => sys::VIR_DOMAIN_UNDEFINE_NVRAM,
            NvramPolicy::Keep => sys::VIR_DOMAIN_UNDEFINE_KEEP_NVRAM,
        };
        let saved =
            sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA;
        // Checkpoint metadata came with libvirt 5.6; an older daemon refuses the whole call for it.
        let attempts = [
            saved | sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | nvram,
            saved | nvram,
        ];
        let mut last = None;
        for flags in attempts {
            let call = || handle.undefine_flags(flags);
            match self.attempt("virDomainUndefineFlags", &about, self.limits.rpc, call) {
                Ok(()) => return Ok(()),
                Err(failure) if failure.is(NO_DOMAIN) => return Ok(()),
                Err(failure) if failure.answer().is_some_and(LibvirtError::is_flag_refused) => {
                    last = Some(self.error(&failure));
                }
                Err(failure) => return Err(self.error(&failure)),
            }
        }
        last.map_or(Ok(()), Err)
    }

    fn set_metadata(&self, domain: &DomainRef, xml: &str) -> Result<()> {
        let handle = self.handle(domain)?;
        let about = About("domain", &domain.name);
        log::debug!("host={} domain={} metadata={xml}", self.host, domain.name);
        let mut flags = sys::VIR_DOMAIN_AFFECT_CONFIG;
        if self.domain_state(domain)?.is_active() {
            flags |= sys::VIR_DOMAIN_AFFECT_LIVE;
        }
        self.rpc("virDomainSetMetadata", &about, || {
            handle.set_metadata(
                i32::try_from(sys::VIR_DOMAIN_METADATA_ELEMENT).unwrap_or_default(),
                Some(xml),
                Some(PREFIX),
                Some(NAMESPACE),
                flags,
            )
        })
    }

    fn interface_addresses(
        &self,
        domain: &DomainRef,
        source: AddressSource,
    ) -> Result<Vec<InterfaceInfo>> {
        let handle = self.handle(domain)?;
        let number = match source {
            AddressSource::Lease => sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE,
            AddressSource::Agent => sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT,
            AddressSource::Arp => sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP,
        };
        let about = format!(" domain={} source={}", domain.name, source.as_str());
        let limit = match source {
            AddressSource::Agent => self.limits.agent,
            AddressSource::Lease | AddressSource::Arp => self.limits.rpc,
        };
        let ask = || handle.interface_addresses(number, 0);
        let interfaces = self
            .attempt("virDomainInterfaceAddresses", &about, limit, ask)
            .map_err(|failure| self.error(&failure))?;
        log::debug!(
            "host={} domain={} addresses={interfaces:?}",
            self.host,
            domain.name
        );
        Ok(interfaces
            .into_iter()
            .map(|interface| InterfaceInfo {
                name: interface.name,
                mac: interface.hwaddr.map(|mac| mac.to_lowercase()),
                addresses: interface
                    .addrs
                    .into_iter()
                    .map(|address| address.addr)
                    .collect(),
            })
            .collect())
    }

    fn open_console(&self, domain: &DomainRef, force: bool) -> Result<Box<dyn Console + '_>> {
        Ok(Box::new(ConsoleStream::open(self, domain, force)?))
    }
}
