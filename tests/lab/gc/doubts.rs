//! What a run has to say: entries of a keep list that name nothing.

use super::{create, gc};
use crate::lab;

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
