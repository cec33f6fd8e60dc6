//! What a crash leaves of an instance, and what only looks like it.

use super::{GC, Swept, create, create_briefly, define, files, gc};
use crate::lab;
use crate::support::Lab;

/// Takes the domain away, as somebody with virsh would, and leaves the volumes.
fn orphan(lab: &Lab, name: &str) {
    lab.virsh(
        "nas1",
        &[&format!("destroy {name}; undefine {name} --nvram")],
    );
}

#[test]
fn what_a_crash_left_goes_and_look_alikes_stay() {
    let lab = lab!();
    let names = [
        "lt-gc-gone",
        "lt-gc-used",
        "lt-gc-lone",
        "lt-gc-disk",
        "lt-gc-empty",
        "lt-gc-fresh",
        "lt-gc-iso",
        "lt-gc-user",
    ];
    let _cleanups: Vec<_> = names.iter().map(|name| lab.instance(name)).collect();
    for name in ["lt-gc-gone", "lt-gc-used", "lt-gc-lone", "lt-gc-disk"] {
        create(&lab, name, &[]);
        orphan(&lab, name);
    }
    let disk = "<disk type='volume' device='disk'><source pool='default' volume='lt-gc-used.qcow2'/>\
                <target dev='vda' bus='virtio'/></disk>";
    define(&lab, "lt-gc-user", "", disk);
    let _files = files(
        &lab,
        "lt-gc-",
        "rm lt-gc-lone-seed.iso && \
         qemu-img create -q -f raw lt-gc-disk.qcow2 1M && \
         truncate -s 65536 lt-gc-empty-seed.iso lt-gc-fresh-seed.iso && \
         echo data > lt-gc-iso-seed.iso && truncate -s 65536 lt-gc-iso-seed.iso && \
         cp lt-gc-gone-seed.iso lt-gc-copy-seed.iso && \
         cp lt-gc-gone-seed.iso lt-gc-gone-seed.iso.bak && \
         mkdir lt-gc-dir-seed.iso lt-gc-dir.qcow2 && ln -s /nowhere lt-gc-link-seed.iso && \
         qemu-img create -q -f qcow2 lt-gc-own.qcow2 1M && \
         old lt-gc-empty-* lt-gc-iso-* lt-gc-copy-* lt-gc-own* lt-gc-dir* lt-gc-link* *.bak",
    );
    let swept = Swept::by(&lab.cli(), &lab, &[]);
    swept.took(
        &[
            "lt-gc-gone.qcow2",
            "lt-gc-gone-seed.iso",
            "lt-gc-empty-seed.iso",
        ],
        &[
            "lt-gc-used.qcow2",
            "lt-gc-used-seed.iso",
            "lt-gc-lone.qcow2",
            "lt-gc-disk.qcow2",
            "lt-gc-disk-seed.iso",
            "lt-gc-fresh-seed.iso",
            "lt-gc-copy-seed.iso",
        ],
    );
    swept.passed_over(&[
        "lt-gc-iso-seed.iso",
        "lt-gc-own.qcow2",
        "lt-gc-gone-seed.iso.bak",
        "lt-gc-dir-seed.iso",
        "lt-gc-dir.qcow2",
        "lt-gc-link-seed.iso",
    ]);
    // Named, too: the disk under the overlay's name isn't its overlay.
    let _ = lab
        .run(&["delete", "lt-gc-disk", "--zone", "nas1"])
        .exits(1)
        .says("left alone");
    assert_eq!(lab.volumes("nas1", "lt-gc-disk").len(), 2);
}

#[test]
fn a_clone_with_our_mark_stays() {
    let lab = lab!();
    let (_a, _b) = (lab.instance("lt-gc-orig"), lab.instance("lt-gc-clone"));
    create_briefly(&lab, "lt-gc-orig");
    // As virt-clone does: the same XML, metadata and all, under another name.
    lab.on(
        "nas1",
        "virsh dumpxml --inactive lt-gc-orig | sed -e 's/>lt-gc-orig</>lt-gc-clone</; /<uuid>/d; /<mac /d; /<nvram/d' > /tmp/c.xml && virsh -q define /tmp/c.xml && rm /tmp/c.xml",
    );
    let run = lab.run(&gc(&["--explain"])).exits(0);
    // The original's disks are the clone's, too: neither goes.
    let run = run
        .prints("instance lt-gc-clone: kept: in doubt")
        .prints("instance lt-gc-orig: kept: in doubt");
    assert_eq!(run.stdout.lines().count(), 2, "{run}");
    lab.virsh("nas1", &["undefine", "lt-gc-clone", "--nvram"]);
    let _ = lab.run(&GC).exits(0).prints("lt-gc-orig");
}
