//! The oldest hypervisor that is tested: libvirt 9.0 and QEMU 7.2, as Debian 12 has them.

use serde_json::json;

use crate::cli::Cli;
use crate::instances::{boots, create_guest, fingerprint};
use crate::lab;
use crate::pull::{assert_absent, assert_ready, with_image};
use crate::saved::{CHECKPOINT, SNAPSHOT, goes_with_its_instance};
use crate::support::Lab;

/// Everything that is done to an instance in its life, on the first host, whatever libvirt that one has.
pub(crate) fn the_main_path_works(lab: &Lab, cli: &Cli, name: &str) {
    let zone = ["--zone", "nas1", "-o", "json"];
    let run = |args: &[&str]| cli.run(&[args, &zone].concat()).exits(0);
    let item = run(&["check"]).says_nothing().item();
    assert_eq!(item["libvirtVersion"], "9.0.0", "{item}");
    let qemu = item["qemuVersion"].as_str().unwrap();
    assert!(qemu.starts_with("7.2."), "{qemu}");
    assert_eq!(item["nic"], "br0", "{item}");
    assert_eq!(item["firmware"], json!(["bios", "uefi"]), "{item}");

    for pulled in [true, false] {
        let item = run(&["image", "pull", name]).item();
        assert_eq!(item["pulled"], pulled, "{item}");
        assert_ready(lab, "nas1", name);
    }
    let create = ["create", "--image", name, "--name", name, "--label", "a=b"];
    run(&create);
    let made = fingerprint(lab, "nas1", name);
    run(&create);
    assert_eq!(
        fingerprint(lab, "nas1", name),
        made,
        "nothing was to be done"
    );

    for args in [&["get", name][..], &["list", "--selector", "a=b"]] {
        let item = cli.run(&[args, &["-o", "json"]].concat()).exits(0).item();
        assert_eq!(item["id"], format!("hosts/nas1/domains/{name}"), "{item}");
        assert_eq!(item["domainState"], "running", "{item}");
        assert_eq!(item["image"], name, "{item}");
    }
    let images = run(&["image", "list"]).items();
    let image = images.iter().find(|item| item["image"] == name).unwrap();
    assert_eq!(image["instances"], json!([name]), "{image}");
    assert_eq!(
        run(&["image", "prune", "--older-than", "0s"]).items().len(),
        0
    );

    lab.virsh("nas1", &["managedsave", name]);
    run(&create);
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
    lab.virsh("nas1", &["managedsave", name]);
    cli.run(&["delete", name])
        .exits(0)
        .prints(&format!("domain {name}"));
    assert!(!lab.has_domain("nas1", name));
    assert!(lab.volumes("nas1", name).is_empty());

    run(&[&create[..], &["--ttl", "1h"]].concat());
    run(&["extend", name, "1s"]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let gc = run(&["gc", "--min-age", "0s"]);
    assert_eq!(gc.items().len(), 1, "{gc}");
    assert!(!lab.has_domain("nas1", name), "{gc}");
    assert!(lab.volumes("nas1", name).is_empty(), "{gc}");

    // The configuration without the image doesn't want it.
    let prune = ["image", "prune", "--older-than", "0s", "--zone", "nas1"];
    lab.run(&prune).exits(0).prints(name);
    assert_absent(lab, name);
}

#[test]
fn the_main_path_works_with_libvirt_9() {
    let lab = lab!(boots);
    let (name, guest) = ("lt-nine", "lt-ninth");
    let _daemons = lab.daemons("nas1", "old");
    let (_image, _instance) = (lab.image(name), lab.instance(name));
    let _guest = lab.instance(guest);
    // It boots meanwhile, for a minute or more.
    let file = lab.write("user-data", "#cloud-config\n{}\n");
    lab.run(&create_guest(guest, &file, &[])).exits(0);
    let cli = with_image(&lab, name, "/tiny.qcow2?lt-nine");
    the_main_path_works(&lab, &cli, name);
    // This one doesn't have both in one domain.
    goes_with_its_instance(&lab, name, "bios", SNAPSHOT, false);
    goes_with_its_instance(&lab, name, "uefi", CHECKPOINT, true);
    boots(&lab, guest);
    let waits = ["--wait=agent", "--timeout", "10m"];
    lab.run(&create_guest(guest, &file, &waits)).exits(0);
    its_agent_is_understood(&lab, guest);
    lab.run(&["delete", guest]).exits(0);
}

/// This libvirt has no number for an agent's own refusals, such as of a file that isn't there yet.
fn its_agent_is_understood(lab: &Lab, guest: &str) {
    let exec = |command| lab.run(&["exec", guest, "--", "sh", "-c", command]);
    for _ in 0..3 {
        let run = exec("echo out; echo err >&2; exit 7").exits(7);
        assert_eq!((&*run.stdout, &*run.stderr), ("out\n", "err\n"), "{run}");
    }
    lab.run(&["exec", guest, "--", "/lt-none"]).exits(127);
    lab.run(&["logs", guest]).exits(0).prints("Cloud-init v.");
    let item = lab.run(&["get", guest, "-o", "json"]).exits(0).item();
    let found = (&item["state"], &item["ipSource"]);
    assert_eq!(found, (&json!("Running"), &json!("agent")), "{item}");
}
