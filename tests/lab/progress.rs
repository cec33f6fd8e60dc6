//! What is shown on stderr while something takes time.

use serde_json::Value;

use crate::lab;
use crate::pull::with_image;

/// The objects on stderr, one a line and nothing else.
fn events(stderr: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    stderr.lines().map(parse).collect()
}

#[test]
fn off_a_terminal_lines_come_by_percent_and_none_when_not_wanted() {
    let lab = lab!();
    let key = "lt-plain";
    let _image = lab.image(key);
    let cli = with_image(&lab, key, "/tiny.qcow2?lt-plain");
    let run = cli.run(&["image", "pull", key]).exits(0);
    for host in ["nas1", "nas2"] {
        let lines: Vec<&str> = run
            .stderr
            .lines()
            .filter(|line| line.starts_with(host))
            .collect();
        assert!(
            lines[0].starts_with(&format!("{host}: pulling {key} (8")),
            "{run}"
        );
        assert!((2..=11).contains(&lines.len()), "{run}");
        assert!(lines[1..].iter().all(|line| line.contains(" %)")), "{run}");
    }
    assert!(
        !run.stderr.contains('\x1b') && !run.stderr.contains('\r'),
        "{run}"
    );
    for silent in [["--progress", "none"], ["--quiet", "--progress=json"]] {
        drop(lab.image(key));
        let args = [&["image", "pull", key, "--zone", "nas1"][..], &silent[..]].concat();
        cli.run(&args).exits(0).says_nothing();
    }
}

#[test]
fn as_json_every_line_is_an_event() {
    let lab = lab!();
    let key = "lt-events";
    let _image = lab.image(key);
    let cli = with_image(&lab, key, "/slow/3000000/tiny.qcow2?lt-events");
    let size = std::fs::metadata(lab.path("www/tiny.qcow2")).unwrap().len();
    let run = cli
        .run(&["image", "pull", key, "--zone", "nas1", "--progress", "json"])
        .exits(0);
    let events = events(&run.stderr);
    let states: Vec<&str> = events
        .iter()
        .map(|event| event["state"].as_str().unwrap())
        .collect();
    assert_eq!(states.first(), Some(&"started"), "{run}");
    assert_eq!(states.last(), Some(&"ended"), "{run}");
    assert!(states.contains(&"progress"), "{run}");
    let last = events.last().unwrap();
    assert_eq!(last["event"], "pull");
    assert_eq!(last["host"], "nas1");
    assert_eq!(
        (&last["bytes"], &last["total"]),
        (&size.into(), &size.into()),
        "{run}"
    );
}

#[test]
fn on_a_terminal_each_host_has_a_bar_and_the_log_does_not_tear_it() {
    let lab = lab!();
    let key = "lt-bars";
    let _image = lab.image(key);
    let cli = with_image(&lab, key, "/slow/3000000/tiny.qcow2?lt-bars");
    let run = cli.run_on_terminal(&["image", "pull", key, "-v"]);
    let run = run.exits(0);
    for host in ["nas1", "nas2"] {
        assert!(
            run.stdout.contains(&format!("{host}: {key} [")),
            "no bar of {host}\n{run}"
        );
    }
    assert!(run.stdout.contains(" ETA "), "{run}");
    // Whatever follows a bar on its line begins by erasing it.
    let mut logged = 0;
    for (at, _) in run.stdout.match_indices(" INFO ") {
        let before = &run.stdout[..at];
        let line = before.rfind('[').map(|start| &before[..start]).unwrap();
        let clean = ["\n", "\x1b[2K", "\x1b[K", "\x1b[2K\x1b[1A"]
            .iter()
            .any(|end| line.ends_with(end));
        assert!(
            line.is_empty() || clean,
            "a torn line: {:?}\n{run}",
            &before[at.saturating_sub(200)..]
        );
        logged += 1;
    }
    assert!(logged > 10, "{run}");
    // The result is a table of its own, below.
    assert!(run.stdout.contains("HOST"), "{run}");
}

#[test]
fn a_wait_says_for_what_and_what_was_seen() {
    let lab = lab!();
    let name = "lt-waits";
    let _instance = lab.instance(name);
    let create = [
        "create",
        "--zone",
        "nas1",
        "--image",
        "tiny",
        "--name",
        name,
        "--wait=port:9",
        "--timeout",
    ];
    let run = lab.run(&[&create[..], &["15s"]].concat()).exits(4);
    let lines: Vec<&str> = run
        .stderr
        .lines()
        .filter(|line| line.starts_with("lt-waits: waiting for port 9: "))
        .collect();
    // At once, and each 10 s.
    assert!((2..=3).contains(&lines.len()), "{run}");
    assert!(
        lines[0].ends_with(" s)") && lines[0].contains("arp"),
        "{run}"
    );
    let made = "it was made and kept as hosts/nas1/domains/lt-waits";
    assert!(run.stderr.contains(made), "{run}");
    let run = lab
        .run(&[&create[..], &["3s", "--progress", "json", "-o", "json"]].concat())
        .exits(4);
    let events = events(&run.stderr);
    let of = |event: &str| events.iter().find(|found| found["event"] == event).cloned();
    let wait = of("wait").unwrap_or_else(|| panic!("no wait\n{run}"));
    assert_eq!(
        (&wait["for"], &wait["instance"]),
        (&"port 9".into(), &name.into())
    );
    let error = of("error").unwrap();
    assert_eq!(error["reason"], "NotReady", "{run}");
    let hints = error["hints"].to_string();
    assert!(hints.contains("was there already, and was kept"), "{run}");
    assert!(!hints.contains("it was made"), "{run}");
    // On a terminal, one line that is redrawn.
    let run = lab
        .cli()
        .run_on_terminal(&[&create[..], &["3s"]].concat())
        .exits(4);
    assert!(run.stdout.contains("waiting for port 9"), "{run}");
}

#[test]
fn an_instance_whose_wait_fails_is_printed_beside_the_error() {
    let lab = lab!();
    let name = "lt-kept";
    let _instance = lab.instance(name);
    let create = |more: &[&'static str]| {
        let line = ["create", "--zone", "nas1", "--image", "tiny", "--name"];
        [&line[..], &[name, "--wait=port:9", "--timeout"], more].concat()
    };
    let named = lab.run(&create(&["1s", "-o", "name"])).exits(4);
    named.prints_only("lt-kept\n").says("wasn't ready within");
    lab.run(&create(&["1s"])).exits(4).prints("lt-kept");
    let json = ["60s", "-o", "json"];
    let run = lab.run(&create(&["1s", "-o", "json"])).exits(4);
    assert_eq!(run.item()["name"], name, "{run}");
    assert_eq!(run.json()["errors"][0]["reason"], "NotReady", "{run}");
    // An interrupt ends the wait and not the instance.
    let waiting = lab.cli().start(&create(&json));
    std::thread::sleep(std::time::Duration::from_secs(4));
    let run = waiting.interrupt().unwrap().exits(130);
    assert_eq!(run.item()["name"], name, "{run}");
    // As it was seen last.
    let waiting = lab.cli().start(&create(&json));
    std::thread::sleep(std::time::Duration::from_secs(4));
    lab.virsh("nas1", &["destroy", name]);
    let run = waiting.wait().exits(1);
    assert_eq!(run.item()["state"], "Stopped", "{run}");
    assert_eq!(run.errors()[0]["reason"], "NotRunning", "{run}");
    // Of one that is gone there is nothing to show.
    let waiting = lab.cli().start(&create(&json));
    std::thread::sleep(std::time::Duration::from_secs(4));
    // In this order it is never seen shut off.
    lab.virsh("nas1", &["undefine", "--nvram", name]);
    lab.virsh("nas1", &["destroy", name]);
    let run = waiting.wait().exits(4);
    assert!(run.items().is_empty(), "{run}");
}
