//! One forwarded connection's local side: bounded buffers, and half-closes carried over.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;

/// Each direction's buffer, in bytes. libvirt sends streams in messages of this size.
pub(super) const BUFFER: usize = 256 * 1024;

/// The least room worth a read, in bytes; a channel is always asked for exactly this much.
pub(super) const READ_CHUNK: usize = 64 * 1024;

/// One direction: from a source through a buffer to a sink.
#[derive(Debug, Default)]
pub(super) struct Flow {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    source_done: bool,
    sink_done: bool,
}

impl Flow {
    /// Whether the source should be read.
    pub(super) fn wants_input(&self) -> bool {
        !self.source_done && BUFFER - (self.end - self.start) >= READ_CHUNK
    }

    /// The bytes waiting for the sink.
    pub(super) fn output(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether the sink must be told that nothing more comes.
    pub(super) fn eof_due(&self) -> bool {
        self.source_done && self.start == self.end && !self.sink_done
    }

    /// Whether the source has ended.
    pub(super) fn source_done(&self) -> bool {
        self.source_done
    }

    /// Whether the sink was told, or is gone.
    pub(super) fn sink_done(&self) -> bool {
        self.sink_done
    }

    /// Room for at least [`READ_CHUNK`] bytes; call only when [`Self::wants_input`].
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = vec![0; BUFFER];
        }
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if BUFFER - self.end < READ_CHUNK {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.bytes[self.end..]
    }

    /// Records that the source put that many bytes into [`Self::room`].
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Records that the sink took that many bytes of [`Self::output`].
    pub(super) fn consumed(&mut self, count: usize) {
        self.start += count;
    }

    /// Records the source's end.
    pub(super) fn end_source(&mut self) {
        self.source_done = true;
    }

    /// Records that the sink knows of the end, or is gone; what was left for it is dropped.
    pub(super) fn end_sink(&mut self) {
        self.source_done = true;
        self.sink_done = true;
        self.start = self.end;
    }

    /// Reads a stream until it blocks or the buffer is full; says whether anything happened.
    pub(super) fn fill_from(&mut self, mut stream: &UnixStream) -> bool {
        let mut moved = false;
        while self.wants_input() {
            match stream.read(self.room()) {
                Ok(0) => self.end_source(),
                Ok(count) => self.filled(count),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => break,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                // A connection reset: there is no more to come from there.
                Err(_) => self.end_source(),
            }
            moved = true;
        }
        moved
    }

    /// Writes to a stream until it blocks or the buffer is empty; says whether anything happened.
    pub(super) fn drain_to(&mut self, mut stream: &UnixStream) -> bool {
        let mut moved = false;
        while !self.output().is_empty() {
            match stream.write(self.output()) {
                Ok(count) => self.consumed(count),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => break,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                // The reader is gone.
                Err(_) => self.end_sink(),
            }
            moved = true;
        }
        if self.eof_due() {
            // It fails only where the stream is closed already.
            let _ = stream.shutdown(Shutdown::Write);
            self.end_sink();
            moved = true;
        }
        moved
    }
}

/// A local connection and its two directions; the far side is the owner's.
#[derive(Debug)]
pub(super) struct Lane {
    /// Unique within a link.
    pub(super) id: u64,
    /// The local stream, non-blocking.
    pub(super) local: Arc<UnixStream>,
    /// From the local stream to the far side.
    pub(super) up: Flow,
    /// From the far side to the local stream.
    pub(super) down: Flow,
    /// Whether the local peer has closed altogether.
    hung_up: bool,
}

impl Lane {
    pub(super) fn new(id: u64, local: Arc<UnixStream>) -> Self {
        Lane {
            id,
            local,
            up: Flow::default(),
            down: Flow::default(),
            hung_up: false,
        }
    }

    /// What to poll the local stream for; none when there is nothing to learn from it.
    pub(super) fn interest(&self) -> Option<PollFlags> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.up.wants_input());
        flags.set(PollFlags::OUT, !self.down.output().is_empty());
        // Without flags poll(2) still reports a hang-up, again and again: ask until it is known.
        (!flags.is_empty() || !self.hung_up).then_some(flags)
    }

    /// Takes in what poll(2) said about the local stream; says whether anything happened.
    pub(super) fn local_event(&mut self, events: PollFlags) -> bool {
        if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            self.hung_up = true;
        }
        let mut moved = false;
        if !events.is_empty() {
            moved |= self.up.fill_from(&self.local);
        }
        if events.contains(PollFlags::OUT) || self.hung_up {
            moved |= self.down.drain_to(&self.local);
        }
        moved
    }

    /// Whether nothing is left to carry: both ends told, or nobody left to carry answers to.
    pub(super) fn is_finished(&self) -> bool {
        let nobody_listens = self.hung_up && self.up.source_done();
        let sent = self.up.sink_done() || (nobody_listens && self.up.output().is_empty());
        sent && (self.down.sink_done() || nobody_listens)
    }

    /// The far side takes no more: the local writer must learn of it.
    pub(super) fn far_closed(&mut self) {
        self.up.end_sink();
        // It fails only where the stream is closed already.
        let _ = self.local.shutdown(Shutdown::Read);
    }
}

/// The next connection to a private socket, non-blocking; none when no more wait.
pub(super) fn accept(listener: &UnixListener) -> Option<UnixStream> {
    let accepted = listener
        .accept()
        .and_then(|(stream, _)| stream.set_nonblocking(true).map(|()| stream));
    match accepted {
        Ok(stream) => Some(stream),
        Err(cause) => {
            if cause.kind() != ErrorKind::WouldBlock {
                log::warn!(target: super::LOG_TARGET, "a local connection failed: {cause}");
                // Too many open files: poll(2) would report the same connection at once again.
                std::thread::sleep(Duration::from_millis(10));
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Lane, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (Lane::new(0, Arc::new(near)), far)
    }

    #[test]
    fn the_buffer_is_bounded_and_keeps_the_order() {
        let mut flow = Flow::default();
        let mut sent = 0_u32;
        let mut seen = Vec::new();
        for round in 0..200 {
            while flow.wants_input() {
                let room = flow.room();
                assert!(room.len() >= READ_CHUNK);
                for chunk in room[..READ_CHUNK].chunks_exact_mut(4) {
                    chunk.copy_from_slice(&sent.to_be_bytes());
                    sent += 1;
                }
                flow.filled(READ_CHUNK);
            }
            assert!(flow.output().len() <= BUFFER);
            let count = flow.output().len().min(4 * (1 + round * 977 % 30_000));
            seen.extend_from_slice(&flow.output()[..count]);
            flow.consumed(count);
        }
        for (index, chunk) in seen.chunks_exact(4).enumerate() {
            assert_eq!(chunk, u32::try_from(index).unwrap().to_be_bytes());
        }
    }

    #[test]
    fn a_half_close_still_carries_the_answer() {
        let (mut lane, mut peer) = pair();
        peer.write_all(b"ask").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert!(lane.local_event(PollFlags::IN));
        assert_eq!(lane.up.output(), b"ask");
        lane.up.consumed(3);
        assert!(lane.up.eof_due() && !lane.is_finished());
        lane.up.end_sink();
        lane.down.room()[..6].copy_from_slice(b"answer");
        lane.down.filled(6);
        lane.down.end_source();
        assert!(lane.local_event(PollFlags::OUT));
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
        assert!(lane.is_finished());
    }

    #[test]
    fn a_hang_up_is_final_once_everything_was_sent() {
        let (mut lane, mut peer) = pair();
        peer.write_all(b"last words").unwrap();
        drop(peer);
        lane.local_event(PollFlags::IN | PollFlags::HUP);
        assert!(!lane.is_finished());
        lane.up.consumed(10);
        assert!(lane.is_finished());
        assert_eq!(lane.interest(), None);
    }
}
