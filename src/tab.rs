//! Where a text that isn't YAML is indented with a tab: parsers name another line, and what they say doesn't help.

/// What is wrong with such a line.
pub(crate) const WHAT: &str = "a line is indented with a tab, which YAML forbids";

/// A line (from 1) whose indentation has a tab, next to the line where the parser gave up.
pub(crate) fn indent_near(text: &str, line: usize) -> Option<usize> {
    let indented = |line: &str| {
        let content = line.trim_start_matches([' ', '\t']);
        line[..line.len() - content.len()].contains('\t') && !content.is_empty()
    };
    let lines: Vec<&str> = text.lines().take(line + 1).collect();
    let nearest = line.saturating_sub(2)..lines.len();
    nearest
        .rev()
        .find(|&at| indented(lines[at]))
        .map(|at| at + 1)
}
