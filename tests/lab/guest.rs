//! One real guest: Debian boots, configures itself by our seed, and proxies a web page over the LAN.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::instances::{boots, create_guest};
use crate::lab;
use crate::support::{Lab, wait_until};

const NAME: &str = "lt-guest";

/// What examples/cloud-init/squid.yaml is like, with keys that vendor-data in cloud-config form would lose to, and
/// bytes that careless handling would change.
const USER_DATA: &str = "#cloud-config\r
# café \\n %s {{ v }} ${x}\t\r
write_files:\r
- path: /etc/squid/conf.d/egressctl.conf\r
  content: |\r
    http_access allow localnet\r
    shutdown_lifetime 1 second\r
- path: /run/lt-tricky\r
  content: \"a: b # c 'd' \\\"e\\\"\"\r
packages:\r
- squid\r
runcmd:\r
- [sh, -c, 'echo ran > /run/lt-runcmd']\r
- systemctl is-active --quiet squid || systemctl enable --now squid\r
";

/// Runs a command in the guest by its agent; gives its stdout.
fn in_guest(lab: &Lab, command: &[&str]) -> Vec<u8> {
    let ask = |request: Value| -> Value {
        let answer = lab.virsh("nas1", &["qemu-agent-command", NAME, &request.to_string()]);
        serde_json::from_str::<Value>(&answer).unwrap()["return"].clone()
    };
    let start = json!({"execute": "guest-exec", "arguments":
        {"path": command[0], "arg": command[1..], "capture-output": true}});
    let pid = ask(start)["pid"].clone();
    let since = Instant::now();
    loop {
        let status = ask(json!({"execute": "guest-exec-status", "arguments": {"pid": pid}}));
        if status["exited"] == true {
            assert_eq!(status["exitcode"], 0, "{command:?}: {status}");
            let output = status["out-data"].as_str().unwrap_or_default();
            return BASE64.decode(output).unwrap();
        }
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "{command:?} doesn't end in the guest"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn text_in_guest(lab: &Lab, command: &[&str]) -> String {
    String::from_utf8(in_guest(lab, command)).unwrap()
}

#[test]
fn a_guest_configures_itself_and_serves_as_a_proxy() {
    let lab = lab!(boots);
    let _instance = lab.instance(NAME);
    let file = lab.write("user-data", USER_DATA);
    let vendor = "#cloud-config\nbootcmd:\n- echo vendor > /run/lt-vendor\n";
    let cli = lab.cli_with(|kvm| {
        assert!(
            kvm["images"]["debian-13"].is_object(),
            "the lab has no debian-13: tests/lab/lab images trixie"
        );
        kvm["vendorData"] = json!(vendor);
    });
    let create = |wait: &'static str| {
        let more = ["--timeout", "6m", "-o", "json", wait];
        cli.run(&create_guest(NAME, &file, &more))
    };
    cli.run(&create_guest(NAME, &file, &[])).exits(0);
    boots(&lab, NAME);
    let ready = create("--wait=port:3128").exits(0);
    let item = ready.item();
    assert_eq!(item["state"], "Running", "{ready}");
    let address = item["ip"].as_str().unwrap().to_owned();
    let lan = lab.address("nas1");
    assert!(
        address.starts_with(lan.rsplit_once('.').unwrap().0),
        "{ready}"
    );

    proxies_a_page(&lab, &address);
    for wait in ["--wait=agent", "--wait=cloud-init", "--wait=ip"] {
        let again = create(wait).exits(0);
        assert_eq!(again.item()["uuid"], item["uuid"], "{wait}\n{again}");
        assert_eq!(again.item()["ip"], address.as_str(), "{wait}\n{again}");
    }
    user_data_arrived(&lab, &file);
    vendor_data_ran_beside_it(&lab, vendor);
    seed_is_as_a_guest_needs_it(&lab);
    address_is_found_by_agent_and_by_arp(&lab, &address);

    lab.run(&["delete", NAME])
        .exits(0)
        .prints("domain lt-guest");
    assert!(!lab.has_domain("nas1", NAME) && lab.volumes("nas1", NAME).is_empty());
}

/// A page of the image server's, fetched through the guest's squid; the server must have seen the guest.
fn proxies_a_page(lab: &Lab, address: &str) {
    let path = format!("/index.html?lt-guest-{}", std::process::id());
    let before = lab.served(&path).map_or(0, |served| served.requests);
    let proxy = reqwest::Proxy::http(format!("http://{address}:3128")).unwrap();
    let client = reqwest::blocking::Client::builder()
        .proxy(proxy)
        .timeout(Duration::from_secs(30))
        .build()
        .unwrap();
    let answer = client.get(lab.url(&path)).send().unwrap();
    assert_eq!(answer.status(), 200);
    assert!(
        answer
            .headers()
            .get("via")
            .is_some_and(|via| via.to_str().unwrap().contains("squid")),
        "{answer:?}"
    );
    assert!(
        answer
            .text()
            .unwrap()
            .contains("Hello from the lab's web server")
    );
    assert_eq!(lab.served(&path).unwrap().requests - before, 1);
    let log = std::fs::read_to_string(lab.path("log/server.log")).unwrap_or_default();
    let line = log
        .lines()
        .find(|line| line.contains(&path))
        .unwrap_or_default();
    assert!(
        line.contains(address),
        "the request should come from the guest: {line:?}"
    );
}

fn user_data_arrived(lab: &Lab, file: &std::path::Path) {
    let seen = in_guest(lab, &["cat", "/var/lib/cloud/instance/user-data.txt"]);
    let sent = std::fs::read(file).unwrap();
    assert!(
        seen == sent,
        "user-data changed on its way:\n{}",
        String::from_utf8_lossy(&seen)
    );
    assert_eq!(
        text_in_guest(lab, &["cat", "/run/lt-tricky"]),
        "a: b # c 'd' \"e\""
    );
    assert_eq!(text_in_guest(lab, &["cat", "/run/lt-runcmd"]), "ran\n");
    assert_eq!(text_in_guest(lab, &["hostname"]).trim(), NAME);
    let status: Value = serde_json::from_slice(&in_guest(
        lab,
        &["cloud-init", "status", "--format", "json"],
    ))
    .unwrap();
    assert_eq!(
        (&status["status"], &status["errors"]),
        (&json!("done"), &json!([])),
        "{status}"
    );
    assert!(
        status.to_string().contains("DataSourceNoCloud") || status["datasource"] == "nocloud",
        "{status}"
    );
}

/// The script that brings the guest agent, and the configured part, beside the user's own packages and runcmd.
fn vendor_data_ran_beside_it(lab: &Lab, vendor: &str) {
    let scripts = text_in_guest(lab, &["ls", "/var/lib/cloud/instance/scripts/vendor"]);
    assert!(!scripts.trim().is_empty(), "the vendor script");
    assert_eq!(text_in_guest(lab, &["cat", "/run/lt-vendor"]), "vendor\n");
    let agent = text_in_guest(lab, &["systemctl", "is-active", "qemu-guest-agent"]);
    assert_eq!(agent.trim(), "active");
    let seen = text_in_guest(lab, &["cat", "/var/lib/cloud/instance/vendor-data.txt"]);
    assert!(
        seen.contains("#!/bin/sh") && seen.contains(vendor),
        "{seen}"
    );
}

/// The seed as the guest's kernel reads it: label, files, and their bytes.
fn seed_is_as_a_guest_needs_it(lab: &Lab) {
    let label = text_in_guest(lab, &["blkid", "-o", "value", "-s", "LABEL", "/dev/vdb"]);
    assert_eq!(label.trim(), "cidata");
    assert_eq!(
        text_in_guest(lab, &["blkid", "-o", "value", "-s", "TYPE", "/dev/vdb"]).trim(),
        "iso9660"
    );
    let script = "mkdir -p /run/lt-seed && mount -o ro /dev/vdb /run/lt-seed && cd /run/lt-seed && ls -1 \
                  && cmp user-data /var/lib/cloud/instance/user-data.txt && cd / && umount /run/lt-seed";
    let files = text_in_guest(lab, &["sh", "-c", script]);
    assert_eq!(
        files.lines().collect::<Vec<_>>(),
        ["meta-data", "user-data", "vendor-data"]
    );
}

fn address_is_found_by_agent_and_by_arp(lab: &Lab, address: &str) {
    let get = || lab.run(&["get", NAME, "-o", "json"]).exits(0).item();
    let by_agent = get();
    assert_eq!(
        (&by_agent["ip"], &by_agent["ipSource"]),
        (&json!(address), &json!("agent")),
        "{by_agent}"
    );
    assert_eq!(
        by_agent["ips"].as_array().unwrap()[0],
        address,
        "IPv4 first, and nothing link-local: {by_agent}"
    );
    assert!(!by_agent["ips"].to_string().contains("fe80"), "{by_agent}");
    // Stopped from outside the agent: its own answer to that would never come.
    in_guest(
        lab,
        &[
            "systemd-run",
            "--on-active=1",
            "systemctl",
            "stop",
            "qemu-guest-agent",
        ],
    );
    // The host has to have talked to the guest, to know its address by ARP.
    lab.on("nas1", &format!("bash -c ': < /dev/tcp/{address}/3128'"));
    wait_until(
        "the address is found without the agent",
        Duration::from_secs(120),
        || {
            let item = get();
            item["ipSource"] == "arp" && item["ip"] == address
        },
    );
}
