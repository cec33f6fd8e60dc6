//! Everything that is wrong with a file, collected with its place, and told in one error.

use std::collections::HashSet;
use std::path::Path;

use super::yaml::Flaw;
use crate::error::{Error, Reason};

/// How the lines of a text relate to the lines of the file it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lines {
    /// The text is the file, or a literal block in it that begins after that many lines.
    After(usize),
    /// The text is a quoted or folded scalar at `line` under `key`, whose own lines are not the file's.
    Inside { line: usize, key: String },
}

/// The problems of one file, so far.
pub(crate) struct Problems {
    file: String,
    lines: Lines,
    list: Vec<(usize, String)>,
    /// Those that only a create stumbles over.
    unmet: Vec<(usize, String)>,
    /// Flaws reported already: a merged mapping brings its own along to each place.
    flaws: HashSet<(usize, String)>,
}

impl Problems {
    /// No problems yet, in the file of that name.
    pub(crate) fn new(file: &Path) -> Self {
        Problems {
            file: file.display().to_string(),
            lines: Lines::After(0),
            list: Vec::new(),
            unmet: Vec::new(),
            flaws: HashSet::new(),
        }
    }

    /// From here on, lines are those of a text inside the file.
    pub(crate) fn enter(&mut self, lines: Lines) {
        self.lines = lines;
    }

    /// Adds a problem of the value at `path` (empty for the document) on `line`.
    pub(crate) fn add(&mut self, line: usize, path: &str, what: &str) {
        self.list.push(self.told(line, "", &of(path, what)));
    }

    /// Adds a problem of the value at `path` on `line` that keeps nothing but a create from using the file; returns it.
    pub(crate) fn add_unmet(&mut self, line: usize, path: &str, what: &str) -> String {
        let problem = self.told(line, "", &of(path, what));
        self.unmet.push(problem.clone());
        problem.1
    }

    /// What to say of the value at `path` on `line` that is no problem.
    pub(crate) fn warning(&self, line: usize, path: &str, what: &str) -> String {
        self.told(line, "", &of(path, what)).1
    }

    /// Adds a flaw of the mapping at `path`, unless another place has it already.
    pub(crate) fn add_flaw(&mut self, flaw: &Flaw, path: &str) {
        let what = match flaw.first {
            Some(first) => format!("{}; it is on {} already", flaw.what, self.place(first)),
            None => flaw.what.clone(),
        };
        if self.flaws.insert((flaw.line, flaw.key.clone())) {
            self.add(flaw.line, path, &what);
        }
    }

    /// A line of the text, for a message about another one.
    pub(crate) fn place(&self, line: usize) -> String {
        match &self.lines {
            Lines::After(before) => format!("line {}", before + line),
            Lines::Inside { key, .. } => format!("line {line} of data.{key}"),
        }
    }

    /// Adds a problem of YAML's syntax, with its column (from 1).
    pub(crate) fn add_syntax(&mut self, line: usize, column: usize, what: &str) {
        let what = format!("not valid YAML: {what}");
        self.list
            .push(self.told(line, &format!("{column}:"), &what));
    }

    /// What it says, with its place in front; and the line of the file.
    fn told(&self, line: usize, column: &str, what: &str) -> (usize, String) {
        let file = &self.file;
        match &self.lines {
            Lines::After(before) => (
                before + line,
                format!("{file}:{}:{column} {what}", before + line),
            ),
            Lines::Inside { line: outer, key } => (
                *outer,
                format!("{file}:{outer}: line {line} of data.{key}:{column} {what}"),
            ),
        }
    }

    /// Whether there are none that keep every command from using the file.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them in one error, in the file's order.
    pub(crate) fn into_error(mut self) -> Error {
        self.list.append(&mut self.unmet);
        self.list.sort_by_key(|(line, _)| *line);
        self.list.dedup();
        let problems: Vec<&str> = self.list.iter().map(|(_, told)| told.as_str()).collect();
        in_one_error(&self.file, &problems)
    }
}

/// The problems of a file in one error; each says its place itself.
pub(super) fn in_one_error(file: &str, problems: &[&str]) -> Error {
    let count = match problems.len() {
        1 => "1 error".to_string(),
        count => format!("{count} errors"),
    };
    let error = Error::usage(Reason::ConfigInvalid, format!("{count} in {file}"));
    problems.iter().fold(error, Error::because)
}

/// What is said, of the value at `path`.
fn of(path: &str, what: &str) -> String {
    if path.is_empty() {
        what.to_string()
    } else {
        format!("{path}: {what}")
    }
}
