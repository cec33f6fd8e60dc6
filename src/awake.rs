//! Whether this process was suspended since it looked at a host: what it saw then may be wrong by now.
//!
//! A name means what it meant a moment ago, and a look right before a deletion is good for that moment. A laptop's lid, a
//! SIGSTOP or a paused VM make hours of it, in which somebody else may have made something new of that name. Slowness is
//! not meant: a host's own calls take as long as they take, and are looked after where they are made.

use std::sync::{Mutex, MutexGuard, Once};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Reason, Result};
use crate::parallel::lock;

/// How often the process notes that it runs.
const TICK: Duration = Duration::from_millis(500);

/// So long without a note, and it was suspended: more than a busy machine keeps a thread waiting.
const GAP: Duration = Duration::from_secs(4);

static TICKER: Once = Once::new();
static NOTES: Mutex<Notes> = Mutex::new(Notes {
    last: None,
    suspensions: 0,
    ticks: false,
});

/// When this process was last seen to run, and how often it was not.
struct Notes {
    last: Option<Duration>,
    suspensions: u64,
    /// Whether a thread notes: without one, only looks do, and a slow host would count as a suspension.
    ticks: bool,
}

impl Notes {
    /// Notes that the process runs at this time; gives back how often it was suspended until now.
    fn note(&mut self, now: Duration) -> u64 {
        let last = self.last.replace(now).unwrap_or(now);
        self.suspensions += u64::from(self.ticks && now.saturating_sub(last) >= GAP);
        self.suspensions
    }
}

/// The time since the machine was started, with the time it slept (`CLOCK_BOOTTIME`, `clock_gettime`(2)): what a host saw
/// go by.
pub fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// From when on the process has to have been awake, for what it saw to be good.
#[derive(Debug, Clone, Copy)]
pub struct Awake {
    suspensions: u64,
}

impl Awake {
    /// From now on.
    pub fn from_now() -> Self {
        TICKER.call_once(|| {
            let tick = || {
                loop {
                    std::thread::sleep(TICK);
                    note();
                }
            };
            let ticking = std::thread::Builder::new().name("awake".to_owned());
            match ticking.spawn(tick) {
                Ok(_) => notes().ticks = true,
                Err(error) => {
                    log::debug!("nothing notes whether this process is suspended: {error}");
                }
            }
        });
        Awake {
            suspensions: note(),
        }
    }

    /// Whether the process was never suspended since.
    pub fn holds(&self) -> bool {
        note() == self.suspensions
    }

    /// Fails where the process was suspended since; to be asked right before something is deleted by its name.
    ///
    /// Errors: [`Reason::Suspended`].
    pub fn ensure(&self) -> Result<()> {
        if self.holds() {
            return Ok(());
        }
        let what = "this process was suspended in the midst of it, and what it had seen may be wrong by now";
        let error = Error::transient(Reason::Suspended, what);
        Err(error.hint("run it again: it looks anew"))
    }
}

fn note() -> u64 {
    notes().note(boot_time())
}

fn notes() -> MutexGuard<'static, Notes> {
    lock(&NOTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_between_two_notes_is_a_suspension() {
        let mut notes = Notes {
            last: None,
            suspensions: 0,
            ticks: true,
        };
        let mut at = Duration::from_secs(1000);
        assert_eq!(notes.note(at), 0, "there is nothing before the first");
        at += GAP / 2;
        assert_eq!(notes.note(at), 0);
        at += GAP;
        assert_eq!(notes.note(at), 1);
        assert_eq!(notes.note(at), 1, "it is counted once");
        notes.ticks = false;
        assert_eq!(notes.note(at + GAP), 1, "nobody noted in between");
    }

    #[test]
    fn who_was_awake_is_believed() {
        let awake = Awake::from_now();
        assert!(awake.holds());
        awake.ensure().unwrap();
        let before = Awake {
            suspensions: awake.suspensions.wrapping_sub(1),
        };
        assert_eq!(before.ensure().unwrap_err().reason(), Reason::Suspended);
    }
}
