//! Colour on a terminal, and where none is wanted there.

use std::process::Command;

use crate::sandbox;

/// What the line prints on a terminal of that kind.
fn on_terminal(line: &str, term: &str) -> String {
    let sandbox = sandbox("remote");
    let program = env!("CARGO_BIN_EXE_egressctl");
    let output = Command::new("script")
        .args(["-qec", &format!("{program} {line}"), "/dev/null"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", sandbox.home())
        .env("TERM", term)
        .env("EGRESSCTL_CONFIG", sandbox.home().join("providers.yaml"))
        .output()
        .expect("script(1) is needed: tests/lab/install");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_terminal_has_colour_unless_it_or_the_person_wants_none() {
    // Our own errors and hints; clap's, and its help.
    let table = [
        ("get web1 --zone moon", "error:"),
        ("get --foo", "error:"),
        ("create --help", "Usage:"),
    ];
    for (line, said) in table {
        let colour = on_terminal(line, "xterm");
        assert!(colour.contains('\x1b') && colour.contains(said), "{colour}");
        for (line, term) in [(line, "dumb"), (&format!("--no-color {line}"), "xterm")] {
            let plain = on_terminal(line, term);
            assert!(!plain.contains('\x1b') && plain.contains(said), "{plain}");
        }
    }
}
