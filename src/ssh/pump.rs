//! The pump: one thread per link, whose event loop moves every byte of every connection through it.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::client::Ended;
use super::far::{Far, Stream};
use super::shared::{Asked, Command, OpenError, Reply, Shared};
use crate::error::{Error, Reason};
use crate::parallel::lock;

/// Each direction's buffer, in bytes: up is what libvirt sends in one packet of a stream, down are mostly answers.
const UP: usize = 256 * 1024;
const DOWN: usize = 64 * 1024;

/// Runs a link until it is closed, or its connection is lost.
pub(super) struct Pump {
    pub(super) shared: Arc<Shared>,
    pub(super) asked: UnboundedReceiver<Asked>,
    /// How an SSH session ended; nothing ever comes where there is none.
    pub(super) ended: UnboundedReceiver<Ended>,
    pub(super) far: Arc<Far>,
}

/// The host's socket that local connections are forwarded to.
#[derive(Default)]
struct Forward {
    path: String,
    /// A connection to it for the next local connection.
    ready: Option<Box<dyn Stream>>,
}

type SharedForward = Arc<Mutex<Forward>>;

impl Pump {
    /// The thread's body.
    pub(super) async fn run(mut self, listener: std::os::unix::net::UnixListener) {
        let lost = match UnixListener::from_std(listener) {
            Ok(listener) => self.work(&listener).await,
            Err(cause) => Some(Ended {
                cause: cause.to_string(),
                goodbye: false,
            }),
        };
        if let Some(Ended { cause, .. }) = lost.filter(|_| !self.shared.is_closed()) {
            log::debug!(target: super::LOG_TARGET, "SSH connection lost: {cause}");
            self.shared.set_error(
                Error::transient(Reason::ConnectionLost, "the SSH connection was lost")
                    .because(cause),
            );
        }
        // Who still waits is released; what was asked and not done is dropped with the receiver.
        self.shared.close();
    }

    async fn work(&mut self, listener: &UnixListener) -> Option<Ended> {
        let forward = SharedForward::default();
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&self.shared);
        let mut closed = pin!(shared.closed());
        loop {
            tokio::select! {
                () = &mut closed => return None,
                Some(ended) = self.ended.recv() => return Some(ended),
                Some((command, until)) = self.asked.recv() => {
                    let (shared, far) = (Arc::clone(&self.shared), Arc::clone(&self.far));
                    tasks.spawn(serve(shared, far, Arc::clone(&forward), command, until));
                }
                accepted = listener.accept() => match accepted {
                    Ok((local, _)) => {
                        let (shared, far) = (Arc::clone(&self.shared), Arc::clone(&self.far));
                        tasks.spawn(forward_local(shared, far, Arc::clone(&forward), local));
                    }
                    // Out of descriptors, or the peer was gone: the next one may do better.
                    Err(cause) => log::debug!(target: super::LOG_TARGET, "accept: {cause}"),
                },
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            }
        }
    }
}

/// Does what the link's handle asked for, within its time.
async fn serve(
    shared: Arc<Shared>,
    far: Arc<Far>,
    forward: SharedForward,
    command: Command,
    until: Instant,
) {
    match command {
        Command::Forward { path, reply } => {
            let opened = before(until, far.open_unix(&path)).await;
            answer(
                &reply,
                opened.map(|stream| {
                    *lock(&forward) = Forward {
                        path,
                        ready: Some(stream),
                    };
                }),
            );
        }
        Command::Exec { command, reply } => {
            answer(&reply, before(until, far.exec(&command)).await);
        }
        Command::Tcp { host, port, reply } => {
            match before(until, far.open_tcp(&host, port)).await {
                Err(error) => answer(&reply, Err(error)),
                Ok(stream) => match pair() {
                    Err(cause) => answer(&reply, Err(OpenError::Local(cause))),
                    Ok((near, other)) => {
                        answer(&reply, Ok(other));
                        carry(&shared, near, stream).await;
                    }
                },
            }
        }
    }
}

/// A socket pair: one end in the event loop, the other for whoever asked.
fn pair() -> io::Result<(UnixStream, StdUnixStream)> {
    let (near, other) = StdUnixStream::pair()?;
    near.set_nonblocking(true)?;
    Ok((UnixStream::from_std(near)?, other))
}

/// Carries a local connection to the host's socket; the first one by the connection that is ready.
async fn forward_local(
    shared: Arc<Shared>,
    far: Arc<Far>,
    forward: SharedForward,
    local: UnixStream,
) {
    let (path, ready) = {
        let mut forward = lock(&forward);
        (forward.path.clone(), forward.ready.take())
    };
    let opened = match ready {
        Some(stream) => Ok(stream),
        None => far.open_unix(&path).await,
    };
    match opened {
        Ok(stream) => carry(&shared, local, stream).await,
        // Dropping the local end tells the one who connected.
        Err(error) => shared.set_error(
            Error::transient(
                Reason::LibvirtUnavailable,
                format!("another connection to {path} can't be opened"),
            )
            .because(error.words()),
        ),
    }
}

/// Moves bytes both ways until both have ended; half-closes are carried over (RFC 4254 section 5.3).
async fn carry(shared: &Shared, mut local: UnixStream, mut stream: Box<dyn Stream>) {
    let Ok(handle) = local.as_fd().try_clone_to_owned() else {
        return;
    };
    let id = shared.add_local(handle);
    let ended = copy_bidirectional_with_sizes(&mut local, &mut stream, UP, DOWN).await;
    if let Err(cause) = ended {
        // Whoever uses the connection sees its end.
        log::trace!(target: super::LOG_TARGET, "a connection ended: {cause}");
    }
    shared.remove_local(id);
}

async fn before<T>(
    until: Instant,
    work: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    tokio::time::timeout_at(until.into(), work)
        .await
        .unwrap_or(Err(OpenError::Expired))
}

fn answer<T>(reply: &Reply<T>, result: Result<T, OpenError>) {
    // Whoever asked may have gone.
    let _ = reply.send(result);
}
