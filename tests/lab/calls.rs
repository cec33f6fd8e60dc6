//! How many calls to libvirt a command makes, held to what docs/performance.md says: one more is a round trip more on
//! every far host.

use std::collections::BTreeMap;

use crate::cli::Checked;
use crate::generations::{Served, tiny_bytes, with_moving_image};
use crate::instances::create;
use crate::lab;

/// The calls that a command logged, by name.
fn calls(run: &Checked) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for line in run.stderr.lines() {
        let name = line.split_once(" rpc=").map(|(_, rest)| rest);
        if let Some(name) = name.and_then(|rest| rest.split_whitespace().next()) {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// Fails unless the command made exactly these calls.
#[track_caller]
fn makes(run: &Checked, expected: &[(&str, usize)]) {
    let expected: BTreeMap<String, usize> = expected
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect();
    assert_eq!(calls(run), expected, "{run}");
}

/// A warm create: the image is there, the name is free, the host has no KVM and no interface driver.
const CREATE: &[(&str, usize)] = &[
    ("virConnectOpen", 1),
    // Preflight, all together.
    ("virConnectGetLibVersion", 1),
    ("virDomainLookupByName", 1),
    ("virStoragePoolLookupByName", 1),
    ("virStoragePoolGetInfo", 1),
    ("virStoragePoolGetXMLDesc", 1),
    ("virConnectGetCapabilities", 1),
    ("virConnectGetDomainCapabilities", 1),
    ("virInterfaceLookupByName", 1),
    // The marker; and after the start whose the seed is, which another create may have made anew before the domain was.
    ("virStorageVolDownload", 2),
    // The base and its marker, at the same time the operator's base and its marker.
    ("virStorageVolLookupByName", 4),
    // The base's, and the marker's once more when the overlay is there.
    ("virStorageVolGetXMLDesc", 2),
    // Seed and overlay.
    ("virStorageVolCreateXML", 2),
    ("virStorageVolUpload", 1),
    ("virStreamFinish", 1),
    ("virStorageVolGetPath", 2),
    // The domain, and what has become of it.
    ("virDomainDefineXMLFlags", 1),
    ("virDomainCreate", 1),
    ("virDomainGetState", 1),
    ("virDomainGetXMLDesc", 1),
];

/// One running instance without an agent: nobody asks for it. Its XML as it runs, and, beside its addresses, as it is
/// defined.
const GET: &[(&str, usize)] = &[
    ("virConnectOpen", 1),
    ("virDomainLookupByName", 1),
    ("virDomainGetState", 1),
    ("virDomainGetXMLDesc", 2),
    ("virDomainInterfaceAddresses", 2),
];

/// On a host with so many domains and volumes, all of them in one pool.
fn delete(domains: usize, volumes: usize) -> Vec<(&'static str, usize)> {
    vec![
        ("virConnectOpen", 1),
        // And whether the name is still free, before each of its volumes goes.
        ("virDomainLookupByName", 3),
        ("virDomainGetState", 1),
        ("virStoragePoolLookupByName", 1),
        ("virStoragePoolGetInfo", 1),
        ("virStoragePoolGetXMLDesc", 1),
        ("virStorageVolLookupByName", 2),
        // Who else uses its volumes.
        ("virStoragePoolRefresh", 1),
        ("virStoragePoolListAllVolumes", 1),
        ("virConnectListAllStoragePools", 1),
        // What is, what runs and is defined otherwise, what is saved.
        ("virConnectListAllDomains", 3),
        ("virConnectGetAllDomainStats", 1),
        // Its own, as it runs and as it is defined, and, for this, everybody's. It alone runs.
        ("virDomainGetXMLDesc", 2 + domains + 1),
        ("virStorageVolGetXMLDesc", 2 + volumes),
        ("virDomainDestroy", 2),
        ("virDomainUndefineFlags", 1),
        ("virStorageVolDelete", 2),
    ]
}

#[test]
fn commands_make_no_call_too_many() {
    let lab = lab!();
    let name = "lt-calls";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    let run = lab.run(&create(name, &["-v"])).exits(0);
    makes(&run, CREATE);

    // By name alone every host is asked, and only one knows more.
    let run = lab.run(&["get", name, "--zone", "nas1", "-v"]).exits(0);
    makes(&run, GET);
    let run = lab.run(&["get", name, "-v"]).exits(0);
    assert_eq!(calls(&run)["virDomainLookupByName"], 2, "{run}");
    assert_eq!(calls(&run)["virDomainGetXMLDesc"], 2, "{run}");
    assert!(
        !calls(&run).contains_key("virConnectListAllDomains"),
        "{run}"
    );

    // Two calls for all, one for each domain; addresses and definitions only of running ones of ours, here one.
    let domains = lab.virsh("nas1", &["list", "--all", "--name"]);
    let domains = domains.lines().filter(|line| !line.is_empty()).count();
    let run = lab.run(&["list", "--zone", "nas1", "-v"]).exits(0);
    let expected = [
        ("virConnectOpen", 1),
        ("virConnectListAllDomains", 1),
        ("virConnectGetAllDomainStats", 1),
        ("virDomainGetXMLDesc", domains + 1),
        ("virDomainInterfaceAddresses", 2),
    ];
    makes(&run, &expected);

    let volumes = lab.volumes("nas1", "").len();
    let run = lab.run(&["delete", name, "--zone", "nas1", "-v"]).exits(0);
    makes(&run, &delete(domains, volumes));
}

#[test]
fn a_pull_that_finds_nothing_new_asks_one_thing_more() {
    let lab = lab!();
    let key = "lt-calls-again";
    let _image = lab.image(key);
    let mut content = tiny_bytes(&lab);
    let served = Served::new(&lab, "lt-calls-again.qcow2", &content);
    let cli = with_moving_image(&lab, key, "/lt-calls-again.qcow2");
    let args = ["image", "pull", key, "--zone", "nas1", "-v"];
    let pull = || cli.run(&args).exits(0);
    pull();
    // What other generations there are; beside that only its own marker is read, to see whether it is ready.
    let run = pull();
    assert_eq!(calls(&run)["virStoragePoolListAllVolumes"], 1, "{run}");
    assert_eq!(calls(&run)["virStorageVolDownload"], 1, "{run}");
    content.resize(content.len() + 65536, 0);
    served.replace(&content);
    pull();
    // And where there is one, both markers.
    let run = pull();
    assert_eq!(calls(&run)["virStoragePoolListAllVolumes"], 1, "{run}");
    assert_eq!(calls(&run)["virStorageVolDownload"], 3, "{run}");
    assert!(!calls(&run).contains_key("virStorageVolUpload"), "{run}");
}
