//! What there is to say about user-data, vendor-data or a network-config.

use std::fmt;

use super::yaml;
use crate::error::{Error, Reason};

/// Something about some data, without a word of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub what: String,
    /// The line of the data, from 1, if it is about one.
    pub line: Option<usize>,
    /// The column, from 1, if that helps.
    pub column: Option<usize>,
    /// What to do about it, or what cloud-init does.
    pub hint: Option<&'static str>,
}

impl Finding {
    /// One that is about all of the data.
    pub(super) fn of(what: &str) -> Self {
        Finding {
            what: what.to_owned(),
            line: None,
            column: None,
            hint: None,
        }
    }

    pub(super) fn hint(self, hint: &'static str) -> Self {
        Finding {
            hint: Some(hint),
            ..self
        }
    }

    /// All of it, as a warning about the data called `source`.
    pub fn told(&self, source: &str) -> String {
        let hint = self.hint.map(|hint| format!("; {hint}"));
        format!("{source}: {self}{}", hint.unwrap_or_default())
    }

    pub(super) fn into_error(self, source: &str) -> Error {
        let error = Error::usage(
            Reason::InvalidUserData,
            format!("{source} can't be used: {self}"),
        );
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, " at line {line}, column {column}"),
            (Some(line), None) => write!(f, " at line {line}"),
            _ => Ok(()),
        }
    }
}

impl From<yaml::Fault> for Finding {
    fn from(fault: yaml::Fault) -> Self {
        Finding {
            line: Some(fault.line),
            column: fault.column,
            ..Finding::of(&fault.what)
        }
    }
}
