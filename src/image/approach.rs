//! The way for one host's upload: connections beside the run's own, opened while claim and volume are made.
//!
//! A stream sends no more than its SSH channel's window per round trip (2 MiB, granted by sshd), which over distance is
//! far less than the link takes: so there are several, each a channel with a libvirt connection of its own.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Result;
use crate::libvirt::Hypervisor;
use crate::parallel::{self, panicked};

/// Up to this round trip one lane fills the link, as more than one never helped on a LAN (measured).
const NEAR: Duration = Duration::from_millis(5);

/// One more lane for each of these: 2 MiB per round trip and lane.
const STEP: Duration = Duration::from_millis(4);

/// More than these brought nothing at 30 and at 100 ms (measured).
const MOST: usize = 12;

/// A volume of the pool adds that much to the end of each range: libvirtd then reads the whole pool anew (measured with 3,000
/// files of 4 KiB each).
const REFRESH: Duration = Duration::from_micros(40);

/// A host's connections for an upload. They part from the daemon all at once, at a round trip.
pub(super) struct Lanes {
    /// One at least.
    pub(super) connections: Vec<Arc<dyn Hypervisor>>,
    /// How many of them are worth it.
    pub(super) useful: usize,
}

impl Drop for Lanes {
    fn drop(&mut self) {
        let connections = std::mem::take(&mut self.connections);
        let count = connections.len();
        parallel::map(connections, count, drop);
    }
}

/// Connections on their way.
pub(super) struct Approach {
    hypervisor: Arc<dyn Hypervisor>,
    pool: String,
    /// Who opens them; nobody where the system gave no thread for it.
    dial: Option<JoinHandle<Result<Lanes>>>,
}

impl Approach {
    /// Begins to open as many connections as help at this distance.
    pub(super) fn begin(hypervisor: &Arc<dyn Hypervisor>, pool: &str) -> Self {
        let (beside, name) = (Arc::clone(hypervisor), pool.to_owned());
        let dial = std::thread::Builder::new()
            .name("approach".to_owned())
            .spawn(move || open(&beside, &name));
        Approach {
            hypervisor: Arc::clone(hypervisor),
            pool: pool.to_owned(),
            dial: dial.ok(),
        }
    }

    /// Waits for them.
    ///
    /// Errors: a connection's, if not even one could be opened.
    pub(super) fn wait(mut self) -> Result<Lanes> {
        match self.dial.take() {
            Some(dial) => dial.join().unwrap_or_else(|_| Err(panicked())),
            None => open(&self.hypervisor, &self.pool),
        }
    }
}

impl Drop for Approach {
    /// Connections that nobody waited for part, too, before the run's own does: else the process might end in between, and
    /// leave the session's private directory behind.
    fn drop(&mut self) {
        if let Some(dial) = self.dial.take() {
            // Neither its lanes nor its error are needed any more.
            drop(dial.join());
        }
    }
}

fn open(beside: &Arc<dyn Hypervisor>, pool: &str) -> Result<Lanes> {
    let round_trip = beside.round_trip();
    let count = by_distance(round_trip);
    if count == 1 {
        return connect(beside, 1);
    }
    let (volumes, lanes) = parallel::both(|| beside.count_volumes(pool), || connect(beside, count));
    let mut lanes = lanes?;
    lanes.useful = lanes.useful.min(by_refresh(round_trip, volumes?));
    log::debug!("round trip {round_trip:.1?}: {} lanes", lanes.useful);
    Ok(lanes)
}

/// How many lanes fill the link.
fn by_distance(round_trip: Duration) -> usize {
    if round_trip <= NEAR {
        return 1;
    }
    let lanes = round_trip.as_millis().div_ceil(STEP.as_millis());
    usize::try_from(lanes).unwrap_or(MOST).clamp(1, MOST)
}

/// How many lanes the daemon keeps up with, which reads the pool anew for each range of each lane.
fn by_refresh(round_trip: Duration, volumes: u32) -> usize {
    let refresh = REFRESH * volumes;
    let lanes = round_trip.as_nanos() / refresh.as_nanos().max(1);
    usize::try_from(lanes).unwrap_or(MOST).clamp(1, MOST)
}

fn connect(beside: &Arc<dyn Hypervisor>, count: usize) -> Result<Lanes> {
    let opened = parallel::map((0..count).collect(), count, |_| beside.connect_beside());
    let (mut connections, mut failure) = (Vec::new(), None);
    for one in opened {
        match one {
            Ok(connection) => connections.push(connection),
            // Fewer lanes only take longer.
            Err(error) => {
                log::debug!("one lane less: {error}");
                failure = Some(error);
            }
        }
    }
    match failure {
        Some(error) if connections.is_empty() => Err(error),
        _ => Ok(Lanes {
            useful: connections.len(),
            connections,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_takes_lanes_and_a_lan_takes_one() {
        let lanes = |millis| by_distance(Duration::from_millis(millis));
        assert_eq!(lanes(0), 1);
        assert_eq!(lanes(5), 1);
        assert_eq!(lanes(10), 3);
        assert_eq!(lanes(30), 8);
        assert_eq!(lanes(300), MOST);
    }

    #[test]
    fn a_large_pool_takes_few() {
        let lanes = |millis, volumes| by_refresh(Duration::from_millis(millis), volumes);
        assert_eq!(lanes(30, 0), MOST);
        assert_eq!(lanes(30, 30), MOST);
        assert_eq!(lanes(30, 300), 2);
        assert_eq!(lanes(30, 3000), 1);
        assert_eq!(lanes(100, 300), 8);
    }
}
