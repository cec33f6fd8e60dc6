//! Dial: resolve, connect, handshake, host key, authenticate, each with its own kind of failure.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::auth::{self, Credential};
use super::client::{self, Client, HandshakeError};
use super::host_key::Verifier;
use super::key::Prompt;
use super::link::Link;
use super::session::{Deadline, DialError, Wire};
use super::tcp;
use super::transport::Transport;
use crate::cancel::Cancel;
use crate::config::{Address, SshAuth, SshTarget};
use crate::error::{Class, Error, Reason, Result};

/// The wait before a handshake that broke off is tried again the first time; it doubles each time, up to the second.
const BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_millis(1600);

/// With less time than that left, no handshake is begun again.
const LEAST_TRY: Duration = Duration::from_millis(500);

/// How a dial goes about it.
pub struct DialOptions<'a> {
    /// The time for all stages together, over all jump hosts; a passphrase prompt doesn't count. The files that are read
    /// before that have as much for themselves, and so have [`Link::open_forward`] and each question it asks of the host.
    pub dial_limit: Duration,
    /// Asks for an encrypted key's passphrase; give it only when there is a terminal.
    ///
    /// Called at each dial, and after a wrong answer with another question: who dials many hosts remembers the answers.
    pub prompt: Option<&'a Prompt<'a>>,
    /// Begins what can be done while the server's answers are waited for. Called when it took the connection, and again for
    /// each further one.
    pub meanwhile: Option<&'a dyn Fn()>,
    /// Where the SSH agent listens; `$SSH_AUTH_SOCK` by default.
    pub agent: Option<PathBuf>,
}

impl Default for DialOptions<'_> {
    fn default() -> Self {
        DialOptions {
            dial_limit: Duration::from_secs(10),
            prompt: None,
            meanwhile: None,
            agent: std::env::var_os("SSH_AUTH_SOCK")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
        }
    }
}

/// Connects to an SSH server, through its jump hosts, and logs in.
///
/// The key and `known_hosts` files are read anew. Errors name the stage by their [`Reason`], and
/// carry `host_name`, the host's name in the configuration.
pub fn dial(
    host_name: &str,
    target: &SshTarget,
    auth: &SshAuth,
    options: &DialOptions<'_>,
    cancel: &Cancel,
) -> Result<Link> {
    let dialled = || {
        // A prompt may take its time, so the way to the host has a deadline of its own.
        let files = Deadline::new(options.dial_limit, cancel);
        let verifier = Arc::new(Verifier::load(&auth.host_keys, target, &files)?);
        let credential = Credential::load(&auth.key, options, &files)?;
        Dial {
            host_name,
            verifier,
            credential,
            deadline: Deadline::new(options.dial_limit, cancel),
            meanwhile: options.meanwhile.unwrap_or(&|| ()),
        }
        .establish(target, false)
    };
    dialled().map_err(|error| error.on_host(host_name))
}

/// What all hops of one dial share.
struct Dial<'a> {
    host_name: &'a str,
    verifier: Arc<Verifier>,
    credential: Credential,
    deadline: Deadline,
    meanwhile: &'a dyn Fn(),
}

impl Dial<'_> {
    /// A link to the target; `is_hop`: to go through it to the next one.
    fn establish(&self, target: &SshTarget, is_hop: bool) -> Result<Link> {
        let jump = match &target.jump {
            None => None,
            Some(jump) => Some(self.establish(jump, true).map_err(|error| {
                error.while_doing(format!("going through jump host {}", jump.address))
            })?),
        };
        let mut wire = self.handshake(target, jump.as_ref(), is_hop)?;
        self.staged("authenticate", || {
            auth::authenticate(&mut wire, target, &self.credential, &self.deadline)
        })?;
        Link::over_ssh(self.host_name, target, wire, jump, self.deadline.limit())
    }

    /// Handshakes, again and again where the server broke off before it knew who we are, as long as there is time.
    fn handshake(&self, target: &SshTarget, jump: Option<&Link>, is_hop: bool) -> Result<Wire> {
        let mut backoff = BACKOFF;
        loop {
            let transport = self.connect(target, jump)?;
            (self.meanwhile)();
            let error = match self.staged("handshake", || {
                self.try_handshake(target, transport, is_hop)
            }) {
                Ok(wire) => return Ok(wire),
                Err(error) => error,
            };
            let may_pass =
                error.class() != Class::Permanent && error.reason() == Reason::HandshakeFailed;
            let wait = backoff + jitter(backoff);
            // The last word shall be the server's, not that the time was over.
            if !may_pass || self.deadline.left() < wait + LEAST_TRY {
                return Err(error);
            }
            log::debug!(target: super::LOG_TARGET, "trying again: {error}");
            self.deadline.cancel().wait(wait);
            backoff = LONGEST_BACKOFF.min(backoff * 2);
        }
    }

    fn connect(&self, target: &SshTarget, jump: Option<&Link>) -> Result<Transport> {
        let address = &target.address;
        if let Some(jump) = jump {
            let stream = self.staged("jump", || self.open_through(jump, address))?;
            return Ok(Transport::Jump(stream.into()));
        }
        let addresses = self.staged("resolve", || tcp::resolve(address, &self.deadline))?;
        let stream = self.staged("connect", || {
            tcp::connect(address, addresses, &self.deadline)
        })?;
        Ok(Transport::Tcp(stream.into()))
    }

    /// The connection that the jump host makes to the next one.
    fn open_through(&self, jump: &Link, address: &Address) -> Result<UnixStream> {
        self.deadline.check("going through the jump host")?;
        let (cancel, closer) = (self.deadline.cancel(), jump.closer());
        let _guard = cancel.on_cancel(Box::new(move || closer.close()));
        let opened = jump.open_hop(address, self.deadline.left());
        // A link that a signal closed looks like a lost one.
        cancel.check()?;
        opened
    }

    fn try_handshake(
        &self,
        target: &SshTarget,
        transport: Transport,
        is_hop: bool,
    ) -> Result<Wire> {
        let address = &target.address;
        let stage = format!("shaking hands with {address}");
        let (client, ended) = Client::new(&self.verifier, target);
        let config = client::config(self.verifier.algorithms(address), is_hop);
        let shaken = Wire::handshake(transport, config, client, ended, &self.deadline, &stage);
        shaken.map_err(|error| match error {
            DialError::Stopped(error) => error,
            DialError::Handshake(HandshakeError::Untrusted(error)) => *error,
            DialError::Handshake(HandshakeError::Ssh(cause)) => unshaken(address, &cause),
        })
    }

    /// Logs how long a stage took, and names it in its errors.
    fn staged<T>(&self, stage: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = work().map_err(|error| error.at_stage(stage));
        log::debug!(
            target: super::LOG_TARGET,
            "host={} stage={stage} duration={:?}{}",
            self.host_name,
            started.elapsed(),
            if result.is_ok() { "" } else { " failed" }
        );
        result
    }
}

/// The error for a handshake that came to nothing.
fn unshaken(address: &Address, cause: &russh::Error) -> Error {
    let message = format!("the SSH handshake with {address} failed");
    match cause {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => {
            Error::permanent(Reason::HandshakeFailed, message)
                .because("it has no algorithm in common with egressctl")
                .because(format!("for {kind:?} it offers {}", theirs.join(", ")))
        }
        // sshd does that beyond `MaxStartups`.
        cause if broke_off(cause) => Error::transient(Reason::HandshakeFailed, message)
            .because(format!("it closed the connection ({cause})"))
            .hint("is that an SSH server? A busy one closes connections beyond its MaxStartups"),
        cause => Error::transient(Reason::HandshakeFailed, message).because(cause),
    }
}

/// Whether the connection ended before the handshake did.
fn broke_off(cause: &russh::Error) -> bool {
    match cause {
        russh::Error::HUP | russh::Error::Disconnect => true,
        russh::Error::IO(cause) => matches!(
            cause.kind(),
            ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
        ),
        _ => false,
    }
}

/// Up to that much more, so that many who were turned away together don't come back together.
fn jitter(at_most: Duration) -> Duration {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    at_most.mul_f64(f64::from(nanos % 1000) / 1000.0)
}
