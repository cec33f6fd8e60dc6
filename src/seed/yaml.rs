//! Just enough of YAML to know whether cloud-init could read it, and where not; never what it says.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::DuplicateKeyPolicy;

use crate::tab;

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
    /// Line, from 1, if known.
    pub(super) line: Option<u64>,
    /// Column, from 1, if known.
    pub(super) column: Option<u64>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(line) = self.line {
            write!(f, " at line {line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ", column {column}")?;
        }
        Ok(())
    }
}

/// A document that cloud-init's parser takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    /// Its root.
    pub(super) root: Root,
    /// Where a key stands a second time, if one does: cloud-init silently takes the last.
    pub(super) duplicate_key: Option<Fault>,
}

/// Reads a document.
pub(super) fn read(text: &str) -> Result<Document, Fault> {
    let parse = |policy: DuplicateKeyPolicy| {
        let options = serde_saphyr::options! { duplicate_keys: policy };
        serde_saphyr::from_str_with_options::<Root>(text, options)
    };
    let strict = match parse(DuplicateKeyPolicy::Error) {
        Ok(root) => {
            return Ok(Document {
                root,
                duplicate_key: None,
            });
        }
        Err(error) => error,
    };
    match parse(DuplicateKeyPolicy::LastWins) {
        Ok(root) => Ok(Document {
            root,
            duplicate_key: Some(fault("a key stands twice", &strict, text)),
        }),
        Err(error) => Err(fault("it isn't valid YAML", &error, text)),
    }
}

/// The parser's own message may quote the document, so only its position is used.
fn fault(what: &str, error: &serde_saphyr::Error, text: &str) -> Fault {
    let location = error.location();
    let line = location.map(|place| place.line());
    let indented_by_tab = line
        .and_then(|line| usize::try_from(line).ok())
        .and_then(|line| tab::indent_near(text, line));
    match indented_by_tab {
        Some(line) => Fault {
            what: tab::WHAT.to_owned(),
            line: Some(line as u64),
            column: None,
        },
        None => Fault {
            what: what.to_owned(),
            line,
            column: location.map(|place| place.column()),
        },
    }
}

impl<'de> Deserialize<'de> for Root {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RootVisitor)
    }
}

struct RootVisitor;

impl<'de> Visitor<'de> for RootVisitor {
    type Value = Root;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Root, A::Error> {
        let mut keys = Vec::new();
        while let Some(key) = map.next_key::<Key>()? {
            keys.extend(key.0);
            map.next_value::<IgnoredAny>()?;
        }
        Ok(Root::Mapping(keys))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Root, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Root::List)
    }

    fn visit_unit<E>(self) -> Result<Root, E> {
        Ok(Root::Empty)
    }

    fn visit_none<E>(self) -> Result<Root, E> {
        Ok(Root::Empty)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Root, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Root, E> {
        Ok(Root::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Root, E> {
        Ok(Root::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Root, E> {
        Ok(Root::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Root, E> {
        Ok(Root::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Root, E> {
        Ok(Root::Scalar)
    }
}

/// A key, if it is a string.
struct Key(Option<String>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                Ok(Key(Some(key.to_owned())))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Key, E> {
                Ok(Key(None))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Key, E> {
                Ok(Key(None))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Key, E> {
                Ok(Key(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Key, E> {
                Ok(Key(None))
            }

            fn visit_unit<E>(self) -> Result<Key, E> {
                Ok(Key(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Key, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Key(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Key, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Key(None))
            }
        }
        deserializer.deserialize_any(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cloud_init_reads_is_read() {
        let mapping = |keys: &[&str]| Root::Mapping(keys.iter().map(|&k| k.to_owned()).collect());
        let table = [
            ("", Root::Empty),
            ("# nothing\n", Root::Empty),
            ("{}\n", mapping(&[])),
            ("a: 1\nb:\n- x\n- {y: z}\n", mapping(&["a", "b"])),
            ("a: 1\r\nb: 2\r\n", mapping(&["a", "b"])),
            ("---\na: 1\n", mapping(&["a"])),
            ("1: x\ntrue: y\na: z\n", mapping(&["a"])),
            ("- a\n", Root::List),
            ("text", Root::Scalar),
            ("12", Root::Scalar),
            ("c: |\n  x\n  \ttab is content here\n", mapping(&["c"])),
            ("a: !!binary aGVsbG8=\n", mapping(&["a"])),
            (
                "write_files:\n- content: !!binary |\n    aGVsbG8=\n  path: /a\n",
                mapping(&["write_files"]),
            ),
            ("d: &a {k: v}\ne:\n  <<: *a\n  z: 1\n", mapping(&["d", "e"])),
            (
                "p: 010\nm: 0600\nt: 12:30:45\nu: no\n",
                mapping(&["p", "m", "t", "u"]),
            ),
            ("u: \u{17e}\u{1F980}\n", mapping(&["u"])),
            ("a: !vault secret\n", mapping(&["a"])),
        ];
        for (text, root) in table {
            let document = read(text).unwrap_or_else(|fault| panic!("{text:?}: {fault}"));
            assert_eq!(document.root, root, "{text:?}");
            assert_eq!(document.duplicate_key, None, "{text:?}");
        }
    }

    #[test]
    fn faults_have_a_place_and_no_content() {
        let table = [
            ("a: [\n", "valid YAML"),
            ("a: b: SECRET\n", "valid YAML"),
            ("a:\n\tSECRET: 1\n", "a tab"),
            ("a: 1\n SECRET: 2\n", "valid YAML"),
            ("SECRET: \"unclosed\n", "valid YAML"),
            ("a: *SECRET\n", "valid YAML"),
        ];
        for (text, what) in table {
            let fault = read(text).unwrap_err();
            assert!(fault.what.contains(what), "{text:?}: {fault}");
            assert!(fault.line.is_some(), "{text:?}: {fault}");
            assert!(!fault.to_string().contains("SECRET"), "{text:?}: {fault}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_told_but_read() {
        let document = read("runcmd: [a]\nb: 1\nruncmd: [b]\n").unwrap();
        assert_eq!(document.duplicate_key.unwrap().line, Some(3));
    }
}
