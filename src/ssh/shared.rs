//! What a link's handle and its pump thread share: the way to close everything at once.

use std::collections::{HashMap, VecDeque};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::session::Transport;
use crate::error::{Error, Reason, Result};

/// What a host's command printed and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// The bytes of its standard output, the first MiB of them.
    pub stdout: Vec<u8>,
    /// Its exit status; none when a signal ended it.
    pub exit_status: Option<i32>,
}

/// Why something could not be opened.
#[derive(Debug)]
pub(super) enum OpenError {
    /// The server (or the kernel) refused, in its own words.
    Refused(String),
    /// The kernel of this machine refused.
    Local(std::io::Error),
    /// The time was over.
    Expired,
    /// The connection is gone.
    Lost,
}

/// Where a reply goes.
pub(super) type Reply<T> = std::sync::mpsc::Sender<std::result::Result<T, OpenError>>;

/// What the pump is asked to do.
pub(super) enum Command {
    /// Open a channel to a unix socket of the host, and use it for the next local connection.
    Forward { path: String, reply: Reply<()> },
    /// Open a TCP connection from the host.
    Tcp {
        host: String,
        port: u16,
        reply: Reply<UnixStream>,
    },
    /// Run a command on the host.
    Exec {
        command: String,
        reply: Reply<ExecOutput>,
    },
}

/// The part of a link that any thread may use.
pub(super) struct Shared {
    wake: OwnedFd,
    closed: AtomicBool,
    commands: Mutex<VecDeque<(Command, Instant)>>,
    locals: Mutex<HashMap<u64, Arc<UnixStream>>>,
    transport: Option<Transport>,
    last_error: Mutex<Option<Error>>,
}

impl Shared {
    pub(super) fn new(transport: Option<Transport>) -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|cause| {
            Error::transient(Reason::LocalIo, "can't make an event descriptor").because(cause)
        })?;
        Ok(Shared {
            wake,
            closed: AtomicBool::new(false),
            commands: Mutex::default(),
            locals: Mutex::default(),
            transport,
            last_error: Mutex::default(),
        })
    }

    /// Readable when the pump should look at [`Self::take_commands`] and [`Self::is_closed`].
    pub(super) fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Closes the local streams, then the connection: releases every blocked caller at once.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for (_, local) in locked(&self.locals).drain() {
            // It fails only where the peer was faster.
            let _ = local.shutdown(Shutdown::Both);
        }
        if let Some(transport) = &self.transport {
            transport.shutdown();
        }
        self.wake();
    }

    fn wake(&self) {
        // The counter is full only when the pump has been told often enough.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Makes the wake descriptor quiet again.
    pub(super) fn clear_wake(&self) {
        // Nothing to read means nothing to clear.
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
    }

    /// Registers a local stream for [`Self::close`].
    pub(super) fn add_local(&self, id: u64, local: &Arc<UnixStream>) {
        let mut locals = locked(&self.locals);
        if self.is_closed() {
            // It fails only where the peer was faster.
            let _ = local.shutdown(Shutdown::Both);
        } else {
            locals.insert(id, Arc::clone(local));
        }
    }

    pub(super) fn remove_local(&self, id: u64) {
        locked(&self.locals).remove(&id);
    }

    pub(super) fn take_commands(&self) -> VecDeque<(Command, Instant)> {
        std::mem::take(&mut locked(&self.commands))
    }

    /// Has the pump do something and waits for its answer, at most that long.
    pub(super) fn ask<T>(
        &self,
        limit: Duration,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> std::result::Result<T, OpenError> {
        let (reply, answer) = std::sync::mpsc::channel();
        {
            let mut commands = locked(&self.commands);
            if self.is_closed() {
                return Err(OpenError::Lost);
            }
            commands.push_back((command(reply), Instant::now() + limit));
        }
        self.wake();
        // The pump keeps the limit, and drops the sender when it ends.
        answer.recv().unwrap_or(Err(OpenError::Lost))
    }

    /// The pump has ended: nothing more is accepted, and who still waits is released.
    pub(super) fn finish(&self) {
        self.close();
        locked(&self.commands).clear();
    }

    pub(super) fn set_error(&self, error: Error) {
        *locked(&self.last_error) = Some(error);
    }

    pub(super) fn last_error(&self) -> Option<Error> {
        locked(&self.last_error).clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
