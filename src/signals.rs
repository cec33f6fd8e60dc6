//! SIGINT, SIGTERM, SIGHUP and SIGQUIT: the first stops the work, the second its clean-up, the third the process. Those
//! that follow one closely are the same one: timeout(1), for one, sends its signal to the process and at once again to
//! its whole group, and of a terminal that is closed both the kernel and the shell tell.

use std::sync::Arc;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::error::{Error, Reason, Result};
use crate::host::Cancels;

/// How soon after another a signal is the same one: longer than any program takes for its two, shorter than a person
/// who presses Ctrl-C again after seeing that something goes on.
const SAME: Duration = Duration::from_millis(500);

/// What a signal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Nothing,
    Work,
    Cleanup,
    Process,
}

/// The signals that counted so far.
#[derive(Debug, Default)]
struct Counted {
    count: u32,
    last: Option<Instant>,
}

impl Counted {
    /// What a signal at that time ends, whichever of them it is. Those that don't count don't put off when the next
    /// one does.
    fn next(&mut self, now: Instant) -> Ends {
        if self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < SAME)
        {
            return Ends::Nothing;
        }
        self.last = Some(now);
        self.count += 1;
        match self.count {
            1 => Ends::Work,
            2 => Ends::Cleanup,
            _ => Ends::Process,
        }
    }
}

/// Watches for signals on a thread of its own, from now on.
pub(crate) fn watch(cancels: &Cancels) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::transient(Reason::LocalIo, "signals can't be watched").because(error)
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = Signals::new(watched(ignored(&status))).map_err(failed)?;
    // A file that would grow beyond `ulimit -f` is a write that fails (setrlimit(2)), and no reason to die in the midst of it.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let cancels = cancels.clone();
    let watch = move || {
        let mut counted = Counted::default();
        for signal in signals.forever() {
            match counted.next(Instant::now()) {
                Ends::Nothing => {}
                Ends::Work => cancels.work.set(signal),
                Ends::Cleanup => cancels.cleanup.set(signal),
                Ends::Process => {
                    crate::output::restore_terminal();
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .map_err(failed)?;
    Ok(())
}

/// The signals to watch for, by the mask of those that were ignored when the process began.
///
/// nohup(1) has SIGHUP ignored, and a script's shell SIGQUIT for what it runs in the background: that stays so. It has
/// SIGINT ignored as well, but whoever sends that to such a process by hand means it.
fn watched(ignored: u64) -> Vec<i32> {
    let is_ignored = |signal: i32| ignored & (1 << (signal - 1)) != 0;
    let unless_ignored = [SIGHUP, SIGQUIT].into_iter();
    [SIGINT, SIGTERM]
        .into_iter()
        .chain(unless_ignored.filter(|signal| !is_ignored(*signal)))
        .collect()
}

/// The mask of ignored signals in the text of `/proc/PID/status`: bit N-1 is signal N's (proc(5)). None where it can't
/// be told: to clean up without need is better than not to.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_were_ignored_from_the_start_stay_so_but_for_two() {
        let table: [(&str, &[i32]); 5] = [
            (
                "SigIgn:\t0000000000001000\n",
                &[SIGINT, SIGTERM, SIGHUP, SIGQUIT],
            ),
            // nohup, and what a script runs in the background.
            (
                "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n",
                &[SIGINT, SIGTERM, SIGQUIT],
            ),
            ("SigIgn:\t0000000000001006\n", &[SIGINT, SIGTERM, SIGHUP]),
            ("SigIgn:\t0000000000005007\n", &[SIGINT, SIGTERM]),
            ("", &[SIGINT, SIGTERM, SIGHUP, SIGQUIT]),
        ];
        for (status, expected) in table {
            assert_eq!(watched(ignored(status)), expected, "{status}");
        }
    }

    #[test]
    fn signals_count_unless_they_follow_another_closely() {
        use Ends::{Cleanup, Nothing, Process, Work};
        // Milliseconds from the first one.
        let table: [&[(u64, Ends)]; 4] = [
            &[(0, Work), (1, Nothing)],
            &[
                (0, Work),
                (499, Nothing),
                (500, Cleanup),
                (999, Nothing),
                (1000, Process),
            ],
            &[(0, Work), (1000, Cleanup), (1005, Nothing), (2000, Process)],
            // One after the other, without end.
            &[
                (0, Work),
                (200, Nothing),
                (400, Nothing),
                (600, Cleanup),
                (800, Nothing),
            ],
        ];
        let start = Instant::now();
        for signals in table {
            let mut counted = Counted::default();
            for &(after, ends) in signals {
                let now = start + Duration::from_millis(after);
                assert_eq!(counted.next(now), ends, "{after} of {signals:?}");
            }
        }
    }
}
