//! What a running domain isn't yet: its definition for the next start (`virsh edit`, `attach-disk --config`), a saved one's
//! memory, and files that are named by another path. What is used there stays.

use serde_json::Value;

use crate::cli::Run;
use crate::instances::create;
use crate::lab;
use crate::support::{Cleanup, Lab, POOL_DIR};

const FOREIGN: &str = "lt-theirs";
const LINK: &str = "/var/lib/libvirt/lt-link";
const UNDO: &str = "virsh -q destroy lt-theirs >/dev/null 2>&1; virsh -q managedsave-remove lt-theirs >/dev/null 2>&1; \
    virsh -q undefine lt-theirs >/dev/null 2>&1; virsh -q vol-delete --pool default lt-theirs-clone.qcow2 >/dev/null 2>&1; \
    rm -f /var/lib/libvirt/lt-link /var/lib/libvirt/lt-other_VARS.fd; true";

/// Somebody's domain, off, with these disks: nothing boots from them.
fn foreign<'a>(lab: &'a Lab, disks: &[&str]) -> Cleanup<'a> {
    let disk = |(n, file): (usize, &&str)| {
        let target = char::from(b"bcd"[n]);
        format!(
            "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{file}'/>\
             <target dev='vd{target}'/></disk>"
        )
    };
    let disks: String = disks.iter().enumerate().map(disk).collect();
    let xml = format!(
        "<domain type='qemu'><name>{FOREIGN}</name><memory unit='MiB'>64</memory>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{disks}</devices></domain>"
    );
    std::fs::write(lab.path("nas1/lib/lt-theirs.xml"), xml).unwrap();
    let define =
        "virsh -q define /var/lib/libvirt/lt-theirs.xml && rm /var/lib/libvirt/lt-theirs.xml";
    lab.change("nas1", define, UNDO)
}

/// Changes what the running domain is defined as for its next start, as `virsh edit` does.
fn edit(lab: &Lab, name: &str, change: impl Fn(&str) -> String) {
    let xml = change(&lab.virsh("nas1", &["dumpxml", "--inactive", name]));
    std::fs::write(lab.path("nas1/lib/lt-edited.xml"), xml).unwrap();
    lab.on(
        "nas1",
        "virsh -q define /var/lib/libvirt/lt-edited.xml && rm /var/lib/libvirt/lt-edited.xml",
    );
}

/// Fails unless neither delete nor gc takes the expired instance: somebody else uses its disk.
#[track_caller]
fn assert_stays(lab: &Lab, name: &str) {
    for more in [&[][..], &["--dry-run"]] {
        let run = lab.run(&[&["delete", name], more].concat()).exits(1);
        run.says("is used by")
            .says(FOREIGN)
            .says("nothing was touched");
    }
    let gc = ["gc", "--min-age", "0s", "--zone", "nas1"];
    lab.run(&gc).exits(0).prints_only("");
    assert!(lab.has_domain("nas1", name));
    assert_eq!(
        lab.volumes("nas1", &format!("{name}.")),
        [format!("{name}.qcow2")]
    );
}

#[test]
fn a_disk_that_a_running_domain_will_have_is_used() {
    let lab = lab!();
    let name = "lt-later";
    let _instance = lab.instance(name);
    lab.run(&create(name, &["--ttl", "1s"])).exits(0);
    let overlay = format!("{POOL_DIR}/{name}.qcow2");
    let _theirs = foreign(&lab, &[]);
    lab.virsh("nas1", &["start", FOREIGN]);
    lab.attach_disk("nas1", FOREIGN, &overlay, "--config");
    assert_stays(&lab, name);
    // The same of what is left without a domain, and of a base image.
    lab.on(
        "nas1",
        &format!("virsh -q destroy {name}; virsh -q undefine --nvram {name}"),
    );
    let gc = ["gc", "--min-age", "0s", "--zone", "nas1"];
    lab.run(&gc).exits(0).prints_only("");
    lab.run(&["delete", name]).exits(1).says(FOREIGN);
    lab.virsh("nas1", &["detach-disk", FOREIGN, "vdc", "--config"]);
    lab.run(&["delete", name]).exits(0);
    let base = lab.volumes("nas1", "base-tiny-").remove(0);
    let path = format!("{POOL_DIR}/{base}");
    lab.attach_disk("nas1", FOREIGN, &path, "--config");
    lab.run(&["image", "rm", &base, "--zone", "nas1"])
        .exits(1)
        .says(FOREIGN);
    assert!(lab.volumes("nas1", "base-tiny-").contains(&base));
}

#[test]
fn a_disk_that_a_saved_domain_goes_on_with_is_used() {
    let lab = lab!();
    let name = "lt-saved-by";
    let _instance = lab.instance(name);
    lab.run(&create(name, &["--ttl", "1s"])).exits(0);
    lab.virsh("nas1", &["destroy", name]);
    let overlay = format!("{POOL_DIR}/{name}.qcow2");
    let _theirs = foreign(&lab, &[]);
    lab.virsh("nas1", &["start", FOREIGN]);
    lab.attach_disk("nas1", FOREIGN, &overlay, "--live");
    lab.virsh("nas1", &["managedsave", FOREIGN]);
    assert_stays(&lab, name);
    lab.virsh("nas1", &["managedsave-remove", FOREIGN]);
    lab.run(&["delete", name]).exits(0);
}

#[test]
fn saved_memory_that_cant_be_read_is_named_and_nothing_is_touched() {
    let lab = lab!();
    let name = "lt-unread";
    let _instance = lab.instance(name);
    lab.run(&create(name, &["--ttl", "1s"])).exits(0);
    let _theirs = foreign(&lab, &[]);
    for spoil in [
        "truncate -s 10",
        "dd if=/dev/urandom bs=4k count=1 conv=notrunc status=none of=",
    ] {
        lab.virsh("nas1", &["start", FOREIGN]);
        lab.virsh("nas1", &["managedsave", FOREIGN]);
        let space = if spoil.ends_with('=') { "" } else { " " };
        let file = format!("/var/lib/libvirt/qemu/save/{FOREIGN}.save");
        lab.on("nas1", &format!("{spoil}{space}{file}"));
        let remove = format!("virsh managedsave-remove {FOREIGN}");
        for what in [&["delete", name][..], &["delete", name, "--dry-run"]] {
            let run = lab.run(&[what, &["-o", "json"]].concat()).exits(1);
            run.says(&format!("saved memory of domain {FOREIGN}"))
                .says(&format!("virsh managedsave-dumpxml {FOREIGN}"))
                .fails_with("InDoubt", &remove);
        }
        let gc = ["gc", "--min-age", "0s", "--zone", "nas1"];
        lab.run(&gc).exits(4).says(&remove).prints_only("");
        assert!(lab.has_domain("nas1", name));
        assert_eq!(lab.volumes("nas1", name).len(), 2, "{spoil}");
        lab.on("nas1", &remove);
    }
    let gc = ["gc", "--min-age", "0s", "--zone", "nas1"];
    lab.run(&gc).exits(0).prints(name);
    assert!(!lab.has_domain("nas1", name));
}

#[test]
fn what_somebody_wrote_into_the_definition_of_a_running_instance_counts() {
    let lab = lab!();
    let name = "lt-edited";
    let _instance = lab.instance(name);
    let gc = ["gc", "--min-age", "0s", "--zone", "nas1"];
    lab.run(&create(name, &["--ttl", "1s"])).exits(0);
    let kept = |xml: &str| xml.replace("managed>true<", "managed>false<");
    edit(&lab, name, kept);
    lab.run(&gc).exits(0).prints_only("");
    // extend changes the time, and nothing else.
    lab.run(&["extend", name, "1s"]).exits(0);
    let defined = lab.virsh("nas1", &["dumpxml", "--inactive", name]);
    assert!(defined.contains("managed>false<"), "{defined}");
    lab.run(&gc).exits(0).prints_only("");
    assert!(lab.has_domain("nas1", name));
    // A mark that can't be read any more is in doubt, for all of them.
    edit(&lab, name, |xml| {
        xml.replace("version=\"1\"", "version=\"99\"")
    });
    lab.run(&gc).exits(0).prints_only("");
    let extend = ["extend", name, "1h", "-o", "json"];
    lab.run(&extend).exits(1).fails_with("InDoubt", "");
    let delete = ["delete", name, "-o", "json"];
    lab.run(&delete).exits(1).fails_with("InDoubt", "");
    assert!(lab.has_domain("nas1", name));
    // Which the hint mends, also while it runs.
    edit(&lab, name, |xml| {
        let xml = xml.replace("version=\"99\"", "version=\"1\"");
        xml.replace("managed>false<", "managed>true<")
    });
    lab.run(&["delete", name]).exits(0);
}

#[test]
fn a_time_in_the_definition_counts_for_all_of_them() {
    let lab = lab!();
    let name = "lt-defined";
    let _instance = lab.instance(name);
    let ttl = ["--ttl", "1s", "--label", "later=no"];
    lab.run(&create(name, &ttl)).exits(0);
    let time = |run: Run| run.exits(0).item()["expiresAt"].clone();
    let get = ["get", name, "-o", "json"];
    let old = time(lab.run(&get));
    let old = old.as_str().unwrap();
    let until = |text: &str| format!("expiresAt>{text}<");
    let later = "2030-01-01T00:00:00Z";
    edit(&lab, name, |xml| xml.replace(&until(old), &until(later)));
    let list = ["list", "--zone", "nas1", "-l", "later=yes", "-o", "json"];
    assert_eq!(time(lab.run(&get)), later);
    assert_eq!(lab.run(&list).exits(0).items(), [] as [Value; 0]);
    edit(&lab, name, |xml| xml.replace("\"no\"", "\"yes\""));
    assert_eq!(time(lab.run(&list)), later);
    assert_eq!(time(lab.run(&create(name, &["-o", "json"]))), later);
    let gc = ["gc", "--min-age", "0s", "--zone", "nas1"];
    lab.run(&gc).exits(0).prints_only("");
    // A definition that is nobody's any more: what all others leave alone isn't shown as ours.
    edit(&lab, name, |xml| {
        xml.replace("version=\"1\"", "version=\"99\"")
    });
    lab.run(&get).exits(1).fails_with("InDoubt", "virsh edit");
    let run = lab.run(&["list", "--zone", "nas1", "-o", "name"]).exits(0);
    let run = run.says(&format!("domain {name} has a mark"));
    assert!(!run.stdout.contains(name), "{run}");
    lab.run(&create(name, &["-o", "json"]))
        .exits(1)
        .fails_with("InDoubt", "");
}

#[test]
fn saved_memory_brings_back_a_later_time_which_is_said() {
    let lab = lab!();
    let name = "lt-saved-time";
    let _instance = lab.instance(name);
    let time = |run: Run| run.exits(0).item()["expiresAt"].clone();
    lab.run(&create(name, &["--ttl", "2s"])).exits(0);
    lab.virsh("nas1", &["managedsave", name]);
    // Later than what was saved: there is nothing to say, and its start finds it so.
    let run = lab.run(&["extend", name, "--never"]).exits(0);
    run.never_says("saved memory");
    std::thread::sleep(std::time::Duration::from_secs(3));
    let resumed = lab.run(&create(name, &["-o", "json"]));
    assert_eq!(time(resumed), Value::Null);
    assert_eq!(time(lab.run(&["get", name, "-o", "json"])), Value::Null);
    lab.run(&create(name, &[])).exits(0);
    // Earlier.
    lab.run(&["extend", name, "2h"]).exits(0);
    let saved = time(lab.run(&["get", name, "-o", "json"]));
    lab.virsh("nas1", &["managedsave", name]);
    let run = lab.run(&["extend", name, "1h"]).exits(0);
    run.says("warning:")
        .says("has saved memory")
        .says(&format!("expires at {}", saved.as_str().unwrap()));
    let resumed = lab.run(&create(name, &["-o", "json"]));
    assert_eq!(time(resumed), saved);
}

#[test]
fn an_nvram_file_that_the_definition_names_stays_unless_it_is_its_own() {
    let lab = lab!();
    let name = "lt-nvram";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let other = "/var/lib/libvirt/lt-other_VARS.fd";
    let own = format!("/var/lib/libvirt/qemu/nvram/{name}_VARS.fd");
    let _file = lab.change("nas1", &format!("cp {own} {other}"), UNDO);
    edit(&lab, name, |xml| xml.replace(&own, other));
    let run = lab.run(&["delete", name]).exits(0);
    run.says("stays: it isn't the domain's own NVRAM file");
    lab.on("nas1", &format!("test -e {other}"));
}

#[test]
fn an_nvram_file_that_a_copy_names_stays() {
    let lab = lab!();
    let (name, copy) = ("lt-nvram", "lt-nvram-copy");
    let (_instance, _copy) = (lab.instance(name), lab.instance(copy));
    lab.run(&create(name, &[])).exits(0);
    let own = format!("/var/lib/libvirt/qemu/nvram/{name}_VARS.fd");
    // As `virsh dumpxml | sed | virsh define` makes one, with a disk of its own or none.
    let xml = lab.virsh("nas1", &["dumpxml", "--inactive", name]);
    let end = "</os>";
    let os = &xml[xml.find("<os").unwrap()..xml.find(end).unwrap() + end.len()];
    assert!(os.contains(&own), "{os}");
    let made = format!(
        "<domain type='qemu'><name>{copy}</name><memory>65536</memory>{os}<features><acpi/></features></domain>"
    );
    lab.on(
        "nas1",
        &format!("cat > /tmp/{copy}.xml <<'END'\n{made}\nEND\nvirsh -q define /tmp/{copy}.xml"),
    );
    let run = lab.run(&["delete", name]).exits(0);
    run.says("another domain names it");
    lab.on("nas1", &format!("test -e {own}"));
}

#[test]
fn a_file_is_known_by_another_path_too() {
    let lab = lab!();
    let name = "lt-linked";
    let _instance = lab.instance(name);
    lab.run(&create(name, &["--ttl", "1s"])).exits(0);
    let _link = lab.change("nas1", &format!("ln -s {POOL_DIR} {LINK}"), UNDO);
    let linked = format!("{LINK}/{name}.qcow2");
    lab.virsh("nas1", &["destroy", name]);
    {
        let _theirs = foreign(&lab, &[&linked]);
        assert_stays(&lab, name);
        lab.virsh("nas1", &["start", FOREIGN]);
        assert_stays(&lab, name);
    }
    lab.on("nas1", &format!("ln -sfn {POOL_DIR} {LINK}"));
    // As a clone's backing file, in the same pool.
    let clone = format!("{POOL_DIR}/{FOREIGN}-clone.qcow2");
    lab.on(
        "nas1",
        &format!("qemu-img create -q -f qcow2 -F qcow2 -b {linked} {clone}"),
    );
    assert_stays(&lab, name);
    lab.on(
        "nas1",
        &format!("rm {clone}; virsh -q pool-refresh default"),
    );
    // Another file of that name is another file.
    let theirs = format!("/var/lib/libvirt/{name}.qcow2");
    let make = format!("qemu-img create -q -f qcow2 {theirs} 1M");
    let _file = lab.change("nas1", &make, "rm -f /var/lib/libvirt/lt-linked.qcow2");
    let _theirs = foreign(&lab, &[&theirs]);
    lab.run(&["delete", name, "-o", "json"]).exits(0);
    lab.on("nas1", &format!("test -e {theirs}"));
}

#[test]
fn a_create_that_is_refused_deletes_nothing() {
    let lab = lab!();
    let name = "lt-foreign-both";
    let volumes = [format!("{name}-seed.iso"), format!("{name}.qcow2")];
    let undo = "for v in lt-foreign-both-seed.iso lt-foreign-both.qcow2; do virsh -q vol-delete --pool default $v; done; true";
    let make = format!(
        "virsh -q vol-create-as default {} 1M --format raw && virsh -q vol-create-as default {} 1M --format qcow2",
        volumes[0], volumes[1]
    );
    let _volumes = lab.change("nas1", &make, undo);
    let run = lab.run(&create(name, &["-o", "json"])).exits(1);
    let reason: Value = run.errors()[0]["reason"].clone();
    assert_eq!(reason, "ForeignDomain", "{run}");
    assert_eq!(lab.volumes("nas1", name), volumes);
}
