//! Several hosts and a dead one: its time limit is paid once, beside the others' work, and nothing is left running.

use std::time::Duration;

use crate::hangs::halt_sshd;
use crate::lab;
use crate::support::Lab;

/// sshd's sessions on a host, which end with the connection.
fn sessions(lab: &Lab, host: &str) -> usize {
    let list = lab.on(host, "pgrep -c -f '^sshd[-a-z]*: virt' || true");
    list.trim().parse().unwrap()
}

#[test]
fn a_dead_host_costs_its_limit_once_and_hides_no_other_row() {
    let lab = lab!();
    let name = "lt-fleet";
    let _instance = lab.instance(name);
    lab.run(&[
        "create", "--zone", "nas2", "--image", "tiny", "--name", name,
    ])
    .exits(0);
    // Twice in the fleet: two dead hosts wait side by side.
    let cli = lab.cli_with(|kvm| {
        let mut twin = kvm["hosts"][0].clone();
        twin["name"] = "twin".into();
        kvm["hosts"].as_array_mut().unwrap().push(twin);
    });
    // Without a cable a dial may fail sooner, by ARP.
    let halted = halt_sshd(&lab);
    // A dial's limit is 10 s; two after each other would be 20.
    let run = cli
        .run(&["list", "-o", "json"])
        .exits(4)
        .within(Duration::from_secs(18));
    let rows = run.items();
    assert!(rows.iter().any(|row| row["name"] == name), "{run}");
    let failed: Vec<_> = run
        .errors()
        .iter()
        .map(|error| error["host"].clone())
        .collect();
    assert_eq!(failed, ["nas1", "twin"], "{run}");
    drop(halted);
    cli.run(&["list"]).exits(0);
    crate::support::wait_until("sessions end", Duration::from_secs(10), || {
        sessions(&lab, "nas2") == 0
    });
}
