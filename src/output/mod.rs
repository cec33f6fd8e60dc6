//! The one place that prints: data on stdout, everything for people on stderr.

mod bars;
mod column;
mod command_line;
mod document;
mod log;
mod plain;
mod probe;
mod progress;
mod prompt;
mod records;
mod repeated;
mod screen;
mod secrets;
mod table;
mod terminal;
mod upkeep;

use std::io::{self, IsTerminal, Write};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::json;

use crate::cli::{Format, GlobalArgs, SortBy};
use crate::error::{Error, Reason, Result};
use plain::{cut, plain, plain_json};
use repeated::Repeated;
use screen::Screen;
use secrets::Secrets;

pub use command_line::command_line;
pub use document::{Document, Row};
pub use probe::ProbeRecord;
pub use progress::{PullBars, WaitLine};
pub use prompt::passphrase;
pub use records::{
    CheckRecord, DeletePlanRecord, DeletedRecord, InstanceRecord, PlanRecord, PulledRecord,
};
pub use terminal::{RawTerminal, restore as restore_terminal};
pub use upkeep::{ImageRecord, SweptRecord};

/// The kinds of documents there are, each with a schema in docs/schema.
pub const KINDS: [&str; 9] = [
    InstanceRecord::KIND,
    PlanRecord::KIND,
    PulledRecord::KIND,
    ImageRecord::KIND,
    DeletedRecord::KIND,
    DeletePlanRecord::KIND,
    SweptRecord::KIND,
    CheckRecord::KIND,
    ProbeRecord::KIND,
];

/// How this run talks: formats, terminal, quietness.
pub struct Ui {
    format: Option<Format>,
    sort_by: Option<SortBy>,
    headers: bool,
    color: bool,
    quiet: bool,
    secrets: Secrets,
    repeated: Repeated,
    screen: Screen,
}

impl Ui {
    /// From the command line's options and what stdout and stderr are.
    pub fn new(global: &GlobalArgs) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Ui {
            format: global.output.clone(),
            sort_by: global.sort_by.clone(),
            headers: !global.no_headers,
            quiet: global.quiet,
            secrets: Secrets::of(std::env::args_os()),
            repeated: Repeated::new(&global.given),
            screen: Screen::new(global),
            color: !global.no_color && !no_color && screen::can_draw(),
        }
    }

    /// The format asked for; a table, where none was.
    pub fn format(&self) -> &Format {
        self.format.as_ref().unwrap_or(&Format::Table)
    }

    /// Whether a format was asked for, rather than left to the command.
    pub fn format_is_named(&self) -> bool {
        self.format.is_some()
    }

    /// Whether each error is a JSON object.
    pub fn errors_are_json(&self) -> bool {
        *self.format() == Format::Json || self.screen.is_json()
    }

    /// Prints data: the only way to stdout.
    ///
    /// Errors: a closed pipe is none; anything else is [`Reason::OutputFailed`].
    pub fn data(&self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes()).map(drop)
    }

    /// Prints bytes as they are, at once; false once nobody reads them any more.
    ///
    /// Errors: [`Reason::OutputFailed`].
    pub fn bytes(&self, bytes: &[u8]) -> Result<bool> {
        written(&mut io::stdout().lock(), bytes, "stdout")
    }

    /// The same on stderr, for what another program said there.
    pub fn stderr_bytes(&self, bytes: &[u8]) -> Result<bool> {
        written(&mut io::stderr().lock(), bytes, "stderr")
    }

    /// Whether stdout's reader is known to be gone, though nothing is written.
    pub fn has_lost_reader(&self) -> bool {
        let stdout = io::stdout();
        // Nothing is asked for: errors and hang-ups are always told.
        let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
        let gone = PollFlags::ERR | PollFlags::HUP;
        rustix::event::poll(&mut ends, Some(&Timespec::default())).is_ok()
            && ends[0].revents().intersects(gone)
    }

    /// Makes sure that the columns asked for exist, before a command does anything.
    ///
    /// Errors: [`Reason::BadArgument`] (usage), listing the columns there are.
    pub fn ensure_columns<R: Row>(&self) -> Result<()> {
        column::shown::<R>(self.format())?;
        self.sort_by
            .as_ref()
            .map_or(Ok(()), |by| column::find::<R>(&by.column).map(drop))
    }

    /// The rows in the order of `--sort-by`; without it, as they are.
    ///
    /// Errors: those of [`ensure_columns`](Self::ensure_columns).
    pub fn sorted<'r, R: Row>(&self, rows: &'r [R]) -> Result<Vec<&'r R>> {
        let mut rows: Vec<&R> = rows.iter().collect();
        if let Some(by) = &self.sort_by {
            column::sort(&mut rows, by)?;
        }
        Ok(rows)
    }

    /// Prints a command's document in the format asked for; false once nobody reads them any more.
    pub fn document<R: Row>(&self, document: &Document<R>) -> Result<bool> {
        let items = self.sorted(&document.items)?;
        let errors = document.errors.iter();
        let errors: Vec<Error> = errors.map(|error| self.repeated.in_error(error)).collect();
        let text = match self.format() {
            Format::Json => document::to_json(&items, &errors),
            Format::Yaml => document::to_yaml(&items, &errors)?,
            Format::Name => document::to_names(&items),
            format => {
                let layout = table::Layout {
                    headers: self.headers,
                    width: table::terminal_width(),
                };
                table::render(&items, &column::shown::<R>(format)?, layout)
            }
        };
        self.bytes(text.as_bytes())
    }

    /// Prints a command's document, and gives what it ends with: the document's failures, and, where stdout can't be
    /// written, that as well.
    pub fn show<R: Row>(&self, document: Document<R>) -> Vec<Error> {
        self.show_or(document, |error, _| error)
    }

    /// The same where something was done that has to be known: `untold` adds an item to the error that nobody saw it for.
    pub fn show_or<R: Row>(
        &self,
        mut document: Document<R>,
        untold: impl Fn(Error, &R) -> Error,
    ) -> Vec<Error> {
        if let Err(error) = self.document(&document) {
            let error = document.items.iter().fold(error, untold);
            document.errors.push(error);
        }
        document.errors
    }

    /// What a command ends with that has asked hosts and got nothing but these failures: they stand in its document, too,
    /// where one is wanted; anything else would be an empty table.
    pub fn failures<R: Row>(&self, errors: Vec<Error>) -> Vec<Error> {
        if matches!(self.format(), Format::Json | Format::Yaml) {
            let items: Vec<R> = Vec::new();
            return self.show(Document { items, errors });
        }
        errors
    }

    /// Starts the log, which goes past the bars: warnings alone, and by `-v` (1) every call to libvirt, by `-vv` (2)
    /// also XML and addresses. `RUST_LOG` overrides both.
    pub fn start_log(&self, verbose: u8) {
        log::start(verbose, self.color, &self.screen, &self.secrets);
    }

    /// Tells people what is going on; nothing under `--quiet`.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.message("note", None, text);
        }
    }

    /// Tells a person at a terminal; nobody else, so that cron has nothing to mail.
    pub fn note_on_terminal(&self, text: &str) {
        if io::stderr().is_terminal() {
            self.note(text);
        }
    }

    /// Tells a person at a terminal why a table there has no rows.
    pub fn note_instead_of_rows(&self, text: &str) {
        let is_table = !matches!(self.format(), Format::Json | Format::Yaml | Format::Name);
        if is_table && io::stdout().is_terminal() {
            self.note_on_terminal(text);
        }
    }

    /// A hint that stands in an item of a document.
    pub fn hint(&self, text: &str) -> String {
        self.repeated.in_text(text)
    }

    /// Warns; also under `--quiet`.
    pub fn warn(&self, text: &str) {
        self.message("warning", Some(&self.paint("33", "warning:")), text);
    }

    fn message(&self, event: &str, word: Option<&str>, text: &str) {
        let text = self.secrets.out_of(&self.repeated.in_text(text));
        if self.screen.is_json() {
            let event = json!({ "event": event, "message": text });
            self.screen.json(&event.to_string());
            return;
        }
        let text = plain(&cut(&text));
        let line = word.map_or_else(|| text.clone(), |word| format!("{word} {text}"));
        self.screen.painted(&line);
    }

    /// Warns of what would be an error where it stood in the way, with its causes and hints; also under `--quiet`.
    pub fn warning(&self, error: &Error) {
        let error = &self.repeated.in_error(error);
        if self.screen.is_json() {
            let event = json!({
                "event": "warning",
                "message": error.to_string(),
                "hints": error.hints(),
            });
            self.screen.json(&self.secrets.out_of(&event.to_string()));
            return;
        }
        self.screen
            .painted(&self.told(&self.paint("33", "warning:"), error));
    }

    /// Prints an error with its causes and hints, or as one JSON object.
    pub fn error(&self, error: &Error) {
        let error = &self.repeated.in_error(error);
        if let Some(text) = as_json(error, *self.format() == Format::Json, self.screen.is_json()) {
            self.screen.json(&self.secrets.out_of(&text));
            return;
        }
        self.screen
            .painted(&self.told(&self.paint("31", "error:"), error));
    }

    /// An error for people, after that word: what hosts and guests said of it is plain.
    fn told(&self, word: &str, error: &Error) -> String {
        let shown = |text: &str| plain(&cut(&self.secrets.out_of(text)));
        let place = error
            .host()
            .map(|host| format!("{host}: "))
            .unwrap_or_default();
        let mut lines = vec![format!("{word} {place}{}", shown(error.message()))];
        for cause in error.causes() {
            lines.push(format!("  {}", shown(cause).replace('\n', "\n  ")));
        }
        for hint in error.hints() {
            // Whole: it may be a command.
            let hint = plain(&self.secrets.out_of(hint));
            lines.push(format!("{} {hint}", self.paint("36", "hint:")));
        }
        lines.join("\n")
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[1;{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

fn written(stream: &mut dyn Write, bytes: &[u8], name: &str) -> Result<bool> {
    match stream.write_all(bytes).and_then(|()| stream.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::permanent(
            Reason::OutputFailed,
            format!("{name} can't be written"),
        )
        .because(error)),
    }
}

/// The error as a JSON object, where errors are such, as the document is or among events.
fn as_json(error: &Error, is_document: bool, among_events: bool) -> Option<String> {
    let mut object = (is_document || among_events).then(|| document::error_json(error))?;
    if among_events {
        object["event"] = "error".into();
    }
    Some(object.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    fn ui() -> Ui {
        let cli = Cli::try_parse_from(["egressctl", "list"]).unwrap();
        Ui::new(&cli.global)
    }

    #[test]
    fn what_an_error_quotes_is_shown_and_not_acted_on() {
        let error = Error::transient(Reason::ConnectFailed, "m\x07")
            .on_host("nas1")
            .because("a\x1b[2J\u{9b}b\nc")
            .because("x".repeat(5000))
            .hint("h\r");
        let told = ui().told("error:", &error);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines[0], "error: nas1: m\\u{7}");
        assert_eq!(lines[1], "  a\\u{1b}[2J\\u{9b}b");
        assert_eq!(lines[2], "  c");
        assert_eq!(lines[3], format!("  {}…", "x".repeat(1000)));
        assert!(lines[4].ends_with(" h\\r"), "{told}");
    }
}
