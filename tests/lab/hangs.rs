//! What hangs: a halted sshd, a halted libvirtd, a cable cut in mid-upload (guest agents: enter/agents.rs). Every command
//! ends by its limits, or at once when it is interrupted; the other hosts have their results.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli::{Cli, Running};
use crate::crash::{faulty, revive};
use crate::instances::create;
use crate::lab;
use crate::pull::{assert_ready, is_base, with_image};
use crate::support::{Cleanup, HOSTS, Lab, wait_until};

/// Limits that no test has to wait long for.
pub(crate) const SHORT: &str = "dial=4 rpc=5 start=10 stream=5 agent=4";

/// Far less than the defaults' sum, far more than any of these takes.
const SOON: Duration = Duration::from_secs(25);

/// A fault of nas1, until the end of the test.
type Fault = fn(&Lab) -> Cleanup<'_>;

pub(crate) fn halt_sshd(lab: &Lab) -> Cleanup<'_> {
    lab.change("nas1", "pkill -STOP sshd", "pkill -CONT sshd")
}

fn halt_libvirtd(lab: &Lab) -> Cleanup<'_> {
    lab.lab(&["libvirtd", "nas1", "stop"]);
    Cleanup::later(|| {
        lab.lab(&["libvirtd", "nas1", "cont"]);
        // Going on, it may trip over the client that has left (src/libvirt/closing.rs).
        revive(lab, "nas1");
    })
}

fn cut_cable(lab: &Lab) -> Cleanup<'_> {
    lab.cut("nas1")
}

/// Fails unless nas1's error is a passed time limit at this stage, and nas2 is healthy.
#[track_caller]
fn assert_stage(check: Running, stage: &str) {
    let run = check.wait().exits(6).within(SOON);
    let items = run.items();
    assert_eq!(items[0]["problems"][0]["reason"], "TimedOut", "{run}");
    assert_eq!(items[0]["stage"], stage, "{run}");
    let hints = &items[0]["problems"][0]["hints"];
    assert_ne!(*hints, json!([]), "what to do?\n{run}");
    assert!(!hints.to_string().contains("egressctl check"), "{run}");
    assert_eq!(items[1]["healthy"], true, "{run}");
}

#[test]
fn a_halted_daemon_costs_its_limit_and_its_own_host() {
    let lab = lab!();
    let faults: [(Fault, &str); 2] = [(halt_sshd, "handshake"), (halt_libvirtd, "libvirt")];
    for (fault, stage) in faults {
        let _halted = fault(&lab);
        let short = lab.cli().env("EGRESSCTL_LIMITS", SHORT);
        let check = short.start(&["check", "-o", "json"]);
        let list = short.start(&["list", "-o", "json"]);
        // With the usual limits: it is still at it when it is interrupted.
        let interrupted = lab.cli().start(&["list"]).listening();
        std::thread::sleep(Duration::from_millis(500));
        interrupted.signal("TERM");
        let ended = interrupted.wait().exits(143);
        ended.within(Duration::from_secs(5)).prints_only("");
        let run = list.wait().exits(4).within(SOON);
        assert_eq!(run.errors()[0]["host"], "nas1", "{run}");
        assert_eq!(run.errors()[0]["reason"], "TimedOut", "{run}");
        assert_eq!(run.errors().len(), 1, "{run}");
        assert_stage(check, stage);
    }
    lab.run(&["check"]).exits(0);
}

/// egressctl with the image at a server that takes its time.
fn slow(lab: &Lab, key: &str) -> Cli {
    with_image(lab, key, &format!("/slow/1500000/tiny.qcow2?{key}"))
}

/// Starts a pull, and waits until it writes on both hosts.
fn begin(lab: &Lab, cli: &Cli, key: &str) -> Running {
    let running = cli.start(&["image", "pull", key, "-o", "json"]);
    let begun = |host: &str| {
        let volumes = lab.volumes(host, &format!("base-{key}"));
        volumes.iter().any(|name| is_base(name))
    };
    wait_until("the uploads are begun", Duration::from_secs(10), || {
        HOSTS.iter().all(|host| begun(host))
    });
    running
}

/// The same pull once more, at full speed, makes everything right.
#[track_caller]
fn assert_converges(lab: &Lab, key: &str) {
    let run = with_image(lab, key, &format!("/tiny.qcow2?{key}"));
    run.run(&["image", "pull", key]).exits(0).within(SOON);
    for host in HOSTS {
        assert_ready(lab, host, key);
    }
}

#[test]
fn an_upload_that_stands_still_is_given_up_and_the_other_host_has_its_image() {
    let lab = lab!();
    let faults: [(Fault, &str); 3] = [
        (halt_sshd, "lt-still-sshd"),
        (halt_libvirtd, "lt-still-libvirtd"),
        (cut_cable, "lt-still-cable"),
    ];
    for (fault, key) in faults {
        let _image = lab.image(key);
        let running = begin(&lab, &slow(&lab, key).env("EGRESSCTL_LIMITS", SHORT), key);
        let halted = fault(&lab);
        let run = running.wait().exits(4).within(SOON * 2);
        let errors = run.errors();
        assert_eq!(
            (errors.len(), &errors[0]["host"]),
            (1, &json!("nas1")),
            "{run}"
        );
        assert_eq!(errors[0]["class"], "Transient", "{run}");
        assert!(
            errors[0]["hints"]
                .to_string()
                .contains("left behind on nas1: "),
            "it can't be cleaned up, and that is said\n{run}"
        );
        assert_eq!(run.item()["host"], "nas2", "{run}");
        assert_ready(&lab, "nas2", key);
        drop(halted);
        revive(&lab, "nas1");
        assert_converges(&lab, key);
    }
}

#[test]
fn an_interrupt_ends_a_stuck_upload_and_a_second_one_its_clean_up() {
    let lab = lab!();
    let key = "lt-stuck";
    for signals in [1, 2] {
        let _image = lab.image(key);
        let running = begin(&lab, &slow(&lab, key), key);
        let halted = halt_libvirtd(&lab);
        let mut asked = Instant::now();
        running.signal("INT");
        if signals == 2 {
            wait_until("nas2 is cleaned up", Duration::from_secs(8), || {
                lab.volumes("nas2", &format!("base-{key}")).is_empty()
            });
            // Within half a second they are one.
            std::thread::sleep(Duration::from_millis(700));
            asked = Instant::now();
            running.signal("INT");
        }
        let run = running.wait().exits(130);
        // The clean-up has 10 s; who asks a second time doesn't wait for it.
        let limit = if signals == 1 { 15 } else { 6 };
        assert!(asked.elapsed() < Duration::from_secs(limit), "{run}");
        let hints: String = run
            .errors()
            .iter()
            .map(|error| error["hints"].to_string())
            .collect();
        assert!(
            hints.contains("left behind on nas1: volume base-lt-stuck-"),
            "{run}"
        );
        assert!(!hints.contains("left behind on nas2"), "{run}");
        assert!(
            lab.volumes("nas2", &format!("base-{key}")).is_empty(),
            "{run}"
        );
        drop(halted);
        assert_converges(&lab, key);
    }
}

#[test]
fn storage_that_hangs_after_the_start_takes_no_instance_down() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-hangs-late";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    let cli = lab.cli().binary(binary).env("EGRESSCTL_LIMITS", SHORT);
    // Whose the seed is, when the domain runs; the first one is the image's marker.
    let cli = cli.env("EGRESSCTL_FAULT", "hang:virStorageVolDownload:=2");
    let run = cli.run(&create(name, &["-o", "json"])).exits(0);
    assert_eq!(run.item()["name"], name, "{run}");
    run.says("fault injected: hang");
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
}
