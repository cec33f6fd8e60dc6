//! Several instances in one run, the host that is chosen for them, and deletions that are only planned.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::cli::binary;
use crate::lab;
use crate::pull::with_image;
use crate::support::Lab;

fn field(items: &[Value], name: &str) -> Vec<Value> {
    items.iter().map(|item| item[name].clone()).collect()
}

#[test]
fn auto_takes_the_host_with_the_image_and_finds_what_it_made() {
    let lab = lab!();
    let key = "lt-auto";
    let (_image, _one, _two) = (
        lab.image(key),
        lab.instance("lt-auto-1"),
        lab.instance("lt-auto-2"),
    );
    let cli = with_image(&lab, key, "/tiny.qcow2?lt-auto");
    cli.run(&["image", "pull", key, "--zone", "nas2"]).exits(0);
    let create = [
        "create", "--zone", "auto", "--image", key, "--name", "lt-auto", "--count", "2",
    ];
    let plan = cli
        .run(&[&create[..], &["--dry-run", "-o", "json"]].concat())
        .exits(0);
    assert_eq!(field(&plan.items(), "host"), ["nas2", "nas2"], "{plan}");
    assert!(!lab.has_domain("nas2", "lt-auto-1"));
    let made = cli.run(&[&create[..], &["-o", "json"]].concat()).exits(0);
    let items = made.items();
    assert_eq!(field(&items, "name"), ["lt-auto-1", "lt-auto-2"], "{made}");
    assert_eq!(field(&items, "host"), ["nas2", "nas2"], "{made}");
    // The other host may have more room by now: what is there is found again.
    let again = cli.run(&[&create[..], &["-o", "json"]].concat()).exits(0);
    assert_eq!(
        field(&again.items(), "uuid"),
        field(&items, "uuid"),
        "{again}"
    );
}

#[test]
fn auto_passes_hosts_over_that_cannot_take_it() {
    let lab = lab!();
    let _instance = lab.instance("lt-over");
    let create = |cli: &crate::cli::Cli| {
        cli.run(&[
            "create", "--zone", "auto", "--image", "tiny", "--name", "lt-over", "-o", "json",
        ])
    };
    let cli = lab.cli_with(|kvm| kvm["hosts"][1]["bridge"] = json!("br9"));
    let made = create(&cli).exits(0).says("nas2: passed over: ");
    assert_eq!(made.item()["host"], "nas1", "{made}");
    lab.run(&["delete", "lt-over"]).exits(0);
    // A dead daemon, and nobody left: each host says why.
    let cli = lab.cli_with(|kvm| {
        kvm["hosts"][0]["socket"] = json!("/run/libvirt/nowhere");
        kvm["hosts"][1]["bridge"] = json!("br9");
    });
    let run = create(&cli).exits(1);
    let errors = run.errors();
    assert_eq!(field(&errors, "host"), ["nas1", "nas2"], "{run}");
    assert_eq!(run.items(), [json!(null); 0], "{run}");
    // More memory than any host has.
    let cli = lab.cli_with(|kvm| {
        kvm["machineTypes"] = json!({"huge": {"vcpus": 1, "memoryMiB": 16_000_000}});
    });
    create(&cli).exits(5);
}

#[test]
fn auto_makes_no_second_one_where_a_host_cannot_be_asked() {
    let lab = lab!();
    let name = "lt-unasked";
    let _instance = lab.instance(name);
    let args = [
        "create", "--zone", "auto", "--image", "tiny", "-o", "json", "--name",
    ];
    let args = [&args[..], &[name]].concat();
    lab.run(&crate::instances::create(name, &[])).exits(0);
    // The host that has it can't be reached.
    let cli = lab.cli_with(|kvm| kvm["hosts"][0]["address"] = json!("127.0.0.1:1"));
    for more in [&[][..], &["--dry-run"]] {
        let run = cli.run(&[&args[..], more].concat()).exits(4);
        let run = run.fails_with("PartialFailure", "--zone");
        assert_eq!(run.errors()[0]["host"], "nas1", "{run}");
    }
    assert!(!lab.has_domain("nas2", name));
    // The other way round it is found, and so nothing is made.
    let cli = lab.cli_with(|kvm| kvm["hosts"][1]["address"] = json!("127.0.0.1:1"));
    let run = cli.run(&args).exits(0);
    assert_eq!(run.item()["host"], "nas1", "{run}");
    // What has no name of its own is nowhere yet.
    let dry = ["create", "--zone", "auto", "--image", "tiny", "--dry-run"];
    cli.run(&dry).exits(0).says("nas2: passed over: ");
}

/// A domain that egressctl has nothing to do with.
fn foreign(lab: &Lab, host: &str, name: &str) {
    let xml = format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    );
    std::fs::write(lab.path(&format!("{host}/lib/lt-domain.xml")), xml).unwrap();
    lab.virsh(host, &["define", "/var/lib/libvirt/lt-domain.xml"]);
}

#[test]
fn of_several_the_good_ones_are_printed_and_each_failure_is_told() {
    let lab = lab!();
    let _instances = ["lt-many-1", "lt-many-2", "lt-many-3"].map(|name| lab.instance(name));
    foreign(&lab, "nas1", "lt-many-2");
    let create = [
        "create", "--zone", "nas1", "--image", "tiny", "--name", "lt-many", "--count", "3",
    ];
    let run = lab.run(&[&create[..], &["-o", "json"]].concat()).exits(1);
    assert_eq!(
        field(&run.items(), "name"),
        ["lt-many-1", "lt-many-3"],
        "{run}"
    );
    assert_eq!(run.json()["errors"][0]["reason"], "ForeignDomain", "{run}");
    let run = run.fails_with("ForeignDomain", "--name");
    assert!(
        run.errors()[0]["message"].to_string().contains("lt-many-2"),
        "{run}"
    );
    let names = lab
        .run(&[&create[..], &["-o", "name"]].concat())
        .exits(1)
        .says("error: nas1: domain lt-many-2 exists");
    assert_eq!(names.stdout, "lt-many-1\nlt-many-3\n");
    // Without a name, each has one of its own; a uid is numbered, and so found again.
    let run = |uid: &str| {
        let run = lab.run(&[
            "create", "--zone", "nas1", "--image", "tiny", "--count", "2", "--uid", uid, "-o",
            "json",
        ]);
        run.exits(0).items()
    };
    let first = run("lt-uid");
    let second = run("lt-uid");
    assert_eq!(field(&first, "uid"), ["lt-uid-1", "lt-uid-2"]);
    assert_eq!(field(&first, "uuid"), field(&second, "uuid"));
    let names: Vec<String> = field(&first, "name")
        .iter()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    assert!(
        names.iter().all(|name| name.starts_with("proxy-")),
        "{names:?}"
    );
    lab.run(&["delete", &names[0], &names[1]]).exits(0);
}

#[test]
fn a_planned_deletion_names_everything_and_touches_nothing() {
    let lab = lab!();
    let name = "lt-plan";
    let _instance = lab.instance(name);
    lab.run(&[
        "create", "--zone", "nas1", "--image", "tiny", "--name", name,
    ])
    .exits(0);
    let before = lab.on(
        "nas1",
        &format!("virsh -q dumpxml {name}; virsh -q domstate {name}"),
    );
    let files = lab.volumes("nas1", name);
    let plan = lab
        .run(&["delete", name, "lt-absent", "--dry-run", "-o", "json"])
        .exits(0);
    let would = json!([
        format!("domain {name}"),
        format!("volume {name}.qcow2"),
        format!("volume {name}-seed.iso"),
    ]);
    assert_eq!(
        field(&plan.items(), "wouldDelete"),
        [would.clone(), json!([])],
        "{plan}"
    );
    assert_eq!(plan.json()["kind"], "DeletePlanList");
    let after = lab.on(
        "nas1",
        &format!("virsh -q dumpxml {name}; virsh -q domstate {name}"),
    );
    assert_eq!((after, lab.volumes("nas1", name)), (before, files.clone()));
    // Leftovers, too.
    lab.virsh("nas1", &["destroy", name]);
    lab.virsh("nas1", &["undefine", name, "--nvram"]);
    let plan = lab
        .run(&["delete", name, "--zone", "nas1", "--dry-run"])
        .exits(0)
        .prints("WOULD DELETE")
        .prints(&format!("volume {name}.qcow2, volume {name}-seed.iso"));
    assert!(!plan.stdout.contains("domain lt-plan"), "{plan}");
    assert_eq!(lab.volumes("nas1", name), files);
    // What is done then is what was planned.
    let done = lab
        .run(&["delete", name, "--zone", "nas1", "-o", "json"])
        .exits(0);
    assert_eq!(
        done.item()["deleted"],
        json!([would[1].clone(), would[2].clone()]),
        "{done}"
    );
    assert!(lab.volumes("nas1", name).is_empty());
}

#[test]
fn a_low_soft_limit_on_open_files_is_raised() {
    let lab = lab!();
    let script = lab.write(
        "few-files",
        "#!/bin/sh\nulimit -Sn 16\nexec \"$BINARY\" \"$@\"\n",
    );
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    // Two hosts with ten descriptors each.
    let cli = lab.cli().binary(script).env("BINARY", binary());
    cli.run(&["list"]).exits(0).says_nothing();
}
