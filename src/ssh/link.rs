//! A link: one connection to one host, and the private socket that libvirt's client connects to.

use std::fmt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::client::Ended;
use super::far::Far;
use super::forward::{self, Role};
use super::here;
use super::private_dir::PrivateDir;
use super::pump::Pump;
use super::session::{self, HANGS, Wire};
use super::shared::{Command, ExecOutput, OpenError, Shared};
use super::transport::Transport;
use crate::config::{Address, SshTarget};
use crate::error::{Error, Reason, Result};
use crate::parallel::no_thread;

/// The time to open the way to a socket of this machine: milliseconds are enough.
const HERE_LIMIT: Duration = Duration::from_secs(10);

/// A connection to a host: over SSH, or to this very machine.
///
/// A thread of its own moves the bytes. Dropping the link closes it.
pub struct Link {
    shared: Arc<Shared>,
    dir: PrivateDir,
    thread: Mutex<Option<JoinHandle<()>>>,
    host_name: String,
    /// The time to open a channel, the same as the dial's.
    open_limit: Duration,
    /// The user and address at the other end; none for this machine.
    peer: Option<(String, Address)>,
    /// The link that this one goes through; it must stay as long as this one.
    jump: Option<Box<Link>>,
}

impl Link {
    /// Starts to pump an authenticated session.
    pub(super) fn over_ssh(
        host_name: &str,
        target: &SshTarget,
        wire: Wire,
        jump: Option<Link>,
        open_limit: Duration,
    ) -> Result<Self> {
        let far = Far::Host(wire.handle);
        let transport = Some(wire.transport);
        let mut link = Self::start(host_name, wire.runtime, far, wire.ended, transport)?;
        link.peer = Some((target.user.clone(), target.address.clone()));
        link.jump = jump.map(Box::new);
        link.open_limit = open_limit;
        Ok(link)
    }

    /// Starts to relay to this machine's sockets.
    ///
    /// libvirt could connect there itself, but closing the link releases a blocked call, as over SSH.
    fn to_this_machine(host_name: &str) -> Result<Self> {
        let (_nobody, ended) = unbounded_channel();
        Self::start(host_name, session::runtime()?, Far::Here, ended, None)
    }

    fn start(
        host_name: &str,
        runtime: Runtime,
        far: Far,
        ended: UnboundedReceiver<Ended>,
        transport: Option<Transport>,
    ) -> Result<Self> {
        let (shared, asked) = Shared::new(transport);
        let (dir, listener) = listen()?;
        let pump = Pump {
            shared: Arc::clone(&shared),
            asked,
            ended,
            far: Arc::new(far),
        };
        let thread = std::thread::Builder::new()
            .name(format!("link {host_name}"))
            .spawn(move || {
                runtime.block_on(pump.run(listener));
                // What is still open goes away with it; nothing is waited for.
                runtime.shutdown_background();
            })
            .map_err(|cause| no_thread(&cause))?;
        Ok(Link {
            shared,
            dir,
            thread: Mutex::new(Some(thread)),
            host_name: host_name.to_owned(),
            open_limit: HERE_LIMIT,
            peer: None,
            jump: None,
        })
    }

    /// What libvirt's client library connects to, once [`Self::open_forward`] succeeded.
    pub fn socket_path(&self) -> &Path {
        self.dir.socket_path()
    }

    /// Opens the way to a unix socket of the host, before libvirt needs it.
    ///
    /// The first connection to [`Self::socket_path`] uses what was opened here; each further one
    /// opens its own. Failures are SSH's or the system's, told apart as far as the host lets us:
    /// [`Reason::ForwardingRefused`], [`Reason::SocketNotFound`], [`Reason::PermissionDenied`],
    /// [`Reason::LibvirtUnavailable`].
    pub fn open_forward(&self, socket: &str) -> Result<()> {
        let opened = self.shared.ask(self.open_limit, |reply| Command::Forward {
            path: socket.to_owned(),
            reply,
        });
        opened.map_err(|error| {
            let error = match error {
                OpenError::Refused(cause) => forward::refused(self, socket, &cause),
                OpenError::Local(cause) => forward::local(socket, &cause),
                OpenError::Expired => {
                    expired(&format!("opening {socket}"), self.open_limit).hint(HANGS)
                }
                OpenError::Lost => self.lost(),
            };
            error.on_host(&self.host_name)
        })
    }

    /// Runs a command on the host with its login shell, for small probes; at most that long.
    pub fn exec(&self, command: &str, limit: Duration) -> Result<ExecOutput> {
        if self.peer.is_none() {
            return here::exec(command, limit).map_err(|error| error.on_host(&self.host_name));
        }
        let output = self.shared.ask(limit, |reply| Command::Exec {
            command: command.to_owned(),
            reply,
        });
        output.map_err(|error| {
            let error = match error {
                OpenError::Refused(cause) => {
                    Error::permanent(Reason::PermissionDenied, "the host runs no commands for us")
                        .because(cause)
                }
                OpenError::Local(cause) => {
                    Error::transient(Reason::LocalIo, "can't run a command").because(cause)
                }
                OpenError::Expired => expired("running a command", limit),
                OpenError::Lost => self.lost(),
            };
            error.on_host(&self.host_name)
        })
    }

    /// Has sshd send small answers at once from now on, for a host some way off; waits for nothing.
    ///
    /// OpenSSH sets `TCP_NODELAY` when it starts a session's command (session.c: `do_exec_no_pty`), but not for forwarded
    /// channels: without it one answer after another waits until the one before was acknowledged, a round trip later. So a
    /// command is run that does nothing. Where the host runs none, everything works, only slower.
    pub fn hurry(&self) {
        if self.peer.is_none() {
            return;
        }
        let (reply, _nobody) = std::sync::mpsc::channel();
        let command = ":".to_owned();
        // A connection that is lost shows at the next call.
        let _ = self
            .shared
            .begin(self.open_limit, Command::Exec { command, reply });
        log::debug!(target: super::LOG_TARGET, "host={} small answers are to come at once", self.host_name);
    }

    /// Opens a TCP connection from the host, to an instance's port.
    ///
    /// Errors: [`Reason::ForwardingRefused`], [`Reason::ConnectFailed`], [`Reason::ConnectionLost`].
    pub fn open_tcp(&self, address: &Address, limit: Duration) -> Result<UnixStream> {
        self.open_tcp_as(Role::Host, address, limit)
    }

    /// The same from a jump host, to the next host.
    pub(super) fn open_hop(&self, address: &Address, limit: Duration) -> Result<UnixStream> {
        self.open_tcp_as(Role::Jump, address, limit)
    }

    fn open_tcp_as(&self, role: Role, address: &Address, limit: Duration) -> Result<UnixStream> {
        let opened = self.shared.ask(limit, |reply| Command::Tcp {
            host: address.host.clone(),
            port: address.port,
            reply,
        });
        let peer = self.peer_name();
        opened.map_err(|error| match error {
            OpenError::Refused(cause) => forward::tcp_refused(role, &peer, address, &cause),
            OpenError::Local(cause) => {
                let what = format!("can't go through the {role}");
                Error::transient(Reason::LocalIo, what).because(cause)
            }
            OpenError::Expired => forward::tcp_silent(role, &peer, address, limit),
            OpenError::Lost => self.lost(),
        })
    }

    /// Closes everything at once: a libvirt call blocked on the link returns within milliseconds.
    ///
    /// May be called from any thread and more than once.
    pub fn close(&self) {
        self.shared.close();
        if let Some(jump) = &self.jump {
            jump.close();
        }
    }

    /// A handle that can close the link from elsewhere, such as from [`crate::cancel::Cancel`].
    pub fn closer(&self) -> Closer {
        let mut chain = vec![Arc::clone(&self.shared)];
        let mut next = &self.jump;
        while let Some(link) = next {
            chain.push(Arc::clone(&link.shared));
            next = &link.jump;
        }
        Closer { chain }
    }

    /// Whether the link is closed, by us or because the connection was lost.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// What went wrong on the way since the link was made, where libvirt only saw an end of file.
    pub fn last_error(&self) -> Option<Error> {
        let own = self.shared.last_error();
        own.or_else(|| self.jump.as_ref().and_then(|jump| jump.last_error()))
            .map(|error| error.on_host(&self.host_name))
    }

    /// The time to open a channel, or to ask the host something small.
    pub(super) fn open_limit(&self) -> Duration {
        self.open_limit
    }

    /// The user at the other end; none for this machine.
    pub(super) fn user(&self) -> Option<&str> {
        self.peer.as_ref().map(|(user, _)| user.as_str())
    }

    fn peer_name(&self) -> String {
        self.peer.as_ref().map_or_else(
            || "this machine".to_owned(),
            |(_, address)| address.to_string(),
        )
    }

    fn lost(&self) -> Error {
        self.last_error().unwrap_or_else(|| {
            Error::transient(Reason::ConnectionLost, "the connection was closed")
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A panic there was reported already, and everything is closed all the same.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("host_name", &self.host_name)
            .field("peer", &self.peer)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// Closes a [`Link`] from any thread, without keeping it alive.
#[derive(Clone)]
pub struct Closer {
    chain: Vec<Arc<Shared>>,
}

impl Closer {
    /// As [`Link::close`].
    pub fn close(&self) {
        for shared in &self.chain {
            shared.close();
        }
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closer").finish_non_exhaustive()
    }
}

/// Links to this very machine (`local: true`); the errors carry `host_name`.
pub fn local(host_name: &str) -> Result<Link> {
    Link::to_this_machine(host_name).map_err(|error| error.on_host(host_name))
}

fn expired(doing: &str, limit: Duration) -> Error {
    Error::transient(
        Reason::TimedOut,
        format!("no answer within {limit:?} while {doing}"),
    )
}

fn listen() -> Result<(PrivateDir, UnixListener)> {
    let dir = PrivateDir::new()?;
    let listener = UnixListener::bind(dir.socket_path())
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|cause| {
            Error::transient(Reason::LocalIo, "can't listen on a private socket").because(cause)
        })?;
    Ok((dir, listener))
}
