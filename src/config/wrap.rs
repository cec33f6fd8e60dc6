//! Finding the list of provider entries in a file: bare, under `providers:`, or inside a Kubernetes `ConfigMap`.

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
            Some(_) => object(&node, &mut candidates, &mut kinds, problems),
        }
    }
    refuse_others(&mut candidates, problems);
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

/// Takes out what stands beside provider entries and is none: neither a list, nor with `providers`.
fn refuse_others(candidates: &mut Vec<Candidate>, problems: &mut Problems) {
    let holds = |candidate: &Candidate| match &candidate.node.value {
        Value::Sequence(_) => true,
        Value::Mapping(mapping) => mapping.get("providers").is_some(),
        Value::Scalar(_) => false,
    };
    // Alone it is what was meant, and told what it lacks.
    if !candidates.iter().any(holds) {
        return;
    }
    candidates.retain(|candidate| {
        let stays = holds(candidate);
        if !stays {
            let what = "this document holds no provider entries, and another one does: remove it";
            problems.add(candidate.line, "", what);
        }
        stays
    });
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
    node.get("apiVersion").or(node.get("data"))?;
    node.get("kind")?
        .scalar()
        .map(|scalar| scalar.text.as_str())
}

/// Looks into a Kubernetes object: a `ConfigMap`'s data, the items of a List.
fn object(
    node: &Node,
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
                object(item, candidates, kinds, problems);
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
            config_map(data, *line, candidates, problems);
        }
        _ => kinds.push(if kind.is_empty() {
            "an item without a kind".to_string()
        } else {
            kind.to_string()
        }),
    }
}

/// Finds the keys of a `ConfigMap`'s data whose text is a document with provider entries.
fn config_map(
    data: &Mapping,
    line: usize,
    candidates: &mut Vec<Candidate>,
    problems: &mut Problems,
) {
    let before = candidates.len();
    let mut broken = Vec::new();
    for entry in &data.entries {
        let Some(scalar) = entry.value.scalar() else {
            continue;
        };
        let key = entry.key.text.clone();
        let inside = Lines::Inside {
            line: entry.value.line,
            key,
        };
        let (lines, columns) = scalar.literal.map_or((inside, 0), |offset| {
            (Lines::After(offset.lines), offset.columns)
        });
        match yaml::parse(&scalar.text) {
            Ok(documents) => {
                candidates.extend(documents.into_iter().filter(holds_entries).map(|node| {
                    Candidate {
                        lines: lines.clone(),
                        line: entry.line,
                        node,
                    }
                }));
            }
            Err(SyntaxError { line, column, what }) => {
                let error = SyntaxError {
                    line,
                    column: column + columns,
                    what,
                };
                broken.push((entry.key.text.as_str(), scalar.text.as_str(), lines, error));
            }
        }
    }
    let found = candidates.len() > before;
    // Other keys may hold what they like, a squid.conf say; a providers list that broke may not.
    broken.retain(|(key, text, ..)| meant_as_entries(key, text, found));
    if !found && broken.is_empty() {
        let keys: Vec<&str> = data
            .entries
            .iter()
            .map(|entry| entry.key.text.as_str())
            .collect();
        let what = format!(
            "none of its keys holds provider entries: {}",
            keys.join(", ")
        );
        problems.add(line, "data", &what);
    }
    for (_, _, lines, error) in broken {
        problems.enter(lines);
        problems.add_syntax(error.line, error.column, &error.what);
    }
    problems.enter(Lines::After(0));
}

/// Whether text that isn't YAML was meant to be provider entries; `found` if other text of the same map is.
fn meant_as_entries(key: &str, text: &str, found: bool) -> bool {
    let named = [".yaml", ".yml", ".json"]
        .iter()
        .any(|end| key.ends_with(end))
        || key.contains("providers");
    text.lines().any(|line| line.starts_with("providers:")) || (named && !found)
}

/// Whether a document in a `ConfigMap` is meant to be ours: a mapping with `providers`, or a list of things with types.
fn holds_entries(node: &Node) -> bool {
    match &node.value {
        Value::Mapping(mapping) => mapping.get("providers").is_some(),
        Value::Sequence(items) => items.iter().any(|item| item.get("type").is_some()),
        Value::Scalar(_) => false,
    }
}
