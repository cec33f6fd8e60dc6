//! Creating on a real hypervisor: made as hosts and guests need it, made once, refused where something else stands.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::lab;
use crate::support::{HOSTS, Lab, POOL_DIR};

const METADATA: &str = "https://gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/egressctl";

/// The arguments of a create on nas1.
pub(crate) fn create<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [
        &[
            "create", "--zone", "nas1", "--image", "tiny", "--name", name,
        ],
        more,
    ]
    .concat()
}

/// The same for a guest that boots.
pub(crate) fn create_guest<'a>(
    name: &'a str,
    user_data: &'a Path,
    more: &[&'a str],
) -> Vec<&'a str> {
    let user_data = user_data.to_str().unwrap();
    let guest = [
        "create",
        "--zone",
        "nas1",
        "--image",
        "debian-13",
        "--name",
        name,
        "--machine-type",
        "medium",
        "--user-data",
        user_data,
    ];
    [&guest, more].concat()
}

/// What must not change when nothing was to be done: domain, run, volumes.
pub(crate) fn fingerprint(lab: &Lab, host: &str, name: &str) -> String {
    let files = format!("cd {POOL_DIR} && stat -c '%n %i %s %W %Y' {name}.qcow2 {name}-seed.iso");
    let domain = ["domuuid", "domid", "domstate"].map(|ask| lab.virsh(host, &[ask, name]));
    format!("{}{}", domain.concat(), lab.on(host, &files))
}

/// A file of a seed on nas1, by its name there.
pub(crate) fn seed_file(lab: &Lab, name: &str, file: &str) -> Vec<u8> {
    let seed = lab.path(&format!("nas1/lib/images/{name}-seed.iso"));
    let read = Command::new("isoinfo")
        .args(["-R", "-x", &format!("/{file}"), "-i"])
        .arg(seed)
        .output();
    read.unwrap().stdout
}

#[test]
fn a_domain_is_made_as_hosts_need_it() {
    let lab = lab!();
    let name = "lt-made";
    let _instance = lab.instance(name);
    let user_data = b"#!/bin/sh\nprintf 'caf\xc3\xa9 \\\\ %s\\n' \"$1\"  \r\n\ttab\n\n";
    let file = lab.write("user-data", user_data);
    let more = [
        "--user-data",
        file.to_str().unwrap(),
        "--label",
        "team=search",
        "--ttl",
        "24h",
        "-o",
        "json",
    ];
    let run = lab.run(&create(name, &more)).exits(0);
    let item = run.item();
    assert_eq!(item["id"], format!("hosts/nas1/domains/{name}"), "{run}");
    assert_eq!(item["domainState"], "running", "{run}");
    assert_eq!(item["labels"], json!({"team": "search"}), "{run}");
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");

    let xml = lab.virsh("nas1", &["dumpxml", "--inactive", name]);
    for part in [
        &format!("<source file='{POOL_DIR}/{name}.qcow2'/>"),
        &format!("<source file='{POOL_DIR}/{name}-seed.iso'/>"),
        "<target dev='vda' bus='virtio'/>",
        "<target dev='vdb' bus='virtio'/>",
        "<os firmware='efi'>",
        "<feature enabled='no' name='secure-boot'/>",
        "<source bridge='br0'/>",
        "org.qemu.guest_agent.0",
        "<serial type='pty'>",
        "<rng model='virtio'>",
        "q35",
    ] {
        assert!(xml.contains(part), "{part} is missing:\n{xml}");
    }
    assert_eq!(
        xml.matches("<disk type='file' device='disk'>").count(),
        2,
        "{xml}"
    );
    for part in [
        "type='volume'",
        "bus='sata'",
        "bus='ide'",
        "device='cdrom'",
        "secure='yes'",
        "<graphics",
    ] {
        assert!(!xml.contains(part), "{part}:\n{xml}");
    }
    assert_eq!(
        seed_file(&lab, name, "user-data"),
        user_data,
        "byte for byte"
    );
    let meta = String::from_utf8(seed_file(&lab, name, "meta-data")).unwrap();
    assert!(
        meta.contains("local-hostname") && meta.contains(name),
        "{meta}"
    );
    let vendor = seed_file(&lab, name, "vendor-data");
    assert!(
        vendor.starts_with(b"#!/bin/sh\n"),
        "a script, no cloud-config"
    );
}

#[test]
fn metadata_and_overlay_say_what_was_asked_for() {
    let lab = lab!();
    let name = "lt-recorded";
    let _instance = lab.instance(name);
    let more = [
        "--uid",
        "uid-4711",
        "--machine-type",
        "medium",
        "--disk-size",
        "3",
        "--ttl",
        "1h",
        "-o",
        "json",
    ];
    let run = lab.run(&create(name, &more)).exits(0);
    let item = run.item();
    let xml = lab.virsh("nas1", &["metadata", name, METADATA]);
    let base = lab.volumes("nas1", "base-tiny-")[0].clone();
    for part in [
        "<managed>true</managed>",
        "<uid>uid-4711</uid>",
        "<image>tiny</image>",
        &format!(
            "<digest>{}</digest>",
            lab.tiny()["sha256"].as_str().unwrap()
        ),
        "<createdAt>",
        "<expiresAt>",
        "<specHash>",
        &format!("name=\"{name}.qcow2\""),
        &format!("name=\"{name}-seed.iso\""),
    ] {
        let bare = xml.replace("egressctl:", "");
        assert!(bare.contains(part), "{part} is missing:\n{xml}");
    }
    assert_eq!(
        (&item["vcpus"], &item["memoryMiB"]),
        (&json!(2), &json!(1024)),
        "{run}"
    );
    assert_eq!(item["diskBytes"], 3_u64 << 30, "{run}");
    let created: jiff::Timestamp = item["createdAt"].as_str().unwrap().parse().unwrap();
    let expires: jiff::Timestamp = item["expiresAt"].as_str().unwrap().parse().unwrap();
    assert_eq!(expires.duration_since(created).as_secs(), 3600, "{run}");
    let info = lab.on(
        "nas1",
        &format!("qemu-img info -U --output=json {POOL_DIR}/{name}.qcow2"),
    );
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["virtual-size"], 3_u64 << 30, "{info}");
    assert_eq!(
        info["full-backing-filename"],
        format!("{POOL_DIR}/{base}"),
        "{info}"
    );
    assert_eq!(info["backing-filename-format"], "qcow2", "{info}");
}

#[test]
fn a_second_create_does_nothing_but_see_that_it_runs() {
    let lab = lab!();
    let name = "lt-again";
    let _instance = lab.instance(name);
    let first = lab.run(&create(name, &["-o", "json"])).exits(0);
    let before = fingerprint(&lab, "nas1", name);
    let second = lab
        .run(&create(name, &["-o", "json"]))
        .exits(0)
        .says_nothing();
    assert_eq!(second.item(), first.item());
    assert_eq!(
        fingerprint(&lab, "nas1", name),
        before,
        "nothing may change"
    );
    // What one was not asked for isn't part of the spec.
    lab.run(&create(name, &["--label", "a=b", "--ttl", "1h"]))
        .exits(0)
        .says_nothing();
    assert_eq!(fingerprint(&lab, "nas1", name), before);

    lab.virsh("nas1", &["destroy", name]);
    let restarted = lab.run(&create(name, &["-o", "json"])).exits(0);
    assert_eq!(
        restarted.item()["uuid"],
        first.item()["uuid"],
        "{restarted}"
    );
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
    lab.virsh("nas1", &["suspend", name]);
    let paused = lab.run(&["get", name, "-o", "json"]).exits(0);
    assert_eq!(paused.item()["state"], "Stopped", "{paused}");
    assert!(
        paused.item()["domainState"]
            .as_str()
            .unwrap()
            .starts_with("paused"),
        "{paused}"
    );
    let resumed = lab.run(&create(name, &["-o", "json"])).exits(0);
    assert_eq!(resumed.item()["domainState"], "running", "{resumed}");
    lab.virsh("nas1", &["managedsave", name]);
    lab.run(&create(name, &[])).exits(0);
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
}

#[test]
fn another_spec_under_the_same_name_is_refused_with_what_differs() {
    let lab = lab!();
    let name = "lt-differs";
    let _instance = lab.instance(name);
    let file = lab.write("user-data", "#cloud-config\nhostname: other\n");
    let file = file.to_str().unwrap();
    lab.run(&create(name, &["--uid", "one"])).exits(0);
    let before = fingerprint(&lab, "nas1", name);
    let table: [(&[&str], &str); 4] = [
        (&["--machine-type", "medium"], "medium"),
        (&["--disk-size", "5"], "5"),
        (&["--user-data", file], "user-data"),
        (&["--uid", "two"], "its uid is one, not two"),
    ];
    for (more, told) in table {
        let run = lab
            .run(&create(name, &[more, &["-o", "json"]].concat()))
            .exits(1);
        let run = run.fails_with("InstanceDiffers", &format!("egressctl delete {name}"));
        assert!(
            run.errors()[0]["causes"].to_string().contains(told),
            "{told}\n{run}"
        );
        assert_eq!(fingerprint(&lab, "nas1", name), before, "{more:?}");
    }
    let run = lab.run(&create(name, &["--image", "debian-13", "--disk-size", "4"])[..]);
    let _ = run.exits(2).says("--image"); // given twice
    // The same uid is the same instance, whatever else is asked for; but that is said.
    lab.run(&create(name, &["--uid", "one", "--machine-type", "medium"]))
        .exits(0)
        .says("machine type is small, not medium");
    assert_eq!(fingerprint(&lab, "nas1", name), before);
}

#[test]
fn what_a_repeated_create_does_not_apply_is_said() {
    let lab = lab!();
    let name = "lt-again";
    let _instance = lab.instance(name);
    let first = ["--ttl", "5h", "--label", "team=search", "--label", "tier=1"];
    lab.run(&create(name, &first))
        .exits(0)
        .never_says("was there already");
    let again = |more: &[&str]| lab.run(&create(name, more)).exits(0);
    // The same, and less.
    again(&first).never_says("was there already");
    again(&["--label", "tier=1"]).never_says("was there already");
    again(&[]).never_says("was there already");
    // Another, and more.
    again(&["--ttl", "9h"])
        .says("expires at 20")
        .says(&format!("egressctl extend {name} 9h"));
    again(&["--label", "team=mail", "--label", "tier=1"])
        .says("without team=mail;")
        .says(&format!("egressctl delete {name}"));
    let run = again(&[
        "--label",
        "new=1",
        "--ttl",
        "90m",
        "--progress",
        "json",
        "-o",
        "json",
    ]);
    let notes: Vec<Value> = run
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Value| event["event"] == "note")
        .collect();
    assert_eq!(notes.len(), 2, "{run}");
    assert_eq!(run.item()["labels"], json!({"team": "search", "tier": "1"}));
    again(&["--ttl", "9h", "--quiet"]).says_nothing();
    lab.run(&["extend", name, "--never"]).exits(0);
    again(&first).says("never expires");
}

#[test]
fn without_a_name_the_uid_names_it() {
    let lab = lab!();
    let args = [
        "create", "--zone", "nas1", "--image", "tiny", "--uid", "lt-uid", "-o", "name",
    ];
    let run = lab.run(&args).exits(0);
    let name = run.stdout.trim_end().to_owned();
    let _gone = crate::support::Cleanup::later(|| {
        lab.run(&["delete", &name]).ends_well();
    });
    let letters = name.strip_prefix("proxy-").unwrap_or_default();
    let base32 = |c: char| matches!(c, 'a'..='z' | '2'..='7');
    assert!(letters.len() == 16 && letters.chars().all(base32), "{name}");
    lab.run(&args).exits(0).prints_only(&format!("{name}\n"));
    lab.run(&["delete", &name]).exits(0);
    assert!(!lab.has_domain("nas1", &name));
}

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
    assert!(!lab.has_domain("nas1", name));
    assert!(lab.volumes("nas1", name).is_empty());
    assert!(lab.volumes("nas1", "base-lt-dry").is_empty());
}

#[test]
fn user_data_comes_from_stdin_too_and_is_never_shown() {
    let lab = lab!();
    let name = "lt-stdin";
    let _instance = lab.instance(name);
    let secret =
        b"#cloud-config\nchpasswd: {expire: false, users: [{name: a, password: hunter2}]}\n";
    let run = lab
        .cli()
        .run_with_stdin(&create(name, &["--user-data", "-", "-vv"]), secret)
        .exits(0);
    assert!(
        !run.stderr.contains("hunter2") && !run.stdout.contains("hunter2"),
        "{run}"
    );
    assert!(run.stderr.contains("rpc=virDomainCreate"), "{run}");
    assert_eq!(seed_file(&lab, name, "user-data"), secret);
}

#[test]
fn a_create_pulls_what_is_missing_and_only_that() {
    let lab = lab!();
    let (name, key, path) = ("lt-pulls", "lt-pulls", "/tiny.qcow2?lt-pulls");
    let (_image, _instance) = (lab.image(key), lab.instance(name));
    let cli = crate::pull::with_image(&lab, key, path);
    let before = lab.served(path).map_or(0, |served| served.requests);
    let args = [
        "create", "--zone", "nas2", "--image", key, "--name", name, "-o", "json",
    ];
    let first = cli.run(&args).exits(0);
    assert_eq!(first.item()["host"], "nas2", "{first}");
    crate::pull::assert_ready(&lab, "nas2", key);
    cli.run(&args).exits(0).says_nothing();
    assert_eq!(lab.served(path).unwrap().requests - before, 1);
    assert!(lab.volumes("nas1", "base-lt-pulls").is_empty());
    cli.run(&["delete", name]).exits(0).prints("nas2");
    for host in HOSTS {
        assert!(lab.volumes(host, name).is_empty());
    }
    crate::pull::assert_ready(&lab, "nas2", key);
}
