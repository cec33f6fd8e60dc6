//! Hosts that lack what an instance needs: room, bridge, pool, memory, KVM. Refused before anything is touched.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::cli::binary;
use crate::instances::create;
use crate::lab;
use crate::pull_faults::{in_pool, small_pool};
use crate::refusals::everything;
use crate::support::{Cleanup, Lab};

/// A change of the provider's configuration.
type Change<'a> = Box<dyn FnOnce(&mut Value) + 'a>;

/// Serves an image whose disk is larger than its file: 3 GiB.
fn big_image<'a>(lab: &'a Lab, key: &str) -> (Cleanup<'a>, Cleanup<'a>) {
    let file = lab.path("www/lt-big.qcow2");
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2"])
        .arg(&file)
        .arg("3G")
        .status();
    assert!(made.unwrap().success());
    (
        lab.image(key),
        Cleanup::later(move || drop(std::fs::remove_file(&file))),
    )
}

#[test]
fn a_disk_smaller_than_the_image_is_refused_before_anything_is_made() {
    let lab = lab!();
    let (key, name) = ("lt-big", "lt-small");
    let _image = big_image(&lab, key);
    let _instance = lab.instance(name);
    let cli = lab.cli_with(|kvm| {
        kvm["diskSizeGb"] = json!(1);
        kvm["images"][key] = json!({"url": lab.url("/lt-big.qcow2")});
    });
    let before = everything(&lab);
    let small = [
        "create",
        "--zone",
        "nas1",
        "--image",
        key,
        "--name",
        name,
        "--disk-size",
        "2",
        "-o",
        "json",
    ];
    let plain = &small[..7];
    // Both where the image has yet to come, and where it is there.
    for _ in 0..2 {
        let run = cli
            .run(&small)
            .exits(1)
            .fails_with("DiskTooSmall", "--disk-size 3");
        assert!(
            run.errors()[0]["message"].to_string().contains("3 GiB"),
            "{run}"
        );
        assert!(
            !lab.has_domain("nas1", name) && lab.volumes("nas1", name).is_empty(),
            "{run}"
        );
        if lab.volumes("nas1", "base-lt-big").is_empty() {
            assert_eq!(everything(&lab), before);
            cli.run(&["image", "pull", key, "--zone", "nas1"]).exits(0);
        }
    }
    // The configured default is raised instead, and the record says so; it is still the one that was asked for.
    cli.run(plain).exits(0);
    let disk = |args: &[&str]| {
        let run = cli.run(&[args, &["-o", "json"]].concat()).exits(0);
        assert_eq!(run.item()["diskBytes"], 3_u64 << 30, "{run}");
    };
    disk(&["get", name]);
    disk(plain);
    let info = lab.virsh(
        "nas1",
        &["vol-info", "--pool", "default", "lt-small.qcow2", "--bytes"],
    );
    assert!(info.contains(&(3_u64 << 30).to_string()), "{info}");
}

#[test]
fn get_names_the_volumes_that_a_stopped_instance_lacks() {
    let lab = lab!();
    let name = "lt-lacks";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let get = ["get", name, "--zone", "nas1", "-o", "json"];
    let run = lab.run(&get).exits(0).says_nothing();
    let item = run.item();
    assert_eq!(item["missingVolumes"], json!(null), "{run}");
    let id = format!("{name}-{}", item["uuid"].as_str().unwrap());
    assert_eq!(item["instanceId"], json!(id), "{run}");
    lab.virsh("nas1", &["destroy", name]);
    let run = lab.run(&get).exits(0).says_nothing();
    assert_eq!(run.item()["missingVolumes"], json!([]), "{run}");
    let seed = format!("{name}-seed.iso");
    lab.virsh("nas1", &["vol-delete", "--pool", "default", &seed]);
    let run = lab
        .run(&get)
        .exits(0)
        .says(&format!("its volume {seed} is gone"));
    assert_eq!(run.item()["missingVolumes"], json!([seed]), "{run}");
    // Nor can a create start it, which says why, and what the way out costs.
    let run = lab.run(&create(name, &["-o", "json"])).exits(1);
    let hint = format!(
        "the same command makes it anew, without what is on its disk, after: egressctl delete hosts/nas1/domains/{name}"
    );
    run.says(&format!("volume {seed} is gone"))
        .fails_with("InDoubt", &hint);
    assert!(lab.has_domain("nas1", name));
}

#[test]
fn hosts_without_what_an_instance_needs_are_refused() {
    let lab = lab!();
    lab.run(&["image", "pull", "tiny"]).exits(0);
    let before = everything(&lab);
    let host = |key: &'static str, value: &'static str| {
        move |kvm: &mut Value| kvm["hosts"][0][key] = json!(value)
    };
    let network = |kvm: &mut Value| {
        kvm["hosts"][0].as_object_mut().unwrap().remove("bridge");
        kvm["hosts"][0]["network"] = json!("lt-net");
    };
    let huge =
        |kvm: &mut Value| kvm["machineTypes"] = json!({"huge": {"vcpus": 1, "memoryMiB": 8 << 20}});
    let table: [(Change<'_>, i32, &str, &str); 5] = [
        (
            Box::new(host("bridge", "br7")),
            1,
            "BridgeNotFound",
            "hosts[].bridge",
        ),
        (
            Box::new(host("bridge", "lo")),
            1,
            "BridgeNotFound",
            "hosts[].bridge",
        ),
        (Box::new(network), 1, "NetworkNotFound", "virsh net-list"),
        (
            Box::new(host("pool", "lt-nowhere")),
            1,
            "PoolNotFound",
            "virsh pool-define-as lt-nowhere",
        ),
        (Box::new(huge), 5, "NotEnoughMemory", "--machine-type"),
    ];
    for (change, code, reason, hint) in table {
        let cli = lab.cli_with(change);
        let run = cli
            .run(&create("lt-lacks", &["-o", "json"]))
            .exits(code)
            .fails_with(reason, hint);
        assert_eq!(run.errors()[0]["host"], "nas1", "{run}");
        // A plan says the same.
        cli.run(&create("lt-lacks", &["--dry-run"])).exits(code);
    }
    assert_eq!(everything(&lab), before);
    let bridges = lab.cli_with(host("bridge", "br7"));
    bridges
        .run(&create("lt-lacks", &[]))
        .exits(1)
        .says("no bridge br7 (bridges there: br0)");
}

#[test]
fn a_stopped_pool_is_named_and_hides_no_volumes() {
    let lab = lab!();
    let name = "lt-pool";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let start = "virsh -q pool-start default || true";
    let _pool = lab.change("nas1", "virsh -q pool-destroy default", start);
    let run = lab.run(&create("lt-other", &["-o", "json"])).exits(1);
    run.fails_with("PoolNotActive", "virsh pool-start default");
    // What runs is found without its pool.
    lab.run(&["list", "-o", "name"]).exits(0).prints(name);
    lab.run(&["get", name]).exits(0);
    lab.run(&create(name, &[])).exits(0);
    // Without the domain nobody would think of its volumes.
    let run = lab.run(&["delete", name, "-o", "json"]).exits(1);
    run.fails_with("PoolNotActive", "virsh pool-start default");
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
    // Nor can it be said of any other name that nothing of it is left.
    let run = lab.run(&["delete", "lt-never", "-o", "json"]).exits(1);
    run.fails_with("PoolNotActive", "virsh pool-start default");
    lab.virsh("nas1", &["pool-start", "default"]);
    lab.run(&["delete", name])
        .exits(0)
        .prints("volume lt-pool.qcow2");
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn an_instance_outlives_its_pool_and_can_be_deleted() {
    let lab = lab!();
    let (name, key) = ("lt-poolless", "lt-poolless");
    let _instance = lab.instance(name);
    let dir = "/var/lib/libvirt/lt-gone";
    let make = format!(
        "mkdir -p {dir} && virsh -q pool-define-as lt-gone dir --target {dir} && virsh -q pool-start lt-gone"
    );
    let undo = "virsh -q 'pool-destroy lt-gone; pool-undefine lt-gone' >/dev/null 2>&1; rm -rf /var/lib/libvirt/lt-gone";
    let _pool = lab.change("nas1", &make, undo);
    let cli = lab.cli_with(|kvm| {
        crate::pull::add_image(&lab, kvm, key, "/tiny.qcow2?lt-poolless");
        kvm["hosts"][0]["pool"] = json!("lt-gone");
    });
    cli.run(&["create", "--zone", "nas1", "--image", key, "--name", name])
        .exits(0);
    lab.on(
        "nas1",
        "virsh -q pool-destroy lt-gone && virsh -q pool-undefine lt-gone",
    );
    cli.run(&["list", "-o", "name"]).exits(0).prints(name);
    cli.run(&["delete", name])
        .exits(0)
        .prints("domain lt-poolless");
    assert!(!lab.has_domain("nas1", name));
    cli.run(&["delete", name]).exits(0).prints("already absent");
}

#[test]
fn a_kvm_guest_on_a_host_without_usable_kvm_leaves_nothing() {
    let lab = lab!();
    let name = "lt-nokvm";
    let _instance = lab.instance(name);
    let cli = lab.cli_with(|kvm| kvm["hosts"][0]["virtType"] = json!("kvm"));
    let run = cli.run(&create(name, &["-o", "json"]));
    if run.succeeded() {
        return; // this machine has KVM, and the lab's hosts may use it
    }
    let run = run.exits(1);
    let reason = run.errors()[0]["reason"].clone();
    assert!(reason == "NoKvm" || reason == "NotRunning", "{run}");
    assert!(
        run.errors()[0]["hints"]
            .to_string()
            .contains("virt-host-validate qemu"),
        "{run}"
    );
    assert!(
        !lab.has_domain("nas1", name) && lab.volumes("nas1", name).is_empty(),
        "{run}"
    );
}

/// A machine without libvirt's client library: the binary in a mount namespace where that is empty.
fn without_library(lab: &Lab) -> std::path::PathBuf {
    let linker = Command::new("/sbin/ldconfig").arg("-p").output().unwrap();
    let known = String::from_utf8(linker.stdout).unwrap();
    let line = known
        .lines()
        .find(|line| line.trim().starts_with("libvirt.so.0 "));
    let library = line.and_then(|line| line.split(" => ").nth(1)).unwrap();
    let binary = binary();
    let script = format!(
        "#!/bin/sh\nexec unshare --mount -- sh -c 'mount --bind /dev/null {library} && exec {} \"$@\"' sh \"$@\"\n",
        binary.display()
    );
    let path = lab.write("without-library", script);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn without_libvirts_library_all_works_that_asks_no_host() {
    let lab = lab!();
    let cli = lab.cli().binary(without_library(&lab));
    for offline in [&["--version"][..], &["config", "validate"]] {
        cli.run(offline).exits(0).says_nothing();
    }
    cli.run(&["list", "--zone", "nas1", "-o", "json"])
        .exits(1)
        .fails_with("LocalIo", "apt-get install libvirt0")
        .never_says("panicked");
}

/// libvirt remembers the room of a pool from when it last looked.
#[test]
fn the_room_of_a_pool_is_what_there_is_now() {
    let lab = lab!();
    let name = "lt-room";
    let _pool = small_pool(&lab, "64m");
    lab.virsh("nas1", &["pool-start", "lt-pool"]);
    let cli = lab.cli_with(|kvm| in_pool(kvm, "lt-pool"));
    let create = create(name, &["-o", "json"]);
    let dry = [&create[..], &["--dry-run"]].concat();
    let filler = "/var/lib/libvirt/lt-pool/filler";
    // It doesn't know that somebody filled it, and then does.
    lab.on("nas1", &format!("fallocate -l 58M {filler}"));
    let refused = || {
        let run = cli.run(&create).exits(5);
        run.fails_with("PoolFull", "use a larger pool");
        let left = lab.on("nas1", "ls /var/lib/libvirt/lt-pool");
        assert_eq!(left.trim(), "filler");
    };
    refused();
    lab.virsh("nas1", &["pool-refresh", "lt-pool"]);
    refused();
    cli.run(&dry)
        .exits(5)
        .fails_with("PoolFull", "use a larger pool");
    // Nor that it is gone again.
    lab.on("nas1", &format!("rm {filler}"));
    cli.run(&dry).exits(0);
    cli.run(&create).exits(0);
    cli.run(&["delete", name]).exits(0);
}
