//! The file's JSON schema (draft 2020-12), made from the table of keys that the validator uses.

use serde_json::{Map, Value, json};

use super::keys;
use super::rules;
use super::table::{Key, Kind, Need, Table};

/// The schema of a providers file: a list of entries, or a mapping with `providers`. What is inside a
/// `ConfigMap` is text to JSON schema, so that form isn't in it.
pub fn schema() -> Value {
    let list = json!({ "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/entry" } });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "egressctl providers file",
        "oneOf": [
            list,
            {
                "type": "object",
                "properties": { "providers": list },
                "patternProperties": { "^x-": true },
                "required": ["providers"],
                "additionalProperties": false,
            },
        ],
        "$defs": {
            "entry": entry(),
            "block": block(),
            "image": object(&keys::IMAGE),
            "machineType": object(&keys::MACHINE_TYPE),
            "host": host(),
        },
    })
}

/// An entry: the operator's own are anything, ours have the block that `type` names and no other.
fn entry() -> Value {
    let theirs = json!({ "type": "object", "properties": { "type": { "enum": keys::SKIPPED_TYPES } }, "required": ["type"] });
    let with_block = |block: &str| {
        let others: Map<String, Value> = keys::OUR_TYPES
            .iter()
            .filter(|other| **other != block)
            .map(|other| ((*other).to_string(), json!(false)))
            .collect();
        json!({
            "if": { "properties": { "type": { "const": block } } },
            "then": { "required": [block], "properties": others },
        })
    };
    let mut ours = object(&keys::ENTRY);
    ours["allOf"] = keys::OUR_TYPES
        .iter()
        .map(|block| with_block(block))
        .collect();
    json!({ "if": theirs, "then": true, "else": ours })
}

fn block() -> Value {
    let mut block = object(&keys::BLOCK);
    let given = |key: &str| json!({ "required": [key] });
    let is = |key: &str| json!({ "properties": { key: { "const": true } }, "required": [key] });
    let local = json!({ "properties": { "hosts": { "items": is("local") } } });
    block["allOf"] = json!([
        { "anyOf": [given("sshKeyFile"), is("sshAgent"), local] },
        { "not": { "allOf": [given("sshKeyFile"), is("sshAgent")] } },
        { "anyOf": [given("knownHostsFile"), is("insecureIgnoreHostKey"), local] },
    ]);
    block
}

fn host() -> Value {
    let mut host = object(&keys::HOST);
    host["oneOf"] = json!([{ "required": ["bridge"] }, { "required": ["network"] }]);
    host["if"] = json!({ "properties": { "local": { "const": true } }, "required": ["local"] });
    host["then"] = json!({ "properties": { "proxyJump": false } });
    host["else"] = json!({ "required": ["address", "user"] });
    host
}

fn object(table: &Table) -> Value {
    let properties: Map<String, Value> = table
        .keys
        .iter()
        .map(|key| (key.name.to_string(), property(key)))
        .collect();
    let required: Vec<&str> = table
        .keys
        .iter()
        .filter(|key| key.need == Need::Required)
        .map(|key| key.name)
        .collect();
    json!({
        "type": "object",
        "description": table.what,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(key: &Key) -> Value {
    let mut value = match &key.kind {
        Kind::Text(rule) => match rule.pattern {
            Some(pattern) => json!({ "type": "string", "pattern": pattern }),
            None => json!({ "type": "string", "minLength": 1 }),
        },
        Kind::Body => json!({ "type": "string" }),
        Kind::File | Kind::Duration => json!({ "type": "string", "minLength": 1 }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Choice(choices) => json!({ "enum": choices }),
        Kind::Block(table) => definition(table),
        Kind::List(table) => json!({ "type": "array", "minItems": 1, "items": definition(table) }),
        Kind::Named(table) => json!({
            "type": "object",
            "propertyNames": { "pattern": rules::IDENTIFIER.pattern },
            "minProperties": u8::from(key.need == Need::Required),
            "additionalProperties": definition(table),
        }),
    };
    let own = if key.ours {
        " egressctl's own key, unknown to the operator."
    } else {
        ""
    };
    let needed = match key.need {
        Need::Depends(when) => format!(" Required if {when}."),
        Need::Required | Need::Optional => String::new(),
    };
    value["description"] = format!("{}{needed}{own}", key.about).into();
    if let Some(default) = key.default {
        value["default"] = match key.kind {
            Kind::Bool | Kind::Integer { .. } => serde_json::from_str(default).unwrap_or_default(),
            _ => default.into(),
        };
    }
    value
}

fn definition(table: &Table) -> Value {
    json!({ "$ref": format!("#/$defs/{}", table.id) })
}
