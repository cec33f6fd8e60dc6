//! Crashes: what a create left at each of its steps, from which a second create or a delete converges.

use std::time::Duration;

use serde_json::json;

use crate::crash::revive;
use crate::instances::{create, fingerprint, seed_file};
use crate::lab;
use crate::support::{Lab, POOL_DIR};

/// Undefines the domain by hand, as a crash before that step would leave things.
fn undefine(lab: &Lab, name: &str) {
    lab.virsh("nas1", &["destroy", name]);
    lab.virsh("nas1", &["undefine", name, "--nvram"]);
}

fn delete_volume(lab: &Lab, name: &str) {
    lab.virsh("nas1", &["vol-delete", "--pool", "default", name]);
}

#[test]
fn delete_removes_what_is_left_without_a_domain() {
    let lab = lab!();
    let name = "lt-left";
    let _instance = lab.instance(name);
    let both = json!(["volume lt-left.qcow2", "volume lt-left-seed.iso"]);
    for (gone, deleted) in [
        (None, both),
        (Some("lt-left.qcow2"), json!(["volume lt-left-seed.iso"])),
    ] {
        lab.run(&create(name, &[])).exits(0);
        undefine(&lab, name);
        if let Some(volume) = gone {
            delete_volume(&lab, volume);
        }
        let run = lab
            .run(&["delete", name, "-o", "json"])
            .exits(0)
            .says_nothing();
        assert_eq!(run.item()["deleted"], deleted, "{run}");
        assert!(lab.volumes("nas1", name).is_empty());
        lab.run(&["delete", name]).exits(0).prints("already absent");
    }
}

#[test]
fn delete_works_when_volumes_are_gone_already() {
    let lab = lab!();
    let name = "lt-hollow";
    let _instance = lab.instance(name);
    for gone in [
        ["lt-hollow.qcow2"].as_slice(),
        &["lt-hollow-seed.iso"],
        &["lt-hollow.qcow2", "lt-hollow-seed.iso"],
    ] {
        lab.run(&create(name, &[])).exits(0);
        lab.virsh("nas1", &["destroy", name]);
        for volume in gone {
            delete_volume(&lab, volume);
        }
        lab.run(&["delete", name])
            .exits(0)
            .prints("domain lt-hollow");
        assert!(!lab.has_domain("nas1", name), "{gone:?}");
        assert!(lab.volumes("nas1", name).is_empty(), "{gone:?}");
    }
}

#[test]
fn create_takes_over_from_one_that_died_at_any_step() {
    let lab = lab!();
    let name = "lt-crash";
    let _instance = lab.instance(name);
    let file = lab.write("user-data", "#cloud-config\nhostname: new\n");
    let table: [(&str, &[&str]); 2] = [
        ("seed and overlay", &[]),
        ("only the seed", &["lt-crash.qcow2"]),
    ];
    for (step, gone) in table {
        lab.run(&create(name, &[])).exits(0);
        undefine(&lab, name);
        for volume in gone {
            delete_volume(&lab, volume);
        }
        let old = seed_file(&lab, name, "meta-data");
        // Its maker was a process of this machine: nobody has to wait until it counts as dead.
        let again = create(name, &["--user-data", file.to_str().unwrap()]);
        lab.run(&again).exits(0).within(Duration::from_secs(22));
        assert_eq!(
            lab.virsh("nas1", &["domstate", name]).trim(),
            "running",
            "{step}"
        );
        assert_ne!(
            seed_file(&lab, name, "meta-data"),
            old,
            "{step}: an existing seed is rebuilt"
        );
        assert_eq!(
            seed_file(&lab, name, "user-data"),
            b"#cloud-config\nhostname: new\n",
            "{step}"
        );
        lab.run(&["delete", name]).exits(0);
        assert!(lab.volumes("nas1", name).is_empty(), "{step}");
    }
    lab.run(&create(name, &[])).exits(0);
    lab.virsh("nas1", &["destroy", name]);
    let before = lab.virsh("nas1", &["domuuid", name]);
    lab.run(&create(name, &[])).exits(0);
    assert_eq!(
        lab.virsh("nas1", &["domstate", name]).trim(),
        "running",
        "defined, but not started"
    );
    assert_eq!(lab.virsh("nas1", &["domuuid", name]), before);
}

#[test]
fn a_seed_that_was_never_written_is_replaced_after_a_while() {
    let lab = lab!();
    let name = "lt-empty";
    let _instance = lab.instance(name);
    // Whose it is can't be known: a maker that is slow must get its time.
    lab.virsh(
        "nas1",
        &[
            "vol-create-as",
            "default",
            "lt-empty-seed.iso",
            "100K",
            "--format",
            "raw",
        ],
    );
    let run = lab
        .run(&create(name, &[]))
        .exits(0)
        .within(Duration::from_secs(45));
    assert!(run.took >= Duration::from_secs(5), "{run}");
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
    lab.run(&["delete", name]).exits(0);
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn what_is_named_like_a_seed_and_cant_be_an_unwritten_one_is_somebody_elses() {
    let lab = lab!();
    let name = "lt-no-seed";
    let _instance = lab.instance(name);
    let file = format!("{POOL_DIR}/{name}-seed.iso");
    let stat = || lab.on("nas1", &format!("stat -c '%i %s %Y %Z' {file}"));
    let late = format!(
        "truncate -s 100K {file}; echo x | dd of={file} seek=90 bs=1K conv=notrunc status=none"
    );
    for make in [
        format!(": >{file}"),
        format!("truncate -s 30K {file}"),
        late,
    ] {
        lab.on("nas1", &format!("{make}; virsh -q pool-refresh default"));
        let before = stat();
        let refused = |more: &[&str]| {
            let run = lab.run(&create(name, &[&["-o", "json"], more].concat()));
            run.exits(1).fails_with("ForeignDomain", "another --name");
        };
        refused(&["--dry-run"]);
        // What is shorter than any seed is known at once; for another one's maker there is some patience.
        refused(&[]);
        lab.run(&["delete", name]).exits(1).says("was left alone");
        let gc = ["gc", "--min-age", "0s", "--zone", "nas1"];
        lab.run(&gc).exits(0).prints_only("");
        assert_eq!(stat(), before, "{make}");
        lab.on("nas1", &format!("rm {file}; virsh -q pool-refresh default"));
    }
}

#[test]
fn creates_of_one_name_at_once_make_one_instance() {
    let lab = lab!();
    let name = "lt-race";
    let _instance = lab.instance(name);
    let cli = lab.cli();
    for _ in 0..3 {
        let args = create(name, &["-o", "json"]);
        let running: Vec<_> = (0..4).map(|_| cli.start(&args)).collect();
        let uuids: Vec<_> = running
            .into_iter()
            .map(|run| run.wait().exits(0).item()["uuid"].clone())
            .collect();
        assert!(uuids.iter().all(|uuid| *uuid == uuids[0]), "{uuids:?}");
        assert_eq!(lab.virsh("nas1", &["domuuid", name]).trim(), uuids[0]);
        assert_eq!(
            lab.volumes("nas1", name),
            ["lt-race-seed.iso", "lt-race.qcow2"]
        );
        let running: Vec<_> = (0..3).map(|_| cli.start(&["delete", name])).collect();
        for run in running {
            run.wait().exits(0);
        }
        assert!(!lab.has_domain("nas1", name));
        assert!(lab.volumes("nas1", name).is_empty());
    }
}

#[test]
fn whenever_a_create_is_killed_the_next_one_converges() {
    let lab = lab!();
    let name = "lt-kill";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    let cli = lab.cli();
    for after in [60, 100, 140, 180, 230, 300, 400, 600] {
        let running = cli.start(&create(name, &[]));
        std::thread::sleep(Duration::from_millis(after));
        running.kill();
        revive(&lab, "nas1");
        let left = lab.volumes("nas1", name);
        let run = lab
            .run(&create(name, &["-o", "json"]))
            .exits(0)
            .within(Duration::from_secs(45));
        assert_eq!(
            run.item()["domainState"],
            "running",
            "killed after {after} ms, left {left:?}\n{run}"
        );
        let before = fingerprint(&lab, "nas1", name);
        lab.run(&create(name, &[])).exits(0);
        assert_eq!(
            fingerprint(&lab, "nas1", name),
            before,
            "killed after {after} ms"
        );
        lab.run(&["delete", name]).exits(0);
        assert!(
            !lab.has_domain("nas1", name) && lab.volumes("nas1", name).is_empty(),
            "{after} ms"
        );
    }
}

#[test]
fn an_interrupted_create_takes_everything_back_or_is_done() {
    let lab = lab!();
    let name = "lt-int";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    let cli = lab.cli();
    let mut interrupted = 0;
    for after in [0, 30, 60, 90, 120, 150, 180, 210, 240, 270] {
        let running = cli.start(&create(name, &[])).listening();
        std::thread::sleep(Duration::from_millis(after));
        let Some(run) = running.interrupt() else {
            lab.run(&["delete", name]).exits(0);
            continue;
        };
        let run = run.exits(130);
        interrupted += 1;
        assert!(!lab.has_domain("nas1", name), "after {after} ms\n{run}");
        assert!(
            lab.volumes("nas1", name).is_empty(),
            "after {after} ms\n{run}"
        );
    }
    assert!(
        interrupted > 0,
        "every create was faster than its interrupt"
    );
}

#[test]
fn a_create_that_fails_takes_everything_back() {
    let lab = lab!();
    let name = "lt-undo";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    // No tap device can be made: the start fails, the last of all steps.
    let _tun = lab.change(
        "nas1",
        "mount --bind /dev/null /dev/net/tun",
        "umount /dev/net/tun",
    );
    let run = lab.run(&create(name, &[]));
    let run = run
        .exits(4)
        .says("starting domain lt-undo")
        .never_says("left behind");
    assert!(!lab.has_domain("nas1", name), "{run}");
    assert!(lab.volumes("nas1", name).is_empty(), "{run}");
}

#[test]
fn a_definition_that_came_late_is_replaced_by_a_whole_instance() {
    let lab = lab!();
    let (name, key) = ("lt-late", "lt-late");
    let (_image, _instance) = (lab.image(key), lab.instance(name));
    let cli = crate::pull::with_image(&lab, key, "/tiny.qcow2?lt-late");
    let args = ["create", "--zone", "nas1", "--image", key, "--name", name];
    cli.run(&args).exits(0);
    // As libvirtd leaves it that carries out a definition after its client gave up and took the volumes back.
    lab.virsh("nas1", &["destroy", name]);
    delete_volume(&lab, "lt-late.qcow2");
    delete_volume(&lab, "lt-late-seed.iso");
    let hollow = lab.virsh("nas1", &["domuuid", name]);
    cli.run(&args)
        .exits(0)
        .says("warning: nas1: the disk of lt-late was gone: it is made anew");
    assert_ne!(lab.virsh("nas1", &["domuuid", name]), hollow);
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
    // A pool that has lost everything may be a file system that isn't mounted: then it stays.
    lab.virsh("nas1", &["destroy", name]);
    let hide = format!("mkdir -p /run/lt-hidden && mv {POOL_DIR}/*lt-late* /run/lt-hidden");
    lab.on("nas1", &hide);
    let show = format!("mv /run/lt-hidden/* {POOL_DIR}; virsh -q pool-refresh default");
    let before = lab.virsh("nas1", &["dumpxml", name]);
    let run = cli.run(&[&args[..], &["-o", "json"]].concat()).exits(1);
    run.fails_with(
        "InDoubt",
        "is the file system of storage pool default mounted?",
    );
    assert_eq!(lab.virsh("nas1", &["dumpxml", name]), before);
    lab.on("nas1", &show);
    cli.run(&args).exits(0).says_nothing();
    lab.run(&["delete", name]).exits(0);
    assert!(!lab.has_domain("nas1", name) && lab.volumes("nas1", name).is_empty());
}
