//! A host far away: uploads over several lanes, each range where it belongs, and nothing left of one that was broken off.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::Cli;
use crate::crash::faulty;
use crate::lab;
use crate::support::{Cleanup, Lab, POOL_DIR, wait_until};

const KEY: &str = "lt-far";

/// The image's size in bytes: a few lanes' ranges, the last of them not a whole one.
const SIZE: usize = (24 << 20) + 1234;

/// A raw disk on the image server whose every block differs from the others, and its digest.
fn publish(lab: &Lab) -> String {
    let mut state = 1_u32;
    let mut bytes = Vec::with_capacity(SIZE);
    while bytes.len() < SIZE {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(SIZE);
    // A boot sector's signature.
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    let file = lab.path("www/lt-far.raw");
    std::fs::write(&file, bytes).unwrap();
    let sum = lab.on("nas1", &format!("sha256sum {}", file.display()));
    sum.split_whitespace().next().unwrap().to_owned()
}

/// nas1 at some distance, in milliseconds each way, and egressctl that goes to it over that way only.
fn far<'a>(lab: &'a Lab, one_way: &str, path: &str, sha256: &str) -> (Cli, Cleanup<'a>) {
    lab.lab(&["slow", "nas1", one_way]);
    let guard = Cleanup::later(|| drop(lab.lab(&["fast", "nas1"])));
    let text = std::fs::read_to_string(lab.path("providers-slow.yaml")).unwrap();
    let slow: Value = serde_saphyr::from_str(&text).unwrap();
    let cli = lab.cli_with(|kvm| {
        let mut host = slow["providers"][0]["kvm"]["hosts"][0].clone();
        assert_eq!(host["name"], "nas1");
        host["name"] = json!("far");
        kvm["hosts"] = json!([host]);
        kvm["images"][KEY] = json!({
            "url": lab.url(path), "sha256": sha256, "format": "raw", "firmware": "bios",
        });
    });
    (cli, guard)
}

#[test]
fn several_lanes_store_the_same_bytes() {
    let lab = lab!();
    let _image = lab.image(KEY);
    let sha256 = publish(&lab);
    let (cli, _far) = far(&lab, "10", "/lt-far.raw", &sha256);
    let run = cli
        .run(&["-vv", "image", "pull", KEY])
        .exits(0)
        .says("small answers are to come at once");
    let used = run.stderr.split("lanes used: ").nth(1).unwrap();
    assert!(!used.starts_with("1\n"), "{run}");
    assert_stored(&lab, &sha256);
}

/// Fails unless the pool has the published bytes, and nothing of the pull but these and their marker.
#[track_caller]
fn assert_stored(lab: &Lab, sha256: &str) {
    let stored = lab.on(
        "nas1",
        &format!("cd {POOL_DIR} && sha256sum < $(ls base-{KEY}-*.raw)"),
    );
    assert_eq!(stored.split_whitespace().next(), Some(sha256));
    let volumes = lab.volumes("nas1", &format!("base-{KEY}"));
    assert_eq!(volumes.len(), 2, "base and marker: {volumes:?}");
}

#[test]
fn ranges_that_are_refused_as_in_use_are_asked_for_again() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let _image = lab.image(KEY);
    let sha256 = publish(&lab);
    let (cli, _far) = far(&lab, "10", "/lt-far.raw", &sha256);
    let cli = cli.binary(binary);
    let cli = cli.env("EGRESSCTL_FAULT", "busy:virStorageVolUpload:9");
    cli.run(&["image", "pull", KEY])
        .exits(0)
        .says("fault injected: busy");
    assert_stored(&lab, &sha256);
}

#[test]
fn lanes_that_are_broken_off_leave_nothing() {
    let lab = lab!();
    let _image = lab.image(KEY);
    let sha256 = publish(&lab);
    let (cli, _far) = far(&lab, "10", "/slow/6000000/lt-far.raw", &sha256);
    let running = cli.start(&["image", "pull", KEY]);
    let has_base = || {
        let volumes = lab.volumes("nas1", &format!("base-{KEY}"));
        volumes
            .iter()
            .any(|name| name.strip_suffix(".raw").is_some())
    };
    wait_until("the base is begun", Duration::from_secs(20), has_base);
    std::thread::sleep(Duration::from_millis(500));
    running.signal("INT");
    let _ = running.wait().exits(130);
    let left = lab.volumes("nas1", &format!("base-{KEY}"));
    assert!(left.is_empty(), "{left:?}");
}
