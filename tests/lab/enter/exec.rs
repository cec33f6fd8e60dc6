//! Commands in the guest, by its agent.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use super::NAME;
use crate::cli::{Checked, Cli};
use crate::support::wait_until;

/// For what takes a second or two in a guest, where two of them share two processors.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn is_like_the_command_itself(cli: &Cli) {
    let sh = |script| cli.run(&["exec", NAME, "--", "sh", "-c", script]);
    let run = sh("echo out; echo err >&2; exit 7").exits(7);
    assert_eq!(
        (run.stdout.as_str(), run.stderr.as_str()),
        ("out\n", "err\n")
    );
    sh("kill -9 $$").exits(137).says_nothing();
    let words = ["a b", "$x", "it's", "", "--", "-n"];
    let args = [&["exec", NAME, "--", "printf", "%s|"], &words[..]].concat();
    cli.run(&args).exits(0).prints_only("a b|$x|it's||--|-n|");
    // Beyond what one answer of the agent can hold, which is 4 MiB in base64.
    let long = sh("yes 0123456 | head -c 6000000").exits(0);
    assert!(long.stdout == "0123456\n".repeat(750_000));
    let bytes: Vec<u8> = (0..=255).collect();
    let args = ["exec", "hosts/nas1/domains/lt-enter", "--stdin", "--"];
    let args = [&args[..], &["od", "-An", "-v", "-tu1", "-w256"]].concat();
    let seen = cli.run_with_stdin(&args, &bytes).exits(0);
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    let words: Vec<&str> = seen.stdout.split_whitespace().collect();
    assert_eq!(words, numbers);
    // More than the agent takes in one piece, to the last byte; all that is promised.
    // No block of it is like the one before.
    let many: Vec<u8> = (0..2 << 20)
        .map(|n: u32| b'a' + u8::try_from(n % 23).unwrap())
        .collect();
    let args = ["exec", NAME, "--stdin", "--", "cat"];
    let seen = cli.run_with_stdin(&args, &many).exits(0);
    assert!(
        seen.stdout.as_bytes() == many,
        "{} bytes",
        seen.stdout.len()
    );
    nothing_is_left(cli);
}

pub(super) fn has_failures_of_its_own(cli: &Cli) {
    let exec = |args: &[&str]| cli.run(&[&["exec", NAME], args].concat());
    exec(&["--", "lt-no-such-command"])
        .exits(127)
        .says("not found");
    exec(&["--", "/etc/passwd"]).exits(126);
    cli.run(&["exec", "lt-nobody", "--", "true"])
        .exits(123)
        .says("there is no instance");
    let runs = |command: &str| exec(&["--", "pgrep", "-fx", command]).ends_well();
    let run = exec(&[
        "--timeout",
        "1s",
        "--",
        "sh",
        "-c",
        "sleep 96 >/dev/null 2>&1 & sleep 97",
    ])
    .exits(124)
    .says("wasn't done in time");
    was_ended(run, || runs("sleep 96") || runs("sleep 97"));
    // One that takes no notice of SIGTERM, and a signal that ends egressctl.
    let script = "trap '' TERM; while :; do sleep 98; done";
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let running = cli.start(&["exec", NAME, "--", "sh", "-c", script]);
        wait_until("the command runs", Duration::from_secs(30), || {
            runs("sleep 98")
        });
        running.signal(signal);
        was_ended(running.wait().exits(code), || runs("sleep 98"));
    }
    // A service isn't the command's own.
    exec(&["--", "systemctl", "is-active", "--quiet", "squid"]).exits(0);
    nothing_is_left(cli);
}

/// Fails unless a command was ended in the guest. A guest in software emulation may be too slow for the time that it has to
/// say so; then it is ended a little later.
#[track_caller]
fn was_ended(run: Checked, runs: impl Fn() -> bool) {
    if run.stderr.contains("hasn't said yet that it is done") {
        let run = run.says("it may go on in the guest, as process ");
        wait_until(&format!("it is ended\n{run}"), PATIENCE, || !runs());
    } else {
        run.says("it was ended in the guest, with all that it started");
        assert!(!runs());
    }
}

/// Nothing of earlier commands but the directory of this very one.
fn nothing_is_left(cli: &Cli) {
    let args = ["exec", NAME, "--", "sh", "-c", "ls -d /var/tmp/egressctl-*"];
    wait_until("nothing is left", PATIENCE, || {
        cli.run(&args).exits(0).stdout.lines().count() == 1
    });
}

pub(super) fn ends_with_its_reader(cli: &Cli) {
    let scripts = [
        // Goes on printing: slowly, and faster than anybody reads.
        "while echo x; do sleep 1; done",
        "exec yes x",
        // Says nothing any more.
        "echo x; sleep 95",
    ];
    for script in scripts {
        let mut running = cli.start(&["exec", NAME, "--", "sh", "-c", script]);
        running.read_and_leave("x\n");
        let run = running.wait();
        // A guest that is too busy to say so in time.
        if run.stderr().contains("hasn't said yet that it is done") {
            let _ = run.exits(121);
        } else {
            run.exits(141).says_nothing();
        }
    }
    for command in ["sh -c while.*", "yes x", "sleep 95"] {
        wait_until("it has ended", PATIENCE, || {
            let args = ["exec", NAME, "--", "pgrep", "-fx", command];
            !cli.run(&args).ends_well()
        });
    }
    // One that has ended keeps its status; more than the first blocks is still to be printed.
    let script = "yes x | head -c 9000000; touch /run/lt-printed; exit 3";
    let mut running = cli.start(&["exec", NAME, "--", "sh", "-c", script]);
    wait_until("it has printed all", PATIENCE, || {
        let args = ["exec", NAME, "--", "test", "-e", "/run/lt-printed"];
        cli.run(&args).ends_well()
    });
    running.read_and_leave("x\n");
    running.wait().exits(3).says_nothing();
    // Nor is one ended that prints nothing: it may never have had a reader.
    let mut running = cli.start(&["exec", NAME, "--", "sh", "-c", "sleep 2; exit 4"]);
    running.read_and_leave("");
    running.wait().exits(4).says_nothing();
    nothing_is_left(cli);
}

pub(super) fn ends_where_its_output_cant_be_written(cli: &Cli) {
    let full = |words: &[&str]| {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let args = [&["exec", NAME, "--timeout", "20s", "--"], words].concat();
        let run = cli.start_into(&args, full.into()).wait();
        run.exits(121).says("stdout can't be written")
    };
    // Whether it has ended by itself when its output is read is a matter of milliseconds.
    let _ = full(&["echo", "hi"]);
    full(&["yes"]).says("it was ended in the guest, with all that it started");
    nothing_is_left(cli);
    // One that prints without end is looked at, too.
    cli.start_into(
        &["exec", NAME, "--timeout", "3s", "--", "yes"],
        Stdio::null(),
    )
    .wait()
    .exits(124)
    .says("wasn't done in time");
    nothing_is_left(cli);
}
