//! Pulling images that are as they should be: one download for all hosts, every byte, only once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::{Checked, Cli};
use crate::crash::revive;
use crate::lab;
use crate::support::{HOSTS, Lab, POOL_DIR, wait_until};
use crate::terminal::Terminal;

/// Adds an image with the bytes of `tiny`, served under a path that no other test asks for.
pub(crate) fn add_image(lab: &Lab, kvm: &mut Value, key: &str, path: &str) {
    let mut image = lab.tiny();
    image["url"] = json!(lab.url(path));
    kvm["images"][key] = image;
}

/// egressctl with one such image.
pub(crate) fn with_image(lab: &Lab, key: &str, path: &str) -> Cli {
    lab.cli_with(|kvm| add_image(lab, kvm, key, path))
}

/// Fails unless the host has this image: base and marker and nothing else, every byte as published.
#[track_caller]
pub(crate) fn assert_ready(lab: &Lab, host: &str, key: &str) {
    let volumes = lab.volumes(host, &format!("base-{key}-"));
    let [base, marker] = &volumes[..] else {
        panic!("{host}: base and marker were expected: {volumes:?}");
    };
    assert_eq!(*marker, format!("{base}.sha256"), "{host}");
    let wanted = lab.tiny()["sha256"].as_str().unwrap().to_owned();
    let sums = lab.on(
        host,
        &format!("cd {POOL_DIR} && sha256sum < {base} && head -c 64 {marker}"),
    );
    assert_eq!(
        sums,
        format!("{wanted}  -\n{wanted}"),
        "{host}: base and marker"
    );
    let size = std::fs::metadata(lab.path("www/tiny.qcow2")).unwrap().len();
    let stored = lab.on(host, &format!("stat -c %s {POOL_DIR}/{base}"));
    assert_eq!(stored.trim(), size.to_string(), "{host}");
}

#[track_caller]
pub(crate) fn assert_absent(lab: &Lab, key: &str) {
    for host in HOSTS {
        let left = lab.volumes(host, &format!("base-{key}"));
        assert!(left.is_empty(), "{host}: nothing should be left: {left:?}");
    }
}

pub(crate) fn is_base(volume: &str) -> bool {
    volume.strip_suffix(".qcow2").is_some()
}

fn is_marker(volume: &str) -> bool {
    volume.strip_suffix(".qcow2.sha256").is_some()
}

fn results(items: &[Value]) -> Vec<(&str, bool)> {
    let result = |item| -> (&str, bool) {
        let item: &Value = item;
        (
            item["host"].as_str().unwrap(),
            item["pulled"].as_bool().unwrap(),
        )
    };
    items.iter().map(result).collect()
}

#[test]
fn one_download_serves_all_hosts_and_the_next_pull_needs_none() {
    let lab = lab!();
    let (key, path) = ("lt-once", "/tiny.qcow2?lt-once");
    let _image = lab.image(key);
    let cli = with_image(&lab, key, path);
    let before = lab
        .served(path)
        .map_or((0, 0), |served| (served.requests, served.bytes));
    let size = std::fs::metadata(lab.path("www/tiny.qcow2")).unwrap().len();

    let first = cli.run(&["image", "pull", key, "-o", "json"]).exits(0);
    assert_eq!(
        results(&first.items()),
        [("nas1", true), ("nas2", true)],
        "{first}"
    );
    for item in first.items() {
        assert_eq!(item["sizeBytes"], size, "{first}");
        assert_eq!(item["sha256"], lab.tiny()["sha256"], "{first}");
        assert_eq!(item["verifiedAgainst"], "sha256", "{first}");
    }
    let served = lab.served(path).unwrap();
    assert_eq!(
        (served.requests - before.0, served.bytes - before.1),
        (1, size),
        "{served:?}"
    );
    assert_eq!((served.heads, served.ranges), (0, 0), "{served:?}");
    for host in HOSTS {
        assert_ready(&lab, host, key);
    }

    let second = cli
        .run(&["image", "pull", key, "-o", "json"])
        .exits(0)
        .says_nothing();
    assert_eq!(
        results(&second.items()),
        [("nas1", false), ("nas2", false)],
        "{second}"
    );
    assert_eq!(
        lab.served(path).unwrap(),
        served,
        "the second pull asked the server"
    );
}

#[test]
fn only_the_hosts_without_the_image_get_it() {
    let lab = lab!();
    let (key, path) = ("lt-second", "/tiny.qcow2?lt-second");
    let _image = lab.image(key);
    let cli = with_image(&lab, key, path);
    cli.run(&["image", "pull", key, "--zone", "nas2"])
        .exits(0)
        .prints("pulled");
    assert!(lab.volumes("nas1", &format!("base-{key}")).is_empty());
    let all = cli.run(&["image", "pull", key, "-o", "json"]).exits(0);
    assert_eq!(
        results(&all.items()),
        [("nas1", true), ("nas2", false)],
        "{all}"
    );
    assert_ready(&lab, "nas1", key);
    let table = cli.run(&["image", "pull", key]).exits(0);
    let lines: Vec<Vec<&str>> = table
        .stdout
        .lines()
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    assert_eq!(
        lines,
        [
            ["HOST", "IMAGE", "RESULT"],
            ["nas1", key, "present"],
            ["nas2", key, "present"]
        ]
    );
}

#[test]
fn odd_but_right_deliveries_arrive_whole() {
    let lab = lab!();
    let table = [
        ("lt-chunked", "/chunked/tiny.qcow2"),
        ("lt-close", "/close/tiny.qcow2"),
        ("lt-redirect", "/redirect/tiny.qcow2"),
        ("lt-noetag", "/noetag/norange/tiny.qcow2"),
    ];
    for (key, path) in table {
        let _image = lab.image(key);
        with_image(&lab, key, path)
            .run(&["image", "pull", key])
            .exits(0)
            .prints("pulled");
        for host in HOSTS {
            assert_ready(&lab, host, key);
        }
    }
}

#[test]
fn a_dropped_download_goes_on_where_it_broke_off() {
    let lab = lab!();
    let key = "lt-resumed";
    // The server breaks off a path's first request: a path of this run's own, within the image's 8 MiB.
    let stop = 3_000_000 + std::process::id() % 5_000_000;
    for how in ["truncate", "reset"] {
        let _image = lab.image(key);
        let path = format!("/first/1/{how}/{stop}/tiny.qcow2");
        with_image(&lab, key, &path)
            .run(&["image", "pull", key])
            .exits(0)
            .prints("pulled");
        assert_ready(&lab, "nas1", key);
        let served = lab.served(&path).unwrap();
        assert_eq!(
            (served.requests, served.ranges),
            (2, 1),
            "{how}: {served:?}"
        );
    }
}

#[test]
fn an_unpinned_image_is_pulled_with_a_warning_and_known_again() {
    let lab = lab!();
    let (key, path) = ("lt-unpinned", "/tiny.qcow2?lt-unpinned");
    let _image = lab.image(key);
    let cli = lab.cli_with(|kvm| {
        add_image(&lab, kvm, key, path);
        kvm["images"][key].as_object_mut().unwrap().remove("sha256");
    });
    let first = cli.run(&["image", "pull", key, "-o", "json"]).exits(0);
    let first = first.says("warning:").says("without a checksum");
    assert_eq!(
        results(&first.items()),
        [("nas1", true), ("nas2", true)],
        "{first}"
    );
    assert_eq!(first.items()[0]["verifiedAgainst"], "nothing", "{first}");
    for host in HOSTS {
        assert_ready(&lab, host, key);
    }
    let second = cli
        .run(&["image", "pull", key, "-o", "json"])
        .exits(0)
        .says("without a checksum");
    assert_eq!(
        results(&second.items()),
        [("nas1", false), ("nas2", false)],
        "{second}"
    );
    assert_eq!(first.items()[0]["volume"], second.items()[0]["volume"]);
}

#[test]
fn a_published_checksum_file_pins_an_image() {
    let lab = lab!();
    let key = "lt-sums";
    let _image = lab.image(key);
    let file = lab.path("www/lt-SHA256SUMS");
    let _file = crate::support::Cleanup::later(|| drop(std::fs::remove_file(&file)));
    let cli = lab.cli_with(|kvm| {
        add_image(&lab, kvm, key, "/tiny.qcow2?lt-sums");
        let image = kvm["images"][key].as_object_mut().unwrap();
        image.remove("sha256");
        image.insert("checksumUrl".into(), json!(lab.url("/lt-SHA256SUMS")));
    });
    std::fs::write(&file, format!("{}  tiny.qcow2\n", "0".repeat(64))).unwrap();
    cli.run(&["image", "pull", key, "-o", "json"])
        .exits(1)
        .fails_with("ChecksumMismatch", "");
    assert_absent(&lab, key);
    let right = lab.tiny()["sha256"].as_str().unwrap().to_owned();
    std::fs::write(
        &file,
        format!("{}  other.qcow2\n{right} *tiny.qcow2\n", "0".repeat(64)),
    )
    .unwrap();
    let run = cli
        .run(&["image", "pull", key, "-o", "json"])
        .exits(0)
        .never_says("without a checksum");
    assert_eq!(run.items()[0]["verifiedAgainst"], "sha256", "{run}");
    assert_ready(&lab, "nas2", key);
}

#[test]
fn of_pulls_at_once_one_downloads_and_all_have_it() {
    let lab = lab!();
    // To one host there is one download. To two, each may be another run's to feed: never more than two.
    let table = [
        ("lt-one", vec!["--zone", "nas1"], 1..=1),
        ("lt-two", vec![], 1..=2),
    ];
    for (key, zones, downloads) in table {
        let path = format!("/slow/4000000/tiny.qcow2?{key}");
        let _image = lab.image(key);
        let cli = with_image(&lab, key, &path);
        let before = lab.served(&path).map_or(0, |served| served.requests);
        let pull = [&["image", "pull", key, "-o", "json"], &zones[..]].concat();
        let running = [cli.start(&pull), cli.start(&pull), cli.start(&pull)];
        let ended: Vec<_> = running.into_iter().map(|run| run.wait().exits(0)).collect();
        let hosts = ended[0].items().len();
        for (at, host) in HOSTS.iter().enumerate().take(hosts) {
            let brought = |run: &&Checked| run.items()[at]["pulled"] == true;
            assert_eq!(
                ended.iter().filter(brought).count(),
                1,
                "{host}\n{}",
                ended[0]
            );
            assert_ready(&lab, host, key);
        }
        let served = lab.served(&path).unwrap();
        assert!(
            downloads.contains(&(served.requests - before)),
            "{key}: {served:?}"
        );
    }
}

#[test]
fn a_killed_pull_leaves_no_image_and_the_next_one_redoes_it() {
    let lab = lab!();
    let key = "lt-killed";
    let _image = lab.image(key);
    let slow = with_image(&lab, key, "/slow/1500000/tiny.qcow2?lt-killed");
    let has_base = || {
        lab.volumes("nas1", &format!("base-{key}"))
            .iter()
            .any(|name| is_base(name))
    };
    let running = slow.start(&["image", "pull", key, "--zone", "nas1"]);
    wait_until(
        "the base volume is begun",
        Duration::from_secs(10),
        has_base,
    );
    running.signal("KILL");
    let _ = running.wait().was_killed();
    revive(&lab, "nas1");
    let left = lab.volumes("nas1", &format!("base-{key}"));
    assert!(
        !left.iter().any(|name| is_marker(name)),
        "no marker: {left:?}"
    );
    assert!(
        left.iter().any(|name| is_base(name)),
        "the partial volume: {left:?}"
    );

    let whole = with_image(&lab, key, "/tiny.qcow2?lt-killed");
    // The dead process was one of this machine: nobody has to wait for a time limit.
    let again = whole
        .run(&["image", "pull", key, "--zone", "nas1", "-o", "json"])
        .exits(0);
    let again = again.within(Duration::from_secs(25));
    assert_eq!(results(&again.items()), [("nas1", true)], "{again}");
    assert_ready(&lab, "nas1", key);
}

/// Waits until a pull to these hosts has made its claims and base volumes.
fn begun(lab: &Lab, key: &str, hosts: &[&str]) {
    let begun = |host: &&str| lab.volumes(host, &format!("base-{key}")).len() >= 2;
    wait_until(
        "the base volumes are begun",
        Duration::from_secs(10),
        || hosts.iter().all(begun),
    );
}

#[test]
fn a_pull_whose_terminal_is_closed_takes_everything_back() {
    let lab = lab!();
    let key = "lt-closed";
    let (_image, _instance) = (lab.image(key), lab.instance(key));
    let temporary = lab.scratch("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let private = || std::fs::read_dir(&temporary).unwrap().count();
    let slow =
        with_image(&lab, key, "/slow/1500000/tiny.qcow2?lt-closed").env("TMPDIR", &temporary);
    let create = ["create", "--zone", "nas1", "--image", key, "--name", key];
    // Each with bars, which are drawn on the terminal that is gone, and the second one with lines above them.
    let table: [(&[&str], &[&str]); 3] = [
        (&["image", "pull", key], &HOSTS),
        (&["image", "pull", key, "-v"], &HOSTS),
        (&create, &HOSTS[..1]),
    ];
    for (args, hosts) in table {
        let mut terminal = Terminal::start_as_its_own(&slow, args);
        begun(&lab, key, hosts);
        terminal.expect(hosts[hosts.len() - 1]);
        assert!(private() > 0, "{args:?}");
        assert_eq!(terminal.close(), Some(129), "{args:?}");
        assert_eq!(private(), 0, "{args:?}");
        assert_absent(&lab, key);
        assert!(lab.volumes("nas1", key).is_empty(), "{args:?}");
    }
}

#[test]
fn an_interrupted_pull_takes_everything_back() {
    let lab = lab!();
    let key = "lt-interrupted";
    let _image = lab.image(key);
    let slow = with_image(&lab, key, "/slow/1500000/tiny.qcow2?lt-interrupted");
    // timeout(1) sends two within milliseconds: they aren't a wish to be gone at once.
    for (signals, code) in [(&["INT"][..], 130), (&["TERM"], 143), (&["TERM"; 2], 143)] {
        let running = slow.start(&["image", "pull", key]);
        begun(&lab, key, &HOSTS);
        for signal in signals {
            running.signal(signal);
        }
        let run = running.wait().exits(code);
        assert!(run.stdout.lines().count() <= 1, "{run}");
        assert_absent(&lab, key);
    }
}
