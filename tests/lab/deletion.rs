//! Deleting: nothing of ours stays, whatever hangs on the domain, and nothing else goes.

use serde_json::{Value, json};

use crate::instances::create;
use crate::lab;
use crate::support::{HOSTS, POOL_DIR};

#[test]
fn delete_leaves_only_base_and_marker_and_may_be_repeated() {
    let lab = lab!();
    let name = "lt-deleted";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny"]).exits(0);
    let everything = |host| {
        (
            lab.volumes(host, ""),
            lab.virsh(host, &["list", "--all", "--name"]),
        )
    };
    let before = HOSTS.map(everything);
    lab.run(&create(name, &[])).exits(0);
    let run = lab
        .run(&["delete", name, "-o", "json"])
        .exits(0)
        .says_nothing();
    let expected = json!([
        format!("domain {name}"),
        format!("volume {name}.qcow2"),
        format!("volume {name}-seed.iso")
    ]);
    assert_eq!(run.item()["deleted"], expected, "{run}");
    assert_eq!(HOSTS.map(everything), before, "only base and marker stay");
    let nvram = lab.on("nas1", "ls /var/lib/libvirt/qemu/nvram");
    assert!(!nvram.contains(name), "{nvram}");
    let again = lab.run(&["delete", name, "-o", "json"]).exits(0);
    assert_eq!(
        (&again.item()["deleted"], &again.item()["host"]),
        (&json!([]), &Value::Null),
        "{again}"
    );
    lab.run(&["delete", name]).exits(0).prints("already absent");
    let id = format!("hosts/gone/domains/{name}");
    lab.run(&["delete", &id])
        .exits(0)
        .says("warning: host gone isn't configured")
        .prints("not looked at");
    lab.run(&["get", name])
        .exits(3)
        .says("hint: egressctl list");
}

#[test]
fn snapshots_and_saved_memory_go_with_the_instance() {
    let lab = lab!();
    let name = "lt-snapshot";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    // The metadata of a snapshot is what holds an undefine up.
    let domain = lab.virsh("nas1", &["dumpxml", name]);
    let xml = format!(
        "<domainsnapshot><name>s1</name><state>shutoff</state><creationTime>1</creationTime>{domain}</domainsnapshot>"
    );
    std::fs::write(lab.path("nas1/lib/lt-s1.xml"), xml).unwrap();
    lab.virsh(
        "nas1",
        &[
            "snapshot-create",
            name,
            "/var/lib/libvirt/lt-s1.xml",
            "--redefine",
        ],
    );
    lab.virsh("nas1", &["managedsave", name]);
    assert!(
        lab.virsh("nas1", &["snapshot-list", name, "--name"])
            .contains("s1")
    );
    lab.run(&["delete", name])
        .exits(0)
        .prints(&format!("domain {name}"));
    assert!(!lab.has_domain("nas1", name));
    assert!(lab.volumes("nas1", name).is_empty());
    assert_eq!(lab.on("nas1", "ls /var/lib/libvirt/qemu/save"), "");
}

#[test]
fn a_disk_that_a_snapshot_moved_is_in_doubt_until_it_is_merged() {
    let lab = lab!();
    let (name, key) = ("lt-moved", "lt-moved");
    let (_image, _instance) = (lab.image(key), lab.instance(name));
    let cli = crate::pull::with_image(&lab, key, "/tiny.qcow2?lt-moved");
    cli.run(&["create", "--zone", "nas1", "--image", key, "--name", name])
        .exits(0);
    let snapshot = [
        "snapshot-create-as",
        name,
        "s1",
        "--disk-only",
        "--no-metadata",
        "--diskspec",
        "vdb,snapshot=no",
    ];
    lab.virsh("nas1", &snapshot);
    let state = || {
        (
            lab.volumes("nas1", name),
            lab.virsh("nas1", &["dumpxml", name]),
        )
    };
    let before = state();
    lab.run(&["delete", name, "-o", "json"])
        .exits(1)
        .fails_with("InDoubt", "on the host: virsh blockcommit");
    // One that is off has to run for that.
    lab.virsh("nas1", &["destroy", name]);
    let before = (before.0, state().1);
    let run = lab
        .run(&["delete", name, "-o", "json"])
        .exits(1)
        .fails_with("InDoubt", "&& virsh blockcommit");
    assert!(
        run.errors()[0]["message"]
            .to_string()
            .contains(&format!("{name}.s1")),
        "{run}"
    );
    assert_eq!(state(), before, "nothing was touched");
    // The hint's own command must do it, and leave the base image alone, which others share.
    let hint = run.errors()[0]["hint"].as_str().unwrap().to_owned();
    let (_, command) = hint.split_once("on the host: virsh ").unwrap();
    lab.on("nas1", &format!("virsh -q {command} --wait"));
    crate::pull::assert_ready(&lab, "nas1", key);
    lab.run(&["delete", name]).exits(0);
    assert!(!lab.has_domain("nas1", name));
    crate::pull::assert_ready(&lab, "nas1", key);
    assert_eq!(lab.volumes("nas1", &format!("{name}.s1")), [""; 0]);
}

#[test]
fn a_disk_that_is_in_another_directory_now_is_used_and_never_forgotten() {
    let lab = lab!();
    let name = "lt-carried";
    let dir = "/var/lib/libvirt/lt-carried";
    let _instance = lab.instance(name);
    let make = format!("mkdir -p {dir} && touch {dir}/other");
    let _directory = lab.change("nas1", &make, "rm -rf /var/lib/libvirt/lt-carried");
    lab.run(&create(name, &["--ttl", "1s"])).exits(0);
    lab.virsh("nas1", &["destroy", name]);
    // As after the pool was defined anew, or the disk copied.
    let carry = format!(
        "mv {POOL_DIR}/{name}.qcow2 {dir}/ && virsh -q pool-refresh default && \
         virsh dumpxml --inactive {name} | sed 's|{POOL_DIR}/{name}.qcow2|{dir}/{name}.qcow2|' > {dir}/xml && \
         virsh -q define {dir}/xml"
    );
    lab.on("nas1", &carry);
    let state = || {
        let files = lab.on("nas1", &format!("ls {dir} && ls {POOL_DIR}/{name}*"));
        (files, lab.virsh("nas1", &["dumpxml", "--inactive", name]))
    };
    let before = state();
    let gc = ["gc", "--min-age", "0s", "--zone", "nas1", "--explain"];
    for more in [&[][..], &["--dry-run"]] {
        let run = lab.run(&[&gc[..], more].concat()).exits(0);
        run.prints(&format!("its disk is {dir}/{name}.qcow2"));
        let run = lab.run(&[&["delete", name, "-o", "json"], more].concat());
        run.exits(1)
            .fails_with("InDoubt", &format!("rm -- {dir}/{name}.qcow2"));
        assert_eq!(state(), before, "nothing was touched");
    }
    // Nor is it said to lack it.
    let run = lab
        .run(&["get", name, "-o", "json"])
        .exits(0)
        .says_nothing();
    assert_eq!(run.item()["missingVolumes"], json!([]), "{run}");
    // It isn't made anew, but started from there, once it has time again.
    lab.run(&["extend", name, "1h"]).exits(0);
    let uuid = lab.virsh("nas1", &["domuuid", name]);
    lab.run(&create(name, &["--ttl", "1h"])).exits(0);
    assert_eq!(lab.virsh("nas1", &["domuuid", name]), uuid);
    assert!(lab.virsh("nas1", &["domstate", name]).contains("running"));
    // Once the file is gone, there is nothing to lose.
    lab.on("nas1", &format!("rm {dir}/{name}.qcow2"));
    lab.run(&["delete", name]).exits(0);
    assert!(!lab.has_domain("nas1", name) && lab.volumes("nas1", name).is_empty());
}

#[test]
fn an_instance_that_others_build_on_stays_until_they_are_gone() {
    let lab = lab!();
    let (name, clone) = ("lt-built-on", "lt-clone.qcow2");
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    lab.run(&create(name, &["--ttl", "1s"])).exits(0);
    // Made beside libvirt, which doesn't know of it before it looks.
    let dir = "/var/lib/libvirt/images";
    let make = format!("cd {dir} && qemu-img create -q -f qcow2 -F qcow2 -b {dir}/{name}.qcow2");
    lab.on("nas1", &format!("{make} {clone}"));
    let state = || {
        let files = lab.on("nas1", &format!("cd {dir} && ls -s {name}* {clone}"));
        let running = lab.virsh("nas1", &["domstate", name]);
        (files, running, lab.virsh("nas1", &["dumpxml", name]))
    };
    let before = state();
    std::thread::sleep(std::time::Duration::from_secs(1));
    lab.run(&["gc", "--min-age", "0s", "--zone", "nas1"])
        .exits(0);
    assert_eq!(state(), before, "gc leaves it alone");
    for more in [&[][..], &["--dry-run"]] {
        let run = lab.run(&[&["delete", name, "-o", "json"], more].concat());
        let run = run.exits(1).fails_with("InDoubt", "virsh vol-delete");
        assert!(
            run.errors()[0]["message"].to_string().contains(clone),
            "{run}"
        );
        assert_eq!(state(), before, "nothing was touched");
    }
    // What the hint says, to the letter but for the name.
    lab.virsh("nas1", &["vol-delete", "--pool", "default", clone]);
    lab.run(&["delete", name]).exits(0);
    assert!(!lab.has_domain("nas1", name));
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn volumes_go_from_the_pool_they_were_made_in() {
    let lab = lab!();
    let name = "lt-moved-pool";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let dir = "/var/lib/libvirt/lt-other";
    let make = format!("mkdir -p {dir} && virsh -q pool-create-as lt-other dir --target {dir}");
    let undo = "virsh -q pool-destroy lt-other && rm -r /var/lib/libvirt/lt-other";
    let _pool = lab.change("nas1", &make, undo);
    // The configuration names another pool since.
    let cli = crate::pools::with_pool(&lab, "lt-other");
    cli.run(&["delete", name, "--zone", "nas1"])
        .exits(0)
        .prints(&format!("volume {name}.qcow2, volume {name}-seed.iso"));
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn a_deletion_that_fails_in_its_midst_says_what_is_gone_and_what_is_not() {
    let lab = lab!();
    let name = "lt-halfway";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let file = format!("/var/lib/libvirt/images/{name}.qcow2");
    {
        // A file that something is mounted on can't be unlinked.
        let undo = "umount /var/lib/libvirt/images/lt-halfway.qcow2";
        let _held = lab.change("nas1", &format!("mount --bind {file} {file}"), undo);
        let run = lab.run(&["delete", name, "-o", "json"]).exits(4);
        let error = run.errors()[0].clone();
        let expected = format!(
            "domain {name} is deleted; still there: volume {name}.qcow2, volume {name}-seed.iso"
        );
        assert_eq!(error["message"], expected, "{run}");
        assert_eq!(error["host"], "nas1", "{run}");
        assert!(error["hint"].to_string().contains("run it again"), "{run}");
        assert!(!lab.has_domain("nas1", name));
        assert_eq!(lab.volumes("nas1", name).len(), 2);
    }
    lab.run(&["delete", name])
        .exits(0)
        .prints(&format!("volume {name}.qcow2, volume {name}-seed.iso"));
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn one_instance_that_is_named_in_several_ways_is_one() {
    let lab = lab!();
    let name = "lt-thrice";
    let _instance = lab.instance(name);
    let [here, there] = HOSTS.map(|host| format!("hosts/{host}/domains/{name}"));
    let gone = format!("hosts/gone/domains/{name}");
    let line = ["delete", name, name, &here, "-o", "json"];
    let dry_run = [&line[..], &["--dry-run"]].concat();
    let absent = lab.run(&dry_run).exits(0);
    assert_eq!(absent.item()["wouldDelete"], json!([]), "{absent}");
    lab.run(&create(name, &[])).exits(0);
    let plan = lab.run(&dry_run).exits(0);
    assert_eq!(plan.item()["host"], "nas1", "{plan}");
    // What is another host's stays apart.
    let others = [&dry_run[..], &[&there, &gone]].concat();
    let plan = lab.run(&others).exits(0);
    let hosts: Vec<Value> = plan.items().iter().map(|i| i["host"].clone()).collect();
    assert_eq!(
        hosts,
        [json!("nas1"), Value::Null, json!("gone")],
        "nobody looked there\n{plan}"
    );
    let run = lab.run(&line).exits(0);
    assert_eq!(run.item()["deleted"][0], format!("domain {name}"), "{run}");
}
