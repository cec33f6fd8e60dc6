//! What is written on stderr: whole lines, above the bars where some are drawn.

use std::io::{self, IsTerminal, Write};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget};

use super::bars;
use super::plain::{plain, plain_json};
use crate::cli::{GlobalArgs, ProgressArg};

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// As bars.
    Bars,
    /// As plain lines.
    Lines,
    /// As JSON objects, one a line.
    Json,
    /// Not at all.
    No,
}

impl Shown {
    /// From the options and what stderr is. Pure.
    fn of(progress: ProgressArg, quiet: bool, can_draw: bool) -> Self {
        match (progress, quiet) {
            (_, true) | (ProgressArg::None, _) => Shown::No,
            (ProgressArg::Auto, _) if can_draw => Shown::Bars,
            (ProgressArg::Auto | ProgressArg::Plain, _) => Shown::Lines,
            (ProgressArg::Json, _) => Shown::Json,
        }
    }
}

/// Whether stderr is a terminal that knows more than plain text.
pub(super) fn can_draw() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stderr().is_terminal() && !dumb
}

/// The terminal's lower end, shared by all that write on stderr.
#[derive(Clone)]
pub(super) struct Screen {
    bars: MultiProgress,
    shown: Shown,
    is_json: bool,
}

impl Screen {
    /// From the command line's options and what stderr is.
    pub(super) fn new(global: &GlobalArgs) -> Self {
        let shown = Shown::of(global.progress, global.quiet, can_draw());
        let target = if shown == Shown::Bars {
            bars::target()
        } else {
            ProgressDrawTarget::hidden()
        };
        Screen {
            bars: MultiProgress::with_draw_target(target),
            shown,
            is_json: global.progress == ProgressArg::Json,
        }
    }

    /// Whether notes, warnings and errors are JSON objects, also where no progress is shown.
    pub(super) fn is_json(&self) -> bool {
        self.is_json
    }

    pub(super) fn shown(&self) -> Shown {
        self.shown
    }

    /// A bar below the others, where bars are drawn.
    pub(super) fn add(&self, bar: ProgressBar) -> Option<ProgressBar> {
        (self.shown == Shown::Bars).then(|| self.bars.add(bar))
    }

    /// Writes one line, or several, without what the terminal would act on.
    pub(super) fn line(&self, text: &str) {
        self.painted(&plain(text));
    }

    /// The same of text that has colours: whoever put them in has made the rest plain.
    pub(super) fn painted(&self, text: &str) {
        self.bytes(format!("{text}\n").as_bytes());
    }

    /// Writes one line of JSON.
    pub(super) fn json(&self, text: &str) {
        self.painted(&plain_json(text));
    }

    fn bytes(&self, bytes: &[u8]) {
        self.bars.suspend(|| {
            // Nothing can be done about a stderr that can't be written.
            let _ = io::stderr().lock().write_all(bytes);
        });
    }
}

/// For the log, which writes a record at a time, made plain by [`Log`](super::log::Log).
impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_for_terminals_and_quiet_is_quiet() {
        use ProgressArg::{Auto, Json, None, Plain};
        let table = [
            (Auto, false, true, Shown::Bars),
            (Auto, false, false, Shown::Lines),
            (Plain, false, true, Shown::Lines),
            (Json, false, true, Shown::Json),
            (None, false, true, Shown::No),
            (Auto, true, true, Shown::No),
            (Json, true, false, Shown::No),
        ];
        for (progress, quiet, can_draw, shown) in table {
            assert_eq!(Shown::of(progress, quiet, can_draw), shown, "{progress:?}");
        }
    }
}
