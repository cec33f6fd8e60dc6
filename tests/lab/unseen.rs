//! Files in a pool's directory that libvirt doesn't know of: another host that shares the storage has made them, say.

use std::time::Duration;

use crate::instances::create;
use crate::lab;
use crate::pull::{assert_ready, with_image};
use crate::support::POOL_DIR;

#[test]
fn a_volume_that_libvirt_does_not_know_of_is_found_and_stays() {
    let lab = lab!();
    let name = "lt-unseen";
    let _instance = lab.instance(name);
    let seed = format!("{name}-seed.iso");
    lab.on("nas1", &format!("echo notes > {POOL_DIR}/{seed}"));
    let run = lab.run(&create(name, &["-o", "json"])).exits(1);
    let run = run.fails_with("ForeignDomain", "");
    let message = run.errors()[0]["message"].to_string();
    assert!(message.contains(&seed), "{run}");
    assert_eq!(lab.on("nas1", &format!("cat {POOL_DIR}/{seed}")), "notes\n");
    assert_eq!(lab.volumes("nas1", name), [seed]);
}

#[test]
fn a_claim_that_libvirt_does_not_know_of_is_waited_for() {
    let lab = lab!();
    let key = "lt-unseen-claim";
    let _image = lab.image(key);
    let digest = lab.tiny()["sha256"].as_str().unwrap().to_owned();
    let claim = format!("{POOL_DIR}/base-{key}-{}.qcow2.claim", &digest[..16]);
    // Of a process on another machine, of which nobody knows whether it lives.
    let content = "0123456789abcdef:1:2 7";
    lab.on("nas1", &format!("printf '%-512s' '{content}' > {claim}"));
    let cli = with_image(&lab, key, "/tiny.qcow2?lt-unseen-claim");
    let pulling = cli.start(&["image", "pull", key, "--zone", "nas1", "-o", "json"]);
    // Long enough for it to find the claim, and not to take it for a dead one's.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(
        lab.on("nas1", &format!("cut -c -22 {claim}")).trim(),
        content
    );
    lab.on("nas1", &format!("rm {claim}"));
    let run = pulling.wait().exits(0);
    assert_eq!(run.item()["pulled"], true, "{run}");
    assert_ready(&lab, "nas1", key);
}

#[test]
fn an_image_that_libvirt_does_not_know_of_is_used() {
    let lab = lab!();
    let key = "lt-unseen-base";
    let _image = lab.image(key);
    let cli = with_image(&lab, key, "/tiny.qcow2?lt-unseen-base");
    let pull = |zone| cli.run(&["image", "pull", key, "--zone", zone, "-o", "json"]);
    pull("nas2").exits(0);
    for volume in lab.volumes("nas2", &format!("base-{key}-")) {
        let at = |host: &str| lab.path(&format!("{host}/lib/images/{volume}"));
        std::fs::copy(at("nas2"), at("nas1")).unwrap();
    }
    let run = pull("nas1").exits(0);
    assert_eq!(run.item()["pulled"], false, "{run}");
    assert_ready(&lab, "nas1", key);
}
