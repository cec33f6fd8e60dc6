//! Clones that no pool shows: disks of domains that are off, in directories that are nobody's pool.

use crate::instances::create;
use crate::lab;
use crate::support::{Lab, POOL_DIR};

const DIR: &str = "/var/lib/libvirt/lt-hidden";
const UNDO: &str = "virsh -q undefine lt-hidden-foreign >/dev/null 2>&1; \
    virsh -q pool-destroy seen >/dev/null 2>&1; rm -rf /var/lib/libvirt/lt-hidden; true";

/// Defines somebody's domain, off, whose disk is this file outside of all pools.
fn foreign(lab: &Lab, file: &str) {
    let xml = format!(
        "<domain type='qemu'><name>lt-hidden-foreign</name><memory unit='MiB'>64</memory>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os><devices><disk type='file' device='disk'>\
         <driver name='qemu' type='qcow2'/><source file='{DIR}/{file}'/><target dev='vda'/></disk></devices></domain>"
    );
    std::fs::write(lab.path("nas1/lib/lt-foreign.xml"), xml).unwrap();
    lab.on(
        "nas1",
        "virsh -q undefine lt-hidden-foreign >/dev/null 2>&1; \
         virsh -q define /var/lib/libvirt/lt-foreign.xml && rm /var/lib/libvirt/lt-foreign.xml",
    );
}

fn make(lab: &Lab, file: &str, backing: Option<&str>) {
    let on = backing.map_or("64M".to_owned(), |backing| format!("-F qcow2 -b {backing}"));
    // qemu-img takes the size last, and an overlay's from its backing file.
    let order = if backing.is_some() {
        format!("{on} {file}")
    } else {
        format!("{file} {on}")
    };
    lab.on(
        "nas1",
        &format!("cd {DIR} && qemu-img create -q -f qcow2 {order}"),
    );
}

#[test]
fn an_instance_stays_that_a_hidden_disk_is_a_clone_of() {
    let lab = lab!();
    let name = "lt-hidden";
    let _instance = lab.instance(name);
    lab.run(&create(name, &["--ttl", "1s"])).exits(0);
    let _dir = lab.change("nas1", &format!("mkdir -p {DIR}"), UNDO);
    let overlay = format!("{POOL_DIR}/{name}.qcow2");
    make(&lab, "clone.qcow2", Some(&overlay));
    make(&lab, "deep.qcow2", Some("clone.qcow2"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    for file in ["clone.qcow2", "deep.qcow2"] {
        foreign(&lab, file);
        let gc = ["gc", "--min-age", "0s", "--zone", "nas1"];
        lab.run(&gc).exits(0);
        lab.run(&["delete", name])
            .exits(1)
            .says(&format!("{DIR}/{file} of domain lt-hidden-foreign"))
            .says("nothing was touched");
        assert!(lab.has_domain("nas1", name));
        assert_eq!(
            lab.volumes("nas1", &format!("{name}.")),
            [format!("{name}.qcow2")]
        );
    }
    // The same of what is left when the domain is gone: its seed, the mark, stays with the overlay.
    lab.on(
        "nas1",
        &format!("virsh -q destroy {name}; virsh -q undefine {name} --nvram"),
    );
    let volumes = lab.volumes("nas1", name);
    assert_eq!(
        volumes,
        [format!("{name}-seed.iso"), format!("{name}.qcow2")]
    );
    let run = lab.run(&["delete", name]).exits(1);
    run.prints(&format!(
        "left alone: volume {name}.qcow2, volume {name}-seed.iso"
    ))
    .says("lt-hidden-foreign")
    .never_says("vol-delete");
    assert_eq!(lab.volumes("nas1", name), volumes);
    make(&lab, "plain.qcow2", None);
    foreign(&lab, "plain.qcow2");
    lab.run(&["delete", name]).exits(0);
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn a_hidden_disk_that_cannot_be_read_holds_a_deletion_up_until_it_is_shown() {
    let lab = lab!();
    let name = "lt-unread";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let _dir = lab.change("nas1", &format!("mkdir -p {DIR}"), UNDO);
    make(&lab, "own.qcow2", None);
    foreign(&lab, "own.qcow2");
    let plan = ["delete", name, "--dry-run", "-o", "json"];
    lab.run(&plan).exits(0);
    {
        // Where the host lets us run no commands, nobody can look.
        let _sshd = lab.sshd("nas1", &["ForceCommand echo no"]);
        lab.run(&plan)
            .exits(1)
            .fails_with("InDoubt", "pool-create-as");
    }
    lab.on("nas1", &format!("chmod 600 {DIR}/own.qcow2"));
    let run = lab
        .run(&plan)
        .exits(1)
        .fails_with("InDoubt", "pool-create-as");
    assert!(
        run.errors()[0]["causes"].to_string().contains("own.qcow2"),
        "{run}"
    );
    let hint = run.errors()[0]["hint"].as_str().unwrap().to_owned();
    let (_, command) = hint.split_once("on the host: ").unwrap();
    lab.on("nas1", command);
    lab.run(&plan).exits(0);
    lab.on("nas1", "virsh -q pool-destroy seen");
    lab.run(&plan).exits(1);
    // A file that isn't there any more is no clone, unless its whole directory may only be somewhere else.
    lab.on("nas1", &format!("rm {DIR}/own.qcow2"));
    lab.run(&plan).exits(1);
    lab.on("nas1", &format!("touch {DIR}/other"));
    lab.run(&plan).exits(0);
    lab.run(&["delete", name]).exits(0);
}
