//! Ways to a host that are narrow or unusual, and work all the same.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::cli::binary;
use crate::connection::{LIST, host_key};
use crate::lab;

#[test]
fn a_restrictive_sshd_is_lived_with() {
    let lab = lab!();
    let key = "lt-sshd";
    let _image = lab.image(key);
    // One session, which the way to libvirt doesn't need; new keys after every 256 KiB, also within an upload; all but
    // two connections are dropped before their handshake.
    let lines = ["MaxSessions 1", "RekeyLimit 256K", "MaxStartups 2:100:2"];
    let _sshd = lab.sshd("nas1", &lines);
    let cli = crate::pull::with_image(&lab, key, "/tiny.qcow2?lt-sshd");
    // The socket's path would be too long there (unix(7)).
    let long = lab.scratch(&"long-".repeat(30));
    std::fs::create_dir(&long).unwrap();
    let cli = cli.env("TMPDIR", &long);
    cli.run(&["image", "pull", key, "--zone", "nas1"]).exits(0);
    crate::pull::assert_ready(&lab, "nas1", key);
    let running: Vec<_> = (0..8).map(|_| cli.start(&LIST)).collect();
    for run in running {
        let _ = run.wait().exits(0);
    }
}

#[test]
fn with_too_few_files_a_host_fails_and_not_the_process() {
    let lab = lab!();
    let mut worked = 0;
    for files in 14..60 {
        let script = format!(
            "#!/bin/sh\nulimit -n {files}\nexec {} \"$@\"\n",
            binary().display()
        );
        let path = lab.write("few-files", script);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let run = lab.cli().binary(path).run(&["list", "-o", "json"]);
        if run.succeeded() {
            worked += 1;
            continue;
        }
        let run = run.exits(4);
        for error in run.errors() {
            let hints = error["hints"].to_string();
            let told = error["reason"] == "LocalIo";
            assert!(told && hints.contains("ulimit -n"), "{files}: {run}");
        }
    }
    assert!(worked > 0, "60 are enough for two hosts");
}

#[test]
fn scoped_ipv6_addresses_work_and_have_known_hosts_lines_of_their_own() {
    let lab = lab!();
    let _sshd = lab.sshd("nas1", &["ListenAddress ::"]);
    let link_local = lab.on(
        "nas1",
        "ip -6 -o address show dev br0 scope link | awk '{print $4}' | cut -d/ -f1",
    );
    let bridge = lab.lab(&["status"]);
    let bridge = bridge
        .split("LAN")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .trim()
        .to_owned();
    let address = format!("{}%{bridge}", link_local.trim());
    let known = format!("{address} {}\n", host_key(&lab, "nas1", "ed25519"));
    let known = lab.write("known_hosts", known);
    for written in [address.clone(), format!("[{address}]:22")] {
        let cli = lab.cli_with(|kvm| {
            kvm["knownHostsFile"] = json!(known);
            kvm["hosts"][0]["address"] = json!(written);
        });
        let run = cli.run(&LIST).exits(0).says_nothing();
        assert_eq!(run.json()["errors"], json!([]), "{written}\n{run}");
    }
}

#[test]
fn over_a_read_only_socket_instances_are_shown_and_nothing_else_is_said_or_done() {
    let lab = lab!();
    let name = "lt-readonly";
    let _instance = lab.instance(name);
    lab.run(&crate::instances::create(name, &["--ttl", "1s"]))
        .exits(0);
    let cli = lab.cli_with(|kvm| {
        kvm["hosts"][0]["socket"] = json!("/run/libvirt/libvirt-sock-ro");
    });
    let before = crate::refusals::everything(&lab);
    cli.run(&["list", "--zone", "nas1", "-o", "name"])
        .exits(0)
        .prints(name);
    cli.run(&["get", name, "--zone", "nas1"]).exits(0);
    let table: [(&[&str], i32); 8] = [
        (&["image", "pull", "tiny"], 1),
        (&["image", "list"], 1),
        (&["image", "prune", "--older-than", "0s"], 1),
        (&["create", "--image", "tiny", "--name", "lt-more"], 1),
        (&["delete", name], 1),
        (&["extend", name, "1h"], 1),
        (&["gc", "--min-age", "0s"], 4),
        (&["gc", "--min-age", "0s", "--dry-run"], 4),
    ];
    for (args, code) in table {
        let run = cli.run(&[args, &["--zone", "nas1"]].concat());
        run.exits(code)
            .says("hint: the socket libvirt-sock-ro is for reading only");
        assert_eq!(crate::refusals::everything(&lab), before, "{args:?}");
    }
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
}
