//! One SSH session being set up: every step with the dial's deadline and cancellation.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use russh::client::{self, Handle};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;

use super::client::{Client, Ended, HandshakeError};
use super::transport::{Socket, Transport};
use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};

/// How often a wait looks whether the run was cancelled.
const CANCEL_SLICE: Duration = Duration::from_millis(50);

/// What to look at where a server stops answering.
pub(super) const HANGS: &str = "it takes connections, but doesn't answer: is the host overloaded, or its sshd halted? on its console: systemctl restart ssh";

/// A point in time by which the dial must be done, and the flag that ends it earlier.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    end: Instant,
    limit: Duration,
    cancel: Cancel,
}

impl Deadline {
    pub(super) fn new(limit: Duration, cancel: &Cancel) -> Self {
        Deadline {
            end: Instant::now() + limit,
            limit,
            cancel: cancel.clone(),
        }
    }

    pub(super) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The time for everything, from the beginning.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Fails when the run was cancelled or the time is over; `stage` is what was being done.
    pub(super) fn check(&self, stage: &str) -> Result<()> {
        self.cancel.check()?;
        if self.left().is_zero() {
            return Err(self.expired(stage));
        }
        Ok(())
    }

    /// Nothing came back within the time, not even a connection.
    pub(super) fn silence(&self, stage: &str) -> Error {
        Error::transient(
            Reason::TimedOut,
            format!("no answer within {:?} while {stage}", self.limit),
        )
    }

    pub(super) fn expired(&self, stage: &str) -> Error {
        self.silence(stage).hint(HANGS)
    }

    /// That a file of the configuration gave nothing, or no end, within the time: the cause, and what to do about it.
    pub(super) fn nothing_came(&self) -> (String, &'static str) {
        (
            self.nothing_within(),
            "a pipe needs somebody who writes into it, and ends, each time that a host is dialled; a file on another machine needs that machine",
        )
    }

    /// That something gave nothing, or no end, within the time: the cause.
    pub(super) fn nothing_within(&self) -> String {
        format!("nothing came from it within {:?}", self.limit)
    }

    /// How long to wait before looking again, at most.
    pub(super) fn slice(&self) -> Duration {
        self.left().min(CANCEL_SLICE)
    }

    /// Waits for something; not beyond the deadline, nor when the run is cancelled.
    async fn bound<T>(&self, stage: &str, work: impl Future<Output = T>) -> Result<T> {
        let mut work = pin!(work);
        loop {
            self.check(stage)?;
            if let Ok(done) = tokio::time::timeout(self.slice(), &mut work).await {
                return Ok(done);
            }
        }
    }
}

/// A session over a transport, not yet pumped: its tasks run only while something is waited for.
pub(super) struct Wire {
    pub(super) runtime: Runtime,
    pub(super) handle: Handle<Client>,
    pub(super) ended: UnboundedReceiver<Ended>,
    pub(super) transport: Transport,
}

/// What a handshake failed with.
pub(super) enum DialError {
    /// The deadline passed, or the run was cancelled.
    Stopped(Error),
    /// The other side, or what it offered.
    Handshake(HandshakeError),
}

impl Wire {
    /// Shakes hands; the client judges the host's key.
    pub(super) fn handshake(
        transport: Transport,
        config: client::Config,
        client: Client,
        ended: UnboundedReceiver<Ended>,
        deadline: &Deadline,
        stage: &str,
    ) -> std::result::Result<Self, DialError> {
        let runtime = runtime().map_err(DialError::Stopped)?;
        let shaken = runtime.block_on(async {
            let socket = Socket::new(&transport).map_err(|cause| {
                DialError::Handshake(HandshakeError::Ssh(russh::Error::IO(cause)))
            })?;
            let connecting = client::connect_stream(Arc::new(config), socket, client);
            let connected = deadline.bound(stage, connecting).await;
            connected
                .map_err(DialError::Stopped)?
                .map_err(DialError::Handshake)
        });
        Ok(Wire {
            handle: shaken?,
            runtime,
            ended,
            transport,
        })
    }

    /// Does something with the session, as long as the deadline allows.
    pub(super) fn call<T>(
        &mut self,
        deadline: &Deadline,
        stage: &str,
        call: impl AsyncFnOnce(&mut Handle<Client>) -> T,
    ) -> Result<T> {
        let handle = &mut self.handle;
        self.runtime.block_on(deadline.bound(stage, call(handle)))
    }

    /// How the session ended; none while it lasts.
    pub(super) fn ended(&mut self) -> Option<Ended> {
        if !self.handle.is_closed() {
            return None;
        }
        // The session's task says how it ended right after it closes the handle.
        let patience = Duration::from_millis(100);
        let said = self
            .runtime
            .block_on(async { tokio::time::timeout(patience, self.ended.recv()).await });
        Some(said.ok().flatten().unwrap_or_else(Ended::unknown))
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// What drives one link: everything on the thread that waits.
pub(super) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|cause| {
            Error::transient(Reason::LocalIo, "can't set up an event loop").because(cause)
        })
}
