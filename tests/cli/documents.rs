//! docs/exit-codes.md knows every word that scripts can meet; docs/reliability.md names tests that exist;
//! what the documents begin with works.

use std::path::Path;
use std::process::Command;

use egressctl::error::{Class, Reason};

use crate::support::Sandbox;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn document() -> String {
    read("docs/exit-codes.md")
}

#[test]
fn every_reason_has_a_line_of_its_own_and_no_other_has() {
    let document = document();
    // Rows of the tables of reasons: `| `Word` | meaning | what to do |`.
    let rows: Vec<&str> = document
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `")?
                .split_once("` |")
                .map(|(word, _)| word)
        })
        .filter(|word| word.starts_with(|first: char| first.is_ascii_uppercase()))
        .collect();
    let reasons: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    let missing: Vec<_> = reasons.iter().filter(|word| !rows.contains(word)).collect();
    assert!(missing.is_empty(), "not in docs/exit-codes.md: {missing:?}");
    let unknown: Vec<_> = rows.iter().filter(|word| !reasons.contains(word)).collect();
    assert!(unknown.is_empty(), "no reasons of egressctl: {unknown:?}");
    assert_eq!(rows.len(), reasons.len(), "a reason stands twice");
}

#[test]
fn every_class_stands_with_its_code() {
    let document = document();
    let classes = [
        Class::Permanent,
        Class::Usage,
        Class::NotFound,
        Class::Transient,
        Class::QuotaExceeded,
        Class::Unhealthy,
    ];
    for class in classes {
        let row = format!("| {} | {} |", class.exit_code(), class.as_str());
        assert!(document.contains(&row), "{row}");
    }
    assert!(document.contains("| 129, 130, 131, 143 | Interrupted |"));
}

#[test]
fn every_test_that_the_promises_name_exists() {
    let document = read("docs/reliability.md");
    let quoted = document.split('`').skip(1).step_by(2);
    let mut named = 0;
    for test in quoted.filter(|word| word.contains("::")) {
        let (file, name) = match test.split("::").collect::<Vec<_>>()[..] {
            [tests @ ("lab" | "cli"), ref modules @ .., name] if !modules.is_empty() => {
                (format!("tests/{tests}/{}.rs", modules.join("/")), name)
            }
            ["fuzz", name] => ("src/fuzz.rs".to_owned(), name),
            _ => panic!("{test}: of which tests?"),
        };
        let source = read(&file);
        // As a function, or as a line of the table in tests/lab/crash.rs.
        let exists = source.contains(&format!("\nfn {name}()"))
            || source.contains(&format!("\n    {name}: "));
        assert!(
            exists,
            "docs/reliability.md names {test}, which isn't in {file}"
        );
        named += 1;
    }
    assert!(named > 40, "only {named} tests are named");
}

/// In a document's order: what makes the file, then what looks for it.
#[test]
fn a_file_started_as_the_documents_say_is_found() {
    let (directory, _) = env!("CARGO_BIN_EXE_egressctl").rsplit_once('/').unwrap();
    for name in [
        "README.md",
        "docs/hypervisor-setup.md",
        "docs/configuration.md",
    ] {
        let document = read(name);
        let lines: Vec<&str> = document
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .filter(|line| line.starts_with("egressctl config init "))
            .collect();
        assert_eq!(lines.len(), 1, "{name}: {lines:?}");
        let sandbox = Sandbox::new();
        let line = format!("{} && egressctl config validate", lines[0]);
        let output = Command::new("/bin/sh")
            .args(["-c", &line])
            .env_clear()
            .env("HOME", sandbox.home())
            .env("PATH", directory)
            .current_dir(sandbox.home())
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
}
