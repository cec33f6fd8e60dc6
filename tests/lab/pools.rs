//! Pools of other types than dir: those that can't hold overlays are refused by their type, before anything else.

use std::io::Write as _;

use serde_json::json;

use crate::cli::Cli;
use crate::lab;
use crate::refusals::everything;
use crate::support::{Cleanup, Lab};

pub(crate) fn with_pool(lab: &Lab, pool: &str) -> Cli {
    lab.cli_with(|kvm| kvm["hosts"][0]["pool"] = json!(pool))
}

/// What a host does that can't hold overlays, whether its pool is on or not.
fn is_refused(lab: &Lab, pool: &str, kind: &str) {
    let cli = with_pool(lab, pool);
    let run = cli.run(&["check", "--zone", "nas1", "-o", "json"]).exits(6);
    let problems = &run.item()["problems"];
    assert_eq!(problems.as_array().unwrap().len(), 1, "{run}");
    assert_eq!(problems[0]["reason"], "PoolTypeUnsupported", "{run}");
    let message = problems[0]["message"].to_string();
    assert!(message.contains(&format!("is of type {kind}")), "{run}");
    let json = ["--zone", "nas1", "-o", "json"];
    let table: [(&[&str], i32); 5] = [
        (&["image", "pull", "tiny"], 1),
        (&["create", "--image", "tiny", "--name", "lt-none"], 1),
        (
            &[
                "create",
                "--image",
                "tiny",
                "--name",
                "lt-none",
                "--dry-run",
            ],
            1,
        ),
        (&["image", "list"], 1),
        (&["image", "prune", "--older-than", "0s"], 1),
    ];
    for (args, code) in table {
        let run = cli.run(&[args, &json].concat()).exits(code);
        run.fails_with("PoolTypeUnsupported", "a pool of type dir, fs or netfs");
    }
    let gc = cli.run(&["gc", "--min-age", "0s"]).exits(4);
    gc.says("can't hold qcow2").says("nothing was deleted");
}

#[test]
fn pools_that_cannot_hold_overlays_are_refused_by_type_and_nothing_is_touched() {
    let lab = lab!();
    let name = "lt-typed";
    // Debian 12's libvirt has the drivers of these types all in one package.
    let _daemons = lab.daemons("nas1", "old");
    let _instance = lab.instance(name);
    lab.run(&crate::instances::create(name, &["--ttl", "1s"]))
        .exits(0);
    let types = [
        ("logical", "--source-name lt-vg --target /dev/lt-vg"),
        (
            "disk",
            "--source-dev /dev/lt-none --source-format gpt --target /dev",
        ),
        (
            "iscsi",
            "--source-host localhost --source-dev iqn.2020-01.test --target /dev/disk",
        ),
        ("scsi", "--adapter-name scsi_host1 --target /dev/disk"),
        ("mpath", "--target /dev/mapper"),
    ];
    let before = everything(&lab);
    for (kind, options) in types {
        let pool = format!("lt-{kind}");
        lab.on(
            "nas1",
            &format!("virsh -q pool-define-as {pool} {kind} {options}"),
        );
        is_refused(&lab, &pool, kind);
        let cli = with_pool(&lab, &pool);
        // What runs is found, and its volumes in the pool that they were made in.
        cli.run(&["get", name]).exits(0);
        cli.run(&["delete", name, "--dry-run"])
            .exits(0)
            .prints(&format!("volume {name}.qcow2, volume {name}-seed.iso"));
        assert_eq!(everything(&lab), before, "{kind}");
        assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
        if kind == "mpath" {
            // The only one of them that starts on any machine: it has no volumes here.
            lab.virsh("nas1", &["pool-start", &pool]);
            is_refused(&lab, &pool, kind);
            assert_eq!(everything(&lab), before, "{kind}");
            lab.virsh("nas1", &["pool-destroy", &pool]);
        }
        lab.virsh("nas1", &["pool-undefine", &pool]);
    }
    lab.run(&["delete", name]).exits(0);
}

#[test]
fn a_pool_on_a_file_system_of_its_own_is_used_and_its_loss_is_told() {
    let lab = lab!();
    let name = "lt-fs";
    let _instance = lab.instance(name);
    // The device lets go of the file by itself once it isn't mounted any more.
    let make = "mknod -m 660 /dev/loop-control c 10 237; for n in 0 1 2 3 4 5 6 7; do mknod -m 660 /dev/loop$n b 7 $n; done
         cd /var/lib/libvirt && truncate -s 64M lt-fs.img && mkfs.ext4 -q lt-fs.img && mkdir -p lt-fs
         device=$(losetup --find --show lt-fs.img) || exit 0
         virsh -q pool-define-as lt-fs fs --source-dev $device --source-format ext4 --target /var/lib/libvirt/lt-fs &&
         virsh -q pool-start lt-fs; losetup --detach $device";
    let undo = "virsh -q 'pool-destroy lt-fs; pool-undefine lt-fs' >/dev/null 2>&1
         rm -rf /var/lib/libvirt/lt-fs.img /var/lib/libvirt/lt-fs /dev/loop*";
    let _pool = lab.change("nas1", make, undo);
    let mounts = || lab.on("nas1", "cat /proc/mounts");
    if !mounts().contains("/lt-fs ext4") {
        let skipped = "SKIPPED: a pool of type fs: this machine has no loop device to spare\n";
        std::io::stderr().write_all(skipped.as_bytes()).unwrap();
        return;
    }
    let cli = with_pool(&lab, "lt-fs");
    let run = cli.run(&["check", "--zone", "nas1", "-o", "json"]).exits(0);
    assert_eq!(run.item()["pool"]["type"], "fs", "{run}");
    let create = crate::instances::create(name, &["-o", "json"]);
    cli.run(&create).exits(0);
    let there = lab.on("nas1", "ls /var/lib/libvirt/lt-fs");
    assert!(
        there.contains("lt-fs.qcow2") && there.contains("base-tiny"),
        "{there}"
    );
    let run = cli.run(&["image", "pull", "debian-13", "--zone", "nas1", "-o", "json"]);
    run.exits(5).fails_with("PoolFull", "");
    cli.run(&["delete", name]).exits(0).prints("lt-fs-seed.iso");
    // Unmounted, it is an empty directory: libvirt must not be asked to fill that.
    lab.virsh("nas1", &["pool-destroy", "lt-fs"]);
    let run = cli.run(&create).exits(1);
    run.fails_with("PoolNotActive", "virsh pool-start lt-fs");
    assert!(!mounts().contains("/lt-fs "), "libvirt has unmounted it");
    let left = lab.on("nas1", "ls /var/lib/libvirt/lt-fs");
    assert_eq!(left, "", "nothing is written under the mount point");
}

/// A pool that libvirt took up from an earlier one which had the driver for its type: active by its state file, and no
/// call about it works.
const DRIVERLESS: &str = "cd /run/libvirt/storage &&
     pool='<pool type=\"mpath\"><name>lt-driverless</name><uuid>0a6e9b7c-26c9-4d57-8c2c-2f5d3a1b6c01</uuid><target><path>/dev/mapper</path></target></pool>' &&
     echo \"$pool\" >/etc/libvirt/storage/lt-driverless.xml &&
     echo \"<poolstate>$pool</poolstate>\" >lt-driverless.xml";
const NO_DRIVERLESS: &str =
    "rm -f /run/libvirt/storage/lt-driverless.xml /etc/libvirt/storage/lt-driverless.xml";

#[test]
fn a_pool_whose_driver_is_missing_blocks_nothing_but_the_deletion_of_bases() {
    let lab = lab!();
    let name = "lt-driverless";
    let _instance = lab.instance(name);
    let _daemon = Cleanup::later(|| drop(lab.lab(&["libvirtd", "nas1", "restart"])));
    let _pool = lab.change("nas1", DRIVERLESS, NO_DRIVERLESS);
    lab.lab(&["libvirtd", "nas1", "restart"]);
    if lab
        .on("nas1", "virsh -q pool-info lt-driverless 2>&1 || true")
        .contains("State")
    {
        let skipped = "SKIPPED: a pool without its driver: this libvirt has the one for mpath\n";
        std::io::stderr().write_all(skipped.as_bytes()).unwrap();
        return;
    }
    lab.run(&crate::instances::create(name, &[])).exits(0);
    let zone = ["--zone", "nas1"];
    lab.run(&[&["image", "list"], &zone[..]].concat())
        .exits(0)
        .prints("tiny");
    lab.run(&[&["gc"], &zone[..]].concat()).exits(0);
    lab.run(&["delete", name])
        .exits(0)
        .prints(&format!("volume {name}.qcow2"));
    // What may be backed by a base from in there isn't known, and that is told.
    let remove = [&["image", "rm", "tiny"], &zone[..]].concat();
    lab.run(&remove)
        .exits(1)
        .says("whatever is in pool lt-driverless");
    assert!(lab.volumes("nas1", "base-tiny").len() > 1, "it stays");
}
