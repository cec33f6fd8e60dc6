//! Where the two YAMLs differ in what stands in the text: line ends, letters, tabs, anchors, and words in brackets.

use std::collections::HashSet;
use std::ops::Range;

use granit_parser::{ErrorKind, ScanError};

use super::Fault;
use super::tree::{self, Covered, Failure, Parsed};
use crate::tab;

/// How often a text is parsed anew, each time with one place adapted; and of what size in all, in bytes.
const ATTEMPTS: usize = 1000;
const ATTEMPTED: usize = 64 << 20;

/// Parses the text, and gives it as it was parsed: in the same lines, if not always the same columns.
pub(super) fn parse(given: &str) -> Result<(String, Parsed), Fault> {
    if let Some((at, _)) = given.char_indices().find(|(_, c)| !is_printable(*c)) {
        return Err(fault(
            given,
            at,
            "it has a control character, which YAML forbids",
        ));
    }
    let mut text: String = given.chars().map(in_both).collect();
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let deepest = text.lines().map(indent).max().unwrap_or_default();
    let attempts = ATTEMPTS.min(ATTEMPTED / text.len().max(1));
    let mut error = match tree::parse(&text) {
        Ok(parsed) => return Ok((text, parsed)),
        Err(failure) => failure,
    };
    for _ in 0..attempts {
        let Failure::Syntax(syntax) = &error else {
            break;
        };
        if !adapt(&mut text, deepest, syntax) {
            break;
        }
        match tree::parse(&text) {
            Ok(parsed) => return Ok((text, parsed)),
            Err(failure) => error = failure,
        }
    }
    Err(match error {
        Failure::Syntax(syntax) => told(given, &syntax),
        Failure::Fault(fault) => fault,
    })
}

/// What `PyYAML` reads at all (its `Reader.NON_PRINTABLE`).
fn is_printable(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

/// YAML 1.1 has three more line ends, and no byte order mark within a text.
fn in_both(c: char) -> char {
    match c {
        '\u{85}' | '\u{2028}' | '\u{2029}' => '\n',
        '\u{feff}' => '\u{fffd}',
        other => other,
    }
}

/// Changes the place where the parser stopped, if `PyYAML` goes on there, into one where both do. No line of the given text
/// is indented more than `indent`.
fn adapt(text: &mut String, indent: usize, error: &ScanError) -> bool {
    let Some(at) = error.marker().byte_offset() else {
        return false;
    };
    let next = text[at..].chars().next();
    match error.kind() {
        // A quoted value may go on at the begin of a line; blanks there are no part of it.
        ErrorKind::InvalidQuotedScalarIndent if !begins_document(&text[at..]) => {
            text.insert_str(at, &" ".repeat(1 + indent));
            true
        }
        ErrorKind::TabInIndentation if next == Some('\t') => {
            text.replace_range(at..=at, " ");
            true
        }
        // A comment may follow a quoted value or a bracket without a blank.
        ErrorKind::InvalidTrailingSingleQuotedScalar
        | ErrorKind::InvalidTrailingDoubleQuotedScalar
        | ErrorKind::CommentNotSeparated
            if next == Some('#') =>
        {
            text.insert(at, ' ');
            true
        }
        _ => false,
    }
}

/// The parser's own message may quote the document, so only its position is used.
fn told(text: &str, error: &ScanError) -> Fault {
    let line = error.marker().line();
    match tab::indent_near(text, line) {
        Some(line) => Fault {
            what: tab::WHAT.to_owned(),
            line,
            column: None,
        },
        None => Fault {
            what: "it isn't valid YAML".to_owned(),
            line,
            column: Some(error.marker().col() + 1),
        },
    }
}

/// Looks for what only YAML 1.2 has, in the text and between what the values take up.
pub(super) fn check(text: &str, covered: &[Covered]) -> Result<(), Fault> {
    let mut anchors = HashSet::new();
    let mut from = 0;
    for value in covered {
        let range = value.range.clone();
        between(text, from, range.start, &mut anchors)?;
        if value.key {
            key(text, &text[from.min(range.start)..range.start], &range)?;
        }
        if value.plain {
            plain(text, range.start, &text[range.clone()], value.in_flow)?;
        }
        from = from.max(range.end);
    }
    between(text, from, text.len(), &mut anchors)
}

fn begins_document(line: &str) -> bool {
    let rest = line.strip_prefix("---").or(line.strip_prefix("..."));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n', '\r']))
}

/// A key without `?` stands on one line with its colon, and isn't nothing at all.
fn key(text: &str, before: &str, range: &Range<usize>) -> Result<(), Fault> {
    if before.contains(['?', '&', '!']) {
        return Ok(());
    }
    let rest = &text[range.end..];
    let blanks = rest.len() - rest.trim_start_matches([' ', '\n', '\r']).len();
    let is_with_colon = rest[blanks..].starts_with(':');
    if is_with_colon && (range.is_empty() || text[range.start..range.end + blanks].contains('\n')) {
        let what = "it has a colon without a key on the same line, which cloud-init refuses";
        return Err(fault(text, range.start, what));
    }
    Ok(())
}

/// A tab ends a plain value; and between brackets, `?` and `:` say that a key or a value begins.
fn plain(text: &str, start: usize, value: &str, in_flow: bool) -> Result<(), Fault> {
    if let Some(at) = value.find('\t') {
        return Err(tab_at(text, start + at));
    }
    let first = usize::from(value.starts_with('?'));
    let mark = match value.strip_prefix(':') {
        Some(_) => Some(0),
        None => value[first..].find('?').map(|at| first + at),
    };
    if let Some(at) = mark.filter(|_| in_flow) {
        let what = "cloud-init reads a `?` or a leading `:` between brackets as a mark of YAML's: \
                    quote the value";
        return Err(fault(text, start + at, what));
    }
    Ok(())
}

/// What stands between the values `from` one `to` the next: marks of YAML's, anchors and tags.
fn between<'t>(
    text: &'t str,
    from: usize,
    to: usize,
    anchors: &mut HashSet<&'t str>,
) -> Result<(), Fault> {
    let mut at = from;
    while at < to {
        let rest = &text[at..to];
        let length = match rest.as_bytes()[0] {
            // A directive's own line.
            b'%' if begins_line(text, at) => rest.find('\n').unwrap_or(rest.len()),
            b'\t' => return Err(tab_at(text, at)),
            b'!' => rest
                .find(|c: char| c.is_whitespace() || ",[]{}".contains(c))
                .unwrap_or(rest.len()),
            b'&' => {
                let name = rest[1..]
                    .find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))
                    .map_or(&rest[1..], |end| &rest[1..=end]);
                let next = rest[1 + name.len()..].chars().next();
                if name.is_empty() || next.is_some_and(|c| !c.is_ascii()) {
                    let what =
                        "it has an anchor of other letters than A to Z, which cloud-init refuses";
                    return Err(fault(text, at, what));
                }
                if !anchors.insert(name) {
                    return Err(fault(
                        text,
                        at,
                        "it has an anchor twice, which cloud-init refuses",
                    ));
                }
                1 + name.len()
            }
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        at += length;
    }
    Ok(())
}

fn begins_line(text: &str, at: usize) -> bool {
    at == 0 || text.as_bytes()[at - 1] == b'\n'
}

fn tab_at(text: &str, at: usize) -> Fault {
    let line = text[..at].rsplit(['\n', '\r']).next().unwrap_or_default();
    if line.trim_matches(' ').is_empty() {
        return fault(text, at, tab::WHAT);
    }
    let what =
        "a tab stands where cloud-init's YAML takes blanks only: behind a colon, a dash or a value";
    fault(text, at, what)
}

/// A fault at that byte.
fn fault(text: &str, at: usize, what: &str) -> Fault {
    let before = text[..at].replace("\r\n", "\n").replace('\r', "\n");
    let line = before.rsplit('\n').next().unwrap_or_default();
    Fault {
        what: what.to_owned(),
        line: 1 + before.matches('\n').count(),
        column: Some(1 + line.chars().count()),
    }
}
