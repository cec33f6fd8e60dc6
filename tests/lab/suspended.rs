//! Commands that are suspended in the midst of it (a laptop's lid, Ctrl-Z): what others made of the same name meanwhile
//! is theirs. A pull that slept is in `together`.

use std::path::Path;
use std::time::Duration;

use crate::cli::{Cli, Running};
use crate::crash::faulty;
use crate::instances::create;
use crate::lab;
use crate::pull::{assert_ready, with_image};
use crate::support::{Lab, POOL_DIR};

/// Longer than what counts as being suspended.
const NAP: Duration = Duration::from_secs(5);

/// Starts a command that is suspended after its first call of this name, and waits until it is.
fn asleep(cli: Cli, faulty: &Path, rpc: &str, args: &[&str]) -> Running {
    let cli = cli.binary(faulty.to_owned());
    let cli = cli.env("EGRESSCTL_FAULT", format!("sleep:{rpc}:1"));
    let running = cli.start(args);
    running.sleeps();
    running
}

/// What an instance is made of on nas1: the domain's UUID, and the files with their contents.
fn made(lab: &Lab, name: &str) -> String {
    let uuid = lab.virsh("nas1", &["domuuid", name]);
    let files = format!("cd {POOL_DIR} && ls -i {name}.qcow2 && sha256sum {name}-seed.iso");
    uuid + &lab.on("nas1", &files)
}

#[test]
fn what_was_taken_over_from_one_that_slept_stays_the_others() {
    let lab = lab!();
    let Some(faulty) = faulty() else { return };
    let (empty, filled, key) = ("lt-empty", "lt-filled", "lt-waking");
    let _instances = [empty, filled].map(|name| lab.instance(name));
    let _image = lab.image(key);
    let path = "/tiny.qcow2?lt-waking";
    let cli = with_image(&lab, key, path);
    cli.run(&["image", "pull", key, "--zone", "nas1"]).exits(0);
    lab.run(&["image", "pull", "tiny", "--zone", "nas1"])
        .exits(0);
    // Asleep with a seed without content, with a seed but no overlay, and with a claim on an image that isn't ready any more.
    let sleeping = [
        asleep(
            lab.cli(),
            &faulty,
            "virStorageVolCreateXML",
            &create(empty, &[]),
        ),
        asleep(lab.cli(), &faulty, "virStreamFinish", &create(filled, &[])),
    ];
    let remove = ["image", "rm", key, "--zone", "nas1"];
    let removing = asleep(
        with_image(&lab, key, path),
        &faulty,
        "virStorageVolDelete",
        &remove,
    );
    let others = [empty, filled].map(|name| lab.cli().start(&create(name, &[])));
    let pulling = cli.start(&["image", "pull", key, "--zone", "nas1"]);
    for other in others {
        other.wait().exits(0);
    }
    let before = [empty, filled].map(|name| made(&lab, name));
    for create in sleeping {
        create.signal("CONT");
        create
            .wait()
            .exits(4)
            .says("another process took over the creation of")
            .says("run the same command again");
    }
    pulling.wait().exits(0);
    removing.signal("CONT");
    // By now its daemon may have closed the connection, too.
    removing.wait().exits(4);
    assert_eq!([empty, filled].map(|name| made(&lab, name)), before);
    assert_ready(&lab, "nas1", key);
    // As the hint says.
    lab.run(&create(filled, &[])).exits(0);
    assert_eq!(made(&lab, filled), before[1]);
}

#[test]
fn a_delete_that_slept_spares_what_was_made_anew() {
    let lab = lab!();
    let Some(faulty) = faulty() else { return };
    let name = "lt-anew";
    let _instance = lab.instance(name);
    lab.run(&create(name, &[])).exits(0);
    let delete = ["delete", name, "-o", "json"];
    let deleting = asleep(lab.cli(), &faulty, "virDomainUndefineFlags", &delete);
    lab.run(&create(name, &[])).exits(0);
    let before = made(&lab, name);
    std::thread::sleep(NAP);
    deleting.signal("CONT");
    let run = deleting.wait().exits(4);
    run.fails_with("Suspended", "run it again: it looks anew");
    assert_eq!(made(&lab, name), before);
}
