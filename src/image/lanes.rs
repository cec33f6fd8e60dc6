//! One volume's upload: over one stream, or over distance over several at once.
//!
//! The volume is written in ranges. Each is a stream that is opened and finished, at a round trip each; so every lane has
//! two of them in turn, and the next is opened before its bytes are here.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::approach::Lanes;
use super::store::Block;
use super::stream::BLOCK;
use crate::error::Result;
use crate::libvirt::Hypervisor;
use crate::parallel::panicked;

/// Blocks of one range: 2 MiB, what a channel's window takes at once.
const RANGE_BLOCKS: usize = 8;
const RANGE: u64 = (RANGE_BLOCKS * BLOCK) as u64;

/// Streams of one lane in turn. With one, a lane is silent for two of three round trips; a third brought nothing (measured).
const STREAMS: usize = 2;

/// Blocks that may wait for all lanes together: 8 MiB. Twice as much was little faster at 100 ms, and no faster at 30 (measured).
const AHEAD: usize = 32;

/// What is to be written.
pub(super) struct Target<'a> {
    /// The pool.
    pub(super) pool: &'a str,
    /// The volume, which exists.
    pub(super) volume: &'a str,
    /// The volume's key, by which it is found with one question.
    pub(super) key: &'a str,
    /// Its bytes, where they are known.
    pub(super) length: Option<u64>,
}

/// What comes next.
pub(super) enum Next {
    /// These bytes: a whole [`BLOCK`], but for the last.
    Block(Block),
    /// Nothing: that was all, and it is right.
    End,
    /// Nothing: the rest will never come.
    Abort,
}

/// Writes what `next` gives; `false` when it was aborted.
///
/// `sent` is told of bytes that are on their way, from several threads.
pub(super) fn upload(
    target: &Target<'_>,
    lanes: &Lanes,
    next: &mut dyn FnMut() -> Result<Next>,
    sent: &(dyn Fn(u64) + Sync),
) -> Result<bool> {
    // Without a known length there is no saying which ranges there will be.
    let length = target.length.unwrap_or(0);
    let ranges = usize::try_from(length / RANGE).unwrap_or(usize::MAX);
    match &lanes.connections[..lanes.useful.min(ranges).max(1)] {
        [only] => over_one(target, only, next, sent),
        several => over_many(target, length, several, next, sent),
    }
}

fn over_one(
    target: &Target<'_>,
    hypervisor: &Arc<dyn Hypervisor>,
    next: &mut dyn FnMut() -> Result<Next>,
    sent: &(dyn Fn(u64) + Sync),
) -> Result<bool> {
    hypervisor.know_volume(target.pool, target.volume, target.key)?;
    let mut stream = hypervisor.upload_volume(target.pool, target.volume, 0, 0)?;
    loop {
        match next()? {
            Next::Block(block) => {
                stream.send(&block)?;
                sent(block.len() as u64);
            }
            Next::End => return stream.finish().map(|()| true),
            Next::Abort => return Ok(false),
        }
    }
}

fn over_many(
    target: &Target<'_>,
    length: u64,
    connections: &[Arc<dyn Hypervisor>],
    next: &mut dyn FnMut() -> Result<Next>,
    sent: &(dyn Fn(u64) + Sync),
) -> Result<bool> {
    let room = Room::new(AHEAD);
    let count = connections.len() * STREAMS;
    std::thread::scope(|scope| {
        let (mut feeds, mut workers) = (Vec::new(), Vec::new());
        for index in 0..count {
            let (feed, fed) = channel();
            feeds.push(feed);
            let worker = Worker {
                hypervisor: &connections[index % connections.len()],
                target,
                length,
            };
            workers.push(scope.spawn(move || worker.run(index, count, &fed, sent)));
        }
        let ended = distribute(next, &feeds, &room);
        drop(feeds);
        let mut complete = true;
        for worker in workers {
            // A worker's own failure is why the others were stopped.
            complete &= worker.join().unwrap_or_else(|_| Err(panicked()))?;
        }
        Ok(ended? && complete)
    })
}

/// Gives each worker a range in turn; stops early where one has gone.
fn distribute<'r>(
    next: &mut dyn FnMut() -> Result<Next>,
    feeds: &[Sender<Waiting<'r>>],
    room: &'r Room,
) -> Result<bool> {
    for range in 0_usize.. {
        let feed = &feeds[range % feeds.len()];
        for _ in 0..RANGE_BLOCKS {
            match next()? {
                Next::Block(block) => {
                    if feed.send(room.take(block)).is_err() {
                        return Ok(false);
                    }
                }
                Next::End => return Ok(true),
                Next::Abort => return Ok(false),
            }
        }
    }
    Ok(false)
}

/// How many blocks may wait for the lanes, all together.
struct Room {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A block that waits for its turn.
struct Waiting<'r> {
    block: Block,
    room: &'r Room,
}

impl Room {
    fn new(blocks: usize) -> Self {
        Room {
            free: Mutex::new(blocks),
            freed: Condvar::new(),
        }
    }

    /// Waits until there is room for the block.
    fn take(&self, block: Block) -> Waiting<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .freed
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Waiting { block, room: self }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut free = self
            .room
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *free += 1;
        self.room.freed.notify_one();
    }
}

/// One of the streams at a time, over one of the connections.
struct Worker<'a> {
    hypervisor: &'a Arc<dyn Hypervisor>,
    target: &'a Target<'a>,
    length: u64,
}

impl Worker<'_> {
    /// Writes every `count`th range from the `first` on, each of them opened before its bytes are here; `false` where one
    /// stays incomplete, and is given up.
    fn run(
        &self,
        first: usize,
        count: usize,
        fed: &Receiver<Waiting<'_>>,
        sent: &(dyn Fn(u64) + Sync),
    ) -> Result<bool> {
        let Target {
            pool, volume, key, ..
        } = self.target;
        self.hypervisor.know_volume(pool, volume, key)?;
        for range in (first..).step_by(count) {
            let offset = range as u64 * RANGE;
            if offset >= self.length {
                break;
            }
            let mut left = RANGE.min(self.length - offset);
            let mut stream = self.hypervisor.upload_volume(pool, volume, offset, left)?;
            while left > 0 {
                let Ok(waiting) = fed.recv() else {
                    return Ok(false);
                };
                let bytes = waiting.block.len() as u64;
                stream.send(&waiting.block)?;
                sent(bytes);
                left = left.saturating_sub(bytes);
            }
            stream.finish()?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::RecvTimeoutError;
    use std::time::Duration;

    #[test]
    fn ranges_go_round_and_an_abort_stops_them() {
        let room = Room::new(1000);
        let (feeds, fed): (Vec<_>, Vec<_>) = (0..2).map(|_| channel()).unzip();
        let total = 2 * RANGE_BLOCKS + 3;
        let mut numbers = 0..total;
        let mut next = || {
            let block = numbers
                .next()
                .map(|number| Arc::new(number.to_le_bytes().to_vec()));
            Ok(block.map_or(Next::End, Next::Block))
        };
        assert!(distribute(&mut next, &feeds, &room).unwrap());
        drop(feeds);
        let numbers = |fed: &Receiver<Waiting<'_>>| -> Vec<usize> {
            let number = |waiting: Waiting<'_>| waiting.block[..].try_into().unwrap();
            fed.iter()
                .map(|w| usize::from_le_bytes(number(w)))
                .collect()
        };
        let first = (0..RANGE_BLOCKS).chain(2 * RANGE_BLOCKS..total);
        assert_eq!(numbers(&fed[0]), first.collect::<Vec<_>>());
        let second = RANGE_BLOCKS..2 * RANGE_BLOCKS;
        assert_eq!(numbers(&fed[1]), second.collect::<Vec<_>>());
        let (feed, _fed) = channel();
        assert!(!distribute(&mut || Ok(Next::Abort), &[feed], &room).unwrap());
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
    fn a_lane_that_has_gone_stops_the_rest_and_frees_its_room() {
        let room = Room::new(1);
        let (feed, fed) = channel();
        feed.send(room.take(Arc::new(Vec::new()))).unwrap();
        drop(fed);
        let mut next = || Ok(Next::Block(Arc::new(Vec::new())));
        assert!(!distribute(&mut next, &[feed], &room).unwrap());
    }
}
