//! What cloud-init's reader makes of the values: `PyYAML`'s safe constructors, and which of them fail.

use std::collections::HashSet;

use super::tree::{Body, Id, Node, Tagged, Tree};
use super::types::{self, Type};
use super::{Fault, Root};

const NO_SUCH_TAG: &str = "it has a tag that cloud-init doesn't know";
const NOT_OF_TAG: &str = "it has a value that doesn't fit its tag";
const ODD_KEY: &str = "it has a list or a mapping as a key, which cloud-init can't read";
const NO_MERGE: &str = "`<<` stands before something else than a mapping or a list of mappings";

/// Looks for what can't be made; gives where a key stands a second time.
pub(super) fn check(tree: &Tree) -> Result<Option<Fault>, Fault> {
    let in_pairs = in_pairs(tree);
    let keys = keys(tree);
    let mut twice = None;
    for (id, node) in tree.nodes.iter().enumerate() {
        match &node.body {
            Body::Scalar { text, plain } => scalar(node, text, *plain, keys.contains(&id))?,
            Body::Sequence(items) => sequence(tree, node, items)?,
            Body::Mapping(_) if in_pairs.contains(&id) => {}
            Body::Mapping(entries) => {
                mapping(tree, node, entries)?;
                if twice.is_none() {
                    twice = duplicate(tree, entries);
                }
            }
        }
    }
    Ok(twice)
}

/// The mappings that are pairs to `!!omap` and `!!pairs`: any key will do.
fn in_pairs(tree: &Tree) -> HashSet<Id> {
    let lists = tree.nodes.iter().filter(|node| is_pairs(node));
    let items = |node: &Node| match &node.body {
        Body::Sequence(items) => items.clone(),
        _ => Vec::new(),
    };
    lists.flat_map(items).collect()
}

fn is_pairs(node: &Node) -> bool {
    matches!(&node.tag, Tagged::Yaml(name) if name == "omap" || name == "pairs")
}

/// What stands as a key.
fn keys(tree: &Tree) -> HashSet<Id> {
    let entries = tree.nodes.iter().filter_map(|node| match &node.body {
        Body::Mapping(entries) => Some(entries),
        _ => None,
    });
    entries.flatten().map(|(key, _)| *key).collect()
}

fn fault(node: &Node, what: &str) -> Fault {
    Fault {
        what: what.to_owned(),
        line: node.line,
        column: Some(node.column),
    }
}

/// The type of a text.
fn type_of(node: &Node, text: &str, plain: bool) -> Option<Type> {
    match &node.tag {
        Tagged::No if plain => Some(types::of_plain(text)),
        Tagged::No => Some(Type::Text),
        Tagged::Yaml(name) => match name.as_str() {
            "null" => Some(Type::Null),
            "bool" => Some(Type::Bool),
            "int" => Some(Type::Int),
            "float" => Some(Type::Float),
            "timestamp" => Some(Type::Timestamp),
            "merge" => Some(Type::Merge),
            "value" => Some(Type::Value),
            _ => Some(Type::Text),
        },
        Tagged::Foreign => None,
    }
}

fn scalar(node: &Node, text: &str, plain: bool, is_key: bool) -> Result<(), Fault> {
    let good = match (&node.tag, type_of(node, text, plain)) {
        (Tagged::Foreign, _) => return Err(fault(node, NO_SUCH_TAG)),
        (Tagged::Yaml(name), _) if matches!(name.as_str(), "binary") => types::makes_binary(text),
        (Tagged::Yaml(name), Some(Type::Text)) => match name.as_str() {
            "str" | "python/unicode" => true,
            "map" | "seq" | "set" | "omap" | "pairs" => false,
            _ => return Err(fault(node, NO_SUCH_TAG)),
        },
        // As keys, `<<` and `=` have a meaning.
        (_, Some(Type::Merge | Type::Value)) if !is_key => {
            let what = "`=` and `<<` are no text to cloud-init's YAML: quote it";
            return Err(fault(node, what));
        }
        (_, Some(Type::Int)) => types::makes_int(text),
        (_, Some(Type::Timestamp)) => types::makes_timestamp(text),
        (_, Some(Type::Bool)) => types::makes_bool(text),
        (_, Some(Type::Float)) => types::makes_float(text),
        _ => true,
    };
    match (good, &node.tag) {
        (true, _) => Ok(()),
        (false, Tagged::No) => {
            let what = "it has a date or number without quotes that there isn't";
            Err(fault(node, what))
        }
        (false, _) => Err(fault(node, NOT_OF_TAG)),
    }
}

fn sequence(tree: &Tree, node: &Node, items: &[Id]) -> Result<(), Fault> {
    let is_pair =
        |id: &Id| matches!(&tree.nodes[*id].body, Body::Mapping(entries) if entries.len() == 1);
    match &node.tag {
        Tagged::No => Ok(()),
        Tagged::Yaml(name) if name == "seq" => Ok(()),
        Tagged::Yaml(_) if is_pairs(node) && items.iter().all(is_pair) => Ok(()),
        Tagged::Yaml(name) if is_known(name) => Err(fault(node, NOT_OF_TAG)),
        _ => Err(fault(node, NO_SUCH_TAG)),
    }
}

/// Whether cloud-init's reader has this tag of YAML's, or of Python's.
fn is_known(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "null",
        "bool",
        "int",
        "float",
        "binary",
        "timestamp",
        "omap",
        "pairs",
        "set",
        "str",
        "seq",
        "map",
        "python/unicode",
    ];
    NAMES.contains(&name)
}

fn mapping(tree: &Tree, node: &Node, entries: &[(Id, Id)]) -> Result<(), Fault> {
    let has_value = || entries.iter().any(|(key, _)| is(tree, *key, Type::Value));
    match &node.tag {
        Tagged::No => {}
        Tagged::Yaml(name) if matches!(name.as_str(), "map" | "set") => {}
        Tagged::Yaml(name) if matches!(name.as_str(), "seq" | "omap" | "pairs") => {
            return Err(fault(node, NOT_OF_TAG));
        }
        // The value of `=` is the text then.
        Tagged::Yaml(name) if is_known(name) && has_value() => return Ok(()),
        Tagged::Yaml(name) if is_known(name) => return Err(fault(node, NOT_OF_TAG)),
        _ => return Err(fault(node, NO_SUCH_TAG)),
    }
    for (key, value) in entries {
        let key_node = &tree.nodes[*key];
        if is(tree, *key, Type::Merge) && !merges(tree, *value) {
            return Err(fault(key_node, NO_MERGE));
        }
        if !matches!(key_node.body, Body::Scalar { .. }) {
            return Err(fault(key_node, ODD_KEY));
        }
    }
    Ok(())
}

/// Whether the node is a text of this type.
fn is(tree: &Tree, id: Id, wanted: Type) -> bool {
    let node = &tree.nodes[id];
    matches!(&node.body, Body::Scalar { text, plain } if type_of(node, text, *plain) == Some(wanted))
}

fn merges(tree: &Tree, value: Id) -> bool {
    let is_mapping = |id: &Id| matches!(tree.nodes[*id].body, Body::Mapping(_));
    match &tree.nodes[value].body {
        Body::Mapping(_) => true,
        Body::Sequence(items) => items.iter().all(is_mapping),
        Body::Scalar { .. } => false,
    }
}

/// A key that stands in the mapping already.
fn duplicate(tree: &Tree, entries: &[(Id, Id)]) -> Option<Fault> {
    let mut seen = HashSet::new();
    let again = entries
        .iter()
        .find(|(key, _)| match &tree.nodes[*key].body {
            Body::Scalar { text, plain } => {
                let kind = type_of(&tree.nodes[*key], text, *plain);
                kind != Some(Type::Merge) && !seen.insert((text, kind == Some(Type::Text)))
            }
            _ => false,
        });
    again.map(|(key, _)| fault(&tree.nodes[*key], "a key stands twice"))
}

/// What the root is.
pub(super) fn root(tree: &Tree) -> Root {
    match tree.nodes.first().map(|node| &node.body) {
        None => Root::Empty,
        Some(Body::Scalar { .. }) if is(tree, 0, Type::Null) => Root::Empty,
        Some(Body::Scalar { .. }) => Root::Scalar,
        Some(Body::Sequence(_)) => Root::List,
        Some(Body::Mapping(_)) => {
            let names = root_entries(tree)
                .into_iter()
                .map(|(name, _)| name.to_owned());
            Root::Mapping(names.collect())
        }
    }
}

/// The number under `version`.
pub(super) fn version(tree: &Tree) -> Option<u64> {
    let entries = root_entries(tree);
    let (_, value) = entries.iter().find(|(name, _)| *name == "version")?;
    match &tree.nodes[*value].body {
        Body::Scalar { text, .. } if is(tree, *value, Type::Int) => text.parse().ok(),
        _ => None,
    }
}

/// The root's own entries, and those merged into it, whose keys are texts.
fn root_entries(tree: &Tree) -> Vec<(&str, Id)> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut mappings = vec![0];
    while let Some(id) = mappings.pop() {
        let Some(node) = tree.nodes.get(id).filter(|_| seen.insert(id)) else {
            continue;
        };
        match &node.body {
            Body::Sequence(items) if id != 0 => mappings.extend(items.iter().rev()),
            Body::Mapping(entries) => {
                for (key, value) in entries {
                    match &tree.nodes[*key].body {
                        _ if is(tree, *key, Type::Merge) => mappings.push(*value),
                        Body::Scalar { text, .. } if is(tree, *key, Type::Text) => {
                            found.push((text.as_str(), *value));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    found
}
