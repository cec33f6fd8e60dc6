//! Tables: fitted to a terminal, and one unwrapped line for each row everywhere else.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table, presets};

use super::document::Row;

/// How a table is laid out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// With the columns of `-o wide`.
    pub(super) wide: bool,
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
pub(super) fn render<R: Row>(rows: &[R], layout: Layout) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    match layout.width {
        Some(width) => table
            .set_width(width)
            .set_content_arrangement(ContentArrangement::Dynamic),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    let mut empty = true;
    for row in rows {
        let mut columns = row.columns();
        if layout.wide {
            columns.extend(row.more_columns());
        }
        if empty && layout.headers {
            table.set_header(columns.iter().map(|(title, _)| *title));
        }
        empty = false;
        table.add_row(columns.into_iter().map(|(_, cell)| shown(&cell)));
    }
    if empty {
        return String::new();
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.push(String::new());
    lines.join("\n")
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
    use super::*;
    use serde::Serialize;

    #[derive(Serialize)]
    struct Item(&'static str, &'static str);

    impl Row for Item {
        const KIND: &'static str = "Things";
        fn name(&self) -> String {
            self.0.to_owned()
        }
        fn columns(&self) -> Vec<(&'static str, String)> {
            vec![("NAME", self.0.to_owned()), ("IP", self.1.to_owned())]
        }
        fn more_columns(&self) -> Vec<(&'static str, String)> {
            vec![("UID", "u".to_owned())]
        }
    }

    const PIPE: Layout = Layout {
        wide: false,
        headers: true,
        width: None,
    };

    #[test]
    fn in_a_pipe_every_row_is_one_line() {
        let long = "a-name-of-sixty-characters-that-no-terminal-of-forty-could-show";
        let text = render(&[Item(long, "2001:db8::1"), Item("b", "")], PIPE);
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
    fn headers_wide_and_control_characters() {
        let layout = Layout {
            wide: true,
            headers: false,
            width: None,
        };
        assert_eq!(
            render(&[Item("a\x1b[31m\n", "1")], layout),
            "a\\u{1b}[31m\\n  1  u\n"
        );
        let none: [Item; 0] = [];
        assert_eq!(render(&none, PIPE), "");
    }

    #[test]
    fn a_terminal_is_not_overrun() {
        let layout = Layout {
            width: Some(40),
            ..PIPE
        };
        let text = render(
            &[Item("a-name-that-is-longer-than-the-terminal-is-wide", "1")],
            layout,
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
    }
}
