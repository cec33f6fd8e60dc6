//! Checks JSON documents against docs/schema: as much of JSON Schema as these files use, and no word that isn't known.

use std::path::Path;

use serde_json::Value;

/// What a document breaks of its kind's schema, one sentence each.
pub(crate) fn faults(document: &Value) -> Vec<String> {
    let kind = document["kind"].as_str().unwrap_or("Error");
    let Some(schema) = load(kind) else {
        return vec![format!("docs/schema/{kind}.json is missing")];
    };
    let mut faults = Vec::new();
    check(&schema, &schema, document, "$", &mut faults);
    faults
}

/// The schema of a kind, where there is one.
pub(crate) fn load(kind: &str) -> Option<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema");
    let text = std::fs::read_to_string(folder.join(format!("{kind}.json"))).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    for (word, rule) in schema.as_object().unwrap() {
        let holds = match word.as_str() {
            "$schema" | "title" | "description" | "$defs" => true,
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                check(root, root.pointer(pointer).unwrap(), value, at, faults);
                true
            }
            "type" => match rule {
                Value::Array(types) => types.iter().any(|one| is_a(value, one)),
                one => is_a(value, one),
            },
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_i64().is_none_or(|n| n >= rule.as_i64().unwrap()),
            "pattern" => value.as_str().is_none_or(|text| fits(rule, text)),
            "anyOf" => rule.as_array().unwrap().iter().any(|one| {
                let mut inner = Vec::new();
                check(root, one, value, at, &mut inner);
                inner.is_empty()
            }),
            "required" => {
                let names = rule.as_array().unwrap().iter();
                names
                    .clone()
                    .all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}[{index}]"), faults);
                }
                true
            }
            "properties" => {
                for (name, one) in rule.as_object().unwrap() {
                    if let Some(field) = value.get(name) {
                        check(root, one, field, &format!("{at}.{name}"), faults);
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = &schema["properties"];
                for (name, field) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}.{name}");
                    match rule {
                        Value::Bool(false) if known.get(name).is_none() => {
                            faults.push(format!("{at} is unknown"));
                        }
                        Value::Object(_) => check(root, rule, field, &at, faults),
                        _ => {}
                    }
                }
                true
            }
            other => panic!("docs/schema uses {other:?}, which this doesn't know"),
        };
        if !holds {
            faults.push(format!("{at}: {word} {rule} doesn't hold for {value}"));
        }
    }
}

fn is_a(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        other => panic!("no type {other}"),
    }
}

/// The two patterns there are.
fn fits(pattern: &Value, text: &str) -> bool {
    match pattern.as_str().unwrap() {
        "^[0-9a-f]{64}$" => {
            text.len() == 64
                && text
                    .chars()
                    .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
        }
        "^[A-Z][A-Za-z0-9]+$" => {
            text.starts_with(|c: char| c.is_ascii_uppercase())
                && text.len() > 1
                && text.chars().all(|c| c.is_ascii_alphanumeric())
        }
        other => panic!("no pattern {other}"),
    }
}
