//! What a run has to say without being asked: marks that can't be read, and entries of a keep list that name nothing.

use super::{create, gc};
use crate::lab;

#[test]
fn an_instance_whose_mark_cant_be_read_is_said_everywhere() {
    let lab = lab!();
    let name = "lt-gc-torn";
    let _instance = lab.instance(name);
    create(&lab, name, &["--ttl", "1h"]);
    // A time without its zone, as a hand's edit leaves it; expired by any zone.
    lab.on(
        "nas1",
        "virsh destroy lt-gc-torn && virsh dumpxml --inactive lt-gc-torn | sed -E \
         's#(expiresAt>)[^<]*#\\12020-01-01T00:00:00#' > /tmp/t.xml && virsh -q define /tmp/t.xml && rm /tmp/t.xml",
    );
    let warning = "nas1: domain lt-gc-torn has a mark of egressctl that can't be read";
    let run = lab.run(&["list", "--zone", "nas1"]).exits(0).says(warning);
    assert!(!run.stdout.contains(name), "{run}");
    let _ = lab.run(&gc(&[])).exits(0).says(warning);
    let kept = "instance lt-gc-torn: kept: in doubt: its mark can't be read";
    let _ = lab.run(&gc(&["--explain"])).exits(0).prints(kept);
    for command in [
        &["get", name, "-o", "json"][..],
        &["extend", name, "1h", "-o", "json"],
    ] {
        let _ = lab
            .run(command)
            .exits(1)
            .fails_with("InDoubt", "virsh edit");
    }
    assert!(lab.has_domain("nas1", name));
}

#[test]
fn entries_of_the_keep_list_that_name_nothing_are_told_when_asked() {
    let lab = lab!();
    let name = "lt-gc-listed";
    let _instance = lab.instance(name);
    create(&lab, name, &[]);
    let list = lab.write("keep", "lt-gc-listed # wanted\nlt-gc-listad\n");
    let keep = ["--keep", list.to_str().unwrap()];
    let told =
        "lt-gc-listad on the keep list is no instance that there is; did you mean lt-gc-listed?";
    for more in ["--dry-run", "--explain"] {
        let _ = lab
            .run(&gc(&[&keep[..], &[more]].concat()))
            .exits(0)
            .says(told);
    }
    let run = lab.run(&gc(&keep)).exits(0);
    assert!(run.stderr.is_empty() && run.stdout.is_empty(), "{run}");
    assert!(lab.has_domain("nas1", name));
}
