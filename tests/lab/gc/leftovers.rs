//! What a crash leaves of an instance, and what only looks like it.

use super::{GC, about, create, files, gc, items};
use crate::lab;
use crate::support::{Lab, POOL_DIR};

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
    let user = "<domain type=\"qemu\"><name>lt-gc-user</name><memory>65536</memory><os><type arch=\"x86_64\" machine=\"q35\">hvm</type></os>\
         <devices><disk type=\"volume\" device=\"disk\"><source pool=\"default\" volume=\"lt-gc-used.qcow2\"/><target dev=\"vda\" bus=\"virtio\"/></disk></devices></domain>";
    lab.on(
        "nas1",
        &format!(
            "echo '{user}' > /tmp/user.xml && virsh -q define /tmp/user.xml && rm /tmp/user.xml"
        ),
    );
    files(
        &lab,
        "rm lt-gc-lone-seed.iso && \
         qemu-img create -q -f raw lt-gc-disk.qcow2 1M && \
         truncate -s 65536 lt-gc-empty-seed.iso lt-gc-fresh-seed.iso && old lt-gc-empty-seed.iso && \
         echo data > lt-gc-iso-seed.iso && truncate -s 65536 lt-gc-iso-seed.iso && old lt-gc-iso-seed.iso && \
         cp lt-gc-gone-seed.iso lt-gc-copy-seed.iso && old lt-gc-copy-seed.iso && \
         qemu-img create -q -f qcow2 lt-gc-own.qcow2 1M && old lt-gc-own.qcow2",
    );
    let _more = [lab.change("nas1", "true", "rm -f /var/lib/libvirt/images/lt-gc-copy-* /var/lib/libvirt/images/lt-gc-own*; virsh -q pool-refresh default")];
    let run = lab.run(&gc(&["--explain", "-o", "json"])).exits(0);
    let items = items(&run.stdout);
    let table = [
        ("lt-gc-gone.qcow2", true),
        ("lt-gc-gone-seed.iso", true),
        ("lt-gc-empty-seed.iso", true),
        ("lt-gc-used.qcow2", false),
        ("lt-gc-used-seed.iso", false),
        ("lt-gc-lone.qcow2", false),
        ("lt-gc-disk.qcow2", false),
        ("lt-gc-disk-seed.iso", false),
        ("lt-gc-fresh-seed.iso", false),
        ("lt-gc-copy-seed.iso", false),
    ];
    let left = lab.volumes("nas1", "lt-gc-");
    for (volume, goes) in table {
        let item = about(&items, volume);
        assert_eq!(item["deleted"], goes, "{item}");
        assert_eq!(left.contains(&volume.to_owned()), !goes, "{volume}");
    }
    // Named, too: the disk under the overlay's name isn't its overlay.
    let _ = lab
        .run(&["delete", "lt-gc-disk", "--zone", "nas1"])
        .exits(0)
        .says("left alone");
    assert_eq!(lab.volumes("nas1", "lt-gc-disk").len(), 2);
    for volume in ["lt-gc-iso-seed.iso", "lt-gc-own.qcow2"] {
        assert!(
            items.iter().all(|item| item["volume"] != volume),
            "{items:?}"
        );
        assert!(left.contains(&volume.to_owned()), "{volume}");
    }
}

#[test]
fn a_create_killed_at_any_moment_leaves_nothing_that_gc_doesnt_take() {
    let lab = lab!();
    let _web = lab.instance("lt-gc-kill");
    for millis in [60, 120, 180, 240, 300, 400] {
        let args = [
            "create",
            "--zone",
            "nas1",
            "--image",
            "tiny",
            "--name",
            "lt-gc-kill",
            "--ttl",
            "1ms",
        ];
        let running = lab.cli().start(&args);
        std::thread::sleep(std::time::Duration::from_millis(millis));
        running.signal("KILL");
        let _ = running.wait().was_killed();
        // A seed that was never written shows no maker: it needs to be a minute old.
        lab.on(
            "nas1",
            &format!(
                "cd {POOL_DIR} && if [ -e lt-gc-kill-seed.iso ] && [ -z \"$(tr -d '\\0' < lt-gc-kill-seed.iso | head -c 1)\" ]; \
                 then touch -d '-2 minutes' lt-gc-kill-seed.iso; fi"
            ),
        );
        let _ = lab.run(&GC).exits(0);
        assert!(!lab.has_domain("nas1", "lt-gc-kill"), "{millis}");
        assert_eq!(lab.volumes("nas1", "lt-gc-kill"), [""; 0], "{millis}");
    }
}

#[test]
fn a_clone_with_our_mark_stays() {
    let lab = lab!();
    let (_a, _b) = (lab.instance("lt-gc-orig"), lab.instance("lt-gc-clone"));
    create(&lab, "lt-gc-orig", &["--ttl", "1ms"]);
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
