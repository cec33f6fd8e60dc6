//! One host of the configuration and this run's connection to it: dialled when first needed, dialled again when lost.

use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::cancel::Cancel;
use crate::config::{self, Provider, Reach, SshAuth, SshTarget};
use crate::error::{Reason, Result};
use crate::libvirt::{self, Connection, Hypervisor, Limits};
use crate::limits::{FileRoom, TimeLimits};
use crate::parallel::lock;
use crate::ssh::{self, DialOptions, Link, Prompt};

/// The run's two cancels: the first signal stops the work, the second one its clean-up too.
#[derive(Clone)]
pub struct Cancels {
    /// Set by the first signal.
    pub work: Cancel,
    /// Set by the second.
    pub cleanup: Cancel,
}

impl Cancels {
    /// Neither is set.
    pub fn new() -> Self {
        Cancels {
            work: Cancel::new(),
            cleanup: Cancel::new(),
        }
    }
}

impl Default for Cancels {
    fn default() -> Self {
        Self::new()
    }
}

/// How long each call of a clean-up may take: it shall be over within 10 s.
const CLEANUP_LIMITS: Limits = Limits {
    rpc: Duration::from_secs(5),
    start: Duration::from_secs(5),
    agent: Duration::from_secs(5),
    stream: Duration::from_secs(5),
};
const CLEANUP_DIAL: Duration = Duration::from_secs(5);

/// A channel opens that fast on a LAN, also on a busy one.
const NEAR: Duration = Duration::from_millis(20);

/// The socket of the modular daemon for QEMU. Where it is asked about storage or networks, it asks virtstoraged and
/// virtnetworkd (measured with libvirt 9.0).
const VIRTQEMUD_SOCKET: &str = "/var/run/libvirt/virtqemud-sock";

/// Asks for a key's passphrase; shared by all hosts of a run.
pub type SharedPrompt = Arc<dyn Fn(&str, &Cancel) -> Option<String> + Send + Sync>;

/// One host and the connection to it.
pub struct HostSession {
    config: config::Host,
    auth: SshAuth,
    cancels: Cancels,
    prompt: Option<SharedPrompt>,
    limits: TimeLimits,
    /// All hosts of the provider, this one among them.
    all: Arc<[config::Host]>,
    current: Mutex<Option<Arc<Connection>>>,
}

impl HostSession {
    /// A session that isn't connected yet.
    pub fn new(
        config: config::Host,
        auth: SshAuth,
        cancels: Cancels,
        prompt: Option<SharedPrompt>,
        limits: TimeLimits,
    ) -> Self {
        HostSession {
            config,
            auth,
            cancels,
            prompt,
            limits,
            all: Arc::default(),
            current: Mutex::new(None),
        }
    }

    /// One session for each host of the provider, in the configuration's order.
    pub fn of_provider(
        provider: &Provider,
        cancels: &Cancels,
        prompt: Option<&SharedPrompt>,
        limits: TimeLimits,
    ) -> Vec<Self> {
        let all: Arc<[config::Host]> = provider.hosts.clone().into();
        let session = |host: &config::Host| {
            let mut session = Self::new(
                host.clone(),
                provider.auth.clone(),
                cancels.clone(),
                prompt.cloned(),
                limits,
            );
            session.all = Arc::clone(&all);
            session
        };
        provider.hosts.iter().map(session).collect()
    }

    /// Whether the provider has other hosts.
    pub fn has_others(&self) -> bool {
        self.all.len() > 1
    }

    /// The provider's other hosts, whichever the command is about, as sessions that aren't connected yet.
    pub fn others(&self) -> Vec<Self> {
        let session = |host: &config::Host| {
            let (auth, cancels) = (self.auth.clone(), self.cancels.clone());
            let prompt = self.prompt.clone();
            let mut session = Self::new(host.clone(), auth, cancels, prompt, self.limits);
            session.all = Arc::clone(&self.all);
            session
        };
        let others = self.all.iter().filter(|host| host.name != self.name());
        others.map(session).collect()
    }

    /// The host's name in the configuration.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The host's configuration.
    pub fn config(&self) -> &config::Host {
        &self.config
    }

    /// The pool that our volumes are in.
    pub fn pool(&self) -> &str {
        &self.config.pool
    }

    /// How long the host may take for what it is asked.
    pub fn limits(&self) -> TimeLimits {
        self.limits
    }

    /// The run's cancels.
    pub fn cancels(&self) -> &Cancels {
        &self.cancels
    }

    /// The run's one connection to the host; dials when there is none, or when it was lost.
    pub fn connect(&self) -> Result<Arc<dyn Hypervisor>> {
        let mut current = lock(&self.current);
        let alive = current.as_ref().filter(|connection| connection.is_alive());
        let connection = match alive {
            Some(connection) => Arc::clone(connection),
            None => Arc::new(self.open_for_work()?),
        };
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// A connection of its own, for `check`: what happens to it touches no other call.
    pub fn connect_apart(&self) -> Result<Arc<dyn Hypervisor>> {
        Ok(Arc::new(self.open_for_work()?))
    }

    /// A connection for cleaning up: it works also after the run was interrupted, and it hurries.
    pub fn connect_for_cleanup(&self) -> Result<Arc<dyn Hypervisor>> {
        let dial = CLEANUP_DIAL.min(self.limits.dial);
        let connection = self.open(&self.cancels.cleanup, dial, CLEANUP_LIMITS)?;
        Ok(Arc::new(connection))
    }

    fn open_for_work(&self) -> Result<Connection> {
        self.open(&self.cancels.work, self.limits.dial, self.limits.calls)
    }

    fn open(&self, cancel: &Cancel, dial_limit: Duration, limits: Limits) -> Result<Connection> {
        cancel.check()?;
        let name = self.name();
        let _room = FileRoom::take().map_err(|error| error.on_host(name))?;
        let link = match &self.config.reach {
            Reach::Local => ssh::local(name)?,
            // The scope waits for the thread: no process ends while it loads a library.
            Reach::Ssh(target) => std::thread::scope(|scope| {
                // Not before the connection stands: a library that is being loaded holds every new thread up. Where the
                // system gives no thread, it is loaded when it is needed.
                let preload = || drop(Builder::new().spawn_scoped(scope, libvirt::preload));
                self.dial(target, cancel, dial_limit, &preload)
            })?,
        };
        // Whoever waits on the link is released by a signal; what it closed looks like a lost one.
        let closer = link.closer();
        let _guard = cancel.on_cancel(Box::new(move || closer.close()));
        let started = Instant::now();
        let forwarded = self.open_forward(&link);
        cancel.check()?;
        forwarded.map_err(|error| error.at_stage("forward"))?;
        // That was a round trip, or two.
        if started.elapsed() > NEAR {
            link.hurry();
        }
        Connection::open(name, Arc::new(link), cancel, limits)
            .map_err(|error| error.at_stage("libvirt"))
    }

    /// Opens the way to libvirt's socket. With modular daemons there may be no proxy daemon, and so no socket of the
    /// usual name: then to virtqemud's own, which asks the other daemons by itself.
    fn open_forward(&self, link: &Link) -> Result<()> {
        let socket = &self.config.socket;
        match link.open_forward(socket) {
            Err(missing)
                if missing.reason() == Reason::SocketNotFound
                    && socket.as_str() == config::DEFAULT_SOCKET =>
            {
                match link.open_forward(VIRTQEMUD_SOCKET) {
                    Err(error) if error.reason() == Reason::SocketNotFound => {
                        Err(missing.because(format!("nor is there a socket {VIRTQEMUD_SOCKET}")))
                    }
                    opened => opened,
                }
            }
            done => done,
        }
    }

    fn dial(
        &self,
        target: &SshTarget,
        cancel: &Cancel,
        dial_limit: Duration,
        meanwhile: &dyn Fn(),
    ) -> Result<Link> {
        let options = DialOptions {
            dial_limit,
            meanwhile: Some(meanwhile),
            prompt: self.prompt.as_ref().map(|prompt| &**prompt as &Prompt<'_>),
            ..DialOptions::default()
        };
        ssh::dial(self.name(), target, &self.auth, &options, cancel)
    }
}
