//! What time it is, by two clocks that may disagree. Pure.

use std::time::Duration;

use jiff::Timestamp;

/// This machine's clock and, where it is known, the host's, at one moment.
///
/// Times in marks were written by the clock of whichever machine made the thing, so something counts as past only
/// if it is past by both. Times of files are the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// This machine's.
    pub here: Timestamp,
    /// The host's.
    pub host: Option<Timestamp>,
}

/// What keeps a thing from being old enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Young {
    /// It is younger than that.
    Than(Duration),
    /// Its time hasn't come yet: a clock is off somewhere.
    Future,
    /// Its age can't be known, as the host's clock can't be asked or the file has no time.
    Unknown,
}

impl std::fmt::Display for Young {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Young::Than(age) => write!(f, "younger than {}", humantime::format_duration(*age)),
            Young::Future => f.write_str("made in the future, by the clocks: it counts as young"),
            Young::Unknown => {
                f.write_str("its age can't be known, as the host's clock can't be asked")
            }
        }
    }
}

impl Clock {
    /// From this machine's time and how many seconds the host is ahead of it.
    pub fn new(here: Timestamp, offset: Option<i64>) -> Self {
        Clock {
            here,
            host: offset.and_then(|seconds| {
                here.checked_add(jiff::SignedDuration::from_secs(seconds))
                    .ok()
            }),
        }
    }

    /// The earlier of the two.
    fn earlier(self) -> Timestamp {
        self.host.map_or(self.here, |host| host.min(self.here))
    }

    /// Whether that time has passed by both clocks.
    pub fn is_past(self, time: Timestamp) -> bool {
        time <= self.earlier()
    }

    /// Whether something whose mark names this time is at least that old, by both clocks.
    pub fn mark_is_older(self, made: Timestamp, age: Duration) -> Result<(), Young> {
        older(self.earlier(), made, age)
    }

    /// Whether a file of the host that was last written at this time is at least that old.
    pub fn file_is_older(self, written: Option<Timestamp>, age: Duration) -> Result<(), Young> {
        match (self.host, written) {
            (Some(host), Some(written)) => older(host, written, age),
            _ => Err(Young::Unknown),
        }
    }

    /// The same for a file that has a mark besides, whose time is judged on its own: then this machine's clock will
    /// do where the host's can't be asked.
    pub fn marked_file_is_older(
        self,
        written: Option<Timestamp>,
        age: Duration,
    ) -> Result<(), Young> {
        let clock = Clock {
            host: Some(self.host.unwrap_or(self.here)),
            ..self
        };
        clock.file_is_older(written, age)
    }
}

fn older(now: Timestamp, made: Timestamp, age: Duration) -> Result<(), Young> {
    let passed = now.duration_since(made);
    if passed.is_negative() {
        return Err(Young::Future);
    }
    match Duration::try_from(passed) {
        Ok(passed) if passed >= age => Ok(()),
        _ => Err(Young::Than(age)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_mark_is_old_only_by_both_clocks() {
        // The host's offset, how long ago the mark says it was made, and what comes of it.
        let table = [
            (Some(0), 60, Ok(())),
            (Some(0), 59, Err(Young::Than(MINUTE))),
            (Some(0), 0, Err(Young::Than(MINUTE))),
            (Some(0), -1, Err(Young::Future)),
            // The host is behind: by its clock the thing is younger, or not made yet.
            (Some(-30), 80, Err(Young::Than(MINUTE))),
            (Some(-30), 90, Ok(())),
            (Some(-3600), 80, Err(Young::Future)),
            // The host is ahead: ours decides.
            (Some(3600), 30, Err(Young::Than(MINUTE))),
            (Some(3600), 60, Ok(())),
            (None, 60, Ok(())),
            (None, 59, Err(Young::Than(MINUTE))),
            (None, -9, Err(Young::Future)),
        ];
        for (offset, ago, expected) in table {
            let clock = Clock::new(at(0), offset);
            assert_eq!(
                clock.mark_is_older(at(-ago), MINUTE),
                expected,
                "{offset:?} {ago}"
            );
        }
    }

    #[test]
    fn a_file_is_as_old_as_its_host_says() {
        let table = [
            (Some(0), Some(60), Ok(())),
            (Some(3600), Some(-3540), Ok(())),
            (Some(3600), Some(-3541), Err(Young::Than(MINUTE))),
            (Some(-3600), Some(3601), Err(Young::Than(MINUTE))),
            (Some(-3600), Some(3599), Err(Young::Future)),
            (None, Some(1_000_000), Err(Young::Unknown)),
            (Some(0), None, Err(Young::Unknown)),
        ];
        for (offset, ago, expected) in table {
            let written = ago.map(|seconds: i64| at(-seconds));
            let clock = Clock::new(at(0), offset);
            let got = clock.file_is_older(written, MINUTE);
            assert_eq!(got, expected, "{offset:?} {ago:?}");
        }
        let unknown = Clock::new(at(0), None);
        assert_eq!(unknown.marked_file_is_older(Some(at(-60)), MINUTE), Ok(()));
        assert_eq!(
            unknown.marked_file_is_older(None, MINUTE),
            Err(Young::Unknown)
        );
    }

    #[test]
    fn a_time_has_passed_only_by_both_clocks() {
        for (offset, at_second, expected) in [
            (Some(0), 0, true),
            (Some(0), 1, false),
            (Some(-10), -5, false),
            (Some(-10), -10, true),
            (Some(10), 5, false),
            (None, 0, true),
        ] {
            assert_eq!(
                Clock::new(at(0), offset).is_past(at(at_second)),
                expected,
                "{offset:?} {at_second}"
            );
        }
    }
}
