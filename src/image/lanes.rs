//! One volume's upload: over one stream, or over distance over several at once.
//!
//! The volume is written in ranges. Each is a stream that is opened and finished, at a round trip each; so every lane has
//! two of them at a time, and the next is opened before its bytes are here.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::Builder;

use super::approach::Lanes;
use super::ranges::{Distribution, Next, Offers, RANGE, Range, Room};
use crate::error::Result;
use crate::libvirt::Hypervisor;
use crate::parallel::{lock, no_thread, panicked};

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
    /// Fails where the volume may be another's by now: asked before each range is opened, by its path.
    pub(super) ensure_ours: &'a (dyn Fn() -> Result<()> + Sync),
}

/// Writes what `next` gives; `false` when it was aborted.
///
/// `sent` is told of bytes that are on their way, from several threads. `at_end` is done once, after the last block was given;
/// over distance while blocks are still on their way.
pub(super) fn upload(
    target: &Target<'_>,
    lanes: &Lanes,
    next: &mut dyn FnMut() -> Result<Next>,
    sent: &(dyn Fn(u64) + Sync),
    at_end: &mut dyn FnMut() -> Result<()>,
) -> Result<bool> {
    // Without a known length there is no saying which ranges there will be.
    let length = target.length.unwrap_or(0);
    let ranges = usize::try_from(length / RANGE).unwrap_or(usize::MAX);
    let used = &lanes.connections[..lanes.useful.min(ranges).max(1)];
    log::debug!("{}: lanes used: {}", target.volume, used.len());
    match used {
        [only] => Ok(over_one(target, only, next, sent)? && at_end().map(|()| true)?),
        several => over_many(target, length, several, next, sent, at_end),
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
    at_end: &mut dyn FnMut() -> Result<()>,
) -> Result<bool> {
    let room = Room::new(AHEAD);
    let count = connections.len() * STREAMS;
    let (offer, offered) = channel();
    let offers = Mutex::new(Offers::new(offered));
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for index in 0..count {
            let worker = Worker {
                hypervisor: &connections[index % connections.len()],
                target,
                offers: &offers,
                room: &room,
            };
            match Builder::new().spawn_scoped(scope, move || worker.run(sent)) {
                Ok(thread) => workers.push(thread),
                // Fewer streams only take longer.
                Err(_) if !workers.is_empty() => break,
                Err(cause) => return Err(no_thread(&cause)),
            }
        }
        let ended = Distribution::new(length, count, offer).run(next, &room);
        let at_end = match ended {
            Ok(true) => at_end(),
            _ => Ok(()),
        };
        let mut complete = true;
        for worker in workers {
            // A worker's own failure is why the others were stopped.
            complete &= worker.join().unwrap_or_else(|_| Err(panicked()))?;
        }
        at_end?;
        Ok(ended? && complete)
    })
}

/// One of the streams at a time, over one of the connections.
struct Worker<'a, 'r> {
    hypervisor: &'a Arc<dyn Hypervisor>,
    target: &'a Target<'a>,
    offers: &'a Mutex<Offers<'r>>,
    room: &'r Room,
}

impl<'r> Worker<'_, 'r> {
    /// Writes one range after the other, each of them opened before its bytes are here; `false` where one stays incomplete,
    /// and is given up.
    fn run(&self, sent: &(dyn Fn(u64) + Sync)) -> Result<bool> {
        let written = self.write(sent);
        if !matches!(written, Ok(true)) {
            self.room.close();
        }
        written
    }

    fn write(&self, sent: &(dyn Fn(u64) + Sync)) -> Result<bool> {
        let Target {
            pool, volume, key, ..
        } = self.target;
        self.hypervisor.know_volume(pool, volume, key)?;
        while let Some(range) = self.next_range() {
            (self.target.ensure_ours)()?;
            let mut left = range.length;
            let mut stream = self
                .hypervisor
                .upload_volume(pool, volume, range.offset, left)?;
            while left > 0 {
                let Ok(waiting) = range.blocks.recv() else {
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

    fn next_range(&self) -> Option<Range<'r>> {
        let mut offers = lock(self.offers);
        offers.take()
    }
}
