//! What isn't ours stays as it is: other people's domains and volumes, the operator's instances, marks in doubt.

use serde_json::{Value, json};

use crate::instances::create;
use crate::lab;
use crate::support::{Cleanup, Lab, POOL_DIR};

const OPERATOR: &str = "https://gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator";

/// Defines a small domain on nas1 by hand, with this inside `<metadata>` and these disks.
fn define(lab: &Lab, name: &str, metadata: &str, disks: &[&str]) {
    use std::fmt::Write as _;
    let mut devices = String::new();
    for (disk, letter) in disks.iter().zip('a'..) {
        let kind = if disk.ends_with("-seed.iso") {
            "raw"
        } else {
            "qcow2"
        };
        write!(
            devices,
            "<disk type='file' device='disk'><driver name='qemu' type='{kind}'/>\
             <source file='{POOL_DIR}/{disk}'/><target dev='vd{letter}' bus='virtio'/></disk>"
        )
        .unwrap();
    }
    let xml = format!(
        "<domain type='qemu'><name>{name}</name><metadata>{metadata}</metadata><memory unit='MiB'>64</memory>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{devices}</devices></domain>"
    );
    std::fs::write(lab.path("nas1/lib/lt-domain.xml"), xml).unwrap();
    lab.virsh("nas1", &["define", "/var/lib/libvirt/lt-domain.xml"]);
}

/// The operator's metadata, as its provider of this type writes it.
fn operator(kind: &str, uid: &str) -> String {
    format!(
        "<{kind}:instance xmlns:{kind}='{OPERATOR}/{kind}'><{kind}:managed>true</{kind}:managed>\
         <{kind}:uid>{uid}</{kind}:uid><{kind}:createdAt>2026-01-02T03:04:05Z</{kind}:createdAt></{kind}:instance>"
    )
}

/// Makes an empty qcow2 volume in nas1's pool.
fn volume(lab: &Lab, name: &str) {
    lab.virsh(
        "nas1",
        &["vol-create-as", "default", name, "1M", "--format", "qcow2"],
    );
}

/// All of a name on nas1: the domain's XML and state, and its files with their inodes and times.
fn everything(lab: &Lab, name: &str) -> String {
    let domain = lab.on(
        "nas1",
        &format!("virsh -q dumpxml --inactive {name}; virsh -q domstate {name}"),
    );
    let files = lab.on(
        "nas1",
        &format!("cd {POOL_DIR} && stat -c '%n %i %s %Y' {name}* 2>/dev/null || true"),
    );
    format!("{domain}{files}")
}

#[test]
fn a_foreign_domain_of_the_same_name_stays_untouched() {
    let lab = lab!();
    let name = "lt-foreign";
    let _instance = lab.instance(name);
    // Even its volumes are called as ours would be.
    for file in ["lt-foreign.qcow2", "lt-foreign-seed.iso"] {
        volume(&lab, file);
    }
    define(&lab, name, "", &["lt-foreign.qcow2"]);
    let before = everything(&lab, name);
    let run = lab
        .run(&create(name, &["-o", "json"]))
        .exits(1)
        .fails_with("ForeignDomain", "another --name");
    assert!(
        run.errors()[0]["message"]
            .to_string()
            .contains("left alone"),
        "{run}"
    );
    for manager in ["egressctl", "kvm", "kvm2", "all"] {
        let delete = [
            "delete",
            name,
            "--zone",
            "nas1",
            "--manager",
            manager,
            "-o",
            "json",
        ];
        let run = lab.run(&delete).exits(1);
        assert_eq!(run.errors()[0]["reason"], "ForeignDomain", "{run}");
        lab.run(&["get", name, "--manager", manager]).exits(3);
        let list = lab
            .run(&["list", "--manager", manager, "-o", "name"])
            .exits(0);
        assert!(!list.stdout.contains(name), "{list}");
    }
    // Without --zone all hosts are asked, and the same holds.
    lab.run(&["delete", name])
        .exits(1)
        .says("was not made by egressctl");
    assert_eq!(everything(&lab, name), before);
}

#[test]
fn the_operators_instances_are_shown_on_request_and_deleted_only_when_named() {
    let lab = lab!();
    let _instances = (
        lab.instance("lt-op-kvm"),
        lab.instance("lt-op-kvm2"),
        lab.instance("lt-op-ours"),
    );
    for (name, kind) in [("lt-op-kvm", "kvm"), ("lt-op-kvm2", "kvm2")] {
        for file in [
            format!("{name}.qcow2"),
            format!("{name}-seed.iso"),
            format!("{name}-data.qcow2"),
        ] {
            volume(&lab, &file);
        }
        let disks = [
            format!("{name}.qcow2"),
            format!("{name}-seed.iso"),
            format!("{name}-data.qcow2"),
        ];
        let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
        define(&lab, name, &operator(kind, "op-uid"), &disks);
    }
    lab.run(&create("lt-op-ours", &[])).exits(0);
    let listed = |manager: &[&str]| -> Vec<String> {
        let run = lab
            .run(&[&["list", "-o", "name"], manager].concat())
            .exits(0);
        let mut names: Vec<String> = run.stdout.lines().map(str::to_owned).collect();
        names.retain(|name| name.starts_with("lt-op-"));
        names
    };
    assert_eq!(listed(&[]), ["lt-op-ours"]);
    assert_eq!(listed(&["--manager", "kvm"]), ["lt-op-kvm"]);
    assert_eq!(listed(&["--manager", "kvm2"]), ["lt-op-kvm2"]);
    assert_eq!(
        listed(&["--manager", "all"]),
        ["lt-op-kvm", "lt-op-kvm2", "lt-op-ours"]
    );

    let name = "lt-op-kvm";
    let before = everything(&lab, name);
    lab.run(&["get", name]).exits(3).says("--manager all");
    let shown = lab
        .run(&["get", name, "--manager", "kvm", "-o", "json"])
        .exits(0)
        .item();
    assert_eq!(
        (&shown["manager"], &shown["uid"]),
        (&json!("kvm"), &json!("op-uid"))
    );
    // What could be done about it is nothing that would be refused.
    lab.run(&["extend", name, "1h"])
        .exits(1)
        .says("is the operator's (kvm)")
        .never_says("--manager");
    lab.run(&["exec", name, "--manager", "kvm", "--", "true"])
        .exits(121)
        .says(&format!("virsh start {name}"))
        .never_says("egressctl create");
    let by_id = lab.run(&["delete", "hosts/nas1/domains/lt-op-kvm", "-o", "json"]);
    by_id.exits(1).fails_with("ForeignDomain", "--manager kvm");
    lab.run(&["delete", name, "--zone", "nas1"])
        .exits(1)
        .says("is the operator's (kvm): it was left alone");
    lab.run(&["delete", name])
        .exits(1)
        .says("hint: --manager kvm deletes it all the same");
    lab.run(&["delete", name, "--manager", "kvm2"]).exits(1);
    lab.run(&create(name, &["-o", "json"]))
        .exits(1)
        .fails_with("ForeignDomain", "");
    lab.run(&create(name, &["--uid", "op-uid"]))
        .exits(1)
        .says("the operator's (kvm)");
    assert_eq!(everything(&lab, name), before);

    lab.run(&["delete", name, "--manager", "kvm"])
        .exits(0)
        .prints("domain lt-op-kvm");
    assert!(!lab.has_domain("nas1", name));
    assert_eq!(
        lab.volumes("nas1", "lt-op-kvm-data"),
        ["lt-op-kvm-data.qcow2"],
        "the extra disk stays"
    );
    assert_eq!(listed(&["--manager", "all"]), ["lt-op-kvm2", "lt-op-ours"]);
}

#[test]
fn a_mark_that_cannot_be_read_leaves_a_domain_in_doubt() {
    let lab = lab!();
    let name = "lt-doubt";
    let _instance = lab.instance(name);
    let broken = format!(
        "<egressctl:instance xmlns:egressctl='{OPERATOR}/egressctl' version='1'>\
         <egressctl:managed>true</egressctl:managed><egressctl:uid>u</egressctl:uid></egressctl:instance>"
    );
    let ours = "<egressctl:managed>true</egressctl:managed>";
    let twice = format!("{}{}", operator("kvm", "u"), broken.replace(ours, ""));
    for metadata in [broken.clone(), twice] {
        define(&lab, name, &metadata, &[]);
        let before = everything(&lab, name);
        lab.run(&create(name, &["-o", "json"]))
            .exits(1)
            .fails_with("InDoubt", "another --name");
        for manager in ["egressctl", "kvm", "all"] {
            let delete = [
                "delete",
                name,
                "--zone",
                "nas1",
                "--manager",
                manager,
                "-o",
                "json",
            ];
            lab.run(&delete)
                .exits(1)
                .fails_with("InDoubt", "virsh dumpxml lt-doubt");
        }
        let all = lab
            .run(&["list", "--manager", "all", "-o", "name"])
            .exits(0);
        assert!(all.stdout.lines().any(|line| line == name), "{all}");
        assert_eq!(everything(&lab, name), before);
        lab.virsh("nas1", &["undefine", name]);
    }
}

#[test]
fn our_mark_is_known_in_every_form_that_libvirt_may_give_it() {
    let lab = lab!();
    let name = "lt-forms";
    let _instance = lab.instance(name);
    lab.run(&create(name, &["--uid", "form-uid"])).exits(0);
    let xml = lab.virsh("nas1", &["dumpxml", "--inactive", name]);
    let start = xml.find("<egressctl:instance").unwrap();
    let end = xml.find("</metadata>").unwrap();
    let mark = &xml[start..end];
    let declaration = format!(" xmlns:egressctl=\"{OPERATOR}/egressctl\"");
    assert!(mark.contains(&declaration), "{mark}");
    let bare = mark.replace(&declaration, "").replace("egressctl:", "");
    let default = bare.replacen(
        "<instance",
        &format!("<instance xmlns=\"{OPERATOR}/egressctl\""),
        1,
    );
    let prefixed = mark
        .replace("egressctl:instance", "n:instance")
        .replace("<egressctl:", "<n:");
    let prefixed = prefixed
        .replace("</egressctl:", "</n:")
        .replace("xmlns:egressctl=", "xmlns:n=");
    lab.virsh("nas1", &["destroy", name]);
    for form in [default, prefixed] {
        let changed = format!("{}{form}{}", &xml[..start], &xml[end..]);
        std::fs::write(lab.path("nas1/lib/lt-domain.xml"), changed).unwrap();
        lab.virsh("nas1", &["define", "/var/lib/libvirt/lt-domain.xml"]);
        let item = lab.run(&["get", name, "-o", "json"]).exits(0).item();
        assert_eq!(
            (&item["uid"], &item["manager"]),
            (&json!("form-uid"), &json!("egressctl")),
            "{form}"
        );
    }
    lab.run(&["delete", name])
        .exits(0)
        .prints(&format!("domain {name}"));
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn other_peoples_volumes_are_neither_used_nor_deleted() {
    let lab = lab!();
    let name = "lt-volumes";
    let _instance = lab.instance(name);
    for file in ["lt-volumes.qcow2", "lt-volumes-seed.iso"] {
        volume(&lab, file);
        let before = lab.on(
            "nas1",
            &format!("cd {POOL_DIR} && stat -c '%i %Y %s' {file}"),
        );
        let run = lab
            .run(&create(name, &["-o", "json"]))
            .exits(1)
            .fails_with("ForeignDomain", "another --name");
        assert!(
            run.errors()[0]["message"].to_string().contains(file),
            "{run}"
        );
        assert_eq!(
            lab.volumes("nas1", name),
            [file],
            "what this run made is gone again"
        );
        for more in [&[][..], &["--dry-run"]] {
            lab.run(&[&["delete", name], more].concat())
                .exits(1)
                .says(&format!("volume {file} was left alone"))
                .prints(&format!("left alone: volume {file}"));
        }
        let run = lab.run(&["delete", name, "-o", "json"]).exits(1);
        assert_eq!(
            (&run.item()["deleted"], &run.item()["kept"]),
            (&json!([]), &json!([format!("volume {file}")])),
            "{run}"
        );
        run.fails_with(
            "InDoubt",
            &format!("virsh vol-delete --pool default {file}"),
        );
        assert_eq!(
            lab.on(
                "nas1",
                &format!("cd {POOL_DIR} && stat -c '%i %Y %s' {file}")
            ),
            before
        );
        // What somebody uses, nobody is told to delete.
        let shop = format!(
            "<domain type='qemu'><name>lt-shop</name><memory>65536</memory><os><type>hvm</type></os><devices><disk type='file'><source file='{POOL_DIR}/{file}'/><target dev='vda'/></disk></devices></domain>"
        );
        {
            let define =
                format!("echo \"{shop}\" > /tmp/lt-shop.xml && virsh -q define /tmp/lt-shop.xml");
            let _shop = lab.change("nas1", &define, "virsh -q undefine lt-shop");
            let run = lab.run(&["delete", name]).exits(1).says("domain lt-shop");
            run.never_says("vol-delete");
        }
        lab.virsh("nas1", &["vol-delete", "--pool", "default", file]);
    }
}

#[test]
fn a_disk_that_somebody_added_stays() {
    let lab = lab!();
    let name = "lt-extra";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    volume(&lab, "lt-extra-data.qcow2");
    let _data = Cleanup::later(|| {
        lab.on("nas1", &format!("rm -f {POOL_DIR}/lt-extra-data.qcow2"));
    });
    let disk = format!("{POOL_DIR}/lt-extra-data.qcow2");
    lab.attach_disk("nas1", name, &disk, "--config");
    let run = lab.run(&["delete", name, "-o", "json"]).exits(0);
    let deleted: Vec<Value> = run.item()["deleted"].as_array().unwrap().clone();
    assert!(
        deleted
            .iter()
            .all(|thing| !thing.to_string().contains("data")),
        "{run}"
    );
    assert_eq!(lab.volumes("nas1", name), ["lt-extra-data.qcow2"]);
}

#[test]
fn a_copy_or_a_renamed_domain_is_neither_adopted_nor_deleted_by_its_new_name() {
    let lab = lab!();
    let (name, copy) = ("lt-original", "lt-copy");
    let _instances = (lab.instance(name), lab.instance(copy));
    lab.run(&create(name, &[])).exits(0);
    lab.virsh("nas1", &["destroy", name]);
    // As virt-clone does it: the mark is copied with the domain, and the disks are copies under the new name.
    let xml = lab.virsh("nas1", &["dumpxml", "--inactive", name]);
    let start = xml.find("<egressctl:instance").unwrap();
    let end = xml.find("</metadata>").unwrap();
    volume(&lab, "lt-copy.qcow2");
    volume(&lab, "lt-copy-seed.iso");
    define(
        &lab,
        copy,
        &xml[start..end],
        &["lt-copy.qcow2", "lt-copy-seed.iso"],
    );
    let before = everything(&lab, copy);
    for args in [
        create(copy, &["-o", "json"]),
        vec!["delete", copy, "-o", "json"],
        vec!["delete", copy, "--dry-run", "-o", "json"],
    ] {
        lab.run(&args)
            .exits(1)
            .fails_with("InDoubt", "virsh domrename lt-copy lt-original");
        assert_eq!(everything(&lab, copy), before, "{args:?}");
    }
    lab.on("nas1", "virsh undefine lt-copy");
    // A renamed one goes once it has its name again.
    lab.virsh("nas1", &["domrename", name, copy]);
    lab.run(&["delete", copy, "-o", "json"])
        .exits(1)
        .fails_with("InDoubt", "virsh domrename lt-copy lt-original");
    lab.virsh("nas1", &["domrename", copy, name]);
    lab.run(&["delete", name]).exits(0);
    assert!(lab.volumes("nas1", name).is_empty());
    assert_eq!(
        lab.volumes("nas1", copy),
        ["lt-copy-seed.iso", "lt-copy.qcow2"]
    );
    lab.on(
        "nas1",
        &format!("rm {POOL_DIR}/lt-copy.qcow2 {POOL_DIR}/lt-copy-seed.iso"),
    );
}
