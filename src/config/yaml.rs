//! YAML as a tree whose every node knows its line, with aliases and merge keys applied.
//!
//! serde's structs stop at the first mistake and lose positions; all mistakes of a file are wanted
//! at once, so the validator walks this tree instead.

mod build;

pub(crate) use build::parse;

/// A node, and where it begins.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Line, from 1.
    pub(crate) line: usize,
    /// What it is.
    pub(crate) value: Value,
    /// A tag that isn't one of YAML's own, such as `!secret`.
    pub(crate) foreign_tag: Option<String>,
}

/// What a node is.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Scalar(Scalar),
    Sequence(Vec<Node>),
    Mapping(Mapping),
}

/// A scalar as written; [`Scalar::kind`] says what YAML makes of it.
#[derive(Debug, Clone)]
pub(crate) struct Scalar {
    /// The text, unescaped.
    pub(crate) text: String,
    /// Whether it stands there without quotes, block style or `!!str`.
    pub(crate) plain: bool,
    /// If it is a literal block (`|`), whose lines are the file's lines: what is before it in the file.
    pub(crate) literal: Option<Offset>,
}

/// Where the content of a literal block begins in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    /// Lines of the file before its first line.
    pub(crate) lines: usize,
    /// Columns before each of its lines: its indentation.
    pub(crate) columns: usize,
}

/// A mapping in file order, merge keys applied.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mapping {
    pub(crate) entries: Vec<Entry>,
    /// Duplicate keys and merge keys that can't be applied.
    pub(crate) flaws: Vec<Flaw>,
}

/// One `key: value`.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Scalar,
    pub(crate) line: usize,
    pub(crate) value: Node,
}

/// What is wrong with a mapping as such; reported by whoever reads it, who knows its path.
#[derive(Debug, Clone)]
pub(crate) struct Flaw {
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) what: String,
    /// For a duplicate key, the line of the first.
    pub(crate) first: Option<usize>,
}

/// What YAML makes of a scalar: the 1.2 core schema, and the 1.1 booleans that Go's readers still honour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Null,
    Bool(bool),
    /// `yes`, `no`, `on`, `off`: a boolean to some readers and a word to others.
    OldBool,
    Number,
    Text,
}

/// A document that isn't YAML, or goes beyond the limits of `build`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// Line, from 1.
    pub(crate) line: usize,
    /// Column, from 1.
    pub(crate) column: usize,
    pub(crate) what: String,
}

impl Scalar {
    /// What YAML makes of it.
    pub(crate) fn kind(&self) -> ScalarKind {
        if !self.plain {
            return ScalarKind::Text;
        }
        match self.text.to_ascii_lowercase().as_str() {
            "" | "~" | "null" => ScalarKind::Null,
            "true" => ScalarKind::Bool(true),
            "false" => ScalarKind::Bool(false),
            "yes" | "no" | "on" | "off" => ScalarKind::OldBool,
            _ if is_number(&self.text) => ScalarKind::Number,
            _ => ScalarKind::Text,
        }
    }
}

/// Whether YAML 1.1 or 1.2 reads this plain scalar as a number.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let lower = digits.to_ascii_lowercase();
    if matches!(lower.as_str(), ".inf" | ".nan") {
        return true;
    }
    let based = |prefix: &str, radix: u32| {
        lower.strip_prefix(prefix).is_some_and(|rest| {
            !rest.is_empty() && rest.chars().all(|c| c.is_digit(radix) || c == '_')
        })
    };
    if based("0x", 16) || based("0o", 8) || based("0b", 2) {
        return true;
    }
    // f64 also takes `inf` and `nan`, which are words in YAML.
    let first = lower.chars().next();
    first.is_some_and(|c| c.is_ascii_digit() || c == '.')
        && lower.replace('_', "").parse::<f64>().is_ok()
}

impl Node {
    /// Its scalar, if it is one.
    pub(crate) fn scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// Whether it is null: nothing, `~` or `null`.
    pub(crate) fn is_null(&self) -> bool {
        self.scalar()
            .is_some_and(|scalar| scalar.kind() == ScalarKind::Null)
    }

    /// The value under that key, if it is a mapping that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Mapping(mapping) => mapping.get(key).map(|entry| &entry.value),
            _ => None,
        }
    }

    /// What it is, for "expected …, found …".
    pub(crate) fn describe(&self) -> &'static str {
        match &self.value {
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
            Value::Scalar(scalar) => match scalar.kind() {
                ScalarKind::Null => "nothing",
                ScalarKind::Bool(_) | ScalarKind::OldBool => "a boolean",
                ScalarKind::Number => "a number",
                ScalarKind::Text => "text",
            },
        }
    }
}

impl Mapping {
    /// Whether the entry's key is a list or a mapping, which was noted as a flaw.
    pub(crate) fn has_odd_key(&self, entry: &Entry) -> bool {
        let odd = |flaw: &Flaw| flaw.line == entry.line && flaw.key == entry.key.text;
        entry.key.text == "?" && self.flaws.iter().any(odd)
    }

    /// The entry of that key.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key.text == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_what_some_yaml_reader_makes_of_them() {
        use ScalarKind::{Bool, Null, Number, OldBool, Text};
        let table: &[(ScalarKind, &[&str])] = &[
            (Null, &["", "~", "null", "NULL"]),
            (Bool(true), &["true", "True"]),
            (Bool(false), &["false", "FALSE"]),
            (OldBool, &["yes", "No", "ON", "off"]),
            (
                Number,
                &[
                    "0", "007", "-1", "+1", "1_000", "1.5", ".5", "1e3", "0x1F", "0o17", "0b1",
                    ".inf", "-.INF", ".NaN",
                ],
            ),
            (
                Text,
                &[
                    "nas1",
                    "1.2.3",
                    "192.0.2.1",
                    "0x",
                    "0xg",
                    "inf",
                    "nan",
                    "e3",
                    "-",
                    ".",
                    "1e",
                    "24h",
                    "y",
                    "::1",
                ],
            ),
        ];
        for (kind, texts) in table {
            for text in *texts {
                let mut scalar = Scalar {
                    text: (*text).to_string(),
                    plain: true,
                    literal: None,
                };
                assert_eq!(scalar.kind(), *kind, "{text}");
                scalar.plain = false;
                assert_eq!(scalar.kind(), Text, "quoted {text}");
            }
        }
    }

    /// Whether it is read; if not, for want of a bound on what is copied.
    fn is_read(text: &str) -> bool {
        match parse(text) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.what, "anchors and aliases expand to too much");
                false
            }
        }
    }

    #[test]
    fn what_anchors_and_aliases_copy_is_counted_to_the_byte() {
        // 16 MiB in all; each node costs 64 bytes and its text. The anchor's own copy counts, too.
        let text = "x".repeat(1000);
        let copies = |n| format!("a: &a {text}\nb: [{}]\n", "*a,".repeat(n));
        assert!(is_read(&copies(15_767)));
        assert!(!is_read(&copies(15_768)));
        // So do duplicate keys: each is a flaw to tell, 64 bytes and its name.
        let flaws = |n| {
            let (keys, aliases) = ("x,".repeat(1000), "*a,".repeat(n));
            format!("a: &a {{{keys}}}\nb: [{aliases}]\n")
        };
        assert!(is_read(&flaws(256)));
        assert!(!is_read(&flaws(257)));
        // And what is copied from anchor to anchor.
        let nested = |n| {
            let (open, items, close) = ("&a [".repeat(60), "1,".repeat(n), "]".repeat(60));
            format!("{open}{items}{close}")
        };
        assert!(is_read(&nested(4_000)));
        assert!(!is_read(&nested(5_000)));
    }

    #[test]
    fn a_file_of_the_largest_size_is_read_in_full() {
        let keys: String = (0..100_000).map(|n| n.to_string() + ":\n").collect();
        let documents = parse(&keys).unwrap();
        let Value::Mapping(mapping) = &documents[0].value else {
            panic!("no mapping");
        };
        assert_eq!((mapping.entries.len(), mapping.flaws.len()), (100_000, 0));
    }
}
