//! One directory as the pool of two hosts: what looks like leftovers on one is the other's running instance.

use super::create;
use crate::lab;
use crate::support::{Cleanup, Lab, POOL_DIR};

/// Has the second host see the first one's pool, until the end of the test.
fn share(lab: &Lab) -> Cleanup<'_> {
    let dir = lab.path("nas1/lib/images");
    // A host sees this machine's files, too.
    let make = format!(
        "mount --bind {} {POOL_DIR} && virsh -q pool-refresh default",
        dir.display()
    );
    lab.change(
        "nas2",
        &make,
        "umount /var/lib/libvirt/images && virsh -q pool-refresh default",
    )
}

/// Has a host's `stat` say that the pool is on NFS, until the end of the test.
fn on_nfs<'a>(lab: &'a Lab, host: &'static str) -> Cleanup<'a> {
    let make = "printf '#!/bin/sh\\necho nfs\\n' > /run/lt-stat && chmod 755 /run/lt-stat && \
                mount --bind /run/lt-stat /usr/bin/stat";
    lab.change(host, make, "umount /usr/bin/stat && rm /run/lt-stat")
}

/// Has the first host export what its pool is in by NFS, as far as can be told, until the end of the test.
fn exporting(lab: &Lab) -> Cleanup<'_> {
    let make = "mkdir -p /var/lib/nfs && mount -t tmpfs tmpfs /var/lib/nfs && \
                printf '%s\\t*(rw)\\n' /srv /var/lib/libvirt > /var/lib/nfs/etab";
    let undo = "umount /var/lib/nfs && rmdir --ignore-fail-on-non-empty /var/lib/nfs";
    lab.change("nas1", make, undo)
}

/// Fails unless the instance runs on the first host with its files as they were.
#[track_caller]
fn stands(lab: &Lab, name: &str, before: &str) {
    assert_eq!(state(lab, name), before, "{name}");
}

fn state(lab: &Lab, name: &str) -> String {
    lab.on(
        "nas1",
        &format!("virsh -q domstate {name} && cd {POOL_DIR} && stat -c '%n %i' {name}.* {name}-*"),
    )
}

#[test]
fn another_hosts_instance_in_a_shared_pool_is_no_leftover() {
    let lab = lab!();
    let name = "lt-gc-shared";
    let _instance = lab.instance(name);
    create(&lab, name, &[]);
    let _shared = share(&lab);
    let before = state(&lab, name);
    let delete = ["delete", name, "--zone", "nas2", "-o", "json"];
    let gc = ["gc", "--zone", "nas2", "--min-age", "0s", "--explain"];
    let again = [
        "create", "--image", "tiny", "--name", name, "--zone", "nas2", "-o", "json",
    ];
    // A local file system, as far as the second host can tell: the first one is asked.
    let _ = lab
        .run(&delete)
        .exits(1)
        .fails_with("InDoubt", "hosts/nas1/");
    stands(&lab, name, &before);
    let _ = lab
        .run(&gc)
        .exits(0)
        .prints("kept: host nas1 shares the pool");
    stands(&lab, name, &before);
    // The create's process is gone, so its seed counts as a dead one's at once.
    let _ = lab
        .run(&again)
        .exits(1)
        .fails_with("InDoubt", "another --name");
    stands(&lab, name, &before);
    // A network file system, and the first host is down.
    let _nfs = on_nfs(&lab, "nas2");
    let down = lab.cli_with(|kvm| kvm["hosts"][0]["address"] = "127.0.0.1:9".into());
    let _ = down.run(&delete).exits(4).fails_with("InDoubt", "nas1");
    let _ = down.run(&again).exits(4).fails_with("InDoubt", "nas1");
    let _ = down.run(&gc).exits(0).prints("not every host was read");
    let partial = ["gc", "--partial", "--min-age", "0s", "--explain"];
    let _ = down
        .run(&partial)
        .exits(4)
        .prints("not every host was read");
    stands(&lab, name, &before);
    // Where it really is gone, each of them may.
    lab.virsh(
        "nas1",
        &[&format!("destroy {name}; undefine {name} --nvram")],
    );
    let _ = lab.run(&delete).exits(0).prints("volume");
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn an_instance_that_runs_on_another_host_by_now_stays() {
    let lab = lab!();
    let name = "lt-gc-moved";
    let _shared = share(&lab);
    let _instance = lab.instance(name);
    create(&lab, name, &["--ttl", "1s"]);
    lab.virsh("nas2", &["pool-refresh", "default"]);
    // As `virsh migrate --persistent` leaves it without `--undefinesource`.
    let xml = lab.virsh("nas1", &["dumpxml", "--inactive", name]);
    lab.virsh("nas1", &["destroy", name]);
    std::fs::write(lab.path("nas2/lib/lt-moved.xml"), xml).unwrap();
    lab.virsh("nas2", &["define", "/var/lib/libvirt/lt-moved.xml"]);
    lab.virsh("nas2", &["start", name]);
    let both = || {
        let files = format!("cd {POOL_DIR} && stat -c '%n %i' {name}.* {name}-*");
        let defined = lab.has_domain("nas1", name);
        let files = lab.on("nas1", &files);
        let state = lab.virsh("nas2", &["domstate", name]);
        format!("{defined} {state}{files}")
    };
    let before = both();
    let id = format!("hosts/nas1/domains/{name}");
    let delete = ["delete", &id, "-o", "json"];
    let gc = ["gc", "--min-age", "0s", "--explain"];
    let down = lab.cli_with(|kvm| kvm["hosts"][1]["address"] = "127.0.0.1:9".into());
    {
        let _exports = exporting(&lab);
        let _ = down.run(&delete).exits(4).fails_with("InDoubt", "nas2");
        assert_eq!(both(), before);
    }
    // A local file system, as far as can be told: gc has read both hosts, and sees one seed.
    let _ = lab.run(&gc).exits(0).prints("in doubt: host nas2 shares");
    assert_eq!(both(), before);
    let nfs = ["nas1", "nas2"].map(|host| on_nfs(&lab, host));
    let _ = lab.run(&gc).exits(0).prints("in doubt: host nas2 shares");
    for more in [&[][..], &["--dry-run"]] {
        let run = lab.run(&[&delete[..], more].concat()).exits(1);
        let _ = run.fails_with("InDoubt", "virsh undefine");
    }
    let _ = down.run(&delete).exits(4).fails_with("InDoubt", "nas2");
    drop(nfs);
    assert_eq!(both(), before);
    let _nfs = ["nas1", "nas2"].map(|host| on_nfs(&lab, host));
    // As the hint says, for the one that nobody needs.
    let undefine =
        format!("destroy {name}; undefine --nvram --managed-save --snapshots-metadata {name}");
    lab.virsh("nas2", &[&undefine]);
    let _ = lab.run(&delete).exits(0).prints("volume");
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn what_runs_here_needs_no_host_that_is_down() {
    let lab = lab!();
    let names = ["lt-gc-here", "lt-gc-here2"];
    let _instances = names.map(|name| lab.instance(name));
    for name in names {
        create(&lab, name, &["--ttl", "1s"]);
    }
    let _nfs = on_nfs(&lab, "nas1");
    let down = lab.cli_with(|kvm| kvm["hosts"][1]["address"] = "127.0.0.1:9".into());
    let id = format!("hosts/nas1/domains/{}", names[0]);
    lab.virsh("nas1", &["destroy", names[0]]);
    // Somebody may have migrated it.
    let run = down.run(&["delete", &id, "-o", "json"]).exits(4);
    let _ = run.fails_with("InDoubt", "docs/hypervisor-setup.md");
    let gc = ["gc", "--zone", "nas1", "--min-age", "0s", "--explain"];
    let _ = down.run(&gc).exits(0).prints("not every host was read");
    assert!(lab.has_domain("nas1", names[0]) && !lab.has_domain("nas1", names[1]));
    lab.virsh("nas1", &["start", names[0]]);
    let _ = down.run(&["delete", &id]).exits(0).prints("volume");
    for name in names {
        assert!(lab.volumes("nas1", name).is_empty(), "{name}");
    }
}
