//! Spans of time on the command line: how short and how long they may be.

use std::time::Duration;

use crate::units;

/// Far beyond any use, and such that times computed from it stay in range.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// How long an instance may live, of the configuration as of the command line.
///
/// Errors: what its bounds are.
pub fn life(span: Duration) -> Result<Duration, &'static str> {
    if span < Duration::from_secs(1) || span > LONGEST || span.subsec_nanos() != 0 {
        return Err("from one second to a hundred years, in whole seconds");
    }
    Ok(span)
}

/// How long something lives: recorded in whole seconds.
pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    Ok(life(written(text)?)?)
}

/// How long something may take: it must be longer than nothing.
pub(super) fn limit(text: &str) -> Result<Duration, String> {
    match any(text)? {
        Duration::ZERO => Err("must be more than 0".to_owned()),
        span => Ok(span),
    }
}

fn written(text: &str) -> Result<Duration, String> {
    units::span(text)
        .map_err(|error| format!("{error}; write it with its unit, such as 90s, 24h or 7d"))
}

/// How old something must be: 0 is any age.
pub(super) fn any(text: &str) -> Result<Duration, String> {
    let span = written(text)?;
    if span > LONGEST {
        return Err("is more than a hundred years".to_owned());
    }
    Ok(span)
}

/// How often something is looked at: not without a pause.
pub(super) fn pause(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(10);
    let span = any(text)?;
    if span < SHORTEST {
        return Err("must be 10ms at least".to_owned());
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_have_bounds() {
        type Parser = fn(&str) -> Result<Duration, String>;
        let century = "101years";
        let absurd = "584542046090years 7months 15days 17h 5m 3s";
        let table: [(Parser, &[&str], &[&str]); 4] = [
            (
                ttl,
                &["1s", "1000ms", "24h", "100years"],
                &["0", "1ms", "1us", "1500ms", "1s500ms", "1h 1ns", century],
            ),
            (limit, &["1ns", "10m", "100years"], &["0", "0s", century]),
            (
                any,
                &["0", "0s", "7d"],
                &[century, "soon", "", "10", "-1s", "1M"],
            ),
            (pause, &["10ms", "2s"], &["0", "9ms", century]),
        ];
        for (parser, good, bad) in table {
            for text in good {
                assert!(parser(text).is_ok(), "{text}");
            }
            for text in bad.iter().chain([&absurd, &"99999999999999999999h"]) {
                assert!(parser(text).is_err(), "{text}");
            }
        }
    }
}
