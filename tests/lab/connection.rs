//! The way to a host: host keys against `known_hosts`, forwarding, the socket, hosts that are down.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::lab;
use crate::support::{Lab, wait_until};

/// Any command that needs one host's libvirt.
pub(crate) const LIST: [&str; 5] = ["list", "--zone", "nas1", "-o", "json"];

/// `type base64` of a host's key.
pub(crate) fn host_key(lab: &Lab, host: &str, kind: &str) -> String {
    let text = std::fs::read_to_string(lab.path(&format!("{host}/ssh/host_{kind}.pub"))).unwrap();
    text.split_whitespace()
        .take(2)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The `known_hosts` file with its names hashed, as `HashKnownHosts yes` does.
fn hashed(lab: &Lab, content: &str) -> String {
    let file = lab.write("to-hash", content);
    let done = Command::new("ssh-keygen")
        .arg("-H")
        .arg("-f")
        .arg(&file)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with("|1|"), "{text}");
    text
}

#[test]
fn known_host_keys_let_us_in() {
    let lab = lab!();
    let address = lab.address("nas1");
    let [ed25519, ecdsa, rsa] =
        ["ed25519", "ecdsa", "rsa"].map(|kind| host_key(&lab, "nas1", kind));
    let plain = format!("{address} {ed25519}\n");
    let table = [
        ("plain", plain.clone()),
        (
            "only ecdsa, though ed25519 is offered first",
            format!("{address} {ecdsa}\n"),
        ),
        ("only rsa", format!("{address} {rsa}\n")),
        (
            "several types",
            format!("{address} {rsa}\n{address} {ed25519}\n"),
        ),
        ("hashed", hashed(&lab, &plain)),
        (
            "a list of names",
            format!("nas.example.net,{address} {ed25519}\n"),
        ),
        (
            "a pattern",
            format!("{}.* {ed25519}\n", address.rsplit_once('.').unwrap().0),
        ),
        (
            "CRLF, comments and a comment behind the key",
            format!("# hosts\r\n\r\n{address} {ed25519} nas1\r\n"),
        ),
        (
            "junk lines",
            format!("what is this\n{address} ssh-quantum AAAA\n{plain}"),
        ),
        (
            "a CA line beside the plain one",
            format!("@cert-authority * {rsa}\n{plain}"),
        ),
        (
            "another key revoked",
            format!("@revoked * {}\n{plain}", host_key(&lab, "nas2", "ed25519")),
        ),
    ];
    for (what, content) in table {
        let file = lab.write("known_hosts", content);
        let cli = lab.cli_with(|kvm| kvm["knownHostsFile"] = json!(file));
        let run = cli.run(&LIST).exits(0);
        assert_eq!(run.json()["errors"], json!([]), "{what}\n{run}");
    }
}

#[test]
fn other_host_keys_are_refused_before_anything_is_said() {
    let lab = lab!();
    let address = lab.address("nas1");
    let key = host_key(&lab, "nas1", "ed25519");
    let other = host_key(&lab, "nas2", "ed25519");
    let network = address.rsplit_once('.').unwrap().0;
    let scan = format!("ssh-keyscan -t ed25519 {address} >> ");
    let remove = format!("ssh-keygen -R {address} -f ");
    let revoked = "give the host a new key";
    let table = [
        (
            "nothing known",
            String::new(),
            "HostKeyUnknown",
            scan.as_str(),
        ),
        (
            "another host's line",
            format!("{network}.77 {key}\n"),
            "HostKeyUnknown",
            &scan,
        ),
        (
            "negated",
            format!("!{address},{network}.* {key}\n"),
            "HostKeyUnknown",
            &scan,
        ),
        (
            "only a CA",
            format!("@cert-authority * {key}\n"),
            "HostKeyUnknown",
            &scan,
        ),
        (
            "another port's line",
            format!("[{address}]:2222 {key}\n"),
            "HostKeyUnknown",
            &scan,
        ),
        (
            "another key",
            format!("{address} {other}\n"),
            "HostKeyMismatch",
            &remove,
        ),
        (
            "another key, hashed",
            hashed(&lab, &format!("{address} {other}\n")),
            "HostKeyMismatch",
            &remove,
        ),
        (
            "revoked, and known",
            format!("@revoked {address} {key}\n{address} {key}\n"),
            "HostKeyRevoked",
            revoked,
        ),
        (
            "revoked everywhere",
            format!("{address} {key}\n@revoked * {key}\n"),
            "HostKeyRevoked",
            revoked,
        ),
    ];
    for (what, content, reason, hint) in table {
        let file = lab.write("known_hosts", &content);
        let cli = lab.cli_with(|kvm| kvm["knownHostsFile"] = json!(file));
        let run = cli.run(&LIST).exits(1).fails_with(reason, hint);
        let error = &run.errors()[0];
        assert_eq!(error["class"], "Permanent", "{what}\n{run}");
        assert_eq!(error["host"], "nas1", "{what}\n{run}");
        assert!(
            error["causes"].to_string().contains("SHA256:"),
            "{what}: what was offered?\n{run}"
        );
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            content,
            "{what}: never trust on first use"
        );
    }
}

#[test]
fn a_mismatch_names_both_keys_for_people() {
    let lab = lab!();
    let line = format!(
        "{} {}\n",
        lab.address("nas1"),
        host_key(&lab, "nas2", "ed25519")
    );
    let file = lab.write("known_hosts", line);
    let cli = lab.cli_with(|kvm| kvm["knownHostsFile"] = json!(file));
    let run = cli.run(&["list", "--zone", "nas1"]).exits(1);
    run.says("error: nas1: the host key of")
        .says("is not the known one")
        .says("it offered ssh-ed25519 SHA256:")
        .says("(line 1)")
        .says("hint: only if the host's key was changed on purpose: ssh-keygen -R")
        .prints_only("");
}

#[test]
fn a_missing_known_hosts_file_may_still_arrive_and_can_be_done_without() {
    let lab = lab!();
    let missing = lab.scratch("nowhere/known_hosts");
    let cli = lab.cli_with(|kvm| kvm["knownHostsFile"] = json!(missing));
    let run = cli.run(&LIST).exits(4);
    assert_eq!(
        run.fails_with("CredentialsUnavailable", "ssh-keyscan")
            .errors()[0]["class"],
        "Transient"
    );
    let trusting = lab.cli_with(|kvm| {
        kvm.as_object_mut().unwrap().remove("knownHostsFile");
        kvm["insecureIgnoreHostKey"] = json!(true);
    });
    trusting
        .run(&LIST)
        .exits(0)
        .says("not verified (insecureIgnoreHostKey)");
}

#[test]
fn another_port_has_lines_of_its_own() {
    let lab = lab!();
    let address = lab.address("nas1");
    let key = host_key(&lab, "nas1", "ed25519");
    let other = host_key(&lab, "nas2", "ed25519");
    let _sshd = lab.sshd("nas1", &["Port 22", "Port 2222"]);
    let run = |content: String| {
        let file = lab.write("known_hosts", content);
        let cli = lab.cli_with(|kvm| {
            kvm["knownHostsFile"] = json!(file);
            kvm["hosts"][0]["address"] = json!(format!("{address}:2222"));
        });
        cli.run(&LIST)
    };
    run(format!("[{address}]:2222 {key}\n"))
        .exits(0)
        .says_nothing();
    run(hashed(&lab, &format!("[{address}]:2222 {key}\n")))
        .exits(0)
        .says_nothing();
    run(format!("{address} {key}\n")).exits(0).says_nothing(); // as OpenSSH: the bare name as a second chance
    let scan = format!("ssh-keyscan -p 2222 -t ed25519 {address} >> ");
    run(format!("{address} {other}\n"))
        .exits(1)
        .fails_with("HostKeyUnknown", &scan);
    let removal = format!("ssh-keygen -R '[{address}]:2222'");
    run(format!("[{address}]:2222 {other}\n"))
        .exits(1)
        .fails_with("HostKeyMismatch", &removal);
}

#[test]
fn refused_forwarding_is_told_from_a_missing_socket() {
    let lab = lab!();
    let refusals = [
        "AllowStreamLocalForwarding no",
        "AllowTcpForwarding no",
        "DisableForwarding yes",
    ];
    for line in refusals {
        let _sshd = lab.sshd("nas1", &[line]);
        let run = lab
            .run(&LIST)
            .exits(1)
            .fails_with("ForwardingRefused", "AllowStreamLocalForwarding");
        assert_eq!(run.errors()[0]["class"], "Permanent", "{line}\n{run}");
        lab.run(&["list", "--zone", "nas2"]).exits(0);
    }
    let nowhere =
        lab.cli_with(|kvm| kvm["hosts"][0]["socket"] = json!("/run/libvirt/nowhere-sock"));
    let run = nowhere
        .run(&LIST)
        .exits(4)
        .fails_with("SocketNotFound", "libvirtd.socket");
    assert!(
        run.errors()[0]["message"]
            .to_string()
            .contains("/run/libvirt/nowhere-sock"),
        "{run}"
    );
}

#[test]
fn a_user_outside_the_group_is_told_so() {
    let lab = lab!();
    let socket = "/run/libvirt/libvirt-sock";
    let _mode = lab.change(
        "nas1",
        &format!("chmod 700 {socket}"),
        "chmod 770 /run/libvirt/libvirt-sock",
    );
    let run = lab
        .run(&LIST)
        .exits(1)
        .fails_with("PermissionDenied", "usermod -aG libvirt virt");
    assert_eq!(run.errors()[0]["class"], "Permanent", "{run}");
}

#[test]
fn a_dead_libvirtd_is_told_from_a_dead_host() {
    let lab = lab!();
    lab.lab(&["libvirtd", "nas1", "kill"]);
    let _libvirtd =
        crate::support::Cleanup::later(|| drop(lab.lab(&["libvirtd", "nas1", "restart"])));
    let run = lab.run(&LIST).exits(4);
    let errors = run.errors();
    let reasons = ["LibvirtUnavailable", "SocketNotFound"];
    assert!(
        errors.len() == 1 && reasons.iter().any(|reason| errors[0]["reason"] == *reason),
        "{run}"
    );
    assert!(
        errors[0]["hints"].to_string().contains("libvirtd.socket"),
        "{run}"
    );
}

#[test]
fn a_host_without_its_cable_costs_ten_seconds_and_no_other_host() {
    let lab = lab!();
    let _cleanup = lab.instance("lt-cable");
    lab.run(&[
        "create", "--zone", "nas1", "--image", "tiny", "--name", "lt-cable",
    ])
    .exits(0);
    let cable = lab.cut("nas2");
    let run = lab
        .run(&["list", "-o", "json"])
        .exits(4)
        .within(Duration::from_secs(18));
    let names: Vec<Value> = run
        .items()
        .iter()
        .map(|item| item["name"].clone())
        .collect();
    assert!(names.contains(&json!("lt-cable")), "{run}");
    let errors = run.json()["errors"].clone();
    assert_eq!(errors.as_array().unwrap().len(), 1, "{run}");
    assert_eq!(errors[0]["host"], "nas2", "{run}");
    assert_eq!(errors[0]["class"], "Transient", "{run}");
    assert_eq!(errors[0]["reason"], "ConnectFailed", "{run}");
    assert!(
        errors[0]["message"]
            .to_string()
            .contains(&lab.address("nas2")),
        "{run}"
    );
    assert!(
        errors[0]["hint"].to_string().contains("is the host up"),
        "{run}"
    );
    // Nobody can say that a name doesn't exist while a host that may have it doesn't answer.
    lab.run(&["get", "lt-elsewhere"])
        .exits(4)
        .within(Duration::from_secs(18))
        .says("nas2");
    lab.run(&["get", "lt-elsewhere", "--zone", "nas1"])
        .exits(3)
        .says("error: nas1: there is no instance lt-elsewhere")
        .never_says("nas2");
    lab.run(&["exec", "lt-elsewhere", "--zone", "nas1", "--", "true"])
        .exits(123)
        .says("error: nas1: there is no instance lt-elsewhere");
    drop(cable);
    wait_until("the healed host answers", Duration::from_secs(20), || {
        lab.run(&["list", "--zone", "nas2"]).ends_well()
    });
}

#[test]
fn addresses_where_nobody_answers_fail_by_their_stage() {
    let lab = lab!();
    let address = lab.address("nas1");
    let nobody = format!("{}.77", address.rsplit_once('.').unwrap().0);
    let table = [
        (
            format!("{address}:7"),
            "ConnectFailed",
            "is sshd running there",
        ),
        (format!("{nobody}:22"), "ConnectFailed", "is the host up"),
        (
            "no-such-host.invalid:22".to_owned(),
            "ResolveFailed",
            "getent hosts no-such-host.invalid",
        ),
    ];
    for (address, reason, hint) in table {
        let cli = lab.cli_with(|kvm| kvm["hosts"][0]["address"] = json!(address));
        let run = cli
            .run(&LIST)
            .exits(4)
            .within(Duration::from_secs(18))
            .fails_with(reason, hint);
        assert_eq!(run.errors()[0]["class"], "Transient", "{run}");
    }
}

#[test]
fn the_directory_for_temporary_files_may_be_called_anything() {
    let lab = lab!();
    for name in ["a b", "a&b", "a%20b", "a#b", "a?b", "ä+€", "it's"] {
        let place = lab.scratch(name);
        std::fs::create_dir(&place).unwrap();
        let changed = || std::fs::metadata(&place).unwrap().modified().unwrap();
        let made = changed();
        let run = lab.cli().env("TMPDIR", &place).run(&LIST).exits(0);
        // Through a socket there, and not elsewhere because it couldn't be made.
        assert_ne!(changed(), made, "{name:?} was not used\n{run}");
    }
}
