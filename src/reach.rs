//! The way to a TCP port of an instance: from this machine, or from the instance's host through its SSH connection.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::apart::apart;
use crate::config;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::libvirt::Hypervisor;

/// How long a connection may take to be made; a LAN takes milliseconds.
const LIMIT: Duration = Duration::from_secs(3);

/// Which way it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From this machine.
    Direct,
    /// From the instance's host.
    Host,
}

impl Way {
    /// As documents have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Host => "host",
        }
    }
}

/// Tries the ways to a port, the direct one first; `only` one of them where somebody said so.
///
/// The addresses of another network may be in use on this one as well: who connects directly has to make sure that it
/// is the instance that answers, or leave the choice to the person.
///
/// Errors: [`Reason::ConnectFailed`] with what was seen on each way; [`Reason::Interrupted`].
pub fn find(
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    ip: IpAddr,
    port: u16,
    only: Option<Way>,
) -> Result<Way> {
    let mut seen = Vec::new();
    if only != Some(Way::Host) {
        let address = SocketAddr::new(ip, port);
        let connect = move || TcpStream::connect_timeout(&address, LIMIT);
        match apart(&host.cancels().work, "connect", connect)? {
            Ok(_) => return Ok(Way::Direct),
            Err(error) => seen.push(format!("from here: {error}")),
        }
    }
    let is_remote = matches!(host.config().reach, config::Reach::Ssh(_));
    if only != Some(Way::Direct) && is_remote {
        match hypervisor.connect_tcp(ip, port, LIMIT) {
            Ok(_) => return Ok(Way::Host),
            Err(error) if error.reason() == Reason::Interrupted => return Err(error),
            Err(error) => seen.push(format!("from {}: {}", host.name(), error.nearest())),
        }
    }
    host.cancels().work.check()?;
    let mut error = Error::transient(
        Reason::ConnectFailed,
        format!("port {port} of {ip} doesn't answer"),
    );
    for line in seen {
        error = error.because(line);
    }
    Err(error)
}
