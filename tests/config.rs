//! Providers files, good and bad, each with exactly what egressctl makes of it; and the documents about them.
//!
//! `BLESS=1 cargo test --test config` rewrites the expectations; read the difference before committing it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use egressctl::cancel::Cancel;
use egressctl::config::{self, Config};
use egressctl::error::{Class, Reason};
use serde_json::Value;

/// The environment of every sample.
fn env(name: &str) -> Option<OsString> {
    match name {
        "HOME" => Some("/home/virt".into()),
        "KEYS" => Some("/run/keys".into()),
        "DOLLAR" => Some("/run/$keys".into()),
        "EMPTY" => Some("".into()),
        _ => None,
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The samples of a folder, sorted; fails on files that belong to none.
fn samples(folder: &str) -> Vec<PathBuf> {
    let folder = root().join("tests/configs").join(folder);
    let mut files: BTreeSet<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let samples: Vec<PathBuf> = files
        .iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .cloned()
        .collect();
    for sample in &samples {
        files.remove(sample);
        files.remove(&sample.with_extension("expected"));
    }
    assert!(
        files.is_empty(),
        "files that belong to no sample: {files:?}"
    );
    samples
}

/// Parses a sample as a file in /etc/egressctl, so that its expectation is the same on every machine.
fn parse(sample: &Path) -> Result<Config, egressctl::error::Error> {
    let text = std::fs::read_to_string(sample).unwrap();
    let name = sample.file_name().unwrap();
    config::parse(&text, &Path::new("/etc/egressctl").join(name), &env)
}

/// Compares with the expectation beside the sample; says what differs, if anything.
fn compare(sample: &Path, actual: &str) -> Option<String> {
    let file = sample.with_extension("expected");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, actual).unwrap();
        return None;
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_else(|error| error.to_string());
    let name = sample.display();
    (expected != actual).then(|| format!("{name}\n--- expected\n{expected}--- actual\n{actual}"))
}

fn report(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} samples differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn invalid_files_give_exactly_the_expected_errors() {
    let samples = samples("invalid");
    assert!(samples.len() >= 30, "{} samples", samples.len());
    let mut failures = Vec::new();
    for sample in samples {
        let Err(error) = parse(&sample) else {
            failures.push(format!("{}: no error", sample.display()));
            continue;
        };
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Usage, Reason::ConfigInvalid)
        );
        let actual = format!("{}\n{}\n", error.message(), error.causes().join("\n"));
        failures.extend(compare(&sample, &actual));
    }
    report(&failures);
}

#[test]
fn valid_files_mean_what_is_expected_and_print_back_to_the_same() {
    let mut failures = Vec::new();
    for sample in samples("valid") {
        let name = sample.display();
        let config = match parse(&sample) {
            Ok(config) => config,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        if let Err(error) = config.ensure_met() {
            failures.push(format!("{name}: {error}"));
        }
        let printed = config::view_yaml(&config.providers).unwrap();
        let skipped: Vec<_> = config
            .skipped
            .iter()
            .map(|entry| (&entry.name, &entry.kind))
            .collect();
        failures.extend(compare(
            &sample,
            &format!("# skipped: {skipped:?}\n{printed}"),
        ));
        if config.providers.is_empty() {
            continue;
        }
        // Elsewhere, and without an environment: what is printed must depend on neither.
        let again = config::parse(&printed, Path::new("/elsewhere/x.yaml"), &|_| None);
        // Secrets in URLs aren't printed; everything else is.
        let hides = config
            .providers
            .iter()
            .any(|p| !config::hides(p).is_empty());
        let same = |again: &Config| {
            again.providers == config.providers
                || hides && config::view(&again.providers) == config::view(&config.providers)
        };
        match again {
            Ok(again) if same(&again) => {}
            Ok(_) => failures.push(format!("{name}: prints to something else:\n{printed}")),
            Err(error) => failures.push(format!("{name}: prints to an error: {error}\n{printed}")),
        }
    }
    report(&failures);
}

#[test]
fn the_examples_are_valid() {
    let env = |name: &str| match name {
        "CREDENTIALS_DIRECTORY" => Some("/run/credentials/egressctl.service".into()),
        other => env(other),
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("examples/providers")).unwrap() {
        let path = entry.unwrap().path();
        let config =
            config::load(&path, &env, &Cancel::new()).unwrap_or_else(|error| panic!("{error}"));
        config.provider(None).unwrap();
        names.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(
        names,
        [
            "minimal.yaml",
            "operator-configmap.yaml",
            "several-hosts.yaml"
        ]
    );
}

/// Whether the schema knows every key of the value, and has every key it requires there.
fn check_keys(schema: &Value, at: &Value, value: &Value, path: &str) {
    let at = match at["$ref"].as_str() {
        Some(name) => schema.pointer(name.trim_start_matches('#')).unwrap(),
        None => at,
    };
    let at = if at["properties"].is_object() || at["then"] != true {
        at
    } else {
        &at["else"]
    };
    match value {
        Value::Object(object) => {
            for required in at["required"].as_array().into_iter().flatten() {
                assert!(
                    object.contains_key(required.as_str().unwrap()),
                    "{path}: no {required}"
                );
            }
            for (key, value) in object {
                let path = format!("{path}.{key}");
                let of_key = at["properties"]
                    .get(key)
                    .or_else(|| at.get("additionalProperties"));
                let of_key = of_key.filter(|found| found.is_object());
                check_keys(
                    schema,
                    of_key.unwrap_or_else(|| panic!("{path}: unknown")),
                    value,
                    &path,
                );
            }
        }
        Value::Array(items) => {
            for item in items {
                check_keys(schema, &at["items"], item, &format!("{path}[]"));
            }
        }
        _ => {}
    }
}

#[test]
fn the_schema_knows_what_the_samples_print() {
    let schema = config::schema();
    for sample in samples("valid") {
        let printed = config::view(&parse(&sample).unwrap().providers);
        check_keys(
            &schema,
            &schema["oneOf"][1],
            &printed,
            &sample.display().to_string(),
        );
    }
}
