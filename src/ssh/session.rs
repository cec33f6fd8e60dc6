//! One SSH session being set up: every libssh2 call with the dial's deadline and cancellation.

use std::fmt;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ssh2::{BlockDirections, ErrorCode, MethodType, Session};

use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};

/// How often a wait looks whether the run was cancelled.
const CANCEL_SLICE: Duration = Duration::from_millis(50);

/// libssh2's `LIBSSH2_ERROR_EAGAIN`.
const EAGAIN: i32 = -37;

/// libssh2's fastest cipher first, never CBC.
const CIPHERS: &str = "chacha20-poly1305@openssh.com,aes256-gcm@openssh.com,\
                       aes128-gcm@openssh.com,aes256-ctr,aes192-ctr,aes128-ctr";

/// What the SSH packets travel over; a clone is another handle to the same socket.
#[derive(Debug, Clone)]
pub(super) enum Transport {
    /// Straight to the host.
    Tcp(Arc<TcpStream>),
    /// Through a jump host: the other end is a lane of its pump.
    Jump(Arc<UnixStream>),
}

impl Transport {
    /// Ends the connection at once; whoever waits on it is released.
    pub(super) fn shutdown(&self) {
        // It fails only where the peer was faster.
        let _ = match self {
            Transport::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Transport::Jump(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Has the next acknowledgement sent at once; Linux forgets the option, so before every wait.
    ///
    /// Delayed acknowledgements cost 40 ms per round trip of small packets.
    pub(super) fn rearm_quickack(&self) {
        if let Transport::Tcp(stream) = self {
            // Only a matter of speed.
            let _ = rustix::net::sockopt::set_tcp_quickack(stream, true);
        }
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Transport::Tcp(stream) => stream.as_fd(),
            Transport::Jump(stream) => stream.as_fd(),
        }
    }
}

impl AsRawFd for Transport {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

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

    pub(super) fn expired(&self, stage: &str) -> Error {
        Error::transient(
            Reason::TimedOut,
            format!("no answer within {:?} while {stage}", self.limit),
        )
    }

    /// How long to wait before looking again, at most.
    pub(super) fn slice(&self) -> Duration {
        self.left().min(CANCEL_SLICE)
    }
}

/// A libssh2 session over a transport, not yet pumped.
pub(super) struct Wire {
    pub(super) session: Session,
    pub(super) transport: Transport,
}

/// What a libssh2 call failed with.
pub(super) enum CallError {
    /// The deadline passed, or the run was cancelled.
    Stopped(Error),
    /// libssh2's own error.
    Ssh(ssh2::Error),
}

impl Wire {
    /// A non-blocking session that hasn't sent anything yet.
    pub(super) fn new(transport: Transport) -> Result<Self> {
        let failed = |cause: ssh2::Error| {
            Error::permanent(Reason::LocalIo, "can't set up an SSH session").because(cause)
        };
        let mut session = Session::new().map_err(failed)?;
        session.set_tcp_stream(transport.clone());
        session.set_blocking(false);
        for direction in [MethodType::CryptCs, MethodType::CryptSc] {
            session.method_pref(direction, CIPHERS).map_err(failed)?;
        }
        Ok(Wire { session, transport })
    }

    /// Repeats a call until it is done, waiting for the network in between.
    pub(super) fn call<T>(
        &mut self,
        deadline: &Deadline,
        stage: &str,
        mut call: impl FnMut(&mut Session) -> std::result::Result<T, ssh2::Error>,
    ) -> std::result::Result<T, CallError> {
        loop {
            deadline.check(stage).map_err(CallError::Stopped)?;
            match call(&mut self.session) {
                Err(error) if is_again(&error) => self.wait(deadline.slice()),
                Err(error) => return Err(CallError::Ssh(error)),
                Ok(value) => return Ok(value),
            }
        }
    }

    fn wait(&self, at_most: Duration) {
        let flags = match self.session.block_directions() {
            BlockDirections::Outbound => PollFlags::OUT,
            BlockDirections::Both => PollFlags::IN | PollFlags::OUT,
            BlockDirections::Inbound | BlockDirections::None => PollFlags::IN,
        };
        self.transport.rearm_quickack();
        let mut fds = [PollFd::new(&self.transport, flags)];
        // A failed poll shows again in the call that follows.
        let _ = poll(&mut fds, Some(&timespec(at_most)));
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// Whether the call has to be repeated when the network allows.
pub(super) fn is_again(error: &ssh2::Error) -> bool {
    error.code() == ErrorCode::Session(EAGAIN)
}

/// A duration as poll(2) takes it.
pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
