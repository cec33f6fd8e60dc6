//! Waiting for an instance: what is waited for, what was seen so far, and for how long.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::json;

use super::{JSON_EVERY, PLAIN_EVERY, Told, style};
use crate::output::Ui;
use crate::output::plain::{cut, one_line};
use crate::output::screen::Shown;
use crate::parallel::lock;

/// One wait, as it is shown; it vanishes from the terminal when dropped.
pub struct WaitLine<'a> {
    ui: &'a Ui,
    host: String,
    instance: String,
    what: String,
    started: Instant,
    bar: Option<ProgressBar>,
    state: Mutex<State>,
}

struct State {
    told: Told,
    seen: String,
}

impl<'a> WaitLine<'a> {
    /// Waiting for `what`, such as `port 3128`, of this instance.
    pub fn new(ui: &'a Ui, host: &str, instance: &str, what: &str) -> Self {
        let bar = ProgressBar::new_spinner().with_style(style("{spinner} {elapsed:>3} {wide_msg}"));
        let bar = ui.screen.add(bar);
        if let Some(bar) = &bar {
            bar.set_message(format!("{instance}: waiting for {what}"));
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        WaitLine {
            ui,
            host: host.to_owned(),
            instance: instance.to_owned(),
            what: what.to_owned(),
            started: Instant::now(),
            bar,
            state: Mutex::new(State {
                told: Told(None),
                seen: String::new(),
            }),
        }
    }

    /// Takes what was seen just now.
    pub fn seen(&self, seen: &str) {
        let seen = &cut(seen);
        let text = self.text(seen);
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            return;
        }
        let mut state = lock(&self.state);
        let seconds = self.started.elapsed().as_secs();
        match self.ui.screen.shown() {
            Shown::Lines if state.told.is_due(PLAIN_EVERY, Instant::now()) => {
                self.ui.screen.line(&format!("{text} ({seconds} s)"));
            }
            // What is new is told at once.
            Shown::Json if state.told.is_due(JSON_EVERY, Instant::now()) || state.seen != *seen => {
                let event = json!({
                    "event": "wait",
                    "host": self.host,
                    "instance": self.instance,
                    "for": self.what,
                    "seen": seen,
                    "seconds": seconds,
                });
                self.ui.screen.json(&event.to_string());
            }
            _ => return,
        }
        seen.clone_into(&mut state.seen);
    }

    fn text(&self, seen: &str) -> String {
        one_line(&format!(
            "{}: waiting for {}: {seen}",
            self.instance, self.what
        ))
    }
}

impl Drop for WaitLine<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_guests_status_stays_on_its_line() {
        let cli = Cli::try_parse_from(["egressctl", "list"]).unwrap();
        let ui = Ui::new(&cli.global);
        let line = WaitLine::new(&ui, "nas1", "web1", "cloud-init");
        let text = line.text("status a\x1b[2J\u{9b}b\n\r");
        assert_eq!(
            text,
            "web1: waiting for cloud-init: status a\\u{1b}[2J\\u{9b}b\\n\\r"
        );
    }
}
