//! docs/third-party.md and docs/packaging/copyright name the crates that are in the binary, with their licences.
//!
//! `BLESS=1 cargo test --test licences` rewrites both. Sources: `cargo tree` for what is linked (it knows which features and
//! kinds of dependency count), `cargo metadata` and the crates' own licence files for the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The platform that packages are built for. C libraries that crates bundle are the same on others.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Code in other languages that a crate's own licence doesn't speak of: crate, folder, whose, licence.
const BUNDLED: [(&str, &str, &str, &str); 2] = [
    ("liblzma-sys", "xz", "The authors of XZ Utils", "0BSD"),
    (
        "zstd-sys",
        "zstd",
        "Meta Platforms, Inc. and affiliates",
        "BSD-3-Clause",
    ),
];

/// A crate that is linked into the binary.
struct Crate {
    name: String,
    version: String,
    /// The expression in its Cargo.toml.
    licence: String,
    /// In words of Debian's format, one of those it offers.
    taken: &'static str,
    /// The copyright lines of its licence files; without any, its authors.
    holders: BTreeSet<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(args)
        .args(["--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// What is taken of a licence expression, as Debian's format names it. The licences allowed here are those in .cargo/deny.toml.
fn taken(expression: &str) -> Option<&'static str> {
    Some(match expression {
        "Apache-2.0"
        | "MIT OR Apache-2.0"
        | "Apache-2.0 OR MIT"
        | "MIT/Apache-2.0"
        | "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT" => "Apache-2.0",
        "MIT" | "Unlicense OR MIT" => "Expat",
        "Unicode-3.0" => "Unicode-3.0",
        "BSD-3-Clause" => "BSD-3-Clause",
        "Zlib" => "Zlib",
        // Their files say "or (at your option) any later version".
        "LGPL-2.1" => "LGPL-2.1+",
        "bzip2-1.0.6" => "bzip2-1.0.6",
        "ISC" => "ISC",
        "BSD-3-Clause AND BSD-2-Clause" => "BSD-3-Clause and BSD-2-Clause",
        "Apache-2.0 AND ISC" => "Apache-2.0 and ISC",
        "(Apache-2.0 OR MIT) AND BSD-3-Clause" => "Apache-2.0 and BSD-3-Clause",
        _ => return None,
    })
}

/// Whether this line of a licence file says whose the work is, rather than talking about copyright.
fn names_a_holder(line: &str) -> bool {
    let lower = line.to_lowercase();
    let dated = line.chars().any(|c| c.is_ascii_digit());
    let marked = lower.starts_with("copyright (c)") || lower.starts_with("copyright ©");
    let claims = marked || dated && (lower.starts_with("copyright") || lower.starts_with("(c) "));
    let template = ["[yyyy]", "{yyyy}", "<year>"]
        .iter()
        .any(|word| lower.contains(word));
    // The licence's own copyright, not the work's.
    claims && !template && !lower.contains("free software foundation")
}

fn holders(folder: &Path, authors: &[String], name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().to_lowercase();
        let of_licence = ["licen", "copy", "notice"]
            .iter()
            .any(|start| file.starts_with(start));
        if !of_licence || !path.is_file() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text
            .lines()
            .map(|line| line.trim_matches(|c: char| c.is_whitespace() || "/*#".contains(c)));
        let claims = lines
            .filter(|line| names_a_holder(line))
            .map(|line| line.strip_prefix("Copyright ").unwrap_or(line));
        found.extend(claims.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    if found.is_empty() {
        found.extend(authors.iter().cloned());
    }
    if found.is_empty() {
        found.insert(format!("The authors of {name}"));
    }
    found
}

/// The crates of other people in the binary, by name and version.
fn linked() -> Vec<Crate> {
    let tree = cargo(&[
        "tree",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
        "--target",
        PLATFORM,
    ]);
    let names: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .filter(|(name, _)| *name != env!("CARGO_PKG_NAME"))
        .collect();
    let metadata = cargo(&[
        "metadata",
        "--format-version=1",
        "--filter-platform",
        PLATFORM,
    ]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let packages: BTreeMap<(&str, &str), &serde_json::Value> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let field = |name: &str| package[name].as_str().unwrap();
            ((field("name"), field("version")), package)
        })
        .collect();
    names
        .into_iter()
        .map(|key| describe(packages[&key]))
        .collect()
}

fn describe(package: &serde_json::Value) -> Crate {
    let field = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
    let (name, licence) = (field("name"), field("license"));
    let taken = taken(&licence).unwrap_or_else(|| panic!("{name}: unknown licence {licence:?}"));
    let folder = PathBuf::from(field("manifest_path"));
    let authors: Vec<String> = package["authors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|author| author.as_str().unwrap().to_owned())
        .collect();
    Crate {
        holders: holders(folder.parent().unwrap(), &authors, &name),
        version: field("version"),
        name,
        licence,
        taken,
    }
}

fn list(crates: &[Crate]) -> String {
    let mut text = include_str!("../docs/packaging/third-party.head").to_owned();
    for found in crates {
        let (name, version, licence) = (&found.name, &found.version, &found.licence);
        writeln!(text, "| {name} | {version} | {licence} |").unwrap();
    }
    text
}

fn paragraph(text: &mut String, files: &str, holders: &[&str], licence: &str) {
    let holders = holders.join("\n           ");
    write!(
        text,
        "\nFiles: {files}\nCopyright: {holders}\nLicense: {licence}\n"
    )
    .unwrap();
}

/// The licence's own paragraph: its text, with what the format wants in front of each line.
fn licence_text(text: &mut String, name: &str) {
    let file = root().join(format!("docs/packaging/licences/{name}.txt"));
    let terms =
        std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    write!(text, "\nLicense: {name}\n").unwrap();
    for line in terms.lines() {
        let line = if line.trim().is_empty() { "." } else { line };
        writeln!(text, " {line}").unwrap();
    }
}

fn copyright(crates: &[Crate]) -> String {
    let mut text = include_str!("../docs/packaging/copyright.head").to_owned();
    let mut licences: BTreeSet<&str> = BTreeSet::from(["Apache-2.0"]);
    for found in crates {
        let (name, version) = (&found.name, &found.version);
        let holders: Vec<&str> = found.holders.iter().map(String::as_str).collect();
        paragraph(
            &mut text,
            &format!("{name}-{version}/*"),
            &holders,
            found.taken,
        );
        licences.extend(found.taken.split(" and "));
        for (_, folder, holder, licence) in BUNDLED.iter().filter(|bundled| bundled.0 == name) {
            paragraph(
                &mut text,
                &format!("{name}-{version}/{folder}/*"),
                &[holder],
                licence,
            );
            licences.insert(licence);
        }
    }
    for licence in licences {
        licence_text(&mut text, licence);
    }
    text
}

fn compare(file: &str, expected: &str) {
    let path = root().join(file);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{file} isn't what Cargo.lock says; to renew it: BLESS=1 cargo test --test licences"
    );
}

#[test]
fn third_party_licences_are_up_to_date() {
    let crates = linked();
    for (name, ..) in BUNDLED {
        assert!(
            crates.iter().any(|found| found.name == name),
            "no {name} any more"
        );
    }
    compare("docs/third-party.md", &list(&crates));
    let copyright = copyright(&crates);
    for entry in std::fs::read_dir(root().join("docs/packaging/licences")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            copyright.contains(&format!("\nLicense: {name}\n ")),
            "nothing is under {name}"
        );
    }
    compare("docs/packaging/copyright", &copyright);
}

/// The newest entry of the package's changelog is this version.
#[test]
fn the_package_s_changelog_is_of_this_version() {
    let changelog = std::fs::read_to_string(root().join("docs/packaging/changelog")).unwrap();
    let wanted = format!("egressctl ({}-", env!("CARGO_PKG_VERSION"));
    assert!(changelog.starts_with(&wanted), "not {wanted}");
}
