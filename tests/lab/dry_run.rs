//! Plans of creates: what would be made, refused where the create would be, and nothing made.

use serde_json::json;

use crate::lab;

#[test]
fn a_dry_run_shows_the_plan_and_makes_nothing() {
    let lab = lab!();
    let name = "lt-dry";
    let (_instance, _image) = (lab.instance(name), lab.image("lt-dry"));
    let secret = lab.write("user-data", "#cloud-config\n# hunter2\n");
    let cli = crate::pull::with_image(&lab, "lt-dry", "/tiny.qcow2?lt-dry");
    let args = [
        "create",
        "--zone",
        "nas1",
        "--image",
        "lt-dry",
        "--name",
        name,
        "--dry-run",
        "--user-data",
    ];
    let args = [&args[..], &[secret.to_str().unwrap()]].concat();
    let run = cli
        .run(&args)
        .exits(0)
        .prints("would be pulled")
        .prints("<domain type=\"qemu\">");
    let run = run
        .prints("user-data")
        .prints("meta-data")
        .prints("vendor-data");
    assert!(!run.stdout.contains("hunter2"), "{run}");
    let plan = cli.run(&[&args[..], &["-o", "json"]].concat()).exits(0);
    assert_eq!(plan.json()["kind"], "CreatePlanList");
    let plan = plan.item();
    assert_eq!(plan["overlayVolume"], format!("{name}.qcow2"));
    let base = plan["baseVolume"].as_str().unwrap();
    assert!(
        base.starts_with("base-lt-dry-") && !base.contains('?'),
        "{base}"
    );
    assert!(!lab.has_domain("nas1", name));
    assert!(lab.volumes("nas1", name).is_empty());
    assert!(lab.volumes("nas1", "base-lt-dry").is_empty());
}

#[test]
fn a_dry_run_is_refused_as_the_create_would_be_and_names_the_volume_it_would_make() {
    let lab = lab!();
    let (key, name) = ("lt-dry-url", "lt-dry-url");
    let (_instance, _image) = (lab.instance(name), lab.image(key));
    let create = |path: &str, more: &[&str]| {
        let cli = lab.cli_with(|kvm| kvm["images"][key] = json!({"url": lab.url(path)}));
        let args = ["create", "--zone", "nas1", "--name", name, "--image", key];
        cli.run(&[&args[..], &["-o", "json"], more].concat())
    };
    let table: [(&str, &[&str], i32, &str); 5] = [
        ("/no-such.qcow2?lt-dry-url", &[], 1, "404"),
        ("/html/tiny.qcow2?lt-dry-url", &[], 1, "NotAnImage"),
        ("/status/503/tiny.qcow2?lt-dry-url", &[], 4, "503"),
        (
            "/tiny.qcow2?lt-dry-url",
            &["--pull", "never"],
            1,
            "ImageNotReady",
        ),
        (
            "/tiny.qcow2?lt-dry-url",
            &["--wait=ip", "--user-data", "/nowhere"],
            2,
            "/nowhere",
        ),
    ];
    for (path, more, code, said) in table {
        for dry in [&["--dry-run"][..], &[]] {
            create(path, &[more, dry].concat()).exits(code).says(said);
        }
    }
    let plan = create("/tiny.qcow2?lt-dry-url", &["--dry-run", "--count", "3"]).exits(0);
    assert_eq!(lab.volumes("nas1", "base-lt-dry-url"), [""; 0]);
    let base = plan.items()[0]["baseVolume"].clone();
    assert_eq!(plan.items()[2]["baseVolume"], base);
    // Asked once for all of them, and as much as it takes to look at its first bytes.
    create("/tiny.qcow2?lt-dry-url", &[]).exits(0);
    assert!(
        lab.volumes("nas1", "base-lt-dry-url")
            .contains(&base.as_str().unwrap().to_owned())
    );
}

#[test]
fn a_dry_run_is_refused_for_what_stands_in_the_way_as_the_create_is() {
    let lab = lab!();
    let name = "lt-dry-way";
    let _instance = lab.instance(name);
    let refused = |more: &[&str], reason: &str, told: &str| {
        for dry in [&["--dry-run"][..], &[]] {
            let args = crate::instances::create(name, &[more, dry, &["-o", "json"]].concat());
            let run = lab.run(&args).exits(1).fails_with(reason, "");
            assert!(run.errors()[0].to_string().contains(told), "{told}\n{run}");
            assert_eq!(run.errors()[0]["host"], "nas1", "{run}");
        }
    };
    for file in ["lt-dry-way.qcow2", "lt-dry-way-seed.iso"] {
        let dir = crate::support::POOL_DIR;
        let make = "qemu-img create -q -f qcow2";
        let refresh = "virsh -q pool-refresh default";
        lab.on(
            "nas1",
            &format!("cd {dir} && {make} {file} 8M && {refresh}"),
        );
        refused(&[], "ForeignDomain", file);
        lab.on("nas1", &format!("rm {dir}/{file} && {refresh}"));
    }
    lab.run(&crate::instances::create(name, &[])).exits(0);
    refused(&["--disk-size", "8"], "InstanceDiffers", "disk");
    let args = crate::instances::create(name, &["--dry-run"]);
    let _ = lab.run(&args).exits(0).prints("create would take it");
    lab.run(&["extend", name, "1s"]).exits(0);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let id = format!("hosts/nas1/domains/{name}");
    refused(&[], "InstanceExpired", &format!("egressctl extend {id} 8h"));
    refused(
        &["--ttl", "2h"],
        "InstanceExpired",
        &format!("egressctl extend {id} 2h"),
    );
    // What the hint says.
    lab.run(&["extend", &id, "2h"]).exits(0);
    lab.run(&crate::instances::create(name, &[])).exits(0);
    lab.run(&["delete", name]).exits(0);
    let xml = format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    );
    std::fs::write(lab.path("nas1/lib/lt-domain.xml"), xml).unwrap();
    lab.virsh("nas1", &["define", "/var/lib/libvirt/lt-domain.xml"]);
    refused(&[], "ForeignDomain", "was not made by egressctl");
}
