//! check: every host at once, each problem with its reason, hint and exit code 6.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::Checked;
use crate::lab;
use crate::pull_faults::{in_pool, small_pool};

/// A change of the provider's configuration.
pub(crate) type Change<'a> = Box<dyn FnOnce(&mut Value) + 'a>;

pub(crate) fn reasons(item: &Value) -> Vec<&str> {
    let problems = item["problems"].as_array().unwrap();
    problems
        .iter()
        .map(|problem| problem["reason"].as_str().unwrap())
        .collect()
}

/// Fails unless nas1 has just this problem, with a hint, and nas2 has none.
#[track_caller]
pub(crate) fn assert_only_nas1(run: &Checked, reason: &str, stage: &str) {
    let items = run.items();
    assert_eq!(items.len(), 2, "{run}");
    assert_eq!(
        (&items[0]["host"], &items[0]["healthy"]),
        (&json!("nas1"), &json!(false)),
        "{run}"
    );
    assert_eq!(reasons(&items[0]), [reason], "{run}");
    assert_eq!(items[0]["stage"], stage, "{run}");
    assert!(
        !items[0]["problems"][0]["hints"]
            .as_array()
            .unwrap()
            .is_empty(),
        "what to do?\n{run}"
    );
    assert_eq!(
        (&items[1]["host"], &items[1]["healthy"]),
        (&json!("nas2"), &json!(true)),
        "{run}"
    );
    assert_eq!(run.errors()[0]["class"], "Unhealthy", "{run}");
}

#[test]
fn healthy_hosts_are_reported_in_the_configurations_order() {
    let lab = lab!();
    let run = lab.run(&["check", "-o", "json"]).exits(0).says_nothing();
    assert_eq!(run.json()["kind"], "CheckList", "{run}");
    let items = run.items();
    for (item, host) in items.iter().zip(crate::support::HOSTS) {
        assert_eq!(
            (&item["host"], &item["hostname"]),
            (&json!(host), &json!(host)),
            "{run}"
        );
        assert_eq!(
            (&item["healthy"], &item["stage"]),
            (&json!(true), &json!("all")),
            "{run}"
        );
        assert_eq!(
            (&item["nic"], &item["accelerator"]),
            (&json!("br0"), &json!("qemu")),
            "{run}"
        );
        assert_eq!(item["firmware"], json!(["bios", "uefi"]), "{run}");
        assert_eq!(
            (&item["pool"]["name"], &item["pool"]["type"]),
            (&json!("default"), &json!("dir")),
            "{run}"
        );
        let bytes = |key: &str| item["pool"][key].as_u64().unwrap();
        assert!(
            bytes("capacityBytes") >= bytes("availableBytes") && bytes("availableBytes") > 0,
            "{run}"
        );
        assert_eq!(item["pool"]["state"], "active", "{run}");
        for version in ["libvirtVersion", "qemuVersion"] {
            assert_eq!(
                item[version].as_str().unwrap().split('.').count(),
                3,
                "{run}"
            );
        }
        assert_eq!(
            item["clockSkewSeconds"].as_i64().unwrap().abs() / 2,
            0,
            "{run}"
        );
    }
    let turned = lab.cli_with(|kvm| kvm["hosts"].as_array_mut().unwrap().reverse());
    let table = turned.run(&["check"]).exits(0).says_nothing();
    let column: Vec<&str> = table
        .stdout
        .lines()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(column, ["HOST", "nas2", "nas1"], "{table}");
    let one = lab.run(&["check", "--zone", "nas2", "-o", "json"]).exits(0);
    assert_eq!(one.item()["host"], "nas2", "{one}");
}

#[test]
fn the_images_in_a_pool_are_told_and_a_pool_that_is_off_is_shown() {
    let lab = lab!();
    let _image = lab.image("lt-told");
    let cli = lab.cli_with(|kvm| kvm["images"]["lt-told"] = kvm["images"]["tiny"].clone());
    cli.run(&["image", "pull", "lt-told", "--zone", "nas1"])
        .exits(0);
    let check = ["check", "--zone", "nas1", "-o", "json"];
    let told = |run: &Checked| {
        let images = run.item()["images"].as_array().unwrap().clone();
        let mut ours = images.into_iter().filter(|i| i["key"] == "lt-told");
        ours.next().unwrap_or_else(|| panic!("not told\n{run}"))
    };
    let run = lab.run(&check).exits(0);
    let image = told(&run);
    assert_eq!(image["ready"], true, "{run}");
    let wide = ["check", "--zone", "nas1", "-o", "columns=IMAGES,POOL TYPE"];
    lab.run(&wide).exits(0).prints("lt-told").prints("dir");
    // A marker that a crash left empty vouches for nothing.
    let marker = format!("{}.sha256", image["volume"].as_str().unwrap());
    lab.on(
        "nas1",
        &format!("truncate -s 0 /var/lib/libvirt/images/{marker}"),
    );
    let run = lab.run(&check).exits(0);
    assert_eq!(told(&run)["ready"], false, "{run}");

    let _off = lab.change(
        "nas1",
        "virsh -q pool-destroy default",
        "virsh -q pool-start default",
    );
    let run = lab.run(&check).exits(6);
    let pool = &run.item()["pool"];
    let expected = json!({"name": "default", "state": "inactive", "type": "dir",
        "capacityBytes": null, "availableBytes": null});
    assert_eq!(*pool, expected, "{run}");
    assert_eq!(run.item()["images"], json!(null), "{run}");
    lab.run(&check[..3]).exits(6).prints("default inactive");
}

#[test]
fn a_check_writes_metrics_of_all_hosts() {
    let lab = lab!();
    let metrics = lab.write("check.prom", "of an earlier run\n");
    let cli = lab.cli_with(|kvm| kvm["hosts"][1]["bridge"] = json!("br-none"));
    let args = ["check", "--metrics", metrics.to_str().unwrap()];
    let _ = cli.run(&args).exits(6);
    let text = std::fs::read_to_string(&metrics).unwrap();
    assert!(text.starts_with("# HELP egressctl_check_last"), "{text}");
    for line in [
        "egressctl_host_healthy{host=\"nas1\"} 1",
        "egressctl_host_healthy{host=\"nas2\"} 0",
        "egressctl_host_problem{host=\"nas2\",reason=\"BridgeNotFound\",severity=\"error\"} 1",
        "egressctl_pool_capacity_bytes{host=\"nas1\",pool=\"default\"} ",
        "egressctl_pool_available_bytes{host=\"nas2\",pool=\"default\"} ",
        "egressctl_host_clock_skew_seconds{host=\"nas1\"} ",
    ] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}\n{text}");
    }
    assert!(!text.contains("host_problem{host=\"nas1\""), "{text}");
}

#[test]
fn what_the_configuration_gets_wrong_is_found() {
    let lab = lab!();
    let address = lab.address("nas1");
    let stranger = lab.scratch("stranger");
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&stranger)
        .status();
    assert!(made.unwrap().success());
    let ours = |line: &&str| !line.starts_with(&address);
    let known = std::fs::read_to_string(lab.path("known_hosts")).unwrap();
    let known: Vec<&str> = known.lines().filter(ours).collect();
    let known = lab.write("known_hosts", known.join("\n"));
    let host = |key: &'static str, value: String| {
        move |kvm: &mut Value| kvm["hosts"][0][key] = json!(value)
    };
    let network = |kvm: &mut Value| {
        kvm["hosts"][0].as_object_mut().unwrap().remove("bridge");
        kvm["hosts"][0]["network"] = json!("lt-net");
    };
    let table: [(Change<'_>, &str, &str); 8] = [
        (
            Box::new(host("pool", "lt-nowhere".into())),
            "PoolNotFound",
            "all",
        ),
        (
            Box::new(host("bridge", "br7".into())),
            "BridgeNotFound",
            "all",
        ),
        (Box::new(network), "NetworkNotFound", "all"),
        (
            Box::new(host("socket", "/run/nowhere".into())),
            "SocketNotFound",
            "forward",
        ),
        (
            Box::new(host("user", "nobody-here".into())),
            "AuthenticationFailed",
            "authenticate",
        ),
        (
            Box::new(host("address", "no-such-host.invalid".into())),
            "ResolveFailed",
            "resolve",
        ),
        (
            Box::new(host("address", format!("{address}:7"))),
            "ConnectFailed",
            "connect",
        ),
        (
            Box::new(|kvm: &mut Value| kvm["knownHostsFile"] = json!(known)),
            "HostKeyUnknown",
            "host key",
        ),
    ];
    for (change, reason, stage) in table {
        let run = lab.cli_with(change).run(&["check", "-o", "json"]).exits(6);
        assert_only_nas1(&run, reason, stage);
    }
    let everywhere = lab.cli_with(|kvm| kvm["sshKeyFile"] = json!(stranger));
    let run = everywhere.run(&["check", "-o", "json"]).exits(6);
    for item in run.items() {
        assert_eq!(
            (reasons(&item), &item["stage"]),
            (vec!["AuthenticationFailed"], &json!("authenticate")),
            "{run}"
        );
    }
    let missing = lab.cli_with(|kvm| kvm["sshKeyFile"] = json!(lab.scratch("missing")));
    let run = missing.run(&["check", "-o", "json"]).exits(6);
    assert_eq!(
        reasons(&run.items()[0]),
        ["CredentialsUnavailable"],
        "{run}"
    );
}

#[test]
fn what_is_wrong_on_a_host_is_found() {
    let lab = lab!();
    let table = [
        (
            "virsh -q pool-destroy default",
            "virsh -q pool-start default",
            "PoolNotActive",
            "all",
        ),
        (
            "chmod 700 /run/libvirt/libvirt-sock",
            "chmod 770 /run/libvirt/libvirt-sock",
            "PermissionDenied",
            "permission",
        ),
        (
            "mount -t tmpfs tmpfs /usr/share/qemu/firmware",
            "umount /usr/share/qemu/firmware",
            "NoFirmware",
            "all",
        ),
        (
            "ip link set br0 name br1",
            "ip link set br1 name br0",
            "BridgeNotFound",
            "all",
        ),
    ];
    for (make, undo, reason, stage) in table {
        let _broken = lab.change("nas1", make, undo);
        let run = lab.run(&["check", "-o", "json"]).exits(6);
        assert_only_nas1(&run, reason, stage);
        let told = lab.run(&["check"]).exits(6).prints(reason).says("hint:");
        told.says(&format!("error: nas1: {reason}: "))
            .says("error: 1 of 2 hosts has problems");
    }
    let _sshd = lab.sshd("nas1", &["AllowStreamLocalForwarding no"]);
    let run = lab.run(&["check", "-o", "json"]).exits(6);
    assert_only_nas1(&run, "ForwardingRefused", "forward");
}

/// The first hint of nas1's first problem.
#[track_caller]
pub(crate) fn hint(run: &Checked) -> String {
    let hints = &run.items()[0]["problems"][0]["hints"];
    hints[0]
        .as_str()
        .unwrap_or_else(|| panic!("no hint\n{run}"))
        .to_owned()
}

#[test]
fn a_clock_is_wrong_where_a_time_to_live_would_be_refused() {
    let lab = lab!();
    let name = "lt-apart";
    let _instance = lab.instance(name);
    for (offset, agrees) in [("-45", true), ("45", true), ("-75", false), ("75", false)] {
        let date = format!("ForceCommand date -d '{offset} seconds' +%s");
        let _sshd = lab.sshd("nas1", &[&date]);
        let run = lab.run(&["check", "-o", "json", "--zone", "nas1"]);
        let run = run.exits(if agrees { 0 } else { 6 });
        let told: &[&str] = if agrees { &[] } else { &["ClockSkew"] };
        assert_eq!(reasons(&run.item()), told, "{run}");
        let create = crate::instances::create(name, &["--ttl", "1h", "--dry-run"]);
        let _ = lab.run(&create).exits(i32::from(!agrees));
    }
}

#[test]
fn a_pool_that_somebody_else_filled_is_found_full() {
    let lab = lab!();
    let _pool = small_pool(&lab, "64m");
    lab.virsh("nas1", &["pool-start", "lt-pool"]);
    let cli = lab.cli_with(|kvm| in_pool(kvm, "lt-pool"));
    let check = ["check", "-o", "json", "--zone", "nas1"];
    let available = |run: &Checked| run.item()["pool"]["availableBytes"].as_u64().unwrap();
    let run = cli.run(&check).exits(0);
    assert!(available(&run) > 60 << 20, "{run}");
    // Not by libvirt, which doesn't know of it.
    let fill = |mib: u32| {
        let file = "/var/lib/libvirt/lt-pool/somebodys";
        lab.on(
            "nas1",
            &format!("rm -f {file} && fallocate -l {mib}M {file}"),
        );
    };
    for (mib, enough) in [(38, true), (42, false), (64, false), (38, true)] {
        fill(mib);
        let run = cli.run(&check).exits(if enough { 0 } else { 6 });
        let told: &[&str] = if enough { &[] } else { &["PoolFull"] };
        assert_eq!(reasons(&run.item()), told, "{run}");
        assert!(available(&run) <= u64::from(64 - mib) << 20, "{run}");
    }
    fill(64);
    let told = cli.run(&["check", "--zone", "nas1"]).exits(6);
    told.says("0 B available, 24 MiB needed")
        .says("a larger pool");
}

#[test]
fn several_problems_of_one_host_are_told_together() {
    let lab = lab!();
    let cli = lab.cli_with(|kvm| {
        kvm["hosts"][0]["pool"] = json!("lt-nowhere");
        kvm["hosts"][0]["bridge"] = json!("br7");
    });
    let run = cli.run(&["check", "-o", "json"]).exits(6);
    assert_eq!(
        reasons(&run.items()[0]),
        ["PoolNotFound", "BridgeNotFound"],
        "{run}"
    );
    cli.run(&["check"])
        .exits(6)
        .prints("PoolNotFound,BridgeNotFound");
}

#[test]
fn kvm_that_is_not_there_is_found_or_fallen_back_from() {
    let lab = lab!();
    let with =
        |kind: &'static str| lab.cli_with(move |kvm| kvm["hosts"][0]["virtType"] = json!(kind));
    let run = with("kvm").run(&["check", "-o", "json"]);
    if run.succeeded() {
        return; // this machine has KVM, and the lab's hosts may use it
    }
    let run = run.exits(6);
    assert_only_nas1(&run, "NoKvm", "all");
    let hints = run.items()[0]["problems"][0]["hints"].to_string();
    assert!(hints.contains("or set virtType: qemu"), "{run}");
    with("qemu").run(&["check"]).exits(0).says_nothing();
    let auto = with("auto").run(&["check", "-o", "json"]).exits(0);
    assert_eq!(auto.items()[0]["accelerator"], "qemu", "{auto}");
    assert_eq!(
        auto.items()[0]["problems"][0]["severity"],
        "warning",
        "{auto}"
    );
    let told = with("auto").run(&["check"]).exits(0);
    told.says("warning: nas1: NoKvm: ").never_says("error:");
}

#[test]
fn what_is_only_worth_knowing_is_a_warning_and_a_problem_has_its_own_class() {
    let lab = lab!();
    let twice = lab.cli_with(|kvm| {
        let mut again = kvm["hosts"][0].clone();
        again["name"] = json!("again");
        kvm["hosts"] = json!([kvm["hosts"][0], again]);
    });
    let told = twice.run(&["check"]).exits(0);
    told.says("warning: again: SameMachine: by its UUID it is the same machine as host nas1\n")
        .says("hint: leave one of the two out")
        .never_says("error:");
    let as_events = ["check", "--progress", "json"];
    let run = twice.run(&as_events).exits(0);
    let event: Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(event["event"], "warning", "{run}");
    assert!(event["hints"].to_string().contains("host_uuid"), "{run}");
    let _cable = lab.cut("nas2");
    let run = lab.run(&as_events).exits(6);
    let first: Value = serde_json::from_str(run.stderr.lines().next().unwrap()).unwrap();
    assert_eq!(first["reason"], "ConnectFailed", "{run}");
    assert_eq!(first["class"], "Transient", "{run}");
    let run = lab.run(&["check", "-o", "json"]).exits(6);
    assert_eq!(run.items()[1]["problems"][0]["class"], "Transient", "{run}");
}

#[test]
fn a_host_that_is_down_holds_no_other_up() {
    let lab = lab!();
    let _cable = lab.cut("nas1");
    let run = lab
        .run(&["check", "-o", "json"])
        .exits(6)
        .within(Duration::from_secs(18));
    let items = run.items();
    assert_eq!(items[0]["stage"], "connect", "{run}");
    assert_eq!(reasons(&items[0]), ["ConnectFailed"], "{run}");
    assert!(
        items[0]["problems"][0]["hints"]
            .to_string()
            .contains("is the host up"),
        "{run}"
    );
    assert_eq!(items[1]["healthy"], true, "{run}");
}

#[test]
fn a_host_that_cannot_resolve_its_own_name_is_told_what_that_costs() {
    let lab = lab!();
    // Nobody answers at 192.0.2.1 (RFC 5737): each look-up takes the resolver's time-outs.
    let make = "echo 'nameserver 192.0.2.1' > /run/lt-resolv && : > /run/lt-hosts \
                && mount --bind /run/lt-resolv /etc/resolv.conf && mount --bind /run/lt-hosts /etc/hosts";
    let _broken = lab.change("nas1", make, "umount /etc/hosts /etc/resolv.conf");
    let run = lab
        .run(&["check", "-o", "json"])
        .exits(6)
        .within(Duration::from_secs(90));
    assert_only_nas1(&run, "HostnameUnresolvable", "all");
    // And what helps: the hint's own line.
    let told = hint(&run);
    let (_, line) = told.split_once("/etc/hosts, as in ").unwrap();
    lab.on("nas1", &format!("echo '{line}' >> /etc/hosts"));
    lab.run(&["check"]).exits(0).says_nothing();
}
