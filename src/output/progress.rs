//! Progress of pulls: bars on a terminal, otherwise a plain line every 10 s or 10 %.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Ui;
use crate::image::pull::{PullEvent, PullObserver};
use crate::units;

const PLAIN_EVERY: Duration = Duration::from_secs(10);
const PLAIN_PERCENT: u64 = 10;

/// Shows a pull's progress on stderr.
pub struct PullBars<'a> {
    ui: &'a Ui,
    image: String,
    bars: MultiProgress,
    hosts: Mutex<HashMap<String, HostProgress>>,
}

struct HostProgress {
    bar: Option<ProgressBar>,
    total: Option<u64>,
    sent: u64,
    started: Instant,
    told_at: Instant,
    told_percent: u64,
}

impl<'a> PullBars<'a> {
    /// For a pull of this image.
    pub fn new(ui: &'a Ui, image: &str) -> Self {
        let target = if ui.draws() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        PullBars {
            ui,
            image: image.to_owned(),
            bars: MultiProgress::with_draw_target(target),
            hosts: Mutex::default(),
        }
    }

    fn line(&self, text: &str) {
        self.bars.suspend(|| self.ui.note(text));
    }

    fn start(&self, host: &str, total: Option<u64>) -> HostProgress {
        let bar = self.ui.draws().then(|| {
            let bar = match total {
                Some(total) => ProgressBar::new(total).with_style(style(
                    "{prefix} [{bar:24}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}",
                )),
                None => ProgressBar::new_spinner()
                    .with_style(style("{prefix} {spinner} {bytes} {bytes_per_sec}")),
            };
            self.bars
                .add(bar.with_prefix(format!("{host}: {}", self.image)))
        });
        if bar.is_none() {
            let size = total
                .map(|total| format!(" ({})", units::bytes(total)))
                .unwrap_or_default();
            self.line(&format!("{host}: pulling {}{size}", self.image));
        }
        let now = Instant::now();
        HostProgress {
            bar,
            total,
            sent: 0,
            started: now,
            told_at: now,
            told_percent: 0,
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

impl HostProgress {
    /// Takes more bytes; the plain line that is due, if one is.
    fn advance(&mut self, host: &str, bytes: u64) -> Option<String> {
        self.sent += bytes;
        if let Some(bar) = &self.bar {
            bar.set_position(self.sent);
            return None;
        }
        let percent = self.total.map_or(0, |total| self.sent * 100 / total.max(1));
        let due =
            percent >= self.told_percent + PLAIN_PERCENT || self.told_at.elapsed() >= PLAIN_EVERY;
        if !due || percent >= 100 {
            return None;
        }
        self.told_at = Instant::now();
        self.told_percent = percent - percent % PLAIN_PERCENT;
        let of = self
            .total
            .map(|total| format!(" of {} ({percent} %)", units::bytes(total)));
        Some(format!(
            "{host}: {}{}",
            units::bytes(self.sent),
            of.unwrap_or_default()
        ))
    }
}

impl PullObserver for PullBars<'_> {
    fn event(&self, event: PullEvent<'_>) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            PullEvent::Warning(text) => self.bars.suspend(|| self.ui.warn(text)),
            PullEvent::Waiting(host) => {
                self.line(&format!(
                    "{host}: another process pulls {}; waiting for it",
                    self.image
                ));
            }
            PullEvent::Started(host, total) => {
                let progress = self.start(host, total);
                hosts.insert(host.to_owned(), progress);
            }
            PullEvent::Sent(host, bytes) => {
                let line = hosts.get_mut(host).and_then(|p| p.advance(host, bytes));
                if let Some(line) = line {
                    self.line(&line);
                }
            }
            PullEvent::Ended(host) => {
                if let Some(progress) = hosts.remove(host) {
                    if let Some(bar) = progress.bar {
                        bar.finish_and_clear();
                    }
                    log::debug!(
                        "{host}: {} bytes in {:?}",
                        progress.sent,
                        progress.started.elapsed()
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_come_every_ten_percent() {
        let now = Instant::now();
        let mut progress = HostProgress {
            bar: None,
            total: Some(1000),
            sent: 0,
            started: now,
            told_at: now,
            told_percent: 0,
        };
        let lines: Vec<String> = (0..1000)
            .filter_map(|_| progress.advance("nas1", 1))
            .collect();
        assert_eq!(lines.len(), 9, "{lines:?}");
        assert_eq!(lines[0], "nas1: 100 B of 1000 B (10 %)");
    }
}
