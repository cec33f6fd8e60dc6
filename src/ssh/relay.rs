//! The pump's counterpart for `local: true` hosts: relays to a unix socket of this machine.
//!
//! libvirt could connect there itself, but closing the relay releases a blocked call, as over SSH.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, SockAddr, Socket, Type};

use super::lane::{self, Lane};
use super::shared::{Command, OpenError, Shared};
use crate::error::{Error, Reason};

/// Runs until the link is closed.
pub(super) struct Relay {
    shared: Arc<Shared>,
    listener: UnixListener,
    forward: Option<String>,
    /// A connection to that socket for the next local connection.
    ready: Option<UnixStream>,
    lanes: Vec<(Lane, UnixStream)>,
    next_id: u64,
}

impl Relay {
    pub(super) fn new(listener: UnixListener, shared: Arc<Shared>) -> Self {
        Relay {
            shared,
            listener,
            forward: None,
            ready: None,
            lanes: Vec::new(),
            next_id: 0,
        }
    }

    /// The thread's body.
    pub(super) fn run(mut self) {
        while !self.shared.is_closed() {
            if let Err(cause) = self.wait() {
                self.shared.set_error(
                    Error::transient(Reason::LocalIo, "relaying to libvirt failed").because(cause),
                );
                break;
            }
            let shared = &self.shared;
            self.lanes.retain(|(lane, _)| {
                let finished = lane.is_finished();
                if finished {
                    shared.remove_local(lane.id);
                }
                !finished
            });
        }
    }

    /// Waits until something may happen, and carries what can be carried.
    fn wait(&mut self) -> std::io::Result<()> {
        let events = self.poll()?;
        for (lane_index, far, flags) in events.lanes {
            let (lane, stream) = &mut self.lanes[lane_index];
            if far {
                lane.down.fill_from(stream);
                lane.down.drain_to(&lane.local);
            } else {
                lane.local_event(flags);
            }
            lane.up.drain_to(stream);
        }
        if !events.wake.is_empty() {
            self.shared.clear_wake();
            self.take_commands();
        }
        if !events.listener.is_empty() {
            self.accept();
        }
        Ok(())
    }

    fn poll(&self) -> std::io::Result<Events> {
        let mut fds = vec![PollFd::new(self.shared.wake_fd(), PollFlags::IN)];
        if self.forward.is_some() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let first_lane = fds.len();
        let mut polled = Vec::new();
        for (index, (lane, far)) in self.lanes.iter().enumerate() {
            if let Some(flags) = lane.interest() {
                polled.push((index, false));
                fds.push(PollFd::from_borrowed_fd(lane.local.as_fd(), flags));
            }
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, lane.down.wants_input());
            flags.set(PollFlags::OUT, !lane.up.output().is_empty());
            if !flags.is_empty() {
                polled.push((index, true));
                fds.push(PollFd::from_borrowed_fd(far.as_fd(), flags));
            }
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
        }
        let lanes = fds[first_lane..]
            .iter()
            .zip(polled)
            .filter(|(fd, _)| !fd.revents().is_empty())
            .map(|(fd, (index, far))| (index, far, fd.revents()));
        Ok(Events {
            wake: fds[0].revents(),
            listener: if first_lane > 1 {
                fds[1].revents()
            } else {
                PollFlags::empty()
            },
            lanes: lanes.collect(),
        })
    }

    fn take_commands(&mut self) {
        let commands: VecDeque<_> = self.shared.take_commands();
        for (command, _) in commands {
            // Commands and TCP connections are the pump's; a dropped reply says so.
            if let Command::Forward { path, reply } = command {
                let result = connect(Path::new(&path)).map(|stream| {
                    self.ready = Some(stream);
                    self.forward = Some(path);
                });
                // Whoever asked may have gone.
                let _ = reply.send(result.map_err(OpenError::Local));
            }
        }
    }

    fn accept(&mut self) {
        let Some(path) = self.forward.clone() else {
            return;
        };
        while let Some(stream) = lane::accept(&self.listener) {
            let far = match self.ready.take() {
                Some(ready) => Ok(ready),
                None => connect(Path::new(&path)),
            };
            match far {
                Ok(far) => {
                    self.next_id += 1;
                    let local = Arc::new(stream);
                    self.shared.add_local(self.next_id, &local);
                    self.lanes.push((Lane::new(self.next_id, local), far));
                }
                Err(cause) => self.shared.set_error(
                    Error::transient(
                        Reason::LibvirtUnavailable,
                        format!("another connection to {path} can't be made"),
                    )
                    .because(cause),
                ),
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.finish();
    }
}

/// What poll(2) said; of the lanes only those with news, and whether it is the far side's.
struct Events {
    wake: PollFlags,
    listener: PollFlags,
    lanes: Vec<(usize, bool, PollFlags)>,
}

/// Connects without waiting: a daemon that doesn't accept must not block the thread.
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec().nonblocking(), None)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(UnixStream::from(OwnedFd::from(socket)))
}
