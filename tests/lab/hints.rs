//! check's hints, followed to the letter: then the host is healthy. And every stage that can fail, by its name.

use serde_json::{Value, json};

use crate::check::{Change, assert_only_nas1, hint, reasons};
use crate::lab;

/// Runs a hint's command on this machine.
fn follow_here(command: &str) {
    let done = std::process::Command::new("sh")
        .args(["-c", command])
        .output()
        .unwrap();
    assert!(done.status.success(), "{command}: {done:?}");
}

#[test]
fn hints_about_a_host_followed_to_the_letter_make_it_healthy() {
    let lab = lab!();
    let table = [
        (
            "pool",
            "lt-new",
            "true",
            "virsh -q 'pool-destroy lt-new; pool-undefine lt-new' >/dev/null 2>&1; rm -rf /var/lib/libvirt/lt-new",
            "PoolNotFound",
        ),
        (
            "pool",
            "lt-it's new",
            "true",
            "virsh -q pool-destroy \"lt-it's new\" >/dev/null 2>&1; virsh -q pool-undefine \"lt-it's new\" >/dev/null 2>&1; rm -rf \"/var/lib/libvirt/lt-it's new\"",
            "PoolNotFound",
        ),
        (
            "pool",
            "default",
            "virsh -q pool-destroy default",
            "virsh -q pool-start default >/dev/null 2>&1 || true",
            "PoolNotActive",
        ),
        (
            "network",
            "lt-net",
            "echo \"<network><name>lt-net</name><forward mode='bridge'/><bridge name='br0'/></network>\" > /run/lt-net.xml \
             && virsh -q net-define /run/lt-net.xml",
            "virsh -q 'net-destroy lt-net; net-undefine lt-net' >/dev/null 2>&1",
            "NetworkNotFound",
        ),
    ];
    for (key, value, make, undo, reason) in table {
        let _broken = lab.change("nas1", make, undo);
        let cli = lab.cli_with(|kvm| {
            if key == "network" {
                kvm["hosts"][0].as_object_mut().unwrap().remove("bridge");
            }
            kvm["hosts"][0][key] = json!(value);
        });
        let run = cli.run(&["check", "-o", "json"]).exits(6);
        assert_only_nas1(&run, reason, "all");
        let told = hint(&run);
        let command = told
            .strip_prefix("on the host: ")
            .unwrap_or_else(|| panic!("{told}"));
        // What stands behind a semicolon is another way.
        lab.on("nas1", command.split(';').next().unwrap());
        cli.run(&["check"]).exits(0).says_nothing();
    }
    // The bridge to set is in the message.
    let run = lab.cli_with(|kvm| kvm["hosts"][0]["bridge"] = json!("br7"));
    let run = run.run(&["check", "-o", "json"]).exits(6);
    let message = run.items()[0]["problems"][0]["message"].to_string();
    let (_, there) = message.split_once("(bridges there: ").unwrap();
    let bridge = there.split([',', ')']).next().unwrap().to_owned();
    let cli = lab.cli_with(|kvm| kvm["hosts"][0]["bridge"] = json!(bridge));
    cli.run(&["check"]).exits(0).says_nothing();
}

#[test]
fn hints_about_host_keys_and_sockets_followed_to_the_letter_make_it_healthy() {
    let lab = lab!();
    let address = lab.address("nas1");
    let known = std::fs::read_to_string(lab.path("known_hosts")).unwrap();
    let others: Vec<&str> = known
        .lines()
        .filter(|line| !line.starts_with(&address))
        .collect();
    let nas2 = lab.address("nas2");
    let other_key = others.iter().find(|line| line.starts_with(&nas2)).unwrap();
    let (_, other_key) = other_key.split_once(' ').unwrap();
    let wrong = format!("{address} {other_key}\n{}\n", others.join("\n"));
    // Nor is its directory, as on a new machine.
    let missing = lab.scratch("ssh/known-missing");
    let table = [
        (
            lab.write("known-none", others.join("\n") + "\n"),
            "HostKeyUnknown",
            "host key",
        ),
        (
            lab.write("known-wrong", wrong),
            "HostKeyMismatch",
            "host key",
        ),
        (missing, "CredentialsUnavailable", "credentials"),
    ];
    for (file, reason, stage) in table {
        let cli = lab.cli_with(|kvm| {
            kvm["knownHostsFile"] = json!(file);
            if reason == "CredentialsUnavailable" {
                kvm["hosts"].as_array_mut().unwrap().truncate(1);
            }
        });
        let run = cli.run(&["check", "-o", "json"]).exits(6);
        assert_eq!(reasons(&run.items()[0]), [reason], "{run}");
        assert_eq!(run.items()[0]["stage"], stage, "{run}");
        for hint in run.items()[0]["problems"][0]["hints"].as_array().unwrap() {
            let hint = hint.as_str().unwrap();
            if hint.starts_with("before you trust it") {
                continue;
            }
            let hint = hint
                .strip_prefix("only if the host's key was changed on purpose: ")
                .unwrap_or(hint);
            follow_here(hint);
        }
        cli.run(&["check"]).exits(0);
    }
    let cli = |socket: &str| {
        let socket = socket.to_owned();
        lab.cli_with(move |kvm| kvm["hosts"][0]["socket"] = json!(socket))
    };
    let run = cli("/run/libvirt/libvirt-sock-ro")
        .run(&["check", "-o", "json"])
        .exits(6);
    assert_only_nas1(&run, "PermissionDenied", "all");
    let told = hint(&run);
    let (_, socket) = told.split_once("or set it to ").unwrap();
    cli(socket).run(&["check"]).exits(0).says_nothing();
    let create = crate::instances::create("lt-ro", &["-o", "json"]);
    let run = cli("/run/libvirt/libvirt-sock-ro").run(&create).exits(1);
    run.fails_with("PermissionDenied", "libvirt-sock-ro is for reading only");
}

#[test]
fn every_stage_that_fails_is_named() {
    let lab = lab!();
    let public = lab.path("keys/id_ed25519.pub");
    let web = lab.url("").strip_prefix("http://").unwrap().to_owned();
    let table: [(Change<'_>, &str, &str); 2] = [
        (
            Box::new(|kvm: &mut Value| kvm["sshKeyFile"] = json!(public)),
            "KeyUnusable",
            "credentials",
        ),
        (
            Box::new(|kvm: &mut Value| kvm["hosts"][0]["address"] = json!(web)),
            "HandshakeFailed",
            "handshake",
        ),
    ];
    for (change, reason, stage) in table {
        let run = lab.cli_with(change).run(&["check", "-o", "json"]).exits(6);
        assert_eq!(reasons(&run.items()[0]), [reason], "{run}");
        assert_eq!(run.items()[0]["stage"], stage, "{run}");
        assert!(!hint(&run).is_empty(), "{run}");
    }
    let revoked = {
        let known = std::fs::read_to_string(lab.path("known_hosts")).unwrap();
        let ours = known
            .lines()
            .filter(|line| line.starts_with(&lab.address("nas1")));
        let revoked: Vec<String> = ours.map(|line| format!("@revoked {line}\n")).collect();
        let revoked = revoked.concat();
        lab.write("known-revoked", known + &revoked)
    };
    let cli = lab.cli_with(|kvm| kvm["knownHostsFile"] = json!(revoked));
    assert_only_nas1(
        &cli.run(&["check", "-o", "json"]).exits(6),
        "HostKeyRevoked",
        "host key",
    );
    {
        let _sshd = lab.sshd("nas1", &["ForceCommand date -d '2 hours ago' +%s"]);
        let run = lab.run(&["check", "-o", "json"]).exits(6);
        assert_only_nas1(&run, "ClockSkew", "all");
    }
    lab.lab(&["libvirtd", "nas1", "kill"]);
    let _libvirtd =
        crate::support::Cleanup::later(|| drop(lab.lab(&["libvirtd", "nas1", "restart"])));
    let run = lab.run(&["check", "-o", "json"]).exits(6);
    let item = run.items()[0].clone();
    let (found, stage) = (reasons(&item), &item["stage"]);
    let silent = found == ["LibvirtUnavailable"] && *stage == "libvirt";
    let missing = found == ["SocketNotFound"] && *stage == "forward";
    assert!(silent || missing, "{run}");
}
