//! The pump: one thread per SSH session that moves every byte of every channel.
//!
//! libssh2 has one lock per session, so blocking calls from two threads would wait for each other.
//! Here the session never blocks. Each round tries every direction of every channel, then one
//! poll(2) waits for the connection, the local streams, the listener and the wake descriptor.
//!
//! libssh2 keeps one packet that the kernel took only in part, and lets nothing else be sent before
//! the call that made it is repeated with the same bytes. [`Pump::pending`] is that call's owner; it
//! goes first, and until it is through only reading goes on. A packet of the transport itself (key
//! re-exchange, answers to the server's keepalives) is repeated by reading: [`Pump::drive`].

mod channel;
mod exec;
mod open;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use ssh2::{BlockDirections, Channel, Session};

use self::channel::ChannelLane;
use self::exec::Exec;
use self::open::Open;
use super::session::{Transport, Wire, is_again, timespec};
use super::shared::Shared;
use crate::error::{Error, Reason};

/// How often to look again while data waits for room in a channel's window: only a safety net, as
/// libssh2 doesn't always tell for which direction it waits.
const STALLED: Duration = Duration::from_millis(20);

/// Runs a session until the link is closed or the connection is lost.
pub(super) struct Pump {
    shared: Arc<Shared>,
    session: Session,
    transport: Transport,
    listener: UnixListener,
    /// The host's socket that local connections are forwarded to, once it is known to work.
    forward: Option<String>,
    /// A channel to that socket for the next local connection.
    ready: Option<Channel>,
    lanes: Vec<ChannelLane>,
    opens: VecDeque<Open>,
    execs: Vec<Exec>,
    closing: Vec<Channel>,
    pending: Option<Owner>,
    next_id: u64,
    turn: usize,
}

/// Whose call has to be repeated before anything else can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Transport,
    Open,
    Lane(u64),
    Exec(u64),
    Closing,
}

/// The connection is gone, for this reason.
struct Lost(String);

impl Pump {
    pub(super) fn new(wire: Wire, listener: UnixListener, shared: Arc<Shared>) -> Self {
        Pump {
            shared,
            session: wire.session,
            transport: wire.transport,
            listener,
            forward: None,
            ready: None,
            lanes: Vec::new(),
            opens: VecDeque::new(),
            execs: Vec::new(),
            closing: Vec::new(),
            pending: None,
            next_id: 0,
            turn: 0,
        }
    }

    /// The thread's body.
    pub(super) fn run(mut self) {
        let lost = self.work();
        if let Some(Lost(cause)) = lost.filter(|_| !self.shared.is_closed()) {
            log::debug!(target: super::LOG_TARGET, "SSH connection lost: {cause}");
            self.shared.set_error(
                Error::transient(Reason::ConnectionLost, "the SSH connection was lost")
                    .because(cause),
            );
        }
    }

    fn work(&mut self) -> Option<Lost> {
        while !self.shared.is_closed() {
            let moved = match self.round() {
                Ok(moved) => moved,
                Err(lost) => return Some(lost),
            };
            self.expire();
            if let Err(lost) = self.wait(moved) {
                return Some(lost);
            }
        }
        None
    }

    /// Tries everything once; says whether anything happened.
    fn round(&mut self) -> Result<bool, Lost> {
        self.drive()?;
        let mut moved = match self.pending.take() {
            Some(Owner::Lane(id)) => {
                let index = self.lanes.iter().position(|lane| lane.lane.id == id);
                index.is_some_and(|index| self.step_lane(index))
            }
            Some(Owner::Open) => self.step_open()?,
            Some(Owner::Exec(id)) => self.step_exec(id),
            Some(Owner::Closing) => self.step_closing(),
            Some(Owner::Transport) | None => false,
        };
        moved |= self.step_open()?;
        if self.ready.as_ref().is_some_and(Channel::eof) {
            // The daemon has closed it: the next connection opens another one.
            self.closing.extend(self.ready.take());
        }
        let lanes = self.lanes.len();
        self.turn = self.turn.wrapping_add(1);
        for offset in 0..lanes {
            moved |= self.step_lane((self.turn + offset) % lanes);
        }
        let execs: Vec<u64> = self.execs.iter().map(|exec| exec.id).collect();
        for id in execs {
            moved |= self.step_exec(id);
        }
        moved |= self.retire_lanes();
        moved |= self.step_closing();
        Ok(moved)
    }

    /// Takes in whatever came from the server, and repeats the transport's own packets.
    ///
    /// Reading data isn't enough for that: libssh2 returns early there while a window adjustment
    /// waits. Waiting for a channel's end reads first, and has no other effect.
    fn drive(&mut self) -> Result<(), Lost> {
        let channels = self
            .lanes
            .iter_mut()
            .map(|lane| &mut lane.channel)
            .chain(self.ready.as_mut())
            .chain(self.execs.iter_mut().map(|exec| &mut exec.channel))
            .chain(self.closing.iter_mut());
        for channel in channels {
            match channel.wait_eof().and_then(|()| channel.wait_close()) {
                Err(cause) if is_again(&cause) => {
                    self.claim(Owner::Transport);
                    break;
                }
                Err(cause) => return Err(Lost(cause.message().to_owned())),
                // This one has ended: libssh2 didn't read.
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Makes a caller that was told to try again the owner of the unsent packet, if there is one.
    fn claim(&mut self, owner: Owner) {
        if self.pending.is_none() && self.is_blocked_outbound() {
            self.pending = Some(owner);
        }
    }

    fn is_blocked_outbound(&self) -> bool {
        matches!(
            self.session.block_directions(),
            BlockDirections::Outbound | BlockDirections::Both
        )
    }

    /// Whether a small packet would surely be taken whole.
    ///
    /// libssh2 builds end-of-file packets on its stack: one taken in part could never be repeated.
    fn may_send_small(&self) -> bool {
        let mut fds = [PollFd::new(&self.transport, PollFlags::OUT)];
        self.pending.is_none()
            && poll(&mut fds, Some(&timespec(Duration::ZERO))).is_ok_and(|ready| ready == 1)
    }

    /// Carries what can be carried between one channel and its local stream.
    fn step_lane(&mut self, index: usize) -> bool {
        let mut moved = false;
        let mut again = false;
        let may_send = self.pending.is_none();
        let room_for_end = self.lanes[index].lane.up.eof_due() && self.may_send_small();
        let lane = &mut self.lanes[index];
        if may_send {
            (moved, again) = lane.send();
        }
        if room_for_end {
            match lane.channel.send_eof() {
                Ok(()) => lane.lane.up.end_sink(),
                Err(cause) if is_again(&cause) => again = true,
                Err(_) => lane.lane.far_closed(),
            }
            moved |= lane.lane.up.sink_done();
        }
        let (received, read_again) = lane.receive();
        moved |= received | lane.lane.down.drain_to(&lane.lane.local);
        moved |= lane.notice_close();
        let id = lane.lane.id;
        self.lanes[index].repeat_read = read_again && self.is_blocked_outbound();
        if again || read_again {
            self.claim(Owner::Lane(id));
        }
        moved
    }

    /// Starts to close the channels of lanes that have nothing left to carry.
    fn retire_lanes(&mut self) -> bool {
        let mut retired = false;
        for index in (0..self.lanes.len()).rev() {
            let lane = &self.lanes[index].lane;
            // An owner of an unsent packet has to stay until that is out.
            if lane.is_finished() && self.pending != Some(Owner::Lane(lane.id)) {
                self.shared.remove_local(lane.id);
                self.closing.push(self.lanes.swap_remove(index).channel);
                retired = true;
            }
        }
        retired
    }

    /// Closes channels; each stays until the server has closed it too.
    fn step_closing(&mut self) -> bool {
        let mut closed = false;
        for index in (0..self.closing.len()).rev() {
            if !self.may_send_small() {
                break;
            }
            match self.closing[index].close() {
                Err(cause) if is_again(&cause) => self.claim(Owner::Closing),
                _ => {
                    self.closing.swap_remove(index);
                    closed = true;
                }
            }
        }
        closed
    }

    /// Waits until something may happen, and takes in what did on the local side.
    fn wait(&mut self, moved: bool) -> Result<(), Lost> {
        let timeout = self.timeout(moved);
        self.transport.rearm_quickack();
        let events = self.poll(timeout.as_ref())?;
        if !events.wake.is_empty() {
            self.shared.clear_wake();
            self.take_commands();
        }
        if !events.listener.is_empty() {
            self.accept();
        }
        for (lane, event) in self.lanes.iter_mut().zip(events.lanes) {
            lane.lane.local_event(event);
        }
        Ok(())
    }

    fn timeout(&self, moved: bool) -> Option<Duration> {
        if moved {
            return Some(Duration::ZERO);
        }
        let until_expiry = self
            .next_expiry()
            .map(|end| end.saturating_duration_since(Instant::now()));
        let again = self.is_stalled().then_some(STALLED);
        until_expiry.into_iter().chain(again).min()
    }

    /// Whether something waits to be sent.
    fn is_stalled(&self) -> bool {
        let sending = |lane: &ChannelLane| {
            !lane.lane.up.output().is_empty() || lane.lane.up.eof_due() || lane.repeat_read
        };
        let small = !self.execs.is_empty() || !self.closing.is_empty();
        self.pending.is_some()
            || self.lanes.iter().any(sending)
            || (small && !self.may_send_small())
    }

    fn poll(&self, timeout: Option<&Duration>) -> Result<Events, Lost> {
        let mut transport = PollFlags::IN;
        if !self.has_channels() {
            // Nothing could read then: only the connection's end matters.
            transport = PollFlags::RDHUP;
        }
        transport.set(PollFlags::OUT, self.pending.is_some());
        let mut fds = vec![
            PollFd::new(self.shared.wake_fd(), PollFlags::IN),
            PollFd::new(&self.transport, transport),
        ];
        if self.forward.is_some() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let first_lane = fds.len();
        let mut polled = Vec::with_capacity(self.lanes.len());
        for (index, lane) in self.lanes.iter().enumerate() {
            if let Some(flags) = lane.lane.interest() {
                polled.push(index);
                fds.push(PollFd::from_borrowed_fd(lane.lane.local.as_fd(), flags));
            }
        }
        match poll(&mut fds, timeout.map(|limit| timespec(*limit)).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(cause) => return Err(Lost(format!("poll: {cause}"))),
        }
        let mut events = Events {
            wake: fds[0].revents(),
            listener: PollFlags::empty(),
            lanes: vec![PollFlags::empty(); self.lanes.len()],
        };
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        if !self.has_channels() && fds[1].revents().intersects(ended) {
            return Err(Lost("the server closed the connection".into()));
        }
        if first_lane > 2 {
            events.listener = fds[2].revents();
        }
        for (fd, index) in fds[first_lane..].iter().zip(polled) {
            events.lanes[index] = fd.revents();
        }
        Ok(events)
    }

    fn has_channels(&self) -> bool {
        self.ready.is_some()
            || !(self.lanes.is_empty()
                && self.execs.is_empty()
                && self.closing.is_empty()
                && self.opens.is_empty())
    }
}

impl Drop for Pump {
    /// Sockets first: libssh2's clean-up then fails at once instead of waiting for the server.
    fn drop(&mut self) {
        self.shared.finish();
    }
}

/// What poll(2) said, lane by lane.
struct Events {
    wake: PollFlags,
    listener: PollFlags,
    lanes: Vec<PollFlags>,
}
