//! Finding instances: get and list in every format, names and IDs, one name on two hosts.

use serde_json::{Value, json};

use crate::instances::create;
use crate::lab;
use crate::support::Lab;

fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split_whitespace().collect())
        .collect()
}

/// The rows of this test's instances, whatever else is on the hosts.
fn rows<'a>(text: &'a str, prefix: &str) -> Vec<Vec<&'a str>> {
    words(text)
        .into_iter()
        .filter(|row| row[0].starts_with(prefix))
        .collect()
}

fn make_two(lab: &Lab) {
    lab.run(&create(
        "lt-list-b",
        &["--label", "team=search", "--uid", "ub"],
    ))
    .exits(0);
    let other = [
        "create",
        "--zone",
        "nas2",
        "--image",
        "tiny",
        "--name",
        "lt-list-a",
        "--label",
        "team=mail",
    ];
    lab.run(&other).exits(0);
}

#[test]
fn list_has_every_format() {
    let lab = lab!();
    let _instances = (lab.instance("lt-list-a"), lab.instance("lt-list-b"));
    make_two(&lab);
    let table = lab.run(&["list"]).exits(0).says_nothing();
    assert_eq!(
        words(&table.stdout)[0],
        ["NAME", "HOST", "STATE", "IP", "IMAGE", "AGE"],
        "{table}"
    );
    let found = rows(&table.stdout, "lt-list-");
    // In the configuration's order of hosts, not by name.
    assert_eq!(
        found[0][..5],
        ["lt-list-b", "nas1", "Provisioning", "-", "tiny"],
        "{table}"
    );
    assert_eq!(
        found[1][..5],
        ["lt-list-a", "nas2", "Provisioning", "-", "tiny"],
        "{table}"
    );
    assert!(!table.stdout.contains('\x1b'), "{table}");

    let wide = lab.run(&["list", "-o", "wide"]).exits(0);
    let more = [
        "SOURCE", "TYPE", "EXPIRES", "MANAGER", "LABELS", "UID", "ID",
    ];
    assert_eq!(words(&wide.stdout)[0][6..], more, "{wide}");
    let found = rows(&wide.stdout, "lt-list-b");
    assert_eq!(
        found[0][6..],
        [
            "-",
            "small",
            "-",
            "egressctl",
            "team=search",
            "ub",
            "hosts/nas1/domains/lt-list-b"
        ],
        "{wide}"
    );

    let bare = lab.run(&["list", "--no-headers"]).exits(0);
    assert!(!bare.stdout.contains("NAME"), "{bare}");
    let names = lab.run(&["list", "-o", "name"]).exits(0);
    let ours: Vec<&str> = names
        .stdout
        .lines()
        .filter(|name| name.starts_with("lt-list-"))
        .collect();
    assert_eq!(ours, ["lt-list-b", "lt-list-a"], "{names}");

    let json = lab.run(&["list", "-o", "json"]).exits(0).json();
    assert_eq!(
        (&json["apiVersion"], &json["kind"]),
        (&json!("egressctl/v1"), &json!("InstanceList"))
    );
    assert_eq!(json["errors"], json!([]));
    let yaml = lab.run(&["list", "-o", "yaml"]).exits(0);
    let yaml: Value = serde_saphyr::from_str(&yaml.stdout).unwrap();
    assert_eq!(yaml, json, "the same document");
}

#[test]
fn list_can_be_narrowed() {
    let lab = lab!();
    let _instances = (lab.instance("lt-list-a"), lab.instance("lt-list-b"));
    make_two(&lab);
    let list = |more: &[&str]| {
        lab.run(&[&["list", "-o", "name"], more].concat())
            .exits(0)
            .stdout
    };
    assert_eq!(list(&["--selector", "team=search"]), "lt-list-b\n");
    assert_eq!(list(&["-l", "team"]), "lt-list-b\nlt-list-a\n");
    assert_eq!(list(&["-l", "team", "-l", "team=mail"]), "lt-list-a\n");
    assert_eq!(list(&["-l", "team=nobody"]), "\n".repeat(0));
    assert_eq!(list(&["-l", "team", "--zone", "nas2"]), "lt-list-a\n");
    let none = lab
        .run(&["list", "-l", "team=nobody", "-o", "json"])
        .exits(0);
    assert_eq!(none.json()["items"], json!([]), "{none}");
    for bad in ["=x", "team!=search", ""] {
        lab.run(&["list", "-l", bad])
            .exits(2)
            .says("neither KEY nor");
    }
    lab.run(&["list", "--zone", "nas3"])
        .exits(1)
        .says("did you mean nas");
}

#[test]
fn get_takes_names_and_ids_in_every_format() {
    let lab = lab!();
    let name = "lt-get";
    let _instance = lab.instance(name);
    let made = lab.run(&create(name, &["-o", "json"])).exits(0).item();
    let id = "hosts/nas1/domains/lt-get";
    for wanted in [name, id] {
        let run = lab
            .run(&["get", wanted, "-o", "json"])
            .exits(0)
            .says_nothing();
        assert_eq!(run.item(), made, "{wanted}");
    }
    let yaml = lab.run(&["get", name, "-o", "yaml"]).exits(0);
    let yaml: Value = serde_saphyr::from_str(&yaml.stdout).unwrap();
    assert_eq!(yaml["items"][0], made);
    lab.run(&["get", id, "-o", "name"])
        .exits(0)
        .prints_only("lt-get\n");
    let table = lab.run(&["get", name]).exits(0);
    assert_eq!(words(&table.stdout)[1][..2], [name, "nas1"], "{table}");
    lab.run(&["get", name, "-o", "wide"])
        .exits(0)
        .prints("egressctl");

    lab.run(&["get", name, "--zone", "nas2", "-o", "json"])
        .exits(3)
        .fails_with("InstanceNotFound", "egressctl list");
    lab.run(&["get", "hosts/nas2/domains/lt-get"]).exits(3);
    lab.run(&["get", "hosts/gone/domains/lt-get"])
        .exits(1)
        .says("host gone isn't configured");
    lab.run(&["get", id, "--zone", "nas2"])
        .exits(2)
        .says("--zone");
    for wrong in ["hosts/nas1/lt-get", "../x", "LT-GET", "lt get", ""] {
        lab.run(&["get", wrong]).exits(2).says("hint:");
    }
}

#[test]
fn a_name_on_two_hosts_is_nobodys_guess() {
    let lab = lab!();
    let name = "lt-both";
    let _instance = lab.instance(name);
    for zone in ["nas1", "nas2"] {
        lab.run(&["create", "--zone", zone, "--image", "tiny", "--name", name])
            .exits(0);
    }
    for verb in ["get", "delete"] {
        let run = lab
            .run(&[verb, name, "-o", "json"])
            .exits(1)
            .fails_with("AmbiguousName", "--zone");
        let told = run.errors()[0].to_string();
        assert!(
            told.contains("hosts/nas1/domains/lt-both")
                && told.contains("hosts/nas2/domains/lt-both"),
            "{run}"
        );
    }
    assert!(lab.has_domain("nas1", name) && lab.has_domain("nas2", name));
    let run = lab
        .run(&["get", name, "--zone", "nas2", "-o", "json"])
        .exits(0);
    assert_eq!(run.item()["host"], "nas2", "{run}");
    lab.run(&["delete", "hosts/nas1/domains/lt-both"])
        .exits(0)
        .prints("nas1");
    assert!(!lab.has_domain("nas1", name) && lab.has_domain("nas2", name));
    lab.run(&["delete", name]).exits(0).prints("nas2");
    assert!(!lab.has_domain("nas2", name));
    assert!(lab.volumes("nas1", name).is_empty() && lab.volumes("nas2", name).is_empty());
}

#[test]
fn several_names_are_deleted_in_one_run() {
    let lab = lab!();
    let _instances = (lab.instance("lt-list-a"), lab.instance("lt-list-b"));
    make_two(&lab);
    // One bad name, and nothing is touched.
    lab.run(&["delete", "lt-list-a", "lt-list-b", "no/id"])
        .exits(2);
    assert!(lab.has_domain("nas2", "lt-list-a") && lab.has_domain("nas1", "lt-list-b"));
    let run = lab
        .run(&["delete", "lt-list-a", "lt-never", "lt-list-b", "-o", "json"])
        .exits(0);
    let hosts: Vec<Value> = run
        .items()
        .iter()
        .map(|item| item["host"].clone())
        .collect();
    assert_eq!(hosts, [json!("nas2"), Value::Null, json!("nas1")], "{run}");
    assert!(!lab.has_domain("nas2", "lt-list-a") && !lab.has_domain("nas1", "lt-list-b"));
}

#[test]
fn a_person_is_told_that_there_is_nothing_to_list() {
    let lab = lab!();
    let cli = lab.cli();
    let list = ["list", "--selector", "lt-nobody=has-it"];
    let seen = cli.run_on_terminal(&list).exits(0);
    assert_eq!(seen.stdout.trim(), "no instances", "{seen}");
    for more in [&["-q"][..], &["-o", "name"]] {
        let seen = cli.run_on_terminal(&[&list, more].concat()).exits(0);
        assert_eq!(seen.stdout, "", "{seen}");
    }
    let document = [&list[..], &["-o", "json"]].concat();
    let seen = cli.run_on_terminal(&document).exits(0);
    assert!(!seen.stdout.contains("no instances"), "{seen}");
    // In a pipe nobody is told.
    cli.run(&list).exits(0).says_nothing().prints_only("");
}

#[test]
fn what_is_not_there_has_a_document_without_items() {
    let lab = lab!();
    let lines: [(&[&str], i32); 4] = [
        (&["get", "lt-nowhere"], 3),
        (&["extend", "lt-nowhere", "1h"], 3),
        (&["probe", "lt-nowhere"], 3),
        (&["image", "rm", "lt-nowhere"], 1),
    ];
    for (line, code) in lines {
        let run = lab.run(&[line, &["-o", "json"]].concat()).exits(code);
        assert!(run.items().is_empty(), "{run}");
        assert_eq!(run.json()["errors"], json!(run.errors()), "{run}");
        // Nobody else has any use for it.
        lab.run(line).exits(code).prints_only("");
        lab.run(&[line, &["-o", "name"]].concat())
            .exits(code)
            .prints_only("");
    }
}

#[test]
fn a_host_that_cant_be_read_fails_by_its_own_class_in_every_command() {
    let lab = lab!();
    let known = lab.write("known_hosts", "");
    let strangers = lab.cli_with(|kvm| kvm["knownHostsFile"] = json!(known));
    let lines: [&[&str]; 5] = [
        &["list"],
        &["get", "lt-nowhere"],
        &["image", "list"],
        &["image", "rm", "lt-nowhere"],
        &["image", "prune", "--dry-run"],
    ];
    let _sshd = lab.sshd("nas1", &["AllowStreamLocalForwarding no"]);
    for line in lines {
        let line = [line, &["-o", "json"]].concat();
        for (run, reason) in [
            (strangers.run(&line), "HostKeyUnknown"),
            (lab.run(&line), "ForwardingRefused"),
        ] {
            let run = run.exits(1);
            let error = run.errors().remove(0);
            assert_eq!(error["reason"], reason, "{run}");
            assert_eq!(error["class"], "Permanent", "{run}");
        }
    }
    // To gc, a host that can't be read is one for the next run.
    let run = strangers.run(&["gc", "-o", "json"]).exits(4);
    assert_eq!(run.errors()[0]["class"], "Transient", "{run}");
    // That one that is down may come back doesn't help the other.
    let _cut = lab.cut("nas2");
    let run = lab.run(&["image", "list", "-o", "json"]).exits(1);
    let classes: Vec<Value> = run.errors().iter().map(|e| e["class"].clone()).collect();
    assert_eq!(classes, ["Permanent", "Transient"], "{run}");
    let alone = ["image", "list", "-o", "json", "--zone", "nas2"];
    assert_eq!(lab.run(&alone).exits(4).errors()[0]["class"], "Transient");
}
