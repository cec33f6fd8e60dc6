//! Guest agents that hang, of two guests that run.

use std::time::Duration;

use serde_json::Value;

use super::{NAME, SECOND};
use crate::cli::{Checked, Cli};
use crate::crash::faulty;
use crate::hangs::SHORT;
use crate::instances::{boots, create};
use crate::support::{Lab, wait_until};

const BOTH: [&str; 2] = [NAME, SECOND];

/// Rows without an agent beside them.
const OTHERS: usize = 6;

/// What a list says of our instances; all of them must be in it.
#[track_caller]
fn rows(run: &Checked) -> Vec<Value> {
    let mut rows = run.items();
    rows.retain(|row| row["name"].to_string().contains(NAME));
    assert_eq!(rows.len(), BOTH.len() + OTHERS, "every row\n{run}");
    rows
}

/// Instances that needn't run to be listed.
fn define_others(lab: &Lab, cli: &Cli) -> impl Drop {
    let names: Vec<String> = (1..=OTHERS).map(|n| format!("{NAME}-{n}")).collect();
    let instances: Vec<_> = names.iter().map(|name| lab.instance(name)).collect();
    cli.run(&create(&names[0], &[])).exits(0);
    // Off, it isn't asked for addresses, and so doesn't take one of the faults.
    lab.virsh("nas1", &["destroy", &names[0]]);
    let xml = lab.virsh("nas1", &["dumpxml", "--inactive", &names[0]]);
    for name in &names[1..] {
        let other = xml.replace(&names[0], name);
        let other: String = other
            .lines()
            .filter(|line| !line.contains("<uuid>") && !line.contains("<mac "))
            .collect();
        std::fs::write(lab.path("nas1/lib/lt-agent.xml"), other).unwrap();
        lab.virsh("nas1", &["define", "/var/lib/libvirt/lt-agent.xml"]);
    }
    instances
}

pub(super) fn that_hang_cost_their_own_rows_an_address_and_the_list_one_limit(
    lab: &Lab,
    cli: &Cli,
) {
    let file = lab.scratch("user-data");
    boots(lab, SECOND);
    let wait = ["--wait=agent", "--timeout", "5m"];
    cli.run(&super::create_guest(SECOND, &file, &wait)).exits(0);
    let _others = define_others(lab, cli);
    // The host has to have talked to the guests, to know their addresses by ARP.
    for name in BOTH {
        let ip = cli.run(&["get", name, "-o", "json"]).exits(0).item()["ip"].clone();
        let ip = ip.as_str().unwrap();
        lab.on("nas1", &format!("bash -c ': < /dev/tcp/{ip}/22'"));
    }
    no_answer_at_all(lab);
    stopped_ones(cli);
}

/// libvirt itself doesn't notice: each call lasts until our limit.
fn no_answer_at_all(lab: &Lab) {
    let Some(binary) = faulty() else { return };
    let list = |hanging: u32| {
        let fault = format!("hang:virDomainInterfaceAddresses:{hanging}");
        let cli = lab.cli().binary(binary.clone());
        let cli = cli
            .env("EGRESSCTL_FAULT", fault)
            .env("EGRESSCTL_LIMITS", SHORT);
        let run = cli.run(&["list", "-o", "json", "-v"]).exits(0);
        rows(&run);
        run
    };
    // Each hangs until its limit, all at the same time; then the host is asked for its leases and its ARP table.
    let both = list(2);
    let asked = |source: &str, name: &str| {
        let line = format!("domain={name} source={source}");
        let mut lines = both.stderr.lines().filter(|text| text.contains(&line));
        lines.any(|text| !text.contains("error="))
    };
    for name in BOTH {
        assert!(asked("arp", name) && asked("lease", name), "{name}\n{both}");
    }
    let (one, both) = (list(1).took, both.took);
    assert!(
        both < one + Duration::from_secs(3),
        "two that hang take no longer than one: {both:?}, {one:?}"
    );
}

/// Their processes are halted in the guests, so that their channels stay open: libvirt gives each of them 5 s.
fn stopped_ones(cli: &Cli) {
    for name in BOTH {
        let exec = |command: &[&str]| cli.run(&[&["exec", name, "--"], command].concat());
        // Stopped from outside the agent: its own answer to that would never come.
        exec(&[
            "systemd-run",
            "--on-active=1",
            "pkill",
            "-STOP",
            "-x",
            "qemu-ga",
        ])
        .exits(0);
        wait_until("the agent hangs", Duration::from_secs(90), || {
            !exec(&["true"]).ends_well()
        });
    }
    let run = cli.run(&["list", "-o", "json"]).exits(0);
    for row in rows(&run) {
        let name = row["name"].as_str().unwrap();
        if BOTH.contains(&name) {
            assert_eq!(row["ipSource"], "arp", "{run}");
        }
    }
    assert!(
        run.took < Duration::from_secs(20),
        "one limit, not two of each\n{run}"
    );
}
