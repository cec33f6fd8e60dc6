//! Several at once, also from what looks like another machine: one download, one instance, no error that isn't true,
//! nothing left over.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::cli::{Checked, Cli, Run, Running, binary};
use crate::crash::{faulty, revive};
use crate::gate::Gate;
use crate::instances::create;
use crate::lab;
use crate::pull::{assert_ready, is_base, with_image};
use crate::support::{Lab, POOL_DIR, wait_until};

/// How long the loops run.
const LOOPS: Duration = Duration::from_secs(35);

/// The binary as another machine would run it: in a PID namespace of its own nobody can see whether its process lives.
fn elsewhere(lab: &Lab) -> PathBuf {
    let binary = binary();
    let run = format!(
        "unshare --pid --fork --kill-child=KILL -- {}",
        binary.display()
    );
    let script = format!("#!/bin/sh\nexec {run} \"$@\"\n");
    let path = lab.write("elsewhere", script);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

/// egressctl of that other machine, with a home and a directory for sockets of its own.
fn other_machine(lab: &Lab, cli: Cli) -> Cli {
    let home = lab.scratch("other-home");
    std::fs::create_dir_all(&home).unwrap();
    cli.binary(elsewhere(lab))
        .env("HOME", &home)
        .env("TMPDIR", &home)
}

#[test]
fn a_pull_whose_machine_dies_is_taken_over_within_a_minute() {
    let lab = lab!();
    let key = "lt-taken";
    let _image = lab.image(key);
    let path = "/slow/1500000/tiny.qcow2?lt-taken";
    let cli = with_image(&lab, key, path);
    let pull = ["image", "pull", key, "--zone", "nas1", "-o", "json"];
    let before = lab.served(path).map_or(0, |served| served.requests);
    let first = other_machine(&lab, with_image(&lab, key, path)).start(&pull);
    wait_until("the first one writes", Duration::from_secs(10), || {
        let volumes = lab.volumes("nas1", &format!("base-{key}"));
        volumes.iter().any(|name| is_base(name))
    });
    let second = cli.start(&pull);
    std::thread::sleep(Duration::from_secs(2));
    let killed = Instant::now();
    first.kill();
    revive(&lab, "nas1");
    let run = second.wait().exits(0);
    assert!(killed.elapsed() < Duration::from_secs(60), "{run}");
    assert_eq!(run.items()[0]["pulled"], true, "{run}");
    assert_ready(&lab, "nas1", key);
    let requests = lab.served(path).unwrap().requests - before;
    assert_eq!(
        requests, 2,
        "while the first lived, the second didn't download"
    );
}

/// The file that the image's base is in by now: its inode and name, or nothing.
fn base_file(lab: &Lab, key: &str) -> String {
    let list = format!("ls -i {POOL_DIR} | grep 'base-{key}-.*qcow2$' || true");
    lab.on("nas1", &list).trim().to_owned()
}

#[test]
fn a_pull_that_slept_vouches_for_nothing_that_another_may_have_written() {
    let lab = lab!();
    let (key, alone) = ("lt-slept", "lt-dozed");
    let (_image, _other) = (lab.image(key), lab.image(alone));
    let pull = |key: &'static str| {
        let path = format!("/slow/700000/tiny.qcow2?{key}");
        let cli = with_image(&lab, key, &path);
        cli.start(&["-v", "image", "pull", key, "--zone", "nas1"])
    };
    let (first, lonely) = (pull(key), pull(alone));
    let begun = || !base_file(&lab, key).is_empty() && !base_file(&lab, alone).is_empty();
    wait_until("both write", Duration::from_secs(20), begun);
    let before = base_file(&lab, key);
    // Suspended in the middle of a call, both hold their claims without a sign of life.
    first.signal("STOP");
    lonely.signal("STOP");
    let second = pull(key);
    wait_until("the second takes over", Duration::from_secs(60), || {
        let now = base_file(&lab, key);
        !now.is_empty() && now != before
    });
    first.signal("CONT");
    lonely.signal("CONT");
    first
        .wait()
        .exits(4)
        .says("another process took over this pull");
    let volumes = lab.volumes("nas1", &format!("base-{key}-"));
    assert!(
        !volumes.iter().any(|name| name.ends_with(".sha256")),
        "the second hasn't got everything yet: {volumes:?}"
    );
    second.wait().exits(0);
    assert_ready(&lab, "nas1", key);
    // Nobody wanted its claim: it goes on, but looks at what is stored.
    lonely.wait().exits(0).says("reading back what is stored");
    assert_ready(&lab, "nas1", alone);
}

#[test]
fn creates_from_two_machines_make_one_instance() {
    let lab = lab!();
    let name = "lt-machines";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    let (here, there) = (lab.cli(), other_machine(&lab, lab.cli()));
    let args = create(name, &["-o", "json"]);
    for _ in 0..3 {
        let running = [there.start(&args), here.start(&args), there.start(&args)];
        let uuids = running.map(|run| run.wait().exits(0).item()["uuid"].clone());
        assert!(uuids.iter().all(|uuid| *uuid == uuids[0]), "{uuids:?}");
        let running = [
            here.start(&["delete", name]),
            there.start(&["delete", name]),
        ];
        for run in running {
            run.wait().exits(0);
        }
        assert!(!lab.has_domain("nas1", name));
        assert!(lab.volumes("nas1", name).is_empty());
    }
}

#[test]
fn a_create_whose_domain_somebody_ends_says_so_and_may_be_repeated() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-ended";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    let others: [(&dyn Fn(), &str, &str); 2] = [
        (
            &|| drop(lab.virsh("nas1", &["destroy", name])),
            "NotRunning",
            "run it again to start it",
        ),
        (
            &|| drop(lab.run(&["delete", name]).exits(0)),
            "InstanceNotFound",
            "run it again to make it anew",
        ),
    ];
    for (end_it, reason, hint) in others {
        // The first question after the start.
        let gate = Gate::new(&lab, name);
        let args = create(name, &["-o", "json"]);
        let creating = gate.stops(lab.cli(), &binary, "virDomainGetState:1", &args);
        end_it();
        gate.open();
        creating.wait().exits(4).fails_with(reason, hint);
        assert!(!lab.has_domain("nas1", name), "undone");
        assert!(lab.volumes("nas1", name).is_empty(), "undone");
    }
    lab.run(&create(name, &[])).exits(0);
}

#[test]
fn a_create_whose_volumes_somebody_deletes_says_so_and_may_be_repeated() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-bereft";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    // A delete that came before there was a domain takes what there was by then: the seed, or the overlay as well.
    for volume in [format!("{name}-seed.iso"), format!("{name}.qcow2")] {
        let gate = Gate::new(&lab, name);
        let args = create(name, &["-o", "json"]);
        let creating = gate.stops(lab.cli(), &binary, "virDomainCreate:1", &args);
        lab.virsh("nas1", &["vol-delete", "--pool", "default", &volume]);
        gate.open();
        let run = creating.wait().exits(4);
        run.fails_with("InstanceNotFound", "run it again to make it anew")
            .says(&format!("volume {volume} was deleted"));
        assert!(!lab.has_domain("nas1", name), "undone");
        assert!(lab.volumes("nas1", name).is_empty(), "undone");
    }
    lab.run(&create(name, &[])).exits(0);
}

/// Starts a command that waits at the gate, when it has looked and is about to delete a volume.
fn deleting_late(gate: &Gate, cli: Cli, faulty: &Path, args: &[&str]) -> Running {
    gate.stops(cli, faulty, "virStorageVolDelete:1", args)
}

/// What another process gets done before one that waits at a gate goes on.
const LEAD: Duration = Duration::from_millis(1500);

#[test]
fn two_creates_that_take_over_from_a_dead_one_make_one_whole_instance() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-heirs";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    let dying = lab.cli().binary(binary.clone());
    let dying = dying.env("EGRESSCTL_FAULT", "kill:virDomainDefineXMLFlags:1");
    let _ = dying.run(&create(name, &[])).was_killed();
    // With nothing but the seed, that is what is deleted first.
    let overlay = format!("{name}.qcow2");
    lab.virsh("nas1", &["vol-delete", "--pool", "default", &overlay]);
    let args = create(name, &["-o", "json"]);
    let gate = Gate::new(&lab, name);
    let second = deleting_late(&gate, lab.cli(), &binary, &args);
    let first = lab.cli().start(&args);
    std::thread::sleep(LEAD);
    gate.open();
    let uuids = [first, second].map(|run| run.wait().exits(0).item()["uuid"].clone());
    assert_eq!(uuids[0], uuids[1]);
    assert_whole(&lab, name);
}

#[test]
fn a_delete_that_comes_late_spares_what_was_made_anew() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-belated";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let gate = Gate::new(&lab, name);
    // Before it looks whether the name is still free, and then deletes the first volume.
    let args = ["delete", name, "--zone", "nas1"];
    let deleting = gate.stops(lab.cli(), &binary, "virDomainLookupByName:=2", &args);
    assert!(!lab.has_domain("nas1", name), "the name is free");
    lab.run(&create(name, &[])).exits(0);
    gate.open();
    deleting.wait().exits(0);
    assert_whole(&lab, name);
}

/// Starts a create that waits at the gate, when it has its volumes and is about to define its domain.
fn defining_late(lab: &Lab, gate: &Gate, faulty: &Path, name: &str) -> Running {
    let args = create(name, &["-o", "json"]);
    gate.stops(lab.cli(), faulty, "virDomainDefineXMLFlags:1", &args)
}

#[test]
fn a_create_whose_volumes_another_has_made_anew_is_none() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-between";
    let _instance = lab.instance(name);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    let gates = ["lt-between-1", "lt-between-2"].map(|name| Gate::new(&lab, name));
    let first = defining_late(&lab, &gates[0], &binary, name);
    lab.run(&["delete", name, "--zone", "nas1"]).exits(0);
    let second = defining_late(&lab, &gates[1], &binary, name);
    // The first one's domain would run on the second one's volumes.
    gates[0].open();
    let _ = first.wait().exits(4).fails_with("PoolBusy", "again");
    gates[1].open();
    let _ = second.wait().exits(0);
    assert_eq!(lab.virsh("nas1", &["domstate", name]).trim(), "running");
    assert_whole(&lab, name);
}

#[test]
fn a_roll_back_spares_what_another_domain_of_the_name_has() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-spared";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let xml = lab.virsh("nas1", &["dumpxml", "--inactive", name]);
    lab.run(&["delete", name, "--zone", "nas1"]).exits(0);
    let gate = Gate::new(&lab, name);
    let creating = defining_late(&lab, &gate, &binary, name);
    std::fs::write(lab.path("nas1/lib/lt-spared.xml"), xml).unwrap();
    lab.virsh("nas1", &["define", "/var/lib/libvirt/lt-spared.xml"]);
    lab.virsh("nas1", &["start", name]);
    gate.open();
    let run = creating.wait();
    assert!(!run.succeeded(), "another domain has the name\n{run}");
    assert_whole(&lab, name);
}

#[test]
fn a_roll_back_names_what_another_domain_of_the_name_may_have() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-alike";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let xml = lab.virsh("nas1", &["dumpxml", "--inactive", name]);
    lab.run(&["delete", name, "--zone", "nas1"]).exits(0);
    let gate = Gate::new(&lab, name);
    let creating = defining_late(&lab, &gate, &binary, name);
    // It has files of these names, but in another directory.
    let xml = xml.replace(POOL_DIR, "/var/lib/libvirt/elsewhere");
    std::fs::write(lab.path("nas1/lib/lt-alike.xml"), xml).unwrap();
    lab.virsh("nas1", &["define", "/var/lib/libvirt/lt-alike.xml"]);
    gate.open();
    let run = creating.wait();
    assert!(!run.succeeded(), "another domain has the name\n{run}");
    for volume in ["lt-alike.qcow2", "lt-alike-seed.iso"] {
        assert!(run.stderr().contains(volume), "{volume} isn't named\n{run}");
    }
    assert_eq!(lab.volumes("nas1", name).len(), 2, "they stay\n{run}");
}

/// Fails unless the instance runs, and would run again.
fn assert_whole(lab: &Lab, name: &str) {
    lab.virsh("nas1", &["destroy", name]);
    lab.virsh("nas1", &["start", name]);
    let mut volumes = lab.volumes("nas1", name);
    volumes.sort();
    let both = [format!("{name}-seed.iso"), format!("{name}.qcow2")];
    assert_eq!(volumes, both);
}

#[test]
fn two_pulls_that_take_over_from_a_dead_one_store_the_image_once() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let key = "lt-heirs";
    let _image = lab.image(key);
    let path = "/slow/1500000/tiny.qcow2?lt-heirs";
    let cli = || with_image(&lab, key, path);
    let pull = ["image", "pull", key, "--zone", "nas1", "-o", "json"];
    let dying = cli().start(&pull);
    wait_until("it writes", Duration::from_secs(10), || {
        let volumes = lab.volumes("nas1", &format!("base-{key}"));
        volumes.iter().any(|name| is_base(name))
    });
    dying.kill();
    revive(&lab, "nas1");
    let began = Instant::now();
    let gate = Gate::new(&lab, key);
    let second = deleting_late(&gate, cli(), &binary, &pull);
    let first = cli().start(&pull);
    std::thread::sleep(LEAD);
    gate.open();
    let runs = [first, second].map(|run| run.wait().exits(0));
    let pulled = |run: &Checked| run.items()[0]["pulled"] == true;
    assert_eq!(runs.iter().filter(|run| pulled(run)).count(), 1);
    // Neither took the other, which lives, for dead.
    assert!(
        began.elapsed() < Duration::from_secs(28),
        "{:?}",
        began.elapsed()
    );
    assert_ready(&lab, "nas1", key);
}

#[test]
fn what_somebody_starts_while_it_is_deleted_does_not_run_on() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let name = "lt-started";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let gate = Gate::new(&lab, name);
    let args = ["delete", name];
    let deleting = gate.stops(lab.cli(), &binary, "virDomainUndefineFlags:1", &args);
    lab.virsh("nas1", &["start", name]);
    gate.open();
    deleting.wait().exits(0);
    assert!(!lab.has_domain("nas1", name), "undefined, it would run on");
    assert!(lab.volumes("nas1", name).is_empty(), "deleted");
}

/// Fails unless a create that lost against a delete of the same name says just that.
#[track_caller]
fn assert_true(run: Run) {
    if run.succeeded() {
        return;
    }
    let run = run.exits(4);
    for error in run.errors() {
        let reason = error["reason"].as_str().unwrap();
        assert!(
            ["InstanceNotFound", "PoolBusy", "NotRunning"].contains(&reason),
            "deleted, or ended, by the other meanwhile, and nothing else\n{run}"
        );
    }
}

#[test]
fn loops_of_everything_beside_each_other_tell_no_lies_and_leave_nothing() {
    let lab = lab!();
    let names = ["lt-loop-own", "lt-loop-shared"];
    let _instances = names.map(|name| lab.instance(name));
    lab.run(&["image", "pull", "tiny"]).exits(0);
    let (here, there) = (lab.cli(), other_machine(&lab, lab.cli()));
    let (done, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let end = Instant::now() + LOOPS;
    let again = || !done.load(Ordering::SeqCst) && Instant::now() < end;
    let repeat = |work: &(dyn Fn() + Sync)| {
        // One that fails ends them all.
        let _last = scopeguard(&done);
        while again() {
            work();
            rounds.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let start = |work: &'static str| {
            let (here, there, repeat) = (&here, &there, &repeat);
            scope.spawn(move || match work {
                "own" => repeat(&|| {
                    here.run(&create("lt-loop-own", &[])).exits(0);
                    here.run(&["get", "lt-loop-own", "--zone", "nas1"]).exits(0);
                    there.run(&["delete", "lt-loop-own"]).exits(0);
                }),
                "create" => repeat(&|| {
                    assert_true(there.run(&create("lt-loop-shared", &["-o", "json"])));
                }),
                "delete" => repeat(&|| {
                    here.run(&["delete", "lt-loop-shared"]).exits(0);
                }),
                "list" => repeat(&|| {
                    here.run(&["list", "-o", "json"]).exits(0).says_nothing();
                }),
                _ => repeat(&|| {
                    here.run(&["gc", "--min-age", "0s", "-o", "json"]).exits(0);
                }),
            });
        };
        for work in ["own", "create", "delete", "list", "gc"] {
            start(work);
        }
    });
    assert!(rounds.load(Ordering::SeqCst) > 20, "they got nowhere");
    for name in names {
        lab.run(&["delete", name]).exits(0);
        assert!(!lab.has_domain("nas1", name), "{name}");
        let left = lab.volumes("nas1", name);
        assert!(left.is_empty(), "{left:?}");
    }
    let swept = lab.run(&["gc", "--min-age", "0s"]).exits(0);
    assert!(!swept.stdout.contains("lt-loop-"), "{swept}");
}

/// Sets the flag when it is dropped.
fn scopeguard(flag: &AtomicBool) -> impl Drop + '_ {
    struct Guard<'a>(&'a AtomicBool);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.store(true, Ordering::SeqCst);
            }
        }
    }
    Guard(flag)
}
