//! Resolve and connect: every address of a name is tried, both families, within one time limit.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::session::Deadline;
use crate::config::Address;
use crate::error::{Error, Reason, Result};
use crate::parallel::no_thread;
use crate::shell;

/// When the next address is tried beside those already being tried (RFC 8305 section 8).
const STAGGER: Duration = Duration::from_millis(250);

/// SSH keepalives by TCP itself: the first after this long without traffic.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What to look at where nothing comes back at all.
pub(super) const NOBODY_THERE: &str = "is the host up, and does no firewall stand in between?";

/// Unacknowledged data for this long means a dead peer.
const USER_TIMEOUT: Duration = Duration::from_secs(45);

/// So many bytes may wait in the kernel beyond what is on its way: enough to keep the link busy, and a question
/// behind an upload waits for little. Linux would take megabytes.
const UNSENT: u32 = 512 * 1024;

/// The addresses of a name or literal, in the order to try them.
pub(super) fn resolve(address: &Address, deadline: &Deadline) -> Result<Vec<SocketAddr>> {
    if let Ok(literal) = address.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(literal, address.port)]);
    }
    // getaddrinfo(3) has no time limit of its own, so it gets a thread that may be left behind.
    let (sender, answers) = mpsc::channel();
    let name = (address.host.clone(), address.port);
    std::thread::Builder::new()
        .name("resolve".into())
        .spawn(move || {
            let found = (name.0.as_str(), name.1).to_socket_addrs();
            // Nobody listens any more once the dial was given up.
            let _ = sender.send(found.map(Iterator::collect::<Vec<_>>));
        })
        .map_err(|cause| no_thread(&cause))?;
    let stage = format!("resolving {}", address.host);
    let found = loop {
        deadline.check(&stage)?;
        match answers.recv_timeout(deadline.slice()) {
            Ok(found) => break found,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                break Err(std::io::Error::other("resolver died"));
            }
        }
    };
    let unresolved = || {
        Error::transient(
            Reason::ResolveFailed,
            format!("{} has no address", address.host),
        )
        .hint(format!(
            "check the name: getent hosts {}; or give the host's IP address in the config",
            shell::quote(&address.host)
        ))
    };
    match found {
        Ok(found) if !found.is_empty() => Ok(interleave(found)),
        Ok(_) => Err(unresolved()),
        Err(cause) => Err(unresolved().because(cause)),
    }
}

/// Alternates the families, keeping the resolver's order within each (RFC 8305 section 4).
fn interleave(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|address| address.is_ipv6() == first_v6);
    let mut ordered = Vec::with_capacity(first.len() + second.len());
    let mut rest = second.into_iter();
    for address in first {
        for address in [Some(address), rest.next()].into_iter().flatten() {
            if !ordered.contains(&address) {
                ordered.push(address);
            }
        }
    }
    ordered.extend(rest);
    ordered
}

/// Connects to the first of the addresses that answers.
pub(super) fn connect(
    address: &Address,
    addresses: Vec<SocketAddr>,
    deadline: &Deadline,
) -> Result<TcpStream> {
    let stage = format!("connecting to {address}");
    let mut race = Race {
        waiting: addresses.into_iter(),
        running: Vec::new(),
        failures: Vec::new(),
    };
    let mut next_start = Instant::now();
    loop {
        deadline
            .check(&stage)
            .map_err(|error| match error.reason() {
                // Told by its stage, as every failure to connect.
                Reason::TimedOut => deadline
                    .silence(&stage)
                    .with_reason(Reason::ConnectFailed)
                    .hint(NOBODY_THERE),
                _ => error,
            })?;
        if race.running.is_empty() || Instant::now() >= next_start {
            race.start_next();
            next_start = Instant::now() + STAGGER;
        }
        if let Some(stream) = race.poll(deadline.slice()) {
            configure(&stream);
            return Ok(stream.into());
        }
        if race.is_lost() {
            return Err(refused(address, &race.failures));
        }
    }
}

/// Connection attempts that run side by side.
struct Race {
    waiting: std::vec::IntoIter<SocketAddr>,
    running: Vec<(SocketAddr, Socket)>,
    failures: Vec<(SocketAddr, std::io::Error)>,
}

impl Race {
    fn start_next(&mut self) {
        let Some(address) = self.waiting.next() else {
            return;
        };
        match start(address) {
            Ok(socket) => self.running.push((address, socket)),
            Err(cause) => self.failures.push((address, cause)),
        }
    }

    fn is_lost(&self) -> bool {
        self.running.is_empty() && self.waiting.len() == 0
    }

    /// Waits a moment; returns the first socket that is connected.
    fn poll(&mut self, at_most: Duration) -> Option<Socket> {
        let mut fds: Vec<PollFd<'_>> = self
            .running
            .iter()
            .map(|(_, socket)| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT))
            .collect();
        // A failed poll leaves no events; the next round sees.
        let _ = poll(&mut fds, Some(&timespec(at_most)));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for index in (0..ready.len()).rev().filter(|&index| ready[index]) {
            let (address, socket) = self.running.swap_remove(index);
            match socket.take_error() {
                Ok(None) => return Some(socket),
                Ok(Some(cause)) | Err(cause) => self.failures.push((address, cause)),
            }
        }
        None
    }
}

/// A duration as poll(2) takes it.
fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

fn start(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.cloexec().nonblocking(),
        Some(Protocol::TCP),
    )?;
    match socket.connect(&address.into()) {
        Err(cause)
            if cause.kind() != ErrorKind::WouldBlock
                && cause.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            Err(cause)
        }
        _ => Ok(socket),
    }
}

/// Small packets at once, few large ones before them, and a dead peer noticed within a minute.
fn configure(socket: &Socket) {
    let socket = SockRef::from(socket);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE / 3)
        .with_retries(3);
    let done = socket
        .set_tcp_nodelay(true)
        .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT))
        .and_then(|()| socket.set_tcp_keepalive(&keepalive))
        .and_then(|()| socket.set_tcp_user_timeout(Some(USER_TIMEOUT)));
    if let Err(cause) = done {
        log::debug!(target: super::LOG_TARGET, "TCP options: {cause}");
    }
}

fn refused(address: &Address, failures: &[(SocketAddr, std::io::Error)]) -> Error {
    let mut error = Error::transient(
        Reason::ConnectFailed,
        format!("can't connect to {address} (port {})", address.port),
    );
    for (tried, cause) in failures {
        error = error.because(format!("{}: {cause}", tried.ip()));
    }
    let closed = |(_, cause): &(_, std::io::Error)| cause.kind() == ErrorKind::ConnectionRefused;
    if failures.iter().all(closed) {
        error.hint("is sshd running there, and is this its port?")
    } else {
        error.hint(NOBODY_THERE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::Cancel;

    fn deadline() -> Deadline {
        Deadline::new(Duration::from_secs(10), &Cancel::new())
    }

    fn address(host: &str, port: u16) -> Address {
        Address {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn families_alternate_and_keep_their_order() {
        let parse = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|text| text.parse().unwrap()).collect()
        };
        let found = parse(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "[::1]:1"]);
        let wanted = parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]);
        assert_eq!(interleave(found), wanted);
    }

    #[test]
    fn a_closed_port_falls_back_to_the_other_family() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = SocketAddr::new("::1".parse().unwrap(), open.port());
        let name = address("dual.example", open.port());
        let stream = connect(&name, vec![closed, open], &deadline()).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
    }

    #[test]
    fn refusal_and_expiry_both_name_the_stage() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = free.local_addr().unwrap();
        drop(free);
        let name = address("127.0.0.1", closed.port());
        let error = connect(&name, vec![closed], &deadline()).unwrap_err();
        assert_eq!(error.reason(), Reason::ConnectFailed);
        let over = Deadline::new(Duration::ZERO, &Cancel::new());
        let error = connect(&name, vec![closed], &over).unwrap_err();
        assert_eq!(error.reason(), Reason::ConnectFailed);
        assert_eq!(error.hints(), [NOBODY_THERE]);
    }

    #[test]
    fn literals_need_no_resolver_and_scopes_keep_their_zone() {
        let plain = resolve(&address("2001:db8::10", 22), &deadline()).unwrap();
        assert_eq!(plain, vec!["[2001:db8::10]:22".parse().unwrap()]);
        let scoped = resolve(&address("fe80::1%lo", 22), &deadline()).unwrap();
        assert!(
            matches!(scoped[0], SocketAddr::V6(v6) if v6.scope_id() != 0),
            "{scoped:?}"
        );
    }

    #[test]
    fn a_name_without_address_fails_to_resolve() {
        let error = resolve(&address("no-such-host.invalid", 22), &deadline()).unwrap_err();
        assert_eq!(error.reason(), Reason::ResolveFailed);
    }
}
