//! One local connection and its channel: the bytes between them, as far as libssh2 lets them go.

use std::io::{ErrorKind, Read, Write};

use ssh2::Channel;

use super::super::lane::{Lane, READ_CHUNK};

/// How many reads or writes of one channel come in a row before it is the next one's turn.
const BURST: usize = 8;

/// A local connection and the channel it is carried over.
pub(super) struct ChannelLane {
    pub(super) lane: Lane,
    pub(super) channel: Channel,
    /// Whether the last read left an unsent window adjustment, which only another read can finish.
    pub(super) repeat_read: bool,
}

impl ChannelLane {
    pub(super) fn new(lane: Lane, channel: Channel) -> Self {
        ChannelLane {
            lane,
            channel,
            repeat_read: false,
        }
    }

    /// Sends waiting bytes; says whether anything happened and whether to try again.
    pub(super) fn send(&mut self) -> (bool, bool) {
        let mut moved = false;
        for _ in 0..BURST {
            if self.lane.up.output().is_empty() {
                break;
            }
            match self.channel.write(self.lane.up.output()) {
                // No room in the channel's window.
                Ok(0) => break,
                Ok(count) => self.lane.up.consumed(count),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return (moved, true),
                Err(_) => self.lane.far_closed(),
            }
            moved = true;
        }
        (moved, false)
    }

    /// Takes in the channel's bytes; says whether anything happened and whether to try again.
    pub(super) fn receive(&mut self) -> (bool, bool) {
        let mut moved = false;
        let down = &mut self.lane.down;
        for _ in 0..BURST {
            if !down.wants_input() {
                break;
            }
            // Always the same size: a window adjustment that is repeated must be the same, too.
            match self.channel.read(&mut down.room()[..READ_CHUNK]) {
                Ok(0) if !self.channel.eof() => break,
                Ok(0) => down.end_source(),
                Ok(count) => down.filled(count),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return (moved, true),
                Err(_) => down.end_source(),
            }
            moved = true;
        }
        if self.repeat_read && !moved && !down.wants_input() {
            // The local reader has gone meanwhile: there is nobody to keep the bytes for.
            let result = self.channel.read(&mut vec![0; READ_CHUNK]);
            return (
                false,
                result.is_err_and(|e| e.kind() == ErrorKind::WouldBlock),
            );
        }
        (moved, false)
    }

    /// Ends the lane when the server has closed the channel, which takes nothing any more then.
    ///
    /// Without that, a local peer that stays would keep an ended channel, which nobody can read.
    pub(super) fn notice_close(&mut self) -> bool {
        let ended = self.lane.down.source_done() && !self.lane.up.sink_done();
        // An error that isn't "try again" is a lost connection, which shows elsewhere.
        if ended && self.channel.wait_close().is_ok() {
            self.lane.far_closed();
            return true;
        }
        false
    }
}
