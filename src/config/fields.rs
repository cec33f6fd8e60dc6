//! Reading one mapping by its table of keys: unknown, duplicate and missing keys, and typed values.

use std::time::Duration;

use super::problems::Problems;
use super::rules::quoted;
use super::table::{Key, Kind, Need, Table};
use super::yaml::{Entry, Mapping, Node, ScalarKind, Value};
use crate::near::nearest;
use crate::units;

/// A mapping whose keys have been checked; its values are checked as they are asked for.
pub(crate) struct Fields<'t> {
    table: &'static Table,
    /// The key path of the mapping, empty for the document.
    pub(crate) path: String,
    /// The line it begins on.
    pub(crate) line: usize,
    mapping: &'t Mapping,
    /// Keys that an unknown key was probably meant for; their absence isn't worth another complaint.
    excused: Vec<&'static str>,
}

/// `path.key`, or `key` in the document itself.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_string()
    } else {
        format!("{path}.{key}")
    }
}

/// The mapping that `node` is, its tag and its flaws reported.
pub(crate) fn mapping<'t>(
    node: &'t Node,
    path: &str,
    problems: &mut Problems,
) -> Option<&'t Mapping> {
    refuse_tag(node, path, problems);
    let Value::Mapping(mapping) = &node.value else {
        problems.add(
            node.line,
            path,
            &format!(
                "must be a mapping of keys to values, found {}",
                node.describe()
            ),
        );
        return None;
    };
    for flaw in &mapping.flaws {
        problems.add_flaw(flaw, &join(path, &shown_key(&flaw.key)));
    }
    Some(mapping)
}

/// The list that `node` is, which must have items.
pub(crate) fn list<'t>(node: &'t Node, path: &str, problems: &mut Problems) -> Option<&'t [Node]> {
    refuse_tag(node, path, problems);
    match &node.value {
        Value::Sequence(items) if items.is_empty() => {
            problems.add(node.line, path, "is empty; at least one is needed");
            None
        }
        Value::Sequence(items) => Some(items),
        _ => {
            problems.add(
                node.line,
                path,
                &format!("must be a list (`- …`), found {}", node.describe()),
            );
            None
        }
    }
}

/// The entries of a mapping whose keys are the user's names, held to that rule.
pub(crate) fn named<'t>(
    node: &'t Node,
    path: &str,
    rule: fn(&str) -> Result<String, String>,
    problems: &mut Problems,
) -> Vec<(&'t str, String, &'t Node)> {
    let Some(mapping) = mapping(node, path, problems) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in &mapping.entries {
        let key = &entry.key.text;
        let path = join(path, &shown_key(key));
        let name = match entry.key.kind() {
            ScalarKind::Text => rule(key).map_err(|what| format!("the name {what}")),
            _ => Err(quote_it(key, entry.key.kind())),
        };
        if let (Err(what), false) = (name, mapping.has_odd_key(entry)) {
            problems.add(entry.line, &path, &what);
        }
        found.push((key.as_str(), path, &entry.value));
    }
    found
}

impl<'t> Fields<'t> {
    /// Checks the keys of `node` against `table`.
    pub(crate) fn open(
        table: &'static Table,
        node: &'t Node,
        path: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mapping = mapping(node, path, problems)?;
        let mut fields = Fields {
            table,
            path: path.to_string(),
            line: node.line,
            mapping,
            excused: Vec::new(),
        };
        for entry in &mapping.entries {
            let name = entry.key.text.as_str();
            let allowed = path.is_empty() && name.starts_with("x-");
            if table.key(name).is_some() || allowed || mapping.has_odd_key(entry) {
                continue;
            }
            let (what, meant) = table.explain_unknown(name);
            problems.add(entry.line, &join(path, &shown_key(name)), &what);
            fields.excused.extend(meant);
        }
        for key in table.keys.iter().filter(|key| key.need == Need::Required) {
            fields.require(key.name, "", problems);
        }
        Some(fields)
    }

    /// Whether the key is there, with whatever value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.mapping.get(name).is_some()
    }

    /// The line of the key, or of the mapping.
    pub(crate) fn line_of(&self, name: &str) -> usize {
        self.mapping.get(name).map_or(self.line, |entry| entry.line)
    }

    /// The key path of one of its keys.
    pub(crate) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// Complains if the key isn't there; `why` ends the sentence.
    pub(crate) fn require(&self, name: &'static str, why: &str, problems: &mut Problems) {
        if !self.has(name) && !self.excused.contains(&name) {
            problems.add(
                self.line,
                &self.path_of(name),
                &format!("is required{why}, and missing"),
            );
        }
    }

    /// Complains about the key.
    pub(crate) fn refuse(&self, name: &str, what: &str, problems: &mut Problems) {
        problems.add(self.line_of(name), &self.path_of(name), what);
    }

    /// The value of a key that is a block, a list or a mapping of names, and its path.
    pub(crate) fn inner(&self, name: &str) -> Option<(&'t Node, String)> {
        self.mapping
            .get(name)
            .map(|entry| (&entry.value, self.path_of(name)))
    }

    /// The value of a key that is text or a choice, or its default. None if it is absent or wrong.
    pub(crate) fn text(&self, name: &str, problems: &mut Problems) -> Option<String> {
        let key = self.table.key(name)?;
        let Some(entry) = self.mapping.get(name) else {
            return key.default.map(str::to_string);
        };
        let checked = text_of(entry, key).and_then(|text| match key.kind {
            Kind::Text(rule) => (rule.check)(text),
            Kind::Choice(choices) => choice(text, choices),
            _ => Ok(text.to_string()),
        });
        self.keep(entry, checked, problems)
    }

    /// The value of a key that is a boolean, or its default.
    pub(crate) fn boolean(&self, name: &str, problems: &mut Problems) -> Option<bool> {
        let Some(entry) = self.mapping.get(name) else {
            return self
                .table
                .key(name)?
                .default
                .map(|default| default == "true");
        };
        let checked = match scalar_kind(&entry.value) {
            Some(ScalarKind::Bool(value)) => Ok(value),
            Some(ScalarKind::OldBool) => Err(format!(
                "must be true or false; {} is a boolean to some readers only",
                shown(&entry.value)
            )),
            Some(ScalarKind::Null) => Err(NO_VALUE.to_string()),
            Some(ScalarKind::Text)
                if matches!(shown(&entry.value).as_str(), "\"true\"" | "\"false\"") =>
            {
                Err("must be true or false, without quotes".to_string())
            }
            Some(_) => Err(format!(
                "must be true or false, found {}",
                shown(&entry.value)
            )),
            None => Err(format!(
                "must be true or false, found {}",
                entry.value.describe()
            )),
        };
        self.keep(entry, checked, problems)
    }

    /// The value of a key that is a whole number, or its default.
    pub(crate) fn integer(&self, name: &str, problems: &mut Problems) -> Option<u64> {
        let key = self.table.key(name)?;
        let Some(entry) = self.mapping.get(name) else {
            return key.default.and_then(|default| default.parse().ok());
        };
        let Kind::Integer { min, max } = key.kind else {
            return None;
        };
        let checked = whole_number(&entry.value).and_then(|number| {
            if (min..=max).contains(&number) {
                Ok(number)
            } else {
                Err(format!("must be from {min} to {max}, found {number}"))
            }
        });
        self.keep(entry, checked, problems)
    }

    /// The value of a key that is a span of time.
    pub(crate) fn duration(&self, name: &str, problems: &mut Problems) -> Option<Duration> {
        let entry = self.mapping.get(name)?;
        self.keep(entry, duration(&entry.value), problems)
    }

    /// Reports what is wrong with the value, its tag included.
    fn keep<T>(
        &self,
        entry: &Entry,
        checked: Result<T, String>,
        problems: &mut Problems,
    ) -> Option<T> {
        let path = self.path_of(&entry.key.text);
        if refuse_tag(&entry.value, &path, problems) {
            return None;
        }
        // A block scalar begins a line after its key; the key is what one looks for.
        checked
            .map_err(|what| problems.add(entry.line, &path, &what))
            .ok()
    }
}

const NO_VALUE: &str = "has no value; leave the key out, or give it one";

fn refuse_tag(node: &Node, path: &str, problems: &mut Problems) -> bool {
    if let Some(tag) = &node.foreign_tag {
        problems.add(
            node.line,
            path,
            &format!("the tag {} is not understood", quoted(tag)),
        );
    }
    node.foreign_tag.is_some()
}

/// A key as it stands in a path: as it is if plain, else escaped and not without end.
fn shown_key(key: &str) -> String {
    let plain = !key.is_empty() && key.len() <= 60 && key.chars().all(|c| c.is_ascii_graphic());
    if plain { key.to_string() } else { quoted(key) }
}

fn scalar_kind(node: &Node) -> Option<ScalarKind> {
    node.scalar().map(super::yaml::Scalar::kind)
}

/// A scalar for an error: as written if plain, else in quotes.
fn shown(node: &Node) -> String {
    match node.scalar() {
        Some(scalar) if scalar.kind() == ScalarKind::Text => quoted(&scalar.text),
        Some(scalar) => scalar.text.chars().take(60).collect(),
        None => node.describe().to_string(),
    }
}

/// What to say of a scalar that isn't text to YAML.
fn quote_it(text: &str, kind: ScalarKind) -> String {
    let what = match kind {
        ScalarKind::Null => return NO_VALUE.to_string(),
        ScalarKind::Number => "a number",
        _ => "a boolean",
    };
    if text.len() > 20 {
        return format!("is {what} to YAML, and text is due: quote it");
    }
    format!("{text} is {what} to YAML, and text is due: quote it, \"{text}\"")
}

fn text_of<'t>(entry: &'t Entry, key: &Key) -> Result<&'t str, String> {
    let secret = matches!(key.kind, Kind::Body | Kind::File);
    let Some(scalar) = entry.value.scalar() else {
        return Err(format!("must be text, found {}", entry.value.describe()));
    };
    match scalar.kind() {
        ScalarKind::Text => Ok(&scalar.text),
        ScalarKind::Null if matches!(key.kind, Kind::Text(_)) && is_digest(key) => Err(
            "has no value, which would mean an unchecked image; leave the key out for that"
                .to_string(),
        ),
        ScalarKind::Null => Err(NO_VALUE.to_string()),
        _ if matches!(key.kind, Kind::Choice(_)) => Ok(&scalar.text),
        _ if secret => Err(format!(
            "must be text, found {}: quote it",
            entry.value.describe()
        )),
        kind => Err(quote_it(&scalar.text, kind)),
    }
}

fn is_digest(key: &Key) -> bool {
    matches!(key.name, "sha256" | "sha512")
}

fn choice(text: &str, choices: &[&str]) -> Result<String, String> {
    if choices.contains(&text) {
        return Ok(text.to_string());
    }
    let all = choices.join(", ");
    Err(match nearest(text, choices.iter().copied()) {
        Some(meant) => format!(
            "{} is none of {all} (did you mean `{meant}`?)",
            quoted(text)
        ),
        None => format!("{} is none of {all}", quoted(text)),
    })
}

fn whole_number(node: &Node) -> Result<u64, String> {
    let Some(scalar) = node.scalar() else {
        return Err(format!("must be a whole number, found {}", node.describe()));
    };
    let text = scalar.text.as_str();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match scalar.kind() {
        ScalarKind::Null => Err(NO_VALUE.to_string()),
        ScalarKind::Text if digits => Err("must be a whole number, without quotes".to_string()),
        ScalarKind::Number if digits && text.len() > 1 && text.starts_with('0') => Err(format!(
            "{text} is octal to some readers; write it without the leading zero"
        )),
        ScalarKind::Number if digits => text
            .parse()
            .map_err(|_| format!("{} is too large", quoted(text))),
        _ => Err(format!(
            "must be a whole number in plain digits, found {}",
            shown(node)
        )),
    }
}

fn duration(node: &Node) -> Result<Duration, String> {
    const HOW: &str = "write a span of time with its unit, such as 90m, 24h or 7d";
    let Some(scalar) = node.scalar() else {
        return Err(format!("must be text, found {}; {HOW}", node.describe()));
    };
    if scalar.kind() == ScalarKind::Null {
        return Err(NO_VALUE.to_string());
    }
    let text = scalar.text.as_str();
    let span = units::span(text)
        .map_err(|why| format!("{} is not understood: {why}; {HOW}", quoted(text)))?;
    crate::cli::life(span).map_err(|bounds| format!("{}: {bounds}", quoted(text)))
}
