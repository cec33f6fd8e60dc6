//! Progress on stderr: bars on a terminal, otherwise a plain line every 10 s or 10 %, or JSON objects.

mod pull;
mod wait;

use std::time::{Duration, Instant};

use indicatif::ProgressStyle;

pub use pull::PullBars;
pub use wait::WaitLine;

/// The most that a plain line, and the least that another about the same, is apart from the last one.
const PLAIN_EVERY: Duration = Duration::from_secs(10);
/// How often a JSON object about the same comes at most.
const JSON_EVERY: Duration = Duration::from_secs(1);

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

/// When something was told last.
struct Told(Option<Instant>);

impl Told {
    /// Whether it is time to tell again; if so, it is taken for told.
    fn is_due(&mut self, every: Duration, now: Instant) -> bool {
        let due = self.0.is_none_or(|told| now.duration_since(told) >= every);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_comes_at_once_and_the_next_after_a_while() {
        let start = Instant::now();
        let mut told = Told(None);
        let due: Vec<u64> = (0..30)
            .filter(|second| told.is_due(PLAIN_EVERY, start + Duration::from_secs(*second)))
            .collect();
        assert_eq!(due, [0, 10, 20]);
    }
}
