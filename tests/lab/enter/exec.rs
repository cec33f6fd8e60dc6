//! Commands in the guest, by its agent.

use std::time::Duration;

use super::NAME;
use crate::cli::Cli;
use crate::support::wait_until;

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
    // The directory of this very command, and no other.
    let left = sh("ls -d /var/tmp/egressctl-*").exits(0);
    assert_eq!(left.stdout.lines().count(), 1, "{left}");
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
    exec(&[
        "--timeout",
        "1s",
        "--",
        "sh",
        "-c",
        "sleep 96 >/dev/null 2>&1 & sleep 97",
    ])
    .exits(124)
    .says("wasn't done in time")
    .says("it was ended in the guest, with all that it started");
    assert!(!runs("sleep 96") && !runs("sleep 97"));
    // One that takes no notice of SIGTERM, and a signal that ends egressctl.
    let script = "trap '' TERM; while :; do sleep 98; done";
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let running = cli.start(&["exec", NAME, "--", "sh", "-c", script]);
        wait_until("the command runs", Duration::from_secs(30), || {
            runs("sleep 98")
        });
        running.signal(signal);
        running
            .wait()
            .exits(code)
            .says("it was ended in the guest, with all that it started");
        assert!(!runs("sleep 98"));
    }
    // A service isn't the command's own.
    exec(&["--", "systemctl", "is-active", "--quiet", "squid"]).exits(0);
    // Nothing is left of them but the directory of this very command.
    let left = exec(&["--", "sh", "-c", "ls -d /var/tmp/egressctl-*"]).exits(0);
    assert_eq!(left.stdout.lines().count(), 1, "{left}");
}
