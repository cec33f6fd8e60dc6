//! Columns of tables: what they are called, what stands in their cells, and how rows are sorted by them.

use std::cmp::Ordering;
use std::time::Duration;

use super::document::Row;
use crate::cli::{Format, SortBy};
use crate::error::{Error, Reason, Result};
use crate::near::nearest;
use crate::units;

/// One column of a table.
pub struct Column<R> {
    /// The title, by which `-o columns=` and `--sort-by` know it too.
    title: &'static str,
    /// Whether it is shown by `-o wide` only.
    wide: bool,
    cell: fn(&R) -> Cell,
}

/// A column of every table.
pub(super) const fn column<R>(title: &'static str, cell: fn(&R) -> Cell) -> Column<R> {
    Column {
        title,
        wide: false,
        cell,
    }
}

/// A column of `-o wide`.
pub(super) const fn wide<R>(title: &'static str, cell: fn(&R) -> Cell) -> Column<R> {
    Column {
        title,
        wide: true,
        cell,
    }
}

impl<R> Column<R> {
    /// The title.
    pub(super) fn title(&self) -> &'static str {
        self.title
    }

    /// The row's cell as people read it.
    pub(super) fn text(&self, row: &R) -> String {
        (self.cell)(row).text()
    }
}

/// What stands in a cell: exact, so that rows can be sorted by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    /// Nothing is known.
    Empty,
    /// Words.
    Text(String),
    /// A number.
    Number(i64),
    /// A size in bytes.
    Bytes(u64),
    /// How long ago something was.
    Age(Duration),
}

impl Cell {
    /// Words; none of them is an empty cell.
    pub(super) fn text_of(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() {
            Cell::Empty
        } else {
            Cell::Text(text)
        }
    }

    /// Words that may be missing.
    pub(super) fn maybe(text: Option<&str>) -> Self {
        Self::text_of(text.unwrap_or_default())
    }

    /// A size that may be unknown, in bytes.
    pub(super) fn size(bytes: Option<u64>) -> Self {
        bytes.map_or(Cell::Empty, Cell::Bytes)
    }

    /// `yes` or `no`.
    pub(super) fn yes_no(yes: bool) -> Self {
        Cell::Text(if yes { "yes" } else { "no" }.to_owned())
    }

    fn text(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => number.to_string(),
            Cell::Bytes(bytes) => units::bytes(*bytes),
            Cell::Age(age) => units::age(*age),
        }
    }

    /// By value where both have one of the same kind, else by text. Empty cells aren't compared here.
    fn compare(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Number(a), Cell::Number(b)) => a.cmp(b),
            (Cell::Bytes(a), Cell::Bytes(b)) => a.cmp(b),
            (Cell::Age(a), Cell::Age(b)) => a.cmp(b),
            _ => natural(&self.text(), &other.text()),
        }
    }
}

/// Compares as people do: `nas2` before `nas10`, and so addresses by their numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (digits_a, digits_b) = (leading_digits(a), leading_digits(b));
        let order = if digits_a.is_empty() || digits_b.is_empty() {
            match (a.chars().next(), b.chars().next()) {
                (Some(first), Some(second)) if first == second => {
                    (a, b) = (&a[first.len_utf8()..], &b[second.len_utf8()..]);
                    continue;
                }
                (first, second) => return first.cmp(&second),
            }
        } else {
            let value = |digits: &str| digits.trim_start_matches('0').len();
            let (long, short) = (value(digits_a), value(digits_b));
            // As many digits: their text decides.
            long.cmp(&short).then_with(|| {
                digits_a
                    .trim_start_matches('0')
                    .cmp(digits_b.trim_start_matches('0'))
            })
        };
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (&a[digits_a.len()..], &b[digits_b.len()..]);
    }
}

fn leading_digits(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

/// The columns that a format shows.
///
/// Errors: [`Reason::BadArgument`] (usage) for a name that is none of the table's columns, listing these.
pub(super) fn shown<R: Row>(format: &Format) -> Result<Vec<&'static Column<R>>> {
    match format {
        Format::Columns(names) => names.iter().map(|name| find::<R>(name)).collect(),
        Format::Wide => Ok(R::COLUMNS.iter().collect()),
        _ => Ok(R::COLUMNS.iter().filter(|column| !column.wide).collect()),
    }
}

/// Sorts rows by the column; empty cells last, equal ones in the order they have.
///
/// Errors: those of [`shown`].
pub(super) fn sort<R: Row>(rows: &mut [&R], by: &SortBy) -> Result<()> {
    let column = find::<R>(&by.column)?;
    rows.sort_by(|a, b| match ((column.cell)(a), (column.cell)(b)) {
        (Cell::Empty, Cell::Empty) => Ordering::Equal,
        (Cell::Empty, _) => Ordering::Greater,
        (_, Cell::Empty) => Ordering::Less,
        (a, b) if by.descending => b.compare(&a),
        (a, b) => a.compare(&b),
    });
    Ok(())
}

/// A column by its title, in either case, with a dash for a blank.
pub(super) fn find<R: Row>(name: &str) -> Result<&'static Column<R>> {
    let wanted = normal(name);
    if let Some(column) = R::COLUMNS.iter().find(|c| normal(c.title) == wanted) {
        return Ok(column);
    }
    let names: Vec<String> = R::COLUMNS
        .iter()
        .map(|c| c.title.replace(' ', "-"))
        .collect();
    let error = Error::usage(Reason::BadArgument, format!("there is no column {name:?}"))
        .because(format!("columns: {}", names.join(", ")));
    Err(match nearest(name, names.iter().map(String::as_str)) {
        Some(title) => error.hint(format!("did you mean {title}?")),
        None => error,
    })
}

fn normal(name: &str) -> String {
    name.to_ascii_uppercase().replace([' ', '_'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_words_are_compared_as_numbers() {
        let mut words = [
            "nas10",
            "nas2",
            "10.0.0.9",
            "10.0.0.10",
            "nas02",
            "nas",
            "b",
        ];
        words.sort_by(|a, b| natural(a, b));
        assert_eq!(
            words,
            [
                "10.0.0.9",
                "10.0.0.10",
                "b",
                "nas",
                "nas2",
                "nas02",
                "nas10"
            ]
        );
    }

    #[test]
    fn values_are_compared_and_not_their_texts() {
        let (small, large) = (Cell::Bytes(900), Cell::Bytes(2 << 30));
        assert_eq!(small.compare(&large), Ordering::Less);
        let (young, old) = (Duration::from_secs(59), Duration::from_hours(30));
        assert_eq!(Cell::Age(old).compare(&Cell::Age(young)), Ordering::Greater);
        assert_eq!(Cell::text_of(""), Cell::Empty);
    }
}
