//! Finding the list of provider entries in a file: bare, under `providers:`, or inside a Kubernetes ConfigMap.

use super::fields::Fields;
use super::keys;
use super::problems::{Lines, Problems};
use super::yaml::{self, Mapping, Node, SyntaxError, Value};

/// The list of provider entries, and where it was found.
pub(crate) struct Found {
    /// How the lines of the nodes relate to the file's.
    pub(crate) lines: Lines,
    /// The node that should be the list.
    pub(crate) entries: Node,
    /// Its key path: empty or `providers`.
    pub(crate) path: &'static str,
}

/// A document that may hold the provider entries.
struct Candidate {
    lines: Lines,
    /// The line in the file where it begins.
    line: usize,
    node: Node,
}

/// Finds the one list of provider entries in `text`; reports if there is none, or several.
pub(crate) fn find(text: &str, problems: &mut Problems) -> Option<Found> {
    let documents = match yaml::parse(text) {
        Ok(documents) => documents,
        Err(error) => {
            problems.add_syntax(error.line, error.column, &error.what);
            return None;
        }
    };
    let mut candidates = Vec::new();
    let mut kinds = Vec::new();
    for node in documents.into_iter().filter(|node| !node.is_null()) {
        match kubernetes_kind(&node) {
            None => candidates.push(Candidate {
                lines: Lines::After(0),
                line: node.line,
                node,
            }),
            Some(_) => object(&node, text, &mut candidates, &mut kinds, problems),
        }
    }
    let mut candidates = candidates.into_iter();
    let first = candidates.next();
    if let Some(second) = candidates.next() {
        let line = first.map_or(0, |first| first.line);
        let what =
            format!("a second document with provider entries; the first begins on line {line}");
        problems.add(second.line, "", &what);
        return None;
    }
    match first {
        Some(candidate) => entries(candidate, problems),
        None if !problems.is_empty() => None,
        None if kinds.is_empty() => {
            problems.add(
                1,
                "",
                "the file is empty; `egressctl config init` writes a starter",
            );
            None
        }
        None => {
            problems.add(
                1,
                "",
                &format!(
                    "no provider entries here, only Kubernetes objects: {}",
                    kinds.join(", ")
                ),
            );
            None
        }
    }
}

/// The list inside a document: it itself, or its `providers`.
fn entries(candidate: Candidate, problems: &mut Problems) -> Option<Found> {
    let Candidate { lines, node, .. } = candidate;
    problems.enter(lines.clone());
    match &node.value {
        Value::Sequence(_) => Some(Found {
            lines,
            entries: node,
            path: "",
        }),
        Value::Mapping(_) => {
            let fields = Fields::open(&keys::ROOT, &node, "", problems)?;
            let (entries, _) = fields.inner("providers")?;
            Some(Found {
                lines,
                entries: entries.clone(),
                path: "providers",
            })
        }
        Value::Scalar(_) => {
            let what = "must be a list of provider entries, or a mapping with `providers:`";
            problems.add(node.line, "", &format!("{what}, found {}", node.describe()));
            None
        }
    }
}

/// The `kind` of a Kubernetes object.
fn kubernetes_kind(node: &Node) -> Option<&str> {
    node.get("apiVersion")?;
    node.get("kind")?
        .scalar()
        .map(|scalar| scalar.text.as_str())
}

/// Looks into a Kubernetes object: a ConfigMap's data, the items of a List.
fn object(
    node: &Node,
    text: &str,
    candidates: &mut Vec<Candidate>,
    kinds: &mut Vec<String>,
    problems: &mut Problems,
) {
    let kind = kubernetes_kind(node).unwrap_or_default();
    match (kind, node.get("items"), node.get("data")) {
        (
            "List" | "ConfigMapList",
            Some(Node {
                value: Value::Sequence(items),
                ..
            }),
            _,
        ) => {
            for item in items {
                object(item, text, candidates, kinds, problems);
            }
        }
        (
            "ConfigMap",
            _,
            Some(Node {
                value: Value::Mapping(data),
                line,
                ..
            }),
        ) => {
            config_map(data, *line, text, candidates, problems);
        }
        _ => kinds.push(if kind.is_empty() {
            "an item without a kind".to_string()
        } else {
            kind.to_string()
        }),
    }
}

/// Finds the keys of a ConfigMap's data whose text is a document with provider entries.
fn config_map(
    data: &Mapping,
    line: usize,
    text: &str,
    candidates: &mut Vec<Candidate>,
    problems: &mut Problems,
) {
    let before = candidates.len();
    let mut broken: Vec<(&str, Lines, SyntaxError)> = Vec::new();
    for entry in &data.entries {
        let Some(scalar) = entry.value.scalar() else {
            continue;
        };
        let lines = if scalar.literal {
            Lines::After(literal_start(text, entry.value.line))
        } else {
            Lines::Inside {
                line: entry.value.line,
                key: entry.key.text.clone(),
            }
        };
        match yaml::parse(&scalar.text) {
            Ok(documents) => {
                candidates.extend(documents.into_iter().filter(holds_entries).map(|node| {
                    Candidate {
                        lines: lines.clone(),
                        line: entry.line,
                        node,
                    }
                }))
            }
            Err(error) => broken.push((&scalar.text, lines, error)),
        }
    }
    let found = candidates.len() > before;
    let any = !broken.is_empty();
    for (inner, lines, error) in broken {
        // Beside a good document, a squid.conf may be what it likes; a providers list that broke may not.
        if found && !inner.lines().any(|line| line.starts_with("providers:")) {
            continue;
        }
        let column = error.column + indentation(text, &lines);
        problems.enter(lines);
        problems.add_syntax(error.line, column, &error.what);
    }
    problems.enter(Lines::After(0));
    if !found && !any {
        let keys: Vec<&str> = data
            .entries
            .iter()
            .map(|entry| entry.key.text.as_str())
            .collect();
        let what = format!(
            "none of the ConfigMap's keys holds provider entries (it has {})",
            keys.join(", ")
        );
        problems.add(line, "data", &what);
    }
}

/// How many lines of the file are before the content of the literal block that the parser places at `line`.
fn literal_start(text: &str, line: usize) -> usize {
    // The parser's mark is on the line of the `|`.
    debug_assert!(
        text.lines()
            .nth(line - 1)
            .is_some_and(|header| header.contains('|'))
    );
    line
}

/// The indentation of a literal block in the file, for columns.
fn indentation(text: &str, lines: &Lines) -> usize {
    let Lines::After(before) = lines else {
        return 0;
    };
    let first = text
        .lines()
        .skip(*before)
        .find(|line| !line.trim().is_empty());
    first.map_or(0, |line| line.len() - line.trim_start_matches(' ').len())
}

/// Whether a document in a ConfigMap is meant to be ours: a mapping with `providers`, or a list of things with types.
fn holds_entries(node: &Node) -> bool {
    match &node.value {
        Value::Mapping(mapping) => mapping.get("providers").is_some(),
        Value::Sequence(items) => items.iter().any(|item| item.get("type").is_some()),
        Value::Scalar(_) => false,
    }
}
