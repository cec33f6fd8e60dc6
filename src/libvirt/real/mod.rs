//! The seam's real side: one libvirt connection over a link, each call limited, logged and classified.

mod agent;
mod console;
mod domains;
mod failure;
mod host;
mod storage;

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use virt::connect::Connect;
use virt::domain::Domain;
use virt::storage_pool::StoragePool;
use virt::storage_vol::StorageVol;
use virt::stream::Stream;

use super::closing::Streams;
use super::deadline::Watchdog;
use super::error::LibvirtError;
use super::{raw, uri};
use crate::cancel::{Cancel, Guard as CancelGuard};
use crate::error::{ASK_CHECK, Class, Error, Reason, Result};
use crate::limits::FileRoom;
use crate::parallel::lock;
use crate::ssh::Link;
use failure::{Failure, numbers};

/// Loads libvirt's client library before it is needed, while something else is waited for. What goes wrong is told when
/// it is needed.
pub fn preload() {
    let _ = raw::load();
}

/// How long calls may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Any call not named below.
    pub rpc: Duration,
    /// A domain's start.
    pub start: Duration,
    /// A question to a guest's agent. libvirt itself waits 5 s for a sign of life from it, and then for ever.
    pub agent: Duration,
    /// A stream without progress.
    pub stream: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            rpc: Duration::from_secs(30),
            start: Duration::from_secs(90),
            agent: Duration::from_secs(10),
            stream: Duration::from_secs(60),
        }
    }
}

/// How long the polite end of a connection may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

type VirtResult<T> = std::result::Result<T, virt::error::Error>;

/// An open libvirt connection to one host.
pub struct Connection {
    // Dropped in this order: what came from the connection, then itself, then what it runs over.
    domains: Mutex<HashMap<String, Domain>>,
    volumes: Mutex<HashMap<(String, String), StorageVol>>,
    pools: Mutex<HashMap<String, StoragePool>>,
    /// Held while a pool or a volume by its key is looked up, so that of several threads that need it one asks.
    lookup: Mutex<()>,
    connect: Option<Connect>,
    _cancel_guard: CancelGuard,
    cancel: Cancel,
    streams: Streams,
    watchdog: Watchdog,
    link: Arc<Link>,
    host: String,
    limits: Limits,
    /// Whether the link ends with this connection: others may go through it.
    owns_link: bool,
    /// The fastest call so far, in nanoseconds.
    fastest: AtomicU64,
}

impl Connection {
    /// Opens libvirt's connection through `link` (`virConnectOpen`).
    ///
    /// Errors: [`Reason::PermissionDenied`], [`Reason::LibvirtUnavailable`], [`Reason::TimedOut`], or what the
    /// link remembers of its own failure.
    pub fn open(host: &str, link: Arc<Link>, cancel: &Cancel, limits: Limits) -> Result<Self> {
        Self::open_through(host, link, cancel, limits, None)
    }

    /// Another connection over the same link.
    fn open_beside(&self) -> Result<Self> {
        let _room = FileRoom::take()?;
        let link = Arc::clone(&self.link);
        Self::open_through(&self.host, link, &self.cancel, self.limits, Some(self))
    }

    fn open_through(
        host: &str,
        link: Arc<Link>,
        cancel: &Cancel,
        limits: Limits,
        beside: Option<&Connection>,
    ) -> Result<Self> {
        raw::load().map_err(|cause| no_library(cause).on_host(host))?;
        // Whoever closes the link closes it under all of them.
        let streams = beside.map_or_else(Streams::default, |other| other.streams.clone());
        let watchdog =
            Watchdog::start(streams.closer(link.closer())).map_err(|error| error.on_host(host))?;
        let guard = cancel.on_cancel(Box::new(streams.closer(link.closer())));
        let uri = uri::over(link.socket_path());
        let mut connection = Connection {
            domains: Mutex::default(),
            volumes: Mutex::default(),
            pools: Mutex::default(),
            lookup: Mutex::default(),
            connect: None,
            _cancel_guard: guard,
            cancel: cancel.clone(),
            streams,
            watchdog,
            link,
            host: host.to_owned(),
            limits,
            owns_link: beside.is_none(),
            fastest: AtomicU64::new(u64::MAX),
        };
        let opened = connection
            .attempt("virConnectOpen", &"", limits.rpc, || {
                Connect::open(Some(&uri))
            })
            .map_err(|failure| connection.open_error(&failure))?;
        connection.connect = Some(opened);
        Ok(connection)
    }

    fn open_error(&self, failure: &Failure) -> Error {
        let error = self.error(failure);
        if matches!(
            error.reason(),
            Reason::TimedOut | Reason::Interrupted | Reason::PermissionDenied
        ) {
            return error;
        }
        self.link.last_error().unwrap_or_else(|| {
            error
                .with_reason(Reason::LibvirtUnavailable)
                .while_doing("libvirt doesn't answer on its socket")
                .hint("on the host: systemctl status libvirtd")
                .hint("with modular daemons: systemctl status virtqemud virtproxyd")
        })
    }

    /// Whether the connection can still be used, as far as the client library knows by its socket; no round trip.
    pub fn is_alive(&self) -> bool {
        self.connect
            .as_ref()
            .is_some_and(|connect| connect.is_alive().unwrap_or(false))
    }

    fn connect(&self) -> &Connect {
        // Set before `open` hands the connection out.
        self.connect.as_ref().expect("the connection is open")
    }

    /// Makes one call: limited, logged, with its failure as numbers.
    fn attempt<T>(
        &self,
        rpc: &'static str,
        about: &dyn Display,
        limit: Duration,
        call: impl FnOnce() -> VirtResult<T>,
    ) -> std::result::Result<T, Failure> {
        let started = Instant::now();
        let call = || call().map_err(|error| numbers(&error));
        #[cfg(feature = "fault-injection")]
        let call = || super::faults::around(rpc, &self.link, &self.streams, call);
        let (result, timed_out) = self.watchdog.limited(limit, call);
        let duration = started.elapsed();
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.fastest.fetch_min(nanos, Ordering::Relaxed);
        let duration = duration.as_secs_f64();
        match result {
            Ok(value) => {
                log::info!(
                    "host={} rpc={rpc}{about} duration={duration:.3}s",
                    self.host
                );
                Ok(value)
            }
            Err(raw) => {
                log::info!(
                    "host={} rpc={rpc}{about} duration={duration:.3}s error={} code={} message={:?}",
                    self.host,
                    raw.name(),
                    raw.code,
                    raw.message
                );
                Err(Failure {
                    rpc,
                    about: about.to_string(),
                    raw,
                    timed_out,
                })
            }
        }
    }

    /// One call whose every failure is an error.
    fn rpc<T>(
        &self,
        rpc: &'static str,
        about: &dyn Display,
        call: impl FnOnce() -> VirtResult<T>,
    ) -> Result<T> {
        self.attempt(rpc, about, self.limits.rpc, call)
            .map_err(|failure| self.error(&failure))
    }

    /// Gives all of `data` to a stream. Each piece has the stream's limit, and no line in the log.
    fn send(&self, stream: &Stream, about: &str, mut data: &[u8]) -> Result<()> {
        let limit = self.limits.stream;
        while !data.is_empty() {
            // The stream is aborted in good order then, before whoever cancelled closes the link.
            self.cancel.check()?;
            let send = || stream.send(data).map_err(|error| numbers(&error));
            let (sent, timed_out) = self.watchdog.limited(limit, send);
            let sent = sent.map_err(|raw| {
                self.error(&Failure {
                    rpc: "virStreamSend",
                    about: about.to_owned(),
                    raw,
                    timed_out,
                })
            })?;
            data = &data[usize::try_from(sent).unwrap_or(0).min(data.len())..];
        }
        Ok(())
    }

    /// What the client library reads from a handle without asking the daemon.
    fn local<T>(&self, result: VirtResult<T>) -> Result<T> {
        result.map_err(|error| {
            let what = "libvirt's client library failed";
            Error::transient(Reason::LibvirtError, what)
                .on_host(&self.host)
                .because(error.message())
        })
    }

    /// One call where `code` means that the object isn't there.
    fn find<T>(
        &self,
        rpc: &'static str,
        about: &dyn Display,
        code: u32,
        call: impl FnOnce() -> VirtResult<T>,
    ) -> Result<Option<T>> {
        match self.attempt(rpc, about, self.limits.rpc, call) {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.is(code) => Ok(None),
            Err(failure) => Err(self.error(&failure)),
        }
    }

    /// The failure as the person at the terminal should read it.
    fn error(&self, failure: &Failure) -> Error {
        let what = format!("{}{} failed", failure.rpc, failure.about);
        if let Some(signal) = self.cancel.signal() {
            return Error::new(
                Class::Interrupted(signal),
                Reason::Interrupted,
                "interrupted",
            )
            .on_host(&self.host);
        }
        if let Some(limit) = failure.timed_out {
            return Error::transient(
                Reason::TimedOut,
                format!(
                    "{}{} got no answer within {} s",
                    failure.rpc,
                    failure.about,
                    limit.as_secs()
                ),
            )
            .on_host(&self.host)
            .hint(format!(
                "the host, its network or its libvirt daemon may hang{ASK_CHECK}"
            ));
        }
        if failure.raw.is_of_rpc() && !self.is_alive() {
            let error = Error::transient(
                Reason::ConnectionLost,
                format!(
                    "the connection was lost during {}{}",
                    failure.rpc, failure.about
                ),
            )
            .on_host(&self.host);
            return match self.link.last_error() {
                Some(cause) => error.because(cause.message()),
                None => error.because(&failure.raw.message),
            };
        }
        if failure.raw.is_daemon_missing() {
            return self.daemon_missing(what, &failure.raw);
        }
        let (class, reason) = if failure.raw.is_pool_busy() {
            (Class::Transient, Reason::PoolBusy)
        } else {
            failure.raw.classify()
        };
        let error = Error::new(class, reason, what)
            .on_host(&self.host)
            .because(&failure.raw.message);
        if reason == Reason::PoolBusy {
            return error.hint(
                "somebody's job runs in the pool (a clone, a wipe): run it again when that is done",
            );
        }
        if reason == Reason::PoolFull {
            return error.hint(super::MAKE_ROOM);
        }
        if failure.raw.is_denied() {
            return error
                .at_stage("permission")
                .hint("the socket libvirt-sock-ro is for reading only: leave hosts[].socket out, or set it to /run/libvirt/libvirt-sock");
        }
        error
    }

    /// For a host with modular daemons where the one that this call needs doesn't run.
    fn daemon_missing(&self, what: String, raw: &LibvirtError) -> Error {
        let error = Error::transient(Reason::LibvirtUnavailable, what)
            .on_host(&self.host)
            .because(&raw.message);
        match raw.missing_daemon() {
            Some(daemon) => error.hint(format!(
                "on the host: systemctl enable --now {daemon}.socket"
            )),
            None => error.hint("on the host: systemctl status virtqemud virtstoraged virtnetworkd"),
        }
    }
}

fn no_library(cause: &str) -> Error {
    Error::permanent(
        Reason::LocalIo,
        "libvirt's client library can't be loaded on this machine",
    )
    .because(cause)
    .hint("apt-get install libvirt0")
}

impl Drop for Connection {
    /// Says good-bye to the daemon if that works at once; never hangs.
    fn drop(&mut self) {
        if self.owns_link && !self.is_alive() {
            self.link.close();
        }
        lock(&self.domains).clear();
        lock(&self.volumes).clear();
        lock(&self.pools).clear();
        let armed = self.watchdog.arm(CLOSE_LIMIT);
        drop(self.connect.take());
        drop(armed);
        if self.owns_link {
            self.link.close();
        }
    }
}

/// What a call is about, for the log and for errors: ` key=value`.
struct About<'a>(&'static str, &'a (dyn Display + Sync));

impl Display for About<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, " {}={}", self.0, self.1)
    }
}

/// A volume, for the log and for errors.
struct AboutVolume<'a>(&'a str, &'a str);

impl Display for AboutVolume<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, " pool={} volume={}", self.0, self.1)
    }
}
