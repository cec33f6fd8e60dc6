//! Man pages and completion scripts are what the command tree says, and help texts keep to the rules.
//!
//! `BLESS=1 cargo test --test generated` rewrites man/ and completions/; read the difference before committing it.

mod complete;
mod man;
#[path = "../support/mod.rs"]
mod support;
mod terminal;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use support::Sandbox;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The command lines of all commands, `[]` first.
fn commands() -> Vec<Vec<String>> {
    fn add(command: &clap::Command, path: &[String], all: &mut Vec<Vec<String>>) {
        all.push(path.to_vec());
        for sub in command.get_subcommands() {
            let path = [path, &[sub.get_name().to_owned()]].concat();
            add(sub, &path, all);
        }
    }
    let mut all = Vec::new();
    add(&egressctl::cli::command(), &[], &mut all);
    all
}

/// Compares a folder with what it should hold; `BLESS=1` makes it so.
fn compare(folder: &str, files: &BTreeMap<String, String>) {
    let folder = root().join(folder);
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&folder).into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for name in names().iter().filter(|name| !files.contains_key(*name)) {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }
    let read = |name: &String| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let mut stale: Vec<&String> = files
        .iter()
        .filter(|(name, text)| read(name) != **text)
        .map(|(name, _)| name)
        .collect();
    let there = names();
    stale.extend(there.iter().filter(|name| !files.contains_key(*name)));
    assert!(
        stale.is_empty(),
        "{} differs from the command tree in {stale:?}; to renew it: BLESS=1 cargo test --test generated",
        folder.display()
    );
}

/// Runs the binary where there is no home, and a configuration that can't be read.
fn run_without_anything(sandbox: &Sandbox, args: &[&str]) -> Output {
    let broken = sandbox.write("broken.yaml", "providers: [\n");
    sandbox
        .egressctl(args)
        .env("HOME", "/nonexistent")
        .env("EGRESSCTL_CONFIG", broken)
        .output()
        .unwrap()
}

#[test]
fn man_pages_are_up_to_date() {
    compare("man", &man::pages());
}

#[test]
fn completion_scripts_are_up_to_date_and_the_binary_prints_the_same() {
    let sandbox = Sandbox::new();
    let file = |shell: &str| {
        let output = run_without_anything(&sandbox, &["completion", shell]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let files = BTreeMap::from([
        ("egressctl.bash".to_owned(), file("bash")),
        ("_egressctl".to_owned(), file("zsh")),
        ("egressctl.fish".to_owned(), file("fish")),
    ]);
    compare("completions", &files);
}

/// Also: help and version need no configuration, no home, no network.
#[test]
fn every_help_is_narrow_has_examples_and_needs_nothing() {
    let sandbox = Sandbox::new();
    for path in commands() {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        for option in ["-h", "--help"] {
            let args = [&path[..], &[option]].concat();
            let output = run_without_anything(&sandbox, &args);
            let help = String::from_utf8(output.stdout).unwrap();
            assert!(
                output.status.success() && output.stderr.is_empty(),
                "{args:?}"
            );
            let wide: Vec<&str> = help.lines().filter(|l| l.chars().count() > 80).collect();
            assert!(
                wide.is_empty(),
                "{args:?}: wider than 80 columns: {wide:#?}"
            );
            let examples = help.split_once("\nExamples:\n").map(|(_, text)| text);
            let command = format!("  egressctl {}", path.join(" "));
            assert!(
                examples.is_some_and(|text| text.contains(command.trim_end())),
                "{args:?}: no example of it in\n{help}"
            );
        }
        let asked = run_without_anything(&sandbox, &[&["help"], &path[..]].concat());
        let option = run_without_anything(&sandbox, &[&path[..], &["--help"]].concat());
        assert_eq!(asked.stdout, option.stdout, "help {path:?}");
        assert!(asked.status.success(), "help {path:?}");
    }
    let output = run_without_anything(&sandbox, &["--version"]);
    let version = format!("egressctl {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), version);
}

/// The examples in help and man pages are command lines that parse.
#[test]
fn every_example_parses() {
    let mut count = 0;
    for path in commands() {
        for line in man::examples(&man::find(&path)) {
            let line = line
                .split(" > ")
                .next()
                .unwrap()
                .split(" | ")
                .next()
                .unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            let parsed = egressctl::cli::command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            count += 1;
        }
    }
    assert!(count >= 20, "only {count} examples");
}

/// What the man pages say of the environment, docs/configuration.md says, too.
#[test]
fn every_variable_of_the_man_pages_is_documented() {
    let document = std::fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    for name in man::variables() {
        assert!(document.contains(&format!("`{name}`")), "{name}");
    }
}

/// man itself, as a reader calls it, has nothing to complain about.
#[test]
fn man_pages_render_without_warnings() {
    for name in man::pages().keys() {
        let page = root().join("man").join(name);
        let output = std::process::Command::new("man")
            .args(["--warnings=w", "-Tutf8", "-l"])
            .arg(&page)
            .env("LC_ALL", "C.UTF-8")
            .env("MANWIDTH", "80")
            .output()
            .expect("man is needed: tests/lab/install");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{name}: {said}");
        let text = String::from_utf8(output.stdout).unwrap();
        let sections = ["NAME", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES"];
        for section in sections {
            let stands = text.lines().any(|line| plain(line) == section);
            assert!(stands, "{name} has no {section}:\n{text}");
        }
    }
}

/// A line as it is read: bold letters are overstruck (a letter, a backspace, the letter) or between escape sequences.
fn plain(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    let line = parts.fold(first, |text, part| {
        text + part.split_once('m').map_or("", |(_, rest)| rest)
    });
    let mut read = String::new();
    for letter in line.chars() {
        if letter == '\u{8}' {
            read.pop();
        } else {
            read.push(letter);
        }
    }
    read
}
