//! Snapshots and checkpoints as backup tools make them, on guests that run: they go with their instance.

use std::time::Duration;

use serde_json::json;

use crate::lab;
use crate::support::{Lab, POOL_DIR};

/// An instance with this firmware that this was done to on its host is deleted, metadata and all.
pub(crate) fn goes_with_its_instance(
    lab: &Lab,
    name: &str,
    firmware: &str,
    done: &str,
    by_gc: bool,
) {
    let (_instance, _image) = (lab.instance(name), lab.image(name));
    let cli = lab.cli_with(|kvm| {
        kvm["images"][name] = lab.tiny();
        kvm["images"][name]["firmware"] = json!(firmware);
    });
    let create = ["create", "--zone", "nas1", "--image", name, "--name", name];
    cli.run(&[&create[..], &["--ttl", "1s"]].concat()).exits(0);
    lab.on("nas1", &format!("d={name}; {done}"));
    if by_gc {
        std::thread::sleep(Duration::from_secs(1));
        let gc = ["gc", "--zone", "nas1", "--min-age", "0s"];
        cli.run(&gc).exits(0).prints(name);
    } else {
        let run = cli.run(&["delete", name]).exits(0);
        run.prints(&format!("domain {name}"));
    }
    assert!(!lab.has_domain("nas1", name), "{done}");
    assert!(lab.volumes("nas1", name).is_empty(), "{done}");
    let metadata = "cd /var/lib/libvirt/qemu && find snapshot checkpoint save -type f";
    assert_eq!(lab.on("nas1", metadata), "", "{done}");
    crate::pull::assert_ready(lab, "nas1", name);
}

/// Of memory and disk, into the disk. That needs a guest without UEFI, whose nvram can't be in it.
pub(crate) const SNAPSHOT: &str = "virsh -q snapshot-create-as $d s1 --diskspec vdb,snapshot=no";
/// What an incremental backup begins with.
pub(crate) const CHECKPOINT: &str = "virsh -q checkpoint-create-as $d c1";

#[test]
fn snapshots_and_checkpoints_made_while_it_ran_go_with_the_instance() {
    let lab = lab!();
    let both = format!(
        "{CHECKPOINT} && {SNAPSHOT} && qemu-img snapshot -U -l {POOL_DIR}/$d.qcow2 | grep s1"
    );
    goes_with_its_instance(&lab, "lt-saved", "bios", &both, false);
    // A guest with UEFI can be shut off for it.
    let off = format!("{CHECKPOINT} && virsh -q destroy $d && {SNAPSHOT}");
    goes_with_its_instance(&lab, "lt-saved", "uefi", &off, true);
}
