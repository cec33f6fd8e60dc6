//! What a link's handle and its pump thread share: the way to close everything at once.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::transport::Transport;
use crate::error::Error;
use crate::parallel::lock;

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

impl OpenError {
    /// For an error's cause.
    pub(super) fn words(&self) -> String {
        match self {
            OpenError::Refused(words) => words.clone(),
            OpenError::Local(cause) => cause.to_string(),
            OpenError::Expired => "no answer in time".into(),
            OpenError::Lost => "the connection was lost".into(),
        }
    }
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

/// A command, and when whoever asked stops waiting.
pub(super) type Asked = (Command, Instant);

/// The part of a link that any thread may use.
pub(super) struct Shared {
    closed: AtomicBool,
    wake: Notify,
    commands: UnboundedSender<Asked>,
    locals: Mutex<HashMap<u64, OwnedFd>>,
    next_local: AtomicU64,
    transport: Option<Transport>,
    last_error: Mutex<Option<Error>>,
}

impl Shared {
    /// With it comes what the pump is asked to do.
    pub(super) fn new(transport: Option<Transport>) -> (Arc<Self>, UnboundedReceiver<Asked>) {
        let (commands, asked) = unbounded_channel();
        let shared = Shared {
            closed: AtomicBool::new(false),
            wake: Notify::new(),
            commands,
            locals: Mutex::default(),
            next_local: AtomicU64::new(0),
            transport,
            last_error: Mutex::default(),
        };
        (Arc::new(shared), asked)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits until the link is closed.
    pub(super) async fn closed(&self) {
        while !self.is_closed() {
            // A notification that came before the wait is kept for it.
            self.wake.notified().await;
        }
    }

    /// Closes the local streams, then the connection: releases every blocked caller at once.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for (_, local) in lock(&self.locals).drain() {
            shut(&local);
        }
        if let Some(transport) = &self.transport {
            transport.shutdown();
        }
        self.wake.notify_one();
    }

    /// Registers a local stream for [`Self::close`], until [`Self::remove_local`] of the number given back.
    pub(super) fn add_local(&self, local: OwnedFd) -> u64 {
        let id = self.next_local.fetch_add(1, Ordering::Relaxed);
        let mut locals = lock(&self.locals);
        if self.is_closed() {
            shut(&local);
        } else {
            locals.insert(id, local);
        }
        id
    }

    pub(super) fn remove_local(&self, id: u64) {
        lock(&self.locals).remove(&id);
    }

    /// Has the pump do something and waits for its answer, at most that long.
    pub(super) fn ask<T>(
        &self,
        limit: Duration,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> std::result::Result<T, OpenError> {
        let (reply, answer) = std::sync::mpsc::channel();
        self.begin(limit, command(reply))?;
        // The pump keeps the limit, and drops the sender when it ends.
        answer.recv().unwrap_or(Err(OpenError::Lost))
    }

    /// Has the pump do something within that time; its answer goes where the command says.
    pub(super) fn begin(
        &self,
        limit: Duration,
        command: Command,
    ) -> std::result::Result<(), OpenError> {
        if self.is_closed() {
            return Err(OpenError::Lost);
        }
        let asked = (command, Instant::now() + limit);
        self.commands.send(asked).map_err(|_| OpenError::Lost)
    }

    pub(super) fn set_error(&self, error: Error) {
        *lock(&self.last_error) = Some(error);
    }

    pub(super) fn last_error(&self) -> Option<Error> {
        lock(&self.last_error).clone()
    }
}

fn shut(local: &OwnedFd) {
    // It fails only where the peer was faster.
    let _ = rustix::net::shutdown(local, rustix::net::Shutdown::Both);
}
