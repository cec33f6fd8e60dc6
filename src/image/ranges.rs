//! Which block goes where: the volume is cut into ranges, and whichever stream is free takes the next.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::store::Block;
use super::stream::BLOCK;
use crate::error::Result;
use crate::parallel::lock;

/// Blocks of one range: 2 MiB, what a channel's window takes at once.
const RANGE_BLOCKS: usize = 8;
/// The same in bytes.
pub(super) const RANGE: u64 = (RANGE_BLOCKS * BLOCK) as u64;

/// Between two streams' openings: libvirtd refuses one while it opens another on the same volume (error 55), and each refusal
/// costs a round trip. At once, half of 24 were refused (measured).
const APART: Duration = Duration::from_millis(4);

/// What comes next.
pub(super) enum Next {
    /// These bytes: a whole [`BLOCK`], but for the last.
    Block(Block),
    /// Nothing: that was all, and it is right.
    End,
    /// Nothing: the rest will never come.
    Abort,
}

/// A part of the volume, and where its blocks come from.
pub(super) struct Range<'r> {
    /// Its first byte in the volume.
    pub(super) offset: u64,
    /// Its bytes.
    pub(super) length: u64,
    /// They come in this order.
    pub(super) blocks: Receiver<Waiting<'r>>,
}

/// Ranges to be taken, one at a time.
pub(super) struct Offers<'r> {
    ranges: Receiver<Range<'r>>,
    /// When the last one was taken.
    last: Option<Instant>,
}

impl<'r> Offers<'r> {
    /// What comes out of that channel.
    pub(super) fn new(ranges: Receiver<Range<'r>>) -> Self {
        Offers { ranges, last: None }
    }

    /// The next range, not too soon after the one before; none when there are no more.
    pub(super) fn take(&mut self) -> Option<Range<'r>> {
        let range = self.ranges.recv().ok()?;
        if let Some(last) = self.last {
            std::thread::sleep(APART.saturating_sub(last.elapsed()));
        }
        self.last = Some(Instant::now());
        Some(range)
    }
}

/// Cuts the volume into ranges, and hands each its blocks.
///
/// Ranges are offered before their bytes are here, and whichever stream is free takes the next: one that is slow holds
/// nobody up.
pub(super) struct Distribution<'r> {
    offer: Sender<Range<'r>>,
    /// Of the ranges that were offered and aren't full.
    feeds: VecDeque<Sender<Waiting<'r>>>,
    /// Bytes of the ranges that were offered.
    offered: u64,
    length: u64,
}

impl<'r> Distribution<'r> {
    /// Offers so many ranges at once.
    pub(super) fn new(length: u64, ahead: usize, offer: Sender<Range<'r>>) -> Self {
        let mut distribution = Distribution {
            offer,
            feeds: VecDeque::new(),
            offered: 0,
            length,
        };
        for _ in 0..ahead {
            distribution.offer_next();
        }
        distribution
    }

    fn offer_next(&mut self) {
        let (offset, left) = (self.offered, self.length - self.offered);
        if left == 0 {
            return;
        }
        let (feed, blocks) = channel();
        let length = left.min(RANGE);
        let range = Range {
            offset,
            length,
            blocks,
        };
        // Where nobody takes ranges any more, nobody makes room for blocks either.
        let _ = self.offer.send(range);
        self.feeds.push_back(feed);
        self.offered += length;
    }

    /// Hands out the blocks; stops early where a stream has gone.
    pub(super) fn run(
        mut self,
        next: &mut dyn FnMut() -> Result<Next>,
        room: &'r Room,
    ) -> Result<bool> {
        let ended = self.hand_out(next, room);
        if !matches!(ended, Ok(true)) {
            room.close();
        }
        ended
    }

    fn hand_out(&mut self, next: &mut dyn FnMut() -> Result<Next>, room: &'r Room) -> Result<bool> {
        loop {
            for _ in 0..RANGE_BLOCKS {
                let block = match next()? {
                    Next::Block(block) => block,
                    Next::End => return Ok(true),
                    Next::Abort => return Ok(false),
                };
                let (Some(waiting), Some(feed)) = (room.take(block), self.feeds.front()) else {
                    return Ok(false);
                };
                if feed.send(waiting).is_err() {
                    return Ok(false);
                }
            }
            self.feeds.pop_front();
            self.offer_next();
        }
    }
}

/// How many blocks may wait for the lanes, all together.
pub(super) struct Room {
    /// None, once a stream has gone.
    free: Mutex<Option<usize>>,
    changed: Condvar,
}

/// A block that waits for its turn.
pub(super) struct Waiting<'r> {
    /// The block.
    pub(super) block: Block,
    room: &'r Room,
}

impl Room {
    /// Room for so many blocks.
    pub(super) fn new(blocks: usize) -> Self {
        Room {
            free: Mutex::new(Some(blocks)),
            changed: Condvar::new(),
        }
    }

    /// Waits until there is room for the block; none where the room was closed.
    pub(super) fn take(&self, block: Block) -> Option<Waiting<'_>> {
        let mut free = self
            .changed
            .wait_while(self.free(), |free| *free == Some(0))
            .unwrap_or_else(PoisonError::into_inner);
        *free = Some((*free)? - 1);
        Some(Waiting { block, room: self })
    }

    /// Takes no more blocks.
    pub(super) fn close(&self) {
        *self.free() = None;
        self.changed.notify_all();
    }

    fn free(&self) -> MutexGuard<'_, Option<usize>> {
        lock(&self.free)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut free = self.room.free();
        *free = free.map(|free| free + 1);
        self.room.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::RecvTimeoutError;

    /// Blocks whose content is their number, so many of them; then the end.
    fn numbered(count: usize) -> impl FnMut() -> Result<Next> {
        let mut numbers = 0..count;
        move || {
            let block = numbers
                .next()
                .map(|number| Arc::new(number.to_le_bytes().to_vec()));
            Ok(block.map_or(Next::End, Next::Block))
        }
    }

    fn numbers(range: &Range<'_>) -> Vec<usize> {
        let number = |waiting: Waiting<'_>| waiting.block[..].try_into().unwrap();
        range
            .blocks
            .iter()
            .map(|waiting| usize::from_le_bytes(number(waiting)))
            .collect()
    }

    #[test]
    fn every_block_goes_to_its_own_range_and_an_abort_stops_them() {
        let room = Room::new(1000);
        let (offer, offered) = channel();
        let length = 2 * RANGE + 3 * BLOCK as u64;
        let distribution = Distribution::new(length, 2, offer);
        assert!(
            distribution
                .run(&mut numbered(2 * RANGE_BLOCKS + 3), &room)
                .unwrap()
        );
        let ranges: Vec<Range<'_>> = offered.iter().collect();
        let places: Vec<(u64, u64)> = ranges.iter().map(|r| (r.offset, r.length)).collect();
        let last = length - 2 * RANGE;
        assert_eq!(places, [(0, RANGE), (RANGE, RANGE), (2 * RANGE, last)]);
        let whole = 0..2 * RANGE_BLOCKS + 3;
        let found: Vec<usize> = ranges.iter().flat_map(numbers).collect();
        assert_eq!(found, whole.collect::<Vec<_>>());

        let (offer, _offered) = channel();
        let distribution = Distribution::new(length, 2, offer);
        assert!(!distribution.run(&mut || Ok(Next::Abort), &room).unwrap());
        assert!(room.take(Arc::new(Vec::new())).is_none());
    }

    #[test]
    fn only_so_many_ranges_are_offered_ahead() {
        let (offer, offered) = channel();
        let _distribution = Distribution::new(100 * RANGE, 3, offer);
        assert_eq!(offered.try_iter().count(), 3);
    }

    #[test]
    fn no_more_blocks_wait_than_there_is_room_for() {
        let room = Room::new(2);
        let block = || Arc::new(Vec::new());
        let (one, _two) = (room.take(block()), room.take(block()));
        let (taken, third) = channel();
        std::thread::scope(|scope| {
            let room = &room;
            scope.spawn(move || {
                let _third = room.take(block());
                taken.send(()).unwrap();
            });
            let wait = third.recv_timeout(Duration::from_millis(50));
            assert_eq!(wait, Err(RecvTimeoutError::Timeout));
            drop(one);
            third.recv_timeout(Duration::from_secs(10)).unwrap();
        });
    }

    #[test]
    fn a_stream_that_has_gone_stops_the_rest() {
        // Its range has nobody who takes blocks.
        let room = Room::new(1000);
        let (offer, offered) = channel();
        let distribution = Distribution::new(2 * RANGE, 1, offer);
        drop(offered.recv().unwrap());
        assert!(!distribution.run(&mut numbered(1000), &room).unwrap());

        // All have gone, and nobody makes room.
        let room = Room::new(1);
        let (offer, _offered) = channel();
        let distribution = Distribution::new(2 * RANGE, 1, offer);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                room.close();
            });
            assert!(!distribution.run(&mut numbered(1000), &room).unwrap());
        });
    }
}
