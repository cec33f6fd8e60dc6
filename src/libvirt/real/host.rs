//! The calls about the host itself.

use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use virt::sys;

use super::super::error::{LibvirtError, NO_INTERFACE, NO_NETWORK};
use super::super::{HostCalls, Hypervisor, Versions};
use super::{About, Connection};
use crate::config::Address;
use crate::error::Result;
use crate::parallel;

impl HostCalls for Connection {
    fn connect_beside(&self) -> Result<Arc<dyn Hypervisor>> {
        Ok(Arc::new(self.open_beside()?))
    }

    fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.fastest.load(Ordering::Relaxed))
    }

    fn libvirt_version(&self) -> Result<u64> {
        self.rpc("virConnectGetLibVersion", &"", || {
            self.connect().lib_version()
        })
        .map(u64::from)
    }

    fn versions(&self) -> Result<Versions> {
        let (libvirt, hypervisor) = parallel::both(
            || self.libvirt_version(),
            || self.rpc("virConnectGetVersion", &"", || self.connect().hyp_version()),
        );
        Ok(Versions {
            libvirt: libvirt?,
            hypervisor: u64::from(hypervisor?),
        })
    }

    fn hostname(&self) -> Result<String> {
        self.rpc("virConnectGetHostname", &"", || self.connect().hostname())
    }

    fn capabilities(&self) -> Result<String> {
        self.rpc("virConnectGetCapabilities", &"", || {
            self.connect().capabilities()
        })
    }

    fn find_domain_capabilities(&self, domain_type: &str) -> Result<Option<String>> {
        let call = || {
            self.connect().domain_capabilities(
                None,
                Some("x86_64"),
                Some("q35"),
                Some(domain_type),
                0,
            )
        };
        let about = About("type", &domain_type);
        match self.attempt(
            "virConnectGetDomainCapabilities",
            &about,
            self.limits.rpc,
            call,
        ) {
            Ok(xml) => Ok(Some(xml)),
            // A domain type the host doesn't have is an invalid argument to this call.
            Err(failure) if failure.answer().is_some_and(LibvirtError::is_flag_refused) => Ok(None),
            Err(failure) => Err(self.error(&failure)),
        }
    }

    fn host_command(&self, command: &str) -> Result<Option<String>> {
        self.cancel.check()?;
        match self.link.exec(command, self.limits.rpc) {
            Ok(output) => Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned())),
            Err(error) => {
                self.cancel.check()?;
                log::debug!("host={} command: {error}", self.host);
                Ok(None)
            }
        }
    }

    fn connect_tcp(&self, ip: IpAddr, port: u16, limit: Duration) -> Result<UnixStream> {
        self.cancel.check()?;
        let address = Address {
            host: ip.to_string(),
            port,
        };
        self.link.open_tcp(&address, limit).map_err(|error| {
            log::debug!("host={} tcp={address}: {error}", self.host);
            error.on_host(&self.host)
        })
    }

    fn interface_exists(&self, name: &str) -> Result<Option<bool>> {
        let about = About("interface", &name);
        let call = || self.connect().lookup_interface_by_name(name);
        match self.attempt("virInterfaceLookupByName", &about, self.limits.rpc, call) {
            Ok(_) => Ok(Some(true)),
            Err(failure) if failure.is(NO_INTERFACE) => Ok(Some(false)),
            // Debian's libvirtd has no driver for interfaces; of modular daemons, virtinterfaced need not run.
            Err(failure) if failure.answer().is_some_and(LibvirtError::cant_be_asked) => Ok(None),
            Err(failure) => Err(self.error(&failure)),
        }
    }

    fn find_network(&self, name: &str) -> Result<Option<bool>> {
        let about = About("network", &name);
        let found = self.find("virNetworkLookupByName", &about, NO_NETWORK, || {
            self.connect().lookup_network_by_name(name)
        })?;
        match found {
            None => Ok(None),
            Some(network) => self
                .rpc("virNetworkIsActive", &about, || network.is_active())
                .map(Some),
        }
    }
}

// The crate's flag types are plain integers; these are the ones the other files use.
pub(super) const DEFINE_VALIDATE: u32 = sys::VIR_DOMAIN_DEFINE_VALIDATE;
