//! docs/exit-codes.md knows every word that scripts can meet.

use std::path::Path;

use egressctl::error::{Class, Reason};

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/exit-codes.md");
    std::fs::read_to_string(path).unwrap()
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
    assert!(document.contains("| 130, 143 | Interrupted |"));
}
