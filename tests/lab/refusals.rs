//! Requests that can't be met: a clear error, the right exit code, and nothing touched on any host.

use std::path::Path;

use serde_json::{Value, json};

use crate::instances::create;
use crate::lab;
use crate::support::{HOSTS, Lab};

/// All domains and volumes of all hosts.
pub(crate) fn everything(lab: &Lab) -> Vec<String> {
    let domains = |host| lab.virsh(host, &["list", "--all", "--name", "--uuid"]);
    let volumes = |host| lab.volumes(host, "").join("\n");
    HOSTS
        .iter()
        .flat_map(|host| [domains(host), volumes(host)])
        .collect()
}

#[test]
fn unknown_words_are_refused_with_those_that_are_known() {
    let lab = lab!();
    let before = everything(&lab);
    let table = [
        (
            "create --zone nas3 --image tiny",
            "UnknownZone",
            "did you mean nas",
            "nas1, nas2",
        ),
        (
            "create --zone elsewhere --image tiny",
            "UnknownZone",
            "",
            "nas1, nas2",
        ),
        ("create --image tiny", "UnknownZone", "--zone", "nas1, nas2"),
        (
            "create --zone nas1 --image tinny",
            "UnknownImage",
            "did you mean tiny?",
            "tiny",
        ),
        (
            "create --zone nas1 --image ftp://x/y",
            "UnknownImage",
            "",
            "tiny",
        ),
        ("create --zone nas1", "UnknownImage", "--image", "tiny"),
        (
            "create --zone nas1 --image tiny --machine-type smal",
            "UnknownMachineType",
            "did you mean small?",
            "medium",
        ),
        (
            "create --zone nas1 --image tiny --machine-type huge",
            "UnknownMachineType",
            "",
            "small, medium",
        ),
        ("image pull debian-99x", "UnknownImage", "", "tiny"),
        (
            "image pull tiny --zone nas9",
            "UnknownZone",
            "",
            "nas1, nas2",
        ),
        ("check --zone nas9", "UnknownZone", "", "nas1, nas2"),
        ("delete lt-x --zone nas9", "UnknownZone", "", "nas1, nas2"),
    ];
    for (line, reason, hint, known) in table {
        let args: Vec<&str> = line.split(' ').chain(["-o", "json"]).collect();
        let run = lab.run(&args).exits(1).fails_with(reason, hint);
        assert!(
            run.errors()[0].to_string().contains(known),
            "{known}\n{run}"
        );
    }
    assert_eq!(everything(&lab), before);
}

#[test]
fn an_unknown_provider_or_configuration_is_a_matter_of_usage() {
    let lab = lab!();
    let run = lab
        .run(&["list", "--provider", "kvm-lap", "-o", "json"])
        .exits(2);
    let run = run.says("UnknownProvider").says("did you mean kvm-lab?");
    assert!(run.stdout.is_empty(), "{run}");
    lab.cli()
        .env("EGRESSCTL_PROVIDER", "nobody")
        .run(&["list"])
        .exits(2)
        .says("kvm-lab");
    lab.run(&["list", "--provider", "kvm-lab"]).exits(0);
    let nowhere = lab.scratch("nowhere.yaml");
    lab.run(&["list", "--config", nowhere.to_str().unwrap()])
        .exits(2)
        .says("nowhere.yaml")
        .says("config init");
    let wrong = lab.cli_with(|kvm| {
        kvm["diskSizeGB"] = json!(3);
        kvm["hosts"][1]["bridge"] = Value::Null;
    });
    wrong
        .run(&["list"])
        .exits(2)
        .says("diskSizeGB")
        .says("diskSizeGb")
        .says("hosts[1].bridge");
}

#[test]
fn names_that_are_no_host_names_are_refused() {
    let lab = lab!();
    let before = everything(&lab);
    let long = "a".repeat(64);
    let table = [
        "web 1", "../x", "a&b", "Web1", "web_1", "web.1", "-web", "web-", "", "a/b", "a:b",
        "base-x", "wéb", "a\nb", &long,
    ];
    for name in table {
        let name = format!("--name={name}");
        let args = [
            "create", "--zone", "nas1", "--image", "tiny", &name, "-o", "json",
        ];
        lab.run(&args)
            .exits(2)
            .fails_with("InvalidName", "1 to 63 lower-case letters");
    }
    assert_eq!(everything(&lab), before);
}

#[test]
fn files_that_cannot_be_user_data_are_refused() {
    let lab = lab!();
    let before = everything(&lab);
    let missing = lab.scratch("missing.yaml");
    let directory = lab.scratch("");
    let broken = lab.write("broken.yaml", "#cloud-config\nusers: [\n");
    let table: [(&Path, &str); 3] = [
        (&missing, "missing.yaml"),
        (&directory, ""),
        (&broken, "broken.yaml"),
    ];
    for (file, told) in table {
        let more = ["--user-data", file.to_str().unwrap(), "-o", "json"];
        let run = lab.run(&create("lt-data", &more)).exits(2);
        let errors = run.errors();
        assert!(
            errors.len() == 1 && errors[0]["reason"] == "InvalidUserData",
            "{run}"
        );
        assert!(errors[0].to_string().contains(told), "{run}");
    }
    let more = ["--network-config", missing.to_str().unwrap()];
    lab.run(&create("lt-data", &more))
        .exits(2)
        .says("network-config")
        .says("missing.yaml");
    assert_eq!(everything(&lab), before);
}

#[test]
fn words_that_mean_nothing_are_a_matter_of_usage() {
    let lab = lab!();
    let table: [&[&str]; 9] = [
        &["--wait=port:0"],
        &["--wait=soon"],
        &["--ttl", "tomorrow"],
        &["--label", "novalue"],
        &["--label", "a b=c"],
        &["--disk-size", "0"],
        &["--timeout", "x"],
        &["--no-such-option"],
        &["-o", "xml"],
    ];
    for more in table {
        lab.run(&create("lt-usage", more)).exits(2).prints_only("");
    }
    lab.run(&[]).exits(2);
    lab.run(&["delete"]).exits(2);
    lab.run(&["--help"])
        .exits(0)
        .prints("Examples:")
        .says_nothing();
    lab.run(&["--version"]).exits(0).prints("egressctl ");
}
