//! Tables: fitted to a terminal, and one unwrapped line for each row everywhere else.

use std::io::IsTerminal;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};

use super::column::Column;
use super::plain::one_line;

/// Blanks between columns.
const GAP: u16 = 2;

/// How a table is laid out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// With a header line.
    pub(super) headers: bool,
    /// The terminal's columns; none where stdout is no terminal.
    pub(super) width: Option<u16>,
}

/// The width of the terminal that stdout is, if it is one.
pub(super) fn terminal_width() -> Option<u16> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(stdout)
        .ok()
        .map(|size| size.ws_col)
        .filter(|width| *width > 0)
}

/// The table's text; without rows, nothing but the header.
pub(super) fn render<R>(rows: &[&R], columns: &[&Column<R>], layout: Layout) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let least = least_widths(rows, columns);
    let all = least.iter().fold(0, |sum: u16, n| sum.saturating_add(*n));
    let fitted = layout.width.filter(|width| *width >= all);
    match fitted {
        Some(width) => table
            .set_width(width)
            .set_content_arrangement(ContentArrangement::Dynamic),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    if layout.headers {
        table.set_header(columns.iter().map(|column| column.title()));
    }
    for row in rows {
        table.add_row(columns.iter().map(|column| shown(&column.text(row))));
    }
    for (column, least) in table.column_iter_mut().zip(least) {
        column.set_padding((0, GAP));
        if fitted.is_some() {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
        }
    }
    let mut lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.push(String::new());
    lines.join("\n")
}

/// The width of each column's longest word, with the gap. Cells are broken between words only: names, times and hashes
/// in pieces can be neither read nor copied, so that where all don't fit, the terminal's own wrapping of whole lines is
/// better.
fn least_widths<R>(rows: &[&R], columns: &[&Column<R>]) -> Vec<u16> {
    let in_words = |text: &str| text.replace(' ', "\n");
    let mut words = Table::new();
    words.add_row(columns.iter().map(|column| in_words(column.title())));
    for row in rows {
        words.add_row(columns.iter().map(|c| in_words(&shown(&c.text(row)))));
    }
    let widths = words.column_max_content_widths();
    widths
        .iter()
        .map(|width| width.saturating_add(GAP))
        .collect()
}

/// A cell without characters that a terminal would act on; empty ones are a dash, so that fields can be counted.
fn shown(cell: &str) -> String {
    if cell.is_empty() {
        return "-".to_owned();
    }
    one_line(cell)
}

#[cfg(test)]
mod tests {
    use super::super::column::{Cell, Column, column};
    use super::*;

    struct Item(&'static str, &'static str);

    const COLUMNS: [&Column<Item>; 2] = [
        &column("NAME", |item| Cell::text_of(item.0)),
        &column("IP", |item| Cell::text_of(item.1)),
    ];

    const PIPE: Layout = Layout {
        headers: true,
        width: None,
    };

    fn table(rows: &[Item], layout: Layout) -> String {
        let rows: Vec<&Item> = rows.iter().collect();
        render(&rows, &COLUMNS, layout)
    }

    /// Columns of a terminal; East Asian characters take two.
    fn display_width(line: &str) -> usize {
        line.chars()
            .map(|c| if u32::from(c) < 0x1100 { 1 } else { 2 })
            .sum()
    }

    #[test]
    fn in_a_pipe_every_row_is_one_line() {
        let long = "a-name-of-sixty-characters-that-no-terminal-of-forty-could-show";
        let text = table(&[Item(long, "2001:db8::1"), Item("b", "")], PIPE);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            [long, "2001:db8::1"]
        );
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["b", "-"]);
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn headers_and_control_characters() {
        let layout = Layout {
            headers: false,
            ..PIPE
        };
        let text = table(&[Item("a\x1b[31m\n", "1")], layout);
        assert_eq!(text, "a\\u{1b}[31m\\n  1\n");
        assert_eq!(table(&[], PIPE), "");
    }

    #[test]
    fn a_terminal_is_not_overrun_and_no_word_is_broken() {
        let items = [
            Item("Stopped: shut off (out of this and that)", "10.0.0.1"),
            Item("東京 大阪 名古屋=長い", "2026-11-29T19:38:00Z"),
        ];
        // The longest words and the gaps: 名古屋=長い and the time.
        let least = 11 + 2 + 20 + 2;
        for width in 1..=200 {
            let layout = Layout {
                width: Some(width),
                ..PIPE
            };
            let text = table(&items, layout);
            if width < least {
                assert_eq!(text, table(&items, PIPE), "{width}");
                continue;
            }
            for line in text.lines() {
                assert!(
                    display_width(line) <= usize::from(width),
                    "{width}:\n{text}"
                );
            }
            let words: Vec<&str> = text.split_whitespace().collect();
            for word in items.iter().flat_map(|Item(a, b)| a.split(' ').chain([*b])) {
                assert!(words.contains(&word), "{width}: {word} in\n{text}");
            }
        }
    }

    #[test]
    fn columns_line_up_under_wide_characters() {
        let text = table(&[Item("東京", "10.0.0.1"), Item("tokyo", "10.0.0.2")], PIPE);
        let at: Vec<usize> = text
            .lines()
            .skip(1)
            .map(|line| display_width(&line[..line.find("10.").unwrap()]))
            .collect();
        assert_eq!(at[0], at[1], "{text}");
    }
}
