//! Channels being opened, one at a time (libssh2 can't do more), and what each is for.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use ssh2::{Channel, ErrorCode};

use super::super::lane::{self, Lane};
use super::super::session::is_again;
use super::super::shared::{Command, ExecOutput, OpenError, Reply};
use super::channel::ChannelLane;
use super::exec::Exec;
use super::{Lost, Owner, Pump};
use crate::error::{Error, Reason};

/// libssh2's `LIBSSH2_ERROR_CHANNEL_FAILURE`: the server refused, the connection is fine.
const CHANNEL_FAILURE: i32 = -21;

/// A channel to open.
pub(super) struct Open {
    target: Target,
    purpose: Purpose,
    expires: Option<Instant>,
}

enum Target {
    Unix(String),
    Tcp(String, u16),
    Session,
}

enum Purpose {
    Forward(String, Reply<()>),
    Tcp(Reply<UnixStream>),
    Exec(String, Reply<ExecOutput>),
    Local(u64, Arc<UnixStream>),
    /// Whoever asked was told that the time is over; libssh2 has to go on all the same.
    Nobody,
}

impl Purpose {
    fn fail(self, error: OpenError) {
        // Whoever asked may have gone.
        let _ = match self {
            Purpose::Forward(_, reply) => reply.send(Err(error)).is_ok(),
            Purpose::Tcp(reply) => reply.send(Err(error)).is_ok(),
            Purpose::Exec(_, reply) => reply.send(Err(error)).is_ok(),
            Purpose::Local(..) | Purpose::Nobody => true,
        };
    }
}

impl Pump {
    /// Queues what the link's handle asked for.
    pub(super) fn take_commands(&mut self) {
        for (command, expires) in self.shared.take_commands() {
            let (target, purpose) = match command {
                Command::Forward { path, reply } => {
                    (Target::Unix(path.clone()), Purpose::Forward(path, reply))
                }
                Command::Tcp { host, port, reply } => {
                    (Target::Tcp(host, port), Purpose::Tcp(reply))
                }
                Command::Exec { command, reply } => {
                    (Target::Session, Purpose::Exec(command, reply))
                }
            };
            self.opens.push_back(Open {
                target,
                purpose,
                expires: Some(expires),
            });
        }
    }

    /// Accepts local connections; the first one gets the channel that is ready.
    pub(super) fn accept(&mut self) {
        let Some(path) = self.forward.clone() else {
            return;
        };
        while let Some(stream) = lane::accept(&self.listener) {
            let local = Arc::new(stream);
            let id = self.new_id();
            self.shared.add_local(id, &local);
            match self.ready.take() {
                Some(channel) if !channel.eof() => {
                    self.add_lane(id, local, channel);
                }
                stale => {
                    self.closing.extend(stale);
                    self.opens.push_back(Open {
                        target: Target::Unix(path.clone()),
                        purpose: Purpose::Local(id, local),
                        expires: None,
                    });
                }
            }
        }
    }

    /// Goes on opening the first channel in the queue.
    pub(super) fn step_open(&mut self) -> Result<bool, Lost> {
        if self.pending.is_some() {
            return Ok(false);
        }
        let Some(open) = self.opens.front() else {
            return Ok(false);
        };
        let result = match &open.target {
            Target::Unix(path) => self.session.channel_direct_streamlocal(path, None),
            Target::Tcp(host, port) => self.session.channel_direct_tcpip(host, *port, None),
            Target::Session => self.session.channel_session(),
        };
        match result {
            Err(cause) if is_again(&cause) => {
                self.claim(Owner::Open);
                return Ok(false);
            }
            Err(cause) if cause.code() != ErrorCode::Session(CHANNEL_FAILURE) => {
                return Err(Lost(cause.message().to_owned()));
            }
            result => {
                if let Some(open) = self.opens.pop_front() {
                    match result {
                        Ok(channel) => self.opened(open, channel),
                        Err(cause) => self.refused(open, cause.message()),
                    }
                }
            }
        }
        Ok(true)
    }

    fn opened(&mut self, open: Open, channel: Channel) {
        match open.purpose {
            Purpose::Forward(path, reply) => {
                self.forward = Some(path);
                self.closing.extend(self.ready.replace(channel));
                // Whoever asked may have gone.
                let _ = reply.send(Ok(()));
            }
            Purpose::Tcp(reply) => self.start_tcp(channel, &reply),
            Purpose::Exec(command, reply) => {
                let id = self.new_id();
                let exec = Exec::new(id, channel, command, open.expires, reply);
                self.execs.push(exec);
            }
            Purpose::Local(id, local) => self.add_lane(id, local, channel),
            Purpose::Nobody => self.closing.push(channel),
        }
    }

    /// The far end of a connection through this host: one half of a socket pair.
    fn start_tcp(&mut self, channel: Channel, reply: &Reply<UnixStream>) {
        let pair = UnixStream::pair().and_then(|(near, far)| {
            near.set_nonblocking(true)?;
            Ok((near, far))
        });
        match pair {
            Ok((near, far)) => {
                let near = Arc::new(near);
                let id = self.new_id();
                self.shared.add_local(id, &near);
                self.add_lane(id, near, channel);
                // Whoever asked may have gone; the lane then hangs up.
                let _ = reply.send(Ok(far));
            }
            Err(cause) => {
                self.closing.push(channel);
                let _ = reply.send(Err(OpenError::Refused(cause.to_string())));
            }
        }
    }

    fn refused(&mut self, open: Open, cause: &str) {
        if let (Purpose::Local(id, local), Target::Unix(path)) = (&open.purpose, &open.target) {
            self.shared.set_error(
                Error::transient(
                    Reason::LibvirtUnavailable,
                    format!("another channel to {path} can't be opened"),
                )
                .because(cause),
            );
            // It fails only where the peer was faster.
            let _ = local.shutdown(std::net::Shutdown::Both);
            self.shared.remove_local(*id);
        }
        open.purpose.fail(OpenError::Refused(cause.to_owned()));
    }

    /// Tells those whose time is over.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        for open in &mut self.opens {
            if open.expires.is_some_and(|end| end <= now) {
                open.expires = None;
                std::mem::replace(&mut open.purpose, Purpose::Nobody).fail(OpenError::Expired);
            }
        }
        self.expire_execs(now);
    }

    /// When [`Self::expire`] has to look next.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let opens = self.opens.iter().filter_map(|open| open.expires);
        opens
            .chain(self.execs.iter().filter_map(|exec| exec.expires))
            .min()
    }

    fn add_lane(&mut self, id: u64, local: Arc<UnixStream>, channel: Channel) {
        self.lanes
            .push(ChannelLane::new(Lane::new(id, local), channel));
    }

    pub(super) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
