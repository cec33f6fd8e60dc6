//! gc and prune beside creates that are under way.

use std::time::Duration;

use super::images::pulled;
use super::{GC, PRUNE, creating};
use crate::crash::faulty;
use crate::gate::Gate;
use crate::lab;
use crate::support::POOL_DIR;

#[test]
fn instances_that_are_being_made_are_let_be() {
    let lab = lab!();
    let names = ["lt-gc-n1", "lt-gc-n2", "lt-gc-n3", "lt-gc-n4"];
    let _cleanups: Vec<_> = names.iter().map(|name| lab.instance(name)).collect();
    let mut swept = 0;
    for name in names {
        let mut making = lab.cli().start(&creating(name, &[]));
        // As many sweeps as there is time for while it is made; nothing is too young for them.
        while !making.is_over() {
            let run = lab.run(&GC).exits(0);
            assert!(!run.stdout.contains(name), "{run}");
            swept += 1;
        }
        let _ = making.wait().exits(0);
        let state = lab.virsh("nas1", &["domstate", name]);
        assert_eq!(state.trim(), "running", "{name}");
        assert_eq!(lab.volumes("nas1", name).len(), 2, "{name}");
    }
    assert!(swept >= names.len());
}

#[test]
fn a_prune_beside_a_create_never_takes_the_base_away_under_it() {
    let lab = lab!();
    let (_image, base) = pulled(&lab, "lt-race");
    let _web = lab.instance("lt-gc-race");
    let wanting = lab.cli_with(|kvm| kvm["images"]["lt-race"] = lab.tiny());
    let args = [
        "create",
        "--zone",
        "nas1",
        "--image",
        "lt-race",
        "--name",
        "lt-gc-race",
    ];
    let mut created = 0;
    for millis in [0, 40, 80, 120, 160, 200, 240, 280] {
        let _ = wanting
            .run(&["image", "pull", "lt-race", "--zone", "nas1"])
            .exits(0);
        let create = wanting.start(&args);
        std::thread::sleep(Duration::from_millis(millis));
        let _ = lab.run(&PRUNE).exits(0);
        let run = create.wait();
        if run.succeeded() {
            created += 1;
            let both = [base.clone(), format!("{base}.sha256")];
            assert_eq!(lab.volumes("nas1", &base), both, "{millis}");
            lab.on(
                "nas1",
                &format!("cd {POOL_DIR} && qemu-img info -U --backing-chain lt-gc-race.qcow2"),
            );
        } else {
            // The next try would pull it again; nothing is left of this one.
            let _ = run.exits(4);
            assert_eq!(lab.volumes("nas1", "lt-gc-race"), [""; 0], "{millis}");
        }
        let _ = lab
            .run(&["delete", "lt-gc-race", "--zone", "nas1"])
            .exits(0);
    }
    assert!(created > 0);
}

#[test]
fn a_create_whose_base_is_removed_before_its_overlay_is_made_says_so() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let (_image, _) = pulled(&lab, "lt-withdrawn");
    let name = "lt-gc-bare";
    let _instance = lab.instance(name);
    let wanting = lab.cli_with(|kvm| kvm["images"]["lt-withdrawn"] = lab.tiny());
    // Its seed is the first volume that it makes, its overlay the second.
    let gate = Gate::new(&lab, name);
    let args = ["create", "--zone", "nas1", "--image", "lt-withdrawn"];
    let args = [&args[..], &["--name", name, "-o", "json"]].concat();
    let create = gate.stops(wanting, &binary, "virStorageVolCreateXML:=2", &args);
    let _ = lab.run(&PRUNE).exits(0);
    gate.open();
    create
        .wait()
        .exits(4)
        .fails_with("ImageNotReady", "it pulls the image")
        .says("was removed meanwhile");
    assert_eq!(lab.volumes("nas1", name), [""; 0], "undone");
}
