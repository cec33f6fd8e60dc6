//! Base images: unfinished, unwanted, used, and removed while somebody creates.

use serde_json::Value;

use super::{GC, about, files, gc, items};
use crate::lab;
use crate::support::{Cleanup, Lab, POOL_DIR};

/// A base image of a key of the test's own, pulled to the first host; gives its volume's name.
fn pulled<'a>(lab: &'a Lab, key: &str) -> (Cleanup<'a>, String) {
    let cleanup = lab.image(key);
    let tiny = lab.tiny();
    let cli = lab.cli_with(|kvm| kvm["images"][key] = tiny.clone());
    let _ = cli.run(&["image", "pull", key, "--zone", "nas1"]).exits(0);
    let digest = lab.tiny()["sha256"].as_str().unwrap()[..16].to_owned();
    (cleanup, format!("base-{key}-{digest}.qcow2"))
}

#[test]
fn unfinished_bases_go_and_what_is_being_pulled_stays() {
    let lab = lab!();
    let _image = lab.image("lt-img");
    let _operators = lab.change(
        "nas1",
        "true",
        "rm -f /var/lib/libvirt/images/base-lt-*; virsh -q pool-refresh default",
    );
    let name = |digit: &str| format!("base-lt-img-{}.qcow2", digit.repeat(16));
    let (dead, busy, used, silent) = (name("a"), name("b"), name("c"), name("d"));
    let (stray, young) = (name("e"), name("f"));
    files(
        &lab,
        &format!(
            "for f in {dead} {busy} {silent} {young} base-lt-img.qcow2 base-lt-img-0123.qcow2 {dead}.bak base-lt-img-{}.qcow2; do truncate -s 4096 $f; done && \
             qemu-img create -q -f qcow2 {used} 1M && qemu-img create -q -f qcow2 -F qcow2 -b {used} base-lt-over.img && \
             printf '0123456789abcdef:1:2 7 ' > {busy}.claim && printf '0123456789abcdef:1:2 7 ' > {silent}.claim && \
             : > {stray}.sha256 && \
             old {dead} {busy} {silent} {silent}.claim {used} {stray}.sha256 base-lt-img.qcow2 base-lt-img-0123.qcow2 {dead}.bak base-lt-img-{}.qcow2",
            "A".repeat(16),
            "A".repeat(16)
        ),
    );
    let run = lab.run(&gc(&["--explain", "-o", "json"])).exits(0);
    let items = items(&run.stdout);
    let left = lab.volumes("nas1", "base-lt-");
    let marker = format!("{stray}.sha256");
    for (volume, goes) in [
        (&dead, true),
        (&silent, true),
        (&marker, true),
        (&busy, false),
        (&used, false),
        (&young, false),
    ] {
        let item = about(&items, volume);
        assert_eq!(
            (item["kind"].as_str(), item["deleted"].as_bool()),
            (Some("unfinished"), Some(goes)),
            "{item}"
        );
        assert_eq!(left.contains(volume), !goes, "{volume}: {left:?}");
    }
    let operators = [
        "base-lt-img.qcow2".to_owned(),
        "base-lt-img-0123.qcow2".to_owned(),
        format!("{dead}.bak"),
        format!("base-lt-img-{}.qcow2", "A".repeat(16)),
    ];
    for volume in operators {
        assert!(left.contains(&volume), "{volume}: {left:?}");
        assert!(
            items.iter().all(|item| item["volume"] != *volume),
            "{items:?}"
        );
    }
    assert!(!left.contains(&format!("{silent}.claim")), "{left:?}");
}

#[test]
fn an_unwanted_image_goes_unless_anything_is_backed_by_it() {
    let lab = lab!();
    let (_image, base) = pulled(&lab, "lt-old");
    let _overlay = lab.change(
        "nas1",
        "true",
        "rm -f /var/lib/libvirt/images/lt-theirs.img; virsh -q pool-refresh default",
    );
    let listed = lab
        .run(&["image", "list", "--zone", "nas1", "-o", "json"])
        .exits(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let find = |list: &Value| {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|i| i["volume"] == base.as_str())
            .cloned()
            .unwrap()
    };
    let item = find(&listed);
    assert_eq!(
        (item["state"].as_str(), item["wanted"].as_bool()),
        (Some("ready"), Some(false)),
        "{item}"
    );
    assert_eq!(
        (item["image"].as_str(), item["verifiedAgainst"].as_str()),
        (Some("lt-old"), Some("sha256")),
        "{item}"
    );
    // Young, then wanted, then without --images: it stays.
    let _ = lab
        .run(&["image", "prune", "--zone", "nas1"])
        .exits(0)
        .prints_only("");
    let tiny = lab.tiny();
    let wanting = lab.cli_with(|kvm| kvm["images"]["lt-old"] = tiny.clone());
    let _ = wanting.run(&gc(&["--images"])).exits(0).prints_only("");
    let _ = lab.run(&GC).exits(0).prints_only("");
    // Somebody makes an overlay beside libvirt, which hasn't seen it when gc looks first.
    lab.on(
        "nas1",
        &format!("cd {POOL_DIR} && qemu-img create -q -f qcow2 -F qcow2 -b {base} lt-theirs.img"),
    );
    let run = lab
        .run(&gc(&["--images", "--explain", "-o", "json"]))
        .exits(0);
    let kept = items(&run.stdout);
    let kept = about(&kept, &base);
    assert_eq!(kept["deleted"], false, "{kept}");
    assert!(
        kept["reason"].as_str().unwrap().contains("lt-theirs.img"),
        "{kept}"
    );
    let _ = lab
        .run(&["image", "rm", "lt-old", "--zone", "nas1"])
        .exits(1)
        .says("used by volume lt-theirs.img");
    // Kept, and still an image: the marker is there.
    assert_eq!(
        lab.volumes("nas1", &base),
        [base.clone(), format!("{base}.sha256")]
    );
    lab.on("nas1", &format!("rm {POOL_DIR}/lt-theirs.img"));
    let planned = lab
        .run(&[
            "image",
            "prune",
            "--older-than",
            "0s",
            "--zone",
            "nas1",
            "--dry-run",
        ])
        .exits(0)
        .prints(&base);
    let _ = lab
        .run(&["image", "prune", "--older-than", "0s", "--zone", "nas1"])
        .exits(0)
        .prints_only(&planned.stdout);
    assert_eq!(lab.volumes("nas1", &base), [""; 0]);
    // It can be pulled again, and removed by name; then it is absent.
    let _ = wanting
        .run(&["image", "pull", "lt-old", "--zone", "nas1"])
        .exits(0);
    let _ = wanting
        .run(&["image", "rm", &base, "--zone", "nas1"])
        .exits(0)
        .prints(&base);
    assert_eq!(lab.volumes("nas1", &base), [""; 0]);
    let _ = wanting
        .run(&["image", "rm", "lt-old", "--zone", "nas1"])
        .exits(0)
        .says("already absent");
    let _ = lab.run(&["image", "rm", "no-such"]).exits(1);
}

#[test]
fn a_prune_beside_a_create_never_takes_the_base_away_under_it() {
    let lab = lab!();
    let (_image, base) = pulled(&lab, "lt-race");
    let _web = lab.instance("lt-gc-race");
    let tiny = lab.tiny();
    let wanting = lab.cli_with(|kvm| kvm["images"]["lt-race"] = tiny.clone());
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
        std::thread::sleep(std::time::Duration::from_millis(millis));
        let _ = lab
            .run(&["image", "prune", "--older-than", "0s", "--zone", "nas1"])
            .exits(0);
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
