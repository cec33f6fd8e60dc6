//! Documents as YAML that old readers take for the same: strings that YAML 1.1 would read as something else are quoted.
//!
//! The writer quotes what YAML 1.2 and 1.1's booleans ask for. Readers of YAML 1.1 (`PyYAML` among them) know dates,
//! numbers to base 60 (`12:30:00`) and digits with underscores besides (yaml.org/type, of 2005).

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::DoubleQuoted;

/// A document to be written.
pub struct Quoting<'a>(pub &'a Value);

impl Serialize for Quoting<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) if is_other_in_yaml11(text) => {
                DoubleQuoted(text).serialize(serializer)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Quoting)),
            Value::Object(entries) => {
                // The writer quotes keys by its own rules: ours are words, and labels' keys.
                let entries = entries.iter();
                serializer.collect_map(entries.map(|(key, value)| (key, Quoting(value))))
            }
            plain => plain.serialize(serializer),
        }
    }
}

/// Whether YAML 1.1 has another type for this text, and YAML 1.2 hasn't.
fn is_other_in_yaml11(text: &str) -> bool {
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    let of = |allowed: &str| number.chars().all(|c| allowed.contains(c));
    let begins = number.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    text == "="
        || text == "<<"
        || begins && number.contains(':') && of("0123456789_:.")
        || begins && number.contains('_') && of("0123456789abcdefABCDEFx_.+-")
        || is_date(text)
}

/// `2026-1-31`, whatever time of day follows.
fn is_date(text: &str) -> bool {
    let date = text.split(['T', 't', ' ', '\t']).next().unwrap_or_default();
    let parts: Vec<&str> = date.split('-').collect();
    let digits = |part: &&str| part.chars().all(|c| c.is_ascii_digit());
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    parts.iter().all(digits) && matches!(lengths[..], [4, 1..=2, 1..=2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn yaml(value: &Value) -> String {
        serde_saphyr::to_string(&Quoting(value)).unwrap()
    }

    #[test]
    fn what_yaml_1_1_reads_as_something_else_is_quoted() {
        for text in [
            "12:30:00",
            "1:30",
            "-1:30.5",
            "52:54:00:12:34:56",
            "2026-01-01",
            "2026-1-1",
            "2026-01-01T10:00:00Z",
            "2026-01-01 10:00:00",
            "1_000",
            "0b1_0",
            "0x_ff",
            "1_0.5",
            "1_0e+3",
            "=",
            "<<",
            // The writer's own.
            "0777",
            "1e3",
            ".5",
            "on",
            "null",
            "",
        ] {
            let written = yaml(&json!({ "a": text }));
            assert!(written.contains(['"', '\'']), "{text}: {written}");
            let read: Value = serde_saphyr::from_str(&written).unwrap();
            assert_eq!(read, json!({ "a": text }), "{written}");
        }
    }

    #[test]
    fn other_strings_stay_plain() {
        for text in [
            "web1",
            "10.0.0.5",
            "2001:db8::1",
            "fe80::1",
            "52:54:00:ab:cd:ef",
            "egressctl/v1",
            "2026-01",
            "2026-01-01-backup",
            "a_b",
            "_1",
            "nas1: x".trim_end_matches(": x"),
        ] {
            assert_eq!(yaml(&json!({ "a": text })), format!("a: {text}\n"));
        }
    }
}
