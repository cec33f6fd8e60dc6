//! Text of hosts, guests and servers without what a terminal would act on: shown, so that nothing is hidden by it.

use std::fmt::Write as _;

/// The most that is shown of one cause or of what was seen, in characters: whatever a host sends, a screen has room for it.
const LONGEST: usize = 1000;

/// The text with its lines as they are, and every other control character escaped (U+0080 to U+009F, too: terminals take
/// them for an escape sequence's start).
pub(super) fn plain(text: &str) -> String {
    escaped(text, |c| c.is_control() && c != '\n')
}

/// The same on one line.
pub(super) fn one_line(text: &str) -> String {
    escaped(text, char::is_control)
}

/// The beginning of a text that is too long for people.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// JSON in which the control characters are escaped that JSON lets stand as they are.
pub(super) fn plain_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        // They stand in strings only: what JSON has between them is a line's end or a blank.
        if c.is_control() && c != '\n' {
            // Writing into a string doesn't fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

fn escaped(text: &str, is_meant: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_meant(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_lines_stay() {
        let table = [
            ("web1: ok – 网", "web1: ok – 网", "web1: ok – 网"),
            ("a\nb", "a\nb", "a\\nb"),
            ("a\tb\rc", "a\\tb\\rc", "a\\tb\\rc"),
            ("a\x1b[2J\x07", "a\\u{1b}[2J\\u{7}", "a\\u{1b}[2J\\u{7}"),
            ("\u{9b}2J\x7f", "\\u{9b}2J\\u{7f}", "\\u{9b}2J\\u{7f}"),
        ];
        for (text, lines, line) in table {
            assert_eq!(plain(text), lines);
            assert_eq!(one_line(text), line);
        }
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let text = "ä".repeat(LONGEST);
        assert_eq!(cut(&text), text);
        assert_eq!(cut(&format!("{text}b")), format!("{text}…"));
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "a": "\x1b\u{9b}\x7f\n\"", "b": 1 });
        for text in [value.to_string(), format!("{value:#}\n")] {
            let shown = plain_json(&text);
            assert!(
                !shown.chars().any(|c| c.is_control() && c != '\n'),
                "{shown}"
            );
            let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(read, value);
        }
    }
}
