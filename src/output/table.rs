//! Tables: fitted to a terminal, and one unwrapped line for each row everywhere else.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table, presets};

use super::column::Column;

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
    match layout.width {
        Some(width) if width >= least_width(rows, columns) => table
            .set_width(width)
            .set_content_arrangement(ContentArrangement::Dynamic),
        _ => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    if layout.headers {
        table.set_header(columns.iter().map(|column| column.title()));
    }
    for row in rows {
        table.add_row(columns.iter().map(|column| shown(&column.text(row))));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    let mut lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.push(String::new());
    lines.join("\n")
}

/// The width below which cells would be broken into columns of single letters: the terminal's own wrapping of whole
/// lines is better to read.
fn least_width<R>(rows: &[&R], columns: &[&Column<R>]) -> u16 {
    /// A column that is cut to less is no use.
    const LEGIBLE: usize = 4;
    let longest = |column: &&Column<R>| {
        let cells = rows
            .iter()
            .map(|row| shown(&column.text(row)).chars().count());
        cells.chain([column.title().len()]).max().unwrap_or(0)
    };
    let least = |column: &&Column<R>| longest(column).min(LEGIBLE) + usize::from(GAP);
    u16::try_from(columns.iter().map(least).sum::<usize>()).unwrap_or(u16::MAX)
}

/// A cell without characters that a terminal would act on; empty ones are a dash, so that fields can be counted.
fn shown(cell: &str) -> String {
    if cell.is_empty() {
        return "-".to_owned();
    }
    cell.chars()
        .flat_map(|c| {
            let escaped: Vec<char> = if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            };
            escaped
        })
        .collect()
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
    fn a_terminal_is_not_overrun_and_nothing_is_cut() {
        let items = [
            Item(
                "a-name-that-is-longer-than-the-terminal-is-wide",
                "10.0.0.1",
            ),
            Item(
                "東京=プロキシ,大阪=検索チーム,名古屋=長い名前の部署",
                "2001:db8::1",
            ),
        ];
        for width in 1..=200 {
            let layout = Layout {
                width: Some(width),
                ..PIPE
            };
            let text = table(&items, layout);
            // Two columns of four letters and their gaps.
            if width < 12 {
                assert_eq!(text, table(&items, PIPE), "{width}");
                continue;
            }
            for line in text.lines() {
                assert!(
                    display_width(line) <= usize::from(width),
                    "{width}:\n{text}"
                );
            }
            // Without the second column, the first one's pieces are the whole, as long as that is in one piece.
            if width < 40 {
                continue;
            }
            let joined: String = text.split_whitespace().collect();
            for Item(name, address) in &items {
                let whole = joined.replace(address, "");
                assert!(whole.contains(name), "{width}: {name} in\n{text}");
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
