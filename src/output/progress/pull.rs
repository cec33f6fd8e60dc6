//! Progress of pulls, for each host.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::json;

use super::{JSON_EVERY, PLAIN_EVERY, Told, style};
use crate::image::pull::{PullEvent, PullObserver};
use crate::output::Ui;
use crate::output::plain::one_line;
use crate::output::screen::Shown;
use crate::parallel::lock;
use crate::units;

const PLAIN_PERCENT: u64 = 10;

/// Shows a pull's progress on stderr.
pub struct PullBars<'a> {
    ui: &'a Ui,
    image: String,
    hosts: Mutex<HashMap<String, HostProgress>>,
}

struct HostProgress {
    bar: Option<ProgressBar>,
    waits: bool,
    total: Option<u64>,
    sent: u64,
    started: Instant,
    told: Told,
    told_percent: u64,
}

impl HostProgress {
    fn new(bar: Option<ProgressBar>, total: Option<u64>) -> Self {
        let now = Instant::now();
        HostProgress {
            bar,
            waits: false,
            total,
            sent: 0,
            started: now,
            told: Told(Some(now)),
            told_percent: 0,
        }
    }

    fn percent(&self) -> u64 {
        self.total.map_or(0, |total| self.sent * 100 / total.max(1))
    }

    /// The plain line that is due after more bytes, if one is.
    fn line(&mut self, host: &str) -> Option<String> {
        let percent = self.percent();
        let more = percent >= self.told_percent + PLAIN_PERCENT;
        let every = if more { Duration::ZERO } else { PLAIN_EVERY };
        if percent >= 100 || !self.told.is_due(every, Instant::now()) {
            return None;
        }
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

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl<'a> PullBars<'a> {
    /// For a pull of this image.
    pub fn new(ui: &'a Ui, image: &str) -> Self {
        PullBars {
            ui,
            image: image.to_owned(),
            hosts: Mutex::default(),
        }
    }

    fn bar(&self, host: &str, bar: ProgressBar, template: &str) -> Option<ProgressBar> {
        let bar = bar
            .with_style(style(template))
            .with_prefix(one_line(&format!("{host}: {}", self.image)));
        self.ui.screen.add(bar)
    }

    /// Tells by a plain line or a JSON object.
    fn tell(&self, host: &str, state: &str, progress: &HostProgress, line: Option<String>) {
        match (self.ui.screen.shown(), line) {
            (Shown::Lines, Some(line)) => self.ui.screen.line(&line),
            (Shown::Json, _) => {
                let event = json!({
                    "event": "pull",
                    "host": host,
                    "image": self.image,
                    "state": state,
                    "bytes": progress.sent,
                    "total": progress.total,
                });
                self.ui.screen.json(&event.to_string());
            }
            _ => {}
        }
    }

    fn start(&self, host: &str, total: Option<u64>) -> HostProgress {
        let bar = match total {
            Some(total) => self.bar(
                host,
                ProgressBar::new(total),
                "{prefix} [{bar:24}] {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}",
            ),
            None => self.bar(
                host,
                ProgressBar::new_spinner(),
                "{prefix} {spinner} {bytes} {bytes_per_sec}",
            ),
        };
        let progress = HostProgress::new(bar, total);
        let size = total
            .map(|total| format!(" ({})", units::bytes(total)))
            .unwrap_or_default();
        let line = format!("{host}: pulling {}{size}", self.image);
        self.tell(host, "started", &progress, Some(line));
        progress
    }

    /// Another process pulls the image: its bytes can't be seen, but that somebody waits can.
    fn wait(&self, host: &str, hosts: &mut HashMap<String, HostProgress>) {
        let progress = hosts.entry(host.to_owned()).or_insert_with(|| {
            let bar = self.bar(
                host,
                ProgressBar::new_spinner(),
                "{spinner} {elapsed:>3} {prefix}: another process pulls it; waiting",
            );
            if let Some(bar) = &bar {
                bar.enable_steady_tick(Duration::from_millis(250));
            }
            HostProgress {
                waits: true,
                told: Told(None),
                ..HostProgress::new(bar, None)
            }
        });
        if progress.told.is_due(PLAIN_EVERY, Instant::now()) {
            let line = format!(
                "{host}: another process pulls {}; waiting for it ({} s)",
                self.image,
                progress.started.elapsed().as_secs()
            );
            self.tell(host, "waiting", progress, Some(line));
        }
    }

    fn advance(&self, host: &str, progress: &mut HostProgress, bytes: u64) {
        progress.sent += bytes;
        match self.ui.screen.shown() {
            Shown::Bars => {
                if let Some(bar) = &progress.bar {
                    bar.set_position(progress.sent);
                }
            }
            Shown::Lines => {
                let line = progress.line(host);
                self.tell(host, "progress", progress, line);
            }
            Shown::Json if progress.told.is_due(JSON_EVERY, Instant::now()) => {
                self.tell(host, "progress", progress, None);
            }
            _ => {}
        }
    }

    fn end(&self, host: &str, progress: &HostProgress) {
        progress.clear();
        self.tell(host, "ended", progress, None);
        log::debug!(
            "{host}: {} bytes in {:?}",
            progress.sent,
            progress.started.elapsed()
        );
    }
}

impl PullObserver for PullBars<'_> {
    fn event(&self, event: PullEvent<'_>) {
        let mut hosts = lock(&self.hosts);
        match event {
            PullEvent::Warning(text) => self.ui.warn(text),
            PullEvent::Waiting(host) => self.wait(host, &mut hosts),
            PullEvent::Started(host, total) => {
                if let Some(waited) = hosts.remove(host).filter(|progress| progress.waits) {
                    waited.clear();
                }
                let progress = self.start(host, total);
                hosts.insert(host.to_owned(), progress);
            }
            PullEvent::Sent(host, bytes) => {
                if let Some(progress) = hosts.get_mut(host) {
                    self.advance(host, progress, bytes);
                }
            }
            PullEvent::Ended(host) => {
                if let Some(progress) = hosts.remove(host) {
                    self.end(host, &progress);
                }
            }
        }
    }
}

/// A wait for another process ends without an event.
impl Drop for PullBars<'_> {
    fn drop(&mut self) {
        let hosts = self.hosts.get_mut().unwrap_or_else(PoisonError::into_inner);
        hosts.values().for_each(HostProgress::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_come_every_ten_percent() {
        let mut progress = HostProgress::new(None, Some(1000));
        let lines: Vec<String> = (0..1000)
            .filter_map(|_| {
                progress.sent += 1;
                progress.line("nas1")
            })
            .collect();
        assert_eq!(lines.len(), 9, "{lines:?}");
        assert_eq!(lines[0], "nas1: 100 B of 1000 B (10 %)");
    }
}
