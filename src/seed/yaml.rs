//! Just enough of YAML to know whether cloud-init could read it, and where not; never what it says.
//!
//! cloud-init reads YAML 1.1 by `PyYAML`, which refuses what readers of 1.2 take: a tab anywhere but in quotes, comments and
//! blocks of text, say, or `!include`. The parser under this is one of 1.2. So the text is made into one that both take for the
//! same, and parsed ([`text::parse`]); what the parser let pass is looked for in the text between the values ([`text::check`])
//! and in the values ([`values`]). A table in the tests has `PyYAML`'s own verdicts.

use std::fmt;

use granit_parser::Span;

mod text;
mod tree;
mod types;
mod values;

#[cfg(test)]
mod tests;

/// What a document's root is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Root {
    /// Nothing, or null.
    Empty,
    /// A mapping, with those of its keys that are strings.
    Mapping(Vec<String>),
    /// A list.
    List,
    /// Anything else.
    Scalar,
}

/// What is wrong with a document, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// What is wrong, without a word of the document.
    pub(super) what: String,
    /// Line, from 1.
    pub(super) line: usize,
    /// Column, from 1, if it helps.
    pub(super) column: Option<usize>,
}

impl Fault {
    fn at(span: Span, what: &str) -> Self {
        Fault {
            what: what.to_owned(),
            line: span.start.line(),
            column: Some(span.start.col() + 1),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at line {}", self.what, self.line)?;
        match self.column {
            Some(column) => write!(f, ", column {column}"),
            None => Ok(()),
        }
    }
}

/// A document that cloud-init's parser takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    /// Its root.
    pub(super) root: Root,
    /// The number under the root's key `version`, if it is one, in plain digits.
    pub(super) version: Option<u64>,
    /// Where a key stands a second time, if one does: cloud-init silently takes the last.
    pub(super) duplicate_key: Option<Fault>,
}

/// Reads a document. One byte order mark (U+FEFF) in front is none of it, not even a column, as to `PyYAML`.
pub(super) fn read(text: &str) -> Result<Document, Fault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (text, parsed) = text::parse(text)?;
    text::check(&text, &parsed.covered)?;
    let tree = parsed.tree;
    let duplicate_key = values::check(&tree)?;
    Ok(Document {
        root: values::root(&tree),
        version: values::version(&tree),
        duplicate_key,
    })
}
