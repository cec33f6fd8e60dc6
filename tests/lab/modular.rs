//! Hosts with libvirt's modular daemons: virtqemud, virtstoraged, virtnetworkd, with virtproxyd and without.

use serde_json::{Value, json};

use crate::check::reasons;
use crate::cli::Checked;
use crate::instances::create;
use crate::lab;
use crate::old::the_main_path_works;
use crate::pull::with_image;
use crate::refusals::everything;
use crate::support::Lab;

/// Ends a daemon of the first host, and its sockets if it is to look as if it had never been started.
fn end(lab: &Lab, daemon: &str, sockets: &str) {
    lab.on(
        "nas1",
        &format!("pkill -KILL -x {daemon}; while pgrep -x {daemon} >/dev/null; do sleep 0.05; done; rm -f {sockets}"),
    );
}

const PROXY_SOCKETS: &str = "/run/libvirt/libvirt-sock /run/libvirt/libvirt-sock-ro";

#[test]
fn the_main_path_works_with_modular_daemons_and_without_their_proxy() {
    let lab = lab!();
    let name = "lt-modular";
    let _daemons = lab.daemons("nas1", "modular");
    let (_image, _instance) = (lab.image(name), lab.instance(name));
    let cli = with_image(&lab, name, "/tiny.qcow2?lt-modular");
    // No virtinterfaced runs there, which nothing else needs.
    the_main_path_works(&lab, &cli, name);
    // virtqemud's own socket is found, and virtqemud asks virtstoraged.
    end(&lab, "virtproxyd", PROXY_SOCKETS);
    the_main_path_works(&lab, &cli, name);
}

/// Fails unless the one error is about a daemon that doesn't run, and says which.
#[track_caller]
fn assert_misses(run: Checked, daemon: &str) {
    let hint = format!("systemctl enable --now {daemon}.socket");
    run.fails_with("LibvirtUnavailable", &hint);
}

#[test]
fn a_modular_daemon_that_does_not_run_is_named_and_nothing_is_touched() {
    let lab = lab!();
    let name = "lt-pieces";
    let _daemons = lab.daemons("nas1", "modular");
    let _instance = lab.instance(name);
    lab.run(&[&create(name, &[])[..], &["--ttl", "1s"]].concat())
        .exits(0);
    let before = everything(&lab);
    end(&lab, "virtstoraged", "/run/libvirt/virtstoraged-sock*");
    let run = lab.run(&["check", "-o", "json"]).exits(6);
    let item = &run.items()[0];
    assert_eq!(reasons(item), ["LibvirtUnavailable"], "{run}");
    let hint = &item["problems"][0]["hints"][0];
    assert!(hint.to_string().contains("virtstoraged.socket"), "{run}");
    // What needs no storage works.
    let listed = lab.run(&["list", "-o", "json"]).exits(0).says_nothing();
    assert_eq!(listed.item()["name"], name, "{listed}");
    let json = ["--zone", "nas1", "-o", "json"];
    let table: [(&[&str], i32); 4] = [
        (&["create", "--image", "tiny", "--name", "lt-more"], 4),
        (&["delete", name], 4),
        (&["delete", "lt-more"], 4),
        (&["image", "pull", "tiny"], 4),
    ];
    for (args, code) in table {
        let run = lab.run(&[args, &json].concat()).exits(code);
        assert_misses(run, "virtstoraged");
    }
    let gc = lab.run(&["gc", "--zone", "nas1", "--min-age", "0s"]);
    gc.exits(4).says("virtstoraged").says("nothing was deleted");
    assert_eq!(everything(&lab), before);

    // Its sockets stay behind when it is killed.
    end(&lab, "virtnetworkd", "");
    let network = |kvm: &mut Value| {
        kvm["hosts"][0].as_object_mut().unwrap().remove("bridge");
        kvm["hosts"][0]["network"] = json!("lt-net");
    };
    lab.lab(&["libvirtd", "nas1", "restart"]);
    end(&lab, "virtnetworkd", "");
    let run = lab
        .cli_with(network)
        .run(&create("lt-more", &["-o", "json"]));
    assert_misses(run.exits(4), "virtnetworkd");
    assert_eq!(everything(&lab), before);
    lab.run(&["delete", name]).exits(0);

    end(&lab, "virtqemud", "/run/libvirt/virtqemud-sock*");
    let run = lab.run(&["check", "--zone", "nas1", "-o", "json"]).exits(6);
    assert_eq!(reasons(&run.item()), ["LibvirtUnavailable"], "{run}");
    assert_eq!(run.item()["stage"], "libvirt", "{run}");
    end(&lab, "virtproxyd", PROXY_SOCKETS);
    let run = lab.run(&["check", "--zone", "nas1", "-o", "json"]).exits(6);
    assert_eq!(reasons(&run.item()), ["SocketNotFound"], "{run}");
    let problem = run.item()["problems"][0].to_string();
    assert!(problem.contains("libvirt-sock on the host"), "{run}");
    assert!(problem.contains("virtqemud-sock"), "{run}");
}
