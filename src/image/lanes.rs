//! One volume's upload: over one stream, or over distance over several at once.
//!
//! A stream sends no more than its SSH channel's window per round trip (2 MiB, granted by sshd), which over distance is
//! far less than the link takes. Several lanes, each a libvirt connection over a channel of its own, take turns in
//! ranges of the volume. Each range is a stream that is opened and finished, at a round trip each.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::store::Block;
use super::stream::BLOCK;
use crate::error::Result;
use crate::libvirt::Hypervisor;
use crate::parallel::{self, panicked};

/// Blocks of one range: 4 MiB. A lane holds no more than these, so that memory stays small.
const RANGE_BLOCKS: usize = 16;
const RANGE: u64 = (RANGE_BLOCKS * BLOCK) as u64;

/// Up to this round trip one lane fills the link, as more than one never helped on a LAN (measured).
const NEAR: Duration = Duration::from_millis(5);

/// One more lane for each of these: 2 MiB per round trip and lane.
const STEP: Duration = Duration::from_millis(4);

/// More than these brought nothing at 30 and at 100 ms (measured).
const MOST: usize = 8;

/// What is to be written.
pub(super) struct Target<'a> {
    /// The connection for it.
    pub(super) hypervisor: &'a Arc<dyn Hypervisor>,
    /// The pool.
    pub(super) pool: &'a str,
    /// The volume, which exists.
    pub(super) volume: &'a str,
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
    next: &mut dyn FnMut() -> Result<Next>,
    sent: &(dyn Fn(u64) + Sync),
) -> Result<bool> {
    let round_trip = target.hypervisor.round_trip();
    let length = target.length.unwrap_or(0);
    match lanes_for(round_trip, length) {
        1 => over_one(target, next, sent),
        count => {
            log::debug!("round trip {round_trip:.1?}: {count} lanes");
            over_many(target, length, connections(target, count), next, sent)
        }
    }
}

/// How many lanes help.
fn lanes_for(round_trip: Duration, length: u64) -> usize {
    if round_trip <= NEAR {
        return 1;
    }
    let by_distance = round_trip.as_millis().div_ceil(STEP.as_millis());
    let by_length = u128::from(length / RANGE);
    let most = MOST as u128;
    usize::try_from(by_distance.min(by_length).clamp(1, most)).unwrap_or(1)
}

/// The target's connection, and as many beside it as the host grants.
fn connections(target: &Target<'_>, count: usize) -> Vec<Arc<dyn Hypervisor>> {
    let others = parallel::map((1..count).collect(), count, |_| {
        target.hypervisor.connect_beside()
    });
    let mut connections = vec![Arc::clone(target.hypervisor)];
    for other in others {
        match other {
            Ok(connection) => connections.push(connection),
            // Fewer lanes only take longer.
            Err(error) => log::debug!("one lane less: {error}"),
        }
    }
    connections
}

fn over_one(
    target: &Target<'_>,
    next: &mut dyn FnMut() -> Result<Next>,
    sent: &(dyn Fn(u64) + Sync),
) -> Result<bool> {
    let mut stream = target
        .hypervisor
        .upload_volume(target.pool, target.volume, 0, 0)?;
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
    connections: Vec<Arc<dyn Hypervisor>>,
    next: &mut dyn FnMut() -> Result<Next>,
    sent: &(dyn Fn(u64) + Sync),
) -> Result<bool> {
    std::thread::scope(|scope| {
        let mut feeds = Vec::new();
        let mut lanes = Vec::new();
        for hypervisor in connections {
            let (feed, fed) = sync_channel(RANGE_BLOCKS);
            feeds.push(feed);
            let lane = Lane {
                hypervisor,
                target,
                length,
            };
            lanes.push(scope.spawn(move || lane.run(&fed, sent)));
        }
        let ended = distribute(next, &feeds);
        drop(feeds);
        for lane in lanes {
            // A lane's own failure is why the others were stopped.
            lane.join().unwrap_or_else(|_| Err(panicked()))?;
        }
        ended
    })
}

/// Gives each lane a range in turn; stops early where a lane has gone.
fn distribute(
    next: &mut dyn FnMut() -> Result<Next>,
    feeds: &[SyncSender<(u64, Block)>],
) -> Result<bool> {
    let mut offset = 0;
    for range in 0_usize.. {
        let feed = &feeds[range % feeds.len()];
        for _ in 0..RANGE_BLOCKS {
            match next()? {
                Next::Block(block) => {
                    let end = offset + block.len() as u64;
                    if feed.send((offset, block)).is_err() {
                        return Ok(false);
                    }
                    offset = end;
                }
                Next::End => return Ok(true),
                Next::Abort => return Ok(false),
            }
        }
    }
    Ok(false)
}

/// One of the connections, and what it writes.
struct Lane<'a> {
    hypervisor: Arc<dyn Hypervisor>,
    target: &'a Target<'a>,
    length: u64,
}

impl Lane<'_> {
    /// Writes ranges until no more come; one that stays incomplete is given up.
    fn run(&self, fed: &Receiver<(u64, Block)>, sent: &(dyn Fn(u64) + Sync)) -> Result<()> {
        let Target { pool, volume, .. } = self.target;
        while let Ok((offset, mut block)) = fed.recv() {
            let mut left = RANGE.min(self.length.saturating_sub(offset));
            let mut stream = self.hypervisor.upload_volume(pool, volume, offset, left)?;
            loop {
                stream.send(&block)?;
                sent(block.len() as u64);
                left = left.saturating_sub(block.len() as u64);
                if left == 0 {
                    break;
                }
                let Ok((_, following)) = fed.recv() else {
                    return Ok(());
                };
                block = following;
            }
            stream.finish()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn distance_takes_lanes_and_a_lan_takes_one() {
        let lanes = |millis, length| lanes_for(Duration::from_millis(millis), length);
        assert_eq!(lanes(0, 1024 * MIB), 1);
        assert_eq!(lanes(5, 1024 * MIB), 1);
        assert_eq!(lanes(10, 1024 * MIB), 3);
        assert_eq!(lanes(30, 1024 * MIB), 8);
        assert_eq!(lanes(300, 1024 * MIB), 8);
    }

    #[test]
    fn a_small_volume_and_one_of_unknown_length_take_few() {
        let far = Duration::from_millis(100);
        assert_eq!(lanes_for(far, 0), 1);
        assert_eq!(lanes_for(far, MIB), 1);
        assert_eq!(lanes_for(far, 9 * MIB), 2);
    }

    #[test]
    fn ranges_go_round_and_an_abort_stops_them() {
        let block = |n: usize| Arc::new(vec![u8::try_from(n % 251).unwrap(); BLOCK]);
        let (feeds, fed): (Vec<_>, Vec<_>) = (0..2).map(|_| sync_channel(1000)).unzip();
        let mut blocks = 0;
        let whole = distribute(
            &mut || {
                blocks += 1;
                Ok(if blocks <= 40 {
                    Next::Block(block(blocks))
                } else {
                    Next::End
                })
            },
            &feeds,
        );
        assert!(whole.unwrap());
        drop(feeds);
        let offsets = |fed: &Receiver<(u64, Block)>| -> Vec<u64> {
            fed.iter()
                .map(|(offset, _)| offset / BLOCK as u64)
                .collect()
        };
        assert_eq!(offsets(&fed[1]), (16..32).collect::<Vec<_>>());
        assert_eq!(offsets(&fed[0]), (0..16).chain(32..40).collect::<Vec<_>>());
        let (feed, _fed) = sync_channel(1);
        assert!(!distribute(&mut || Ok(Next::Abort), &[feed]).unwrap());
    }
}
