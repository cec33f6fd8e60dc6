//! One machine in the configuration as two hosts, with a pool each: every domain is seen twice, and is one.

use serde_json::{Value, json};

use super::creating;
use crate::lab;
use crate::support::{Cleanup, Lab};

/// A second pool of the first host, until the end of the test.
fn second_pool(lab: &Lab) -> Cleanup<'_> {
    let make = "mkdir -p /var/lib/libvirt/lt-pp && \
                virsh -q pool-create-as lt-pp dir --target /var/lib/libvirt/lt-pp";
    lab.change(
        "nas1",
        make,
        "virsh -q pool-destroy lt-pp; rm -rf /var/lib/libvirt/lt-pp",
    )
}

/// The configuration with the first host once more, as `nasp` with the second pool, and without the second host.
fn twice(kvm: &mut Value) {
    let mut again = kvm["hosts"][0].clone();
    again["name"] = json!("nasp");
    again["pool"] = json!("lt-pp");
    kvm["hosts"][1] = again;
}

#[test]
fn an_instance_kept_under_any_of_its_ids_stays() {
    let lab = lab!();
    let _pool = second_pool(&lab);
    let names = ["lt-gc-p1", "lt-gc-p2", "lt-gc-p3"];
    let _cleanups: Vec<_> = names.iter().map(|name| lab.instance(name)).collect();
    let cli = lab.cli_with(twice);
    let there = |name: &str| lab.has_domain("nas1", name);
    let _ = cli.run(&creating("lt-gc-p1", &[])).exits(0);
    let _ = cli.run(&creating("lt-gc-p3", &[])).exits(0);
    let on_nasp = [
        "create", "--zone", "nasp", "--image", "tiny", "--name", "lt-gc-p2",
    ];
    let _ = cli.run(&on_nasp).exits(0);
    let _ = cli
        .run(&["check"])
        .exits(0)
        .says("same machine as host nas1");
    // Each once, by the host whose pool it is in.
    let listed = cli.run(&["list", "-o", "json"]).exits(0).items();
    let of = |name: &str| -> Vec<&Value> {
        let own = listed.iter().filter(|item| item["name"] == name);
        own.map(|item| &item["host"]).collect()
    };
    assert_eq!(of("lt-gc-p1"), ["nas1"], "{listed:?}");
    assert_eq!(of("lt-gc-p2"), ["nasp"], "{listed:?}");
    let _ = cli.run(&["get", "lt-gc-p2"]).exits(0).prints("nasp");
    // The first by its own host's ID, the second by the other's, the third not at all.
    let list = "hosts/nas1/domains/lt-gc-p1\nhosts/nas1/domains/lt-gc-p2\n";
    let list = lab.write("keep", list);
    let gc = ["gc", "--min-age", "0s", "--keep", list.to_str().unwrap()];
    let _ = cli
        .run(&[&gc[..], &["--zone", "nasp", "--explain"]].concat())
        .exits(2);
    assert!(names.into_iter().all(there));
    let run = cli
        .run(&gc)
        .exits(0)
        .prints("nas1: instance lt-gc-p3: not on");
    assert_eq!(run.stdout.lines().count(), 1, "{run}");
    assert!(there("lt-gc-p1") && there("lt-gc-p2") && !there("lt-gc-p3"));
    let _ = cli.run(&["delete", "lt-gc-p2"]).exits(0).prints("lt-gc-p2");
    assert!(!there("lt-gc-p2"));
}
