//! Creating what is there already: the same is left alone, another is refused, and what isn't applied is said.

use std::time::Duration;

use serde_json::{Value, json};

use crate::crash::faulty;
use crate::generations::Served;
use crate::instances::{create, fingerprint};
use crate::lab;
use crate::support::wait_until;

#[test]
fn a_second_create_does_nothing_but_see_that_it_runs() {
    let lab = lab!();
    let name = "lt-again";
    let _instance = lab.instance(name);
    let first = lab.run(&create(name, &["-o", "json"])).exits(0);
    let before = fingerprint(&lab, "nas1", name);
    let second = lab
        .run(&create(name, &["-o", "json"]))
        .exits(0)
        .says_nothing();
    assert_eq!(second.item(), first.item());
    assert_eq!(
        fingerprint(&lab, "nas1", name),
        before,
        "nothing may change"
    );
    // What isn't part of the spec is no other instance; but it isn't applied either, and that is said.
    lab.run(&create(name, &["--label", "a=b", "--ttl", "1h"]))
        .exits(0)
        .says("without a=b")
        .says("never expires");
    assert_eq!(fingerprint(&lab, "nas1", name), before);

    lab.virsh("nas1", &["destroy", name]);
    let restarted = lab.run(&create(name, &["-o", "json"])).exits(0);
    assert_eq!(
        restarted.item()["uuid"],
        first.item()["uuid"],
        "{restarted}"
    );
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
    lab.virsh("nas1", &["suspend", name]);
    let paused = lab.run(&["get", name, "-o", "json"]).exits(0);
    assert_eq!(paused.item()["state"], "Stopped", "{paused}");
    assert!(
        paused.item()["domainState"]
            .as_str()
            .unwrap()
            .starts_with("paused"),
        "{paused}"
    );
    let resumed = lab.run(&create(name, &["-o", "json"])).exits(0);
    assert_eq!(resumed.item()["domainState"], "running", "{resumed}");
    lab.virsh("nas1", &["managedsave", name]);
    lab.run(&create(name, &[])).exits(0);
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
}

/// A boot sector that has the machine sleep in memory at its first run (bit 13 and type 1 in the power management's
/// register at 0x604), which it notes in the battery-backed memory; from then on it idles.
const SLEEPER: &[u8] = &[
    0xb0, 0x50, 0xe6, 0x70, 0xe4, 0x71, 0x3c, 0x5a, 0x74, 0x0f, 0xb0, 0x50, 0xe6, 0x70, 0xb0, 0x5a,
    0xe6, 0x71, 0xba, 0x04, 0x06, 0xb8, 0x00, 0x24, 0xef, 0xf4, 0xeb, 0xfd,
];

#[test]
fn a_guest_that_sleeps_is_woken() {
    let lab = lab!();
    let name = "lt-sleeper";
    let (_instance, _image) = (lab.instance(name), lab.image(name));
    let mut disk = SLEEPER.to_vec();
    disk.resize(1 << 20, 0);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let _served = Served::new(&lab, "lt-sleeper.raw", &disk);
    let cli = lab.cli_with(|kvm| {
        kvm["images"][name] = json!({
            "url": lab.url("/lt-sleeper.raw"), "format": "raw", "firmware": "bios",
        });
    });
    let create = [
        "create", "--zone", "nas1", "--image", name, "--name", name, "-o", "json",
    ];
    let first = cli.run(&create).exits(0);
    let state = || lab.virsh("nas1", &["domstate", name]).trim().to_owned();
    wait_until("it sleeps", Duration::from_secs(60), || {
        state() == "pmsuspended"
    });
    let run = cli.run(&["logs", name, "-o", "json"]).exits(1);
    run.says("pmsuspended").says("egressctl create");
    let woken = cli.run(&create).exits(0);
    assert_eq!(woken.item()["domainState"], "running", "{woken}");
    assert_eq!(woken.item()["uuid"], first.item()["uuid"], "{woken}");
    assert_eq!(state(), "running");
}

#[test]
fn another_spec_under_the_same_name_is_refused_with_what_differs() {
    let lab = lab!();
    let name = "lt-differs";
    let _instance = lab.instance(name);
    let file = lab.write("user-data", "#cloud-config\nhostname: other\n");
    let file = file.to_str().unwrap();
    lab.run(&create(name, &["--uid", "one"])).exits(0);
    let before = fingerprint(&lab, "nas1", name);
    let table: [(&[&str], &str); 4] = [
        (&["--machine-type", "medium"], "medium"),
        (&["--disk-size", "5"], "5"),
        (&["--user-data", file], "user-data"),
        (&["--uid", "two"], "its uid is one, not two"),
    ];
    for (more, told) in table {
        let run = lab
            .run(&create(name, &[more, &["-o", "json"]].concat()))
            .exits(1);
        let run = run.fails_with(
            "InstanceDiffers",
            &format!("egressctl delete hosts/nas1/domains/{name}"),
        );
        assert!(
            run.errors()[0]["causes"].to_string().contains(told),
            "{told}\n{run}"
        );
        assert_eq!(fingerprint(&lab, "nas1", name), before, "{more:?}");
    }
    let run = lab.run(&create(name, &["--image", "debian-13", "--disk-size", "4"])[..]);
    let _ = run.exits(2).says("--image"); // given twice
    // The same uid is the same instance, whatever else is asked for; but that is said.
    lab.run(&create(name, &["--uid", "one", "--machine-type", "medium"]))
        .exits(0)
        .says("machine type is small, not medium");
    assert_eq!(fingerprint(&lab, "nas1", name), before);
}

#[test]
fn what_a_repeated_create_does_not_apply_is_said() {
    let lab = lab!();
    let name = "lt-again";
    let _instance = lab.instance(name);
    let first = ["--ttl", "5h", "--label", "team=search", "--label", "tier=1"];
    lab.run(&create(name, &first))
        .exits(0)
        .never_says("was there already");
    let again = |more: &[&str]| lab.run(&create(name, more)).exits(0);
    // The same, and less.
    again(&first).never_says("was there already");
    again(&["--label", "tier=1"]).never_says("was there already");
    again(&[]).never_says("was there already");
    // Another, and more.
    again(&["--ttl", "9h"])
        .says("expires at 20")
        .says(&format!("egressctl extend hosts/nas1/domains/{name} 9h"));
    again(&["--label", "team=mail", "--label", "tier=1"])
        .says("without team=mail;")
        .says(&format!("egressctl delete hosts/nas1/domains/{name}"));
    let run = again(&[
        "--label",
        "new=1",
        "--ttl",
        "90m",
        "--progress",
        "json",
        "-o",
        "json",
    ]);
    let notes: Vec<Value> = run
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Value| event["event"] == "note")
        .collect();
    assert_eq!(notes.len(), 2, "{run}");
    assert_eq!(run.item()["labels"], json!({"team": "search", "tier": "1"}));
    again(&["--ttl", "9h", "--quiet"]).says_nothing();
    lab.run(&["extend", name, "--never"]).exits(0);
    again(&first).says("never expires");
}

/// A run without it would be an error, and a script that repeats it would make another one.
#[test]
fn an_instance_that_cannot_be_read_back_is_printed_as_it_was_defined() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-unread";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    // The first time its XML is asked for is after the start.
    let blind = lab.cli().binary(binary);
    let blind = blind.env("EGRESSCTL_FAULT", "error:virDomainGetXMLDesc:1");
    let made = blind.run(&create(name, &["-o", "json"])).exits(0);
    let found = lab.run(&["get", name, "-o", "json"]).exits(0);
    assert_eq!(made.item(), found.item(), "{made}\n{found}");
}
