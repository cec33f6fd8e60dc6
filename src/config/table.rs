//! What can be said of a key of the configuration: its name, its kind of value, whether it is needed.

use super::keys::TABLES;
use super::rules::Rule;
use crate::near::nearest;

/// A mapping with fixed keys.
pub(crate) struct Table {
    /// What it is, for "… belongs to …".
    pub(crate) what: &'static str,
    /// Its name in the JSON schema.
    pub(crate) id: &'static str,
    pub(crate) keys: &'static [Key],
    /// Names that people write here by mistake, and what to write instead.
    pub(crate) mistakes: &'static [Mistake],
}

/// A name that people write by mistake, what to say about it, and the key that was meant.
pub(crate) type Mistake = (&'static str, &'static str, Option<&'static str>);

/// One key of a [`Table`].
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) need: Need,
    /// As it would be written in the file.
    pub(crate) default: Option<&'static str>,
    /// Whether it is egressctl's own, absent from the operator's schema.
    pub(crate) ours: bool,
    /// One line of explanation.
    pub(crate) about: &'static str,
}

/// What a key's value is.
pub(crate) enum Kind {
    /// One line of text.
    Text(&'static Rule),
    /// Any text; never shown in an error.
    Body,
    /// A path on this machine, with `~` and variables.
    File,
    Bool,
    Integer {
        min: u64,
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A span of time such as `24h`.
    Duration,
    /// A mapping with fixed keys.
    Block(&'static Table),
    /// A list of such mappings.
    List(&'static Table),
    /// Such mappings under names of the user's.
    Named(&'static Table),
}

/// Whether a key must be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    Optional,
    /// Depends on other keys, in these words; checked by `build`.
    Depends(&'static str),
}

/// A key without a default, which the operator's schema has, too.
pub(crate) const fn key(name: &'static str, kind: Kind, need: Need, about: &'static str) -> Key {
    Key {
        name,
        kind,
        need,
        default: None,
        ours: false,
        about,
    }
}

impl Key {
    /// The same key with a default.
    pub(crate) const fn or(self, default: &'static str) -> Key {
        Key {
            default: Some(default),
            ..self
        }
    }

    /// The same key, as one of egressctl's own.
    pub(crate) const fn ours(self) -> Key {
        Key { ours: true, ..self }
    }
}

impl Table {
    /// Its key of that name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Why `name` is no key here, and the key that was probably meant.
    pub(crate) fn explain_unknown(&self, name: &str) -> (String, Option<&'static str>) {
        if let Some((_, what, meant)) = self.mistakes.iter().find(|mistake| mistake.0 == name) {
            return ((*what).to_string(), *meant);
        }
        if let Some(table) = TABLES.iter().find(|table| table.key(name).is_some()) {
            return (
                format!("unknown key here; it belongs to {}", table.what),
                None,
            );
        }
        let names = || self.keys.iter().map(|key| key.name);
        match nearest(name, names()) {
            Some(meant) => (
                format!("unknown key (did you mean `{meant}`?)"),
                Some(meant),
            ),
            None => (
                format!(
                    "unknown key; the keys here are {}",
                    names().collect::<Vec<_>>().join(", ")
                ),
                None,
            ),
        }
    }
}
