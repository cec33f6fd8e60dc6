//! Documents and errors in JSON are what docs/schema says. The lab's tests hold every document they see against it, too.

use serde_json::{Value, json};

use crate::schema::{faults, load};
use crate::{LOCAL, sandbox};

/// Every object of the schemas names all of its fields and no others, so that a field that comes or goes is noticed.
fn assert_closed(schema: &Value, at: &str) {
    if let Some(properties) = schema["properties"].as_object() {
        // All but what makes an error an event: elsewhere it is none.
        let names: Vec<&String> = properties.keys().filter(|n| *n != "event").collect();
        assert_eq!(schema["required"], json!(names), "{at}");
        assert_eq!(schema["additionalProperties"], json!(false), "{at}");
        for (name, field) in properties {
            assert_closed(field, &format!("{at}.{name}"));
        }
    }
    for inner in ["items", "error"] {
        let inner = schema.get(inner).or(schema["$defs"].get(inner));
        if let Some(inner) = inner.filter(|inner| inner.is_object()) {
            assert_closed(inner, at);
        }
    }
}

#[test]
fn every_kind_has_a_schema_and_every_schema_a_kind() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schema");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|file| file.strip_suffix(".json").unwrap().to_owned())
        .filter(|kind| kind != "Error")
        .collect();
    files.sort();
    let mut kinds = egressctl::output::KINDS.to_vec();
    kinds.sort_unstable();
    assert_eq!(files, kinds);
    let document =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/json-output.md"));
    let document = document.unwrap();
    for kind in kinds {
        let schema = load(kind).unwrap();
        assert_eq!(schema["title"], kind);
        assert_eq!(schema["properties"]["kind"]["const"], kind);
        assert_closed(&schema, kind);
        let link = format!("[{kind}](schema/{kind}.json)");
        assert!(document.contains(&link), "docs/json-output.md: {link}");
    }
    assert_closed(&load("Error").unwrap(), "Error");
}

#[test]
fn documents_without_a_host_keep_to_their_schemas() {
    let lines = [
        "list -o json",
        "image list -o json",
        "check -o json",
        "create --zone one --name web1 -o json",
        "create --zone auto --count 2 -o json",
        "create --zone one --name web1 --dry-run -o json",
        "delete hosts/gone/domains/web1 -o json",
        "delete hosts/gone/domains/web1 --dry-run -o json",
        "gc --partial -o json",
        "get web1 -o json",
        "get hosts/one/domains/web1 -o json",
        "extend web1 1h -o json",
        "probe web1 -o json",
        "image rm debian-13 -o json",
        "image pull https://192.0.2.1/x.qcow2 --pull never -o json",
    ];
    let sandbox = sandbox("local");
    assert!(LOCAL.contains("local: true"));
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let output = sandbox
            .egressctl(&words)
            .env("EGRESSCTL_CONFIG", "providers.yaml")
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{line}: {error}: {output:?}"));
        assert_eq!(faults(&document), [""; 0], "{line}");
        // What is in the document's errors is on stderr, one object a line.
        let errors: Vec<Value> = String::from_utf8(output.stderr)
            .unwrap()
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for error in &errors {
            assert_eq!(faults(error), [""; 0], "{line}");
        }
        if !line.starts_with("check") {
            assert_eq!(document["errors"], json!(errors), "{line}");
        }
    }
}

#[test]
fn an_error_among_events_keeps_to_its_schema() {
    for format in ["json", "table"] {
        let line = ["get", "web1", "--progress", "json", "-o", format];
        let sandbox = sandbox("local");
        let mut command = sandbox.egressctl(&line);
        let output = command.env("EGRESSCTL_CONFIG", "providers.yaml").output();
        let stderr = String::from_utf8(output.unwrap().stderr).unwrap();
        assert_eq!(stderr.lines().count(), 2, "{stderr}");
        for line in stderr.lines() {
            let error: Value = serde_json::from_str(line).unwrap();
            assert_eq!(error["event"], "error", "{line}");
            assert_eq!(faults(&error), [""; 0], "{line}");
        }
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    let good = json!({
        "apiVersion": "egressctl/v1", "kind": "DeletedList",
        "items": [{"name": "a", "host": null, "deleted": ["domain a"], "kept": []}], "errors": [],
    });
    assert_eq!(faults(&good), [""; 0]);
    let changes: [(&str, Value); 5] = [
        ("/items/0/name", json!(1)),
        ("/items/0/deleted/0", json!(null)),
        ("/items/0", json!({"name": "a", "host": null})),
        (
            "/items/0",
            json!({"name": "a", "host": null, "deleted": [], "kept": [], "more": 1}),
        ),
        ("/apiVersion", json!("egressctl/v2")),
    ];
    for (pointer, value) in changes {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        assert_eq!(faults(&bad).len(), 1, "{pointer}");
    }
}
