//! Base images: unfinished, unwanted, used.

use serde_json::{Value, json};

use super::{GC, PRUNE, Swept, files, gc};
use crate::lab;
use crate::support::{Cleanup, Lab, POOL_DIR};

/// A base image of a key of the test's own, pulled to the first host; gives its volume's name.
pub(super) fn pulled<'a>(lab: &'a Lab, key: &str) -> (Cleanup<'a>, String) {
    let cleanup = lab.image(key);
    let cli = lab.cli_with(|kvm| kvm["images"][key] = lab.tiny());
    let _ = cli.run(&["image", "pull", key, "--zone", "nas1"]).exits(0);
    let digest = lab.tiny()["sha256"].as_str().unwrap()[..16].to_owned();
    (cleanup, format!("base-{key}-{digest}.qcow2"))
}

#[test]
fn images_given_by_url_are_told_apart_by_it() {
    let lab = lab!();
    let _images = Cleanup::now_and_later(|| {
        let remove = format!("rm -f {POOL_DIR}/base-url-*; virsh -q pool-refresh default");
        lab.on("nas1", &remove);
    });
    // The same bytes; what names them is where they come from.
    let (one, two) = (lab.url("/tiny.qcow2"), lab.url("/norange/tiny.qcow2"));
    for url in [&one, &two] {
        let _ = lab.run(&["image", "pull", url, "--zone", "nas1"]).exits(0);
    }
    let bases = || lab.volumes("nas1", "base-url-").len();
    assert_eq!(bases(), 4, "two images and their markers");
    lab.run(&["image", "rm", "url"])
        .exits(2)
        .says("every image goes under");
    assert_eq!(bases(), 4);
    let rm = ["image", "rm", &one, "--zone", "nas1"];
    lab.run(&rm).exits(0).prints("base-url-");
    assert_eq!(bases(), 2);
    lab.run(&rm).exits(0).says("already absent");
    let list = ["image", "list", "--zone", "nas1", "-o", "columns=image,url"];
    let list = lab.run(&list).exits(0).prints(&two);
    assert!(!list.stdout.contains(&format!("{one}\n")), "{list}");
    assert_eq!(bases(), 2);
}

#[test]
fn a_url_as_the_list_shows_it_removes_one_image_or_none() {
    let lab = lab!();
    let _images = Cleanup::now_and_later(|| {
        let remove = format!("rm -f {POOL_DIR}/base-url-*; virsh -q pool-refresh default");
        lab.on("nas1", &remove);
    });
    let (zone, bases) = (["--zone", "nas1"], || {
        lab.volumes("nas1", "base-url-").len()
    });
    let pull = |path: &str| {
        let pull = lab.run(&[&["image", "pull", &lab.url(path)], &zone[..]].concat());
        drop(pull.exits(0));
    };
    let list = || {
        let list = [&["image", "list", "-o", "json"], &zone[..]].concat();
        let mut items = lab.run(&list).exits(0).items();
        items.retain(|item| item["image"] == "url");
        let text = |item: &Value, key: &str| item[key].as_str().unwrap().to_owned();
        let both = items.iter().map(|i| (text(i, "volume"), text(i, "url")));
        both.collect::<Vec<_>>()
    };
    let rm = |url: &str| lab.run(&[&["image", "rm", url], &zone[..]].concat());
    // Not where `tiny` comes from, which other tests leave here and which such a URL would mean first.
    for path in [
        "/redirect/norange/tiny.qcow2",
        "/norange/tiny.qcow2?token=lt-secret",
    ] {
        pull(path);
        let [(volume, shown)] = &list()[..] else {
            panic!("{path}: one image was expected");
        };
        assert!(!lab.url(path).eq(shown) && !shown.contains("secret"));
        rm(shown).exits(0).prints(volume);
        assert_eq!(bases(), 0, "{path}");
        rm(shown).exits(0).says("already absent");
    }
    // Two queries are two images.
    let (one, two) = ("/tiny.qcow2?file=lt-1", "/tiny.qcow2?file=lt-2");
    pull(one);
    pull(two);
    let [(first, shown), (second, same)] = &list()[..] else {
        panic!("two images were expected");
    };
    assert_eq!(shown, same);
    rm(shown).exits(1).says(first).says(second);
    assert_eq!(bases(), 4);
    rm(&lab.url(one)).exits(0);
    assert_eq!(bases(), 2);
    rm(shown).exits(0);
    assert_eq!(bases(), 0);
}

#[test]
fn unfinished_bases_go_and_what_is_being_pulled_stays() {
    let lab = lab!();
    let name = |digit: &str| format!("base-lt-img-{}.qcow2", digit.repeat(16));
    let (dead, busy, used, silent) = (name("a"), name("b"), name("c"), name("d"));
    let (stray, young, upper) = (name("e"), name("f"), name("A"));
    let (directory, marker, claim) = (name("1"), name("2"), name("3"));
    let _files = files(
        &lab,
        "base-lt-",
        &format!(
            "for f in {dead} {busy} {silent} {young} base-lt-img.qcow2 base-lt-img-0123.qcow2 {dead}.bak {upper}; do truncate -s 4096 $f; done && \
             qemu-img create -q -f qcow2 {used} 1M && qemu-img create -q -f qcow2 -F qcow2 -b {used} base-lt-over.img && \
             printf '0123456789abcdef:1:2 7 ' | tee {busy}.claim > {silent}.claim && : > {stray}.sha256 && \
             mkdir {directory} {marker}.sha256 {claim}.claim && ln -s /nowhere {used}.sha256 && \
             old base-lt-* && touch {young} {busy}.claim"
        ),
    );
    let swept = Swept::by(&lab.cli(), &lab, &[]);
    let [stray, marker, claim, unreadable] =
        [&stray, &marker, &claim, &used].map(|base| (format!("{base}.sha256"), base));
    swept.took(&[&dead, &silent, &stray.0], &[&busy, &used, &young]);
    assert_eq!(swept.about(&dead)["kind"], "unfinished");
    // The operator's cache, other names, directories, and what nobody can read.
    swept.passed_over(&[
        "base-lt-img.qcow2",
        "base-lt-img-0123.qcow2",
        &format!("{dead}.bak"),
        &upper,
        &directory,
        &marker.0,
        &format!("{}.claim", claim.1),
        &unreadable.0,
    ]);
    assert!(!swept.has(&format!("{silent}.claim")), "{:?}", swept.left);
}

#[test]
fn an_unwanted_image_goes_unless_anything_is_backed_by_it() {
    let lab = lab!();
    let (_image, base) = pulled(&lab, "lt-old");
    let wanting = lab.cli_with(|kvm| kvm["images"]["lt-old"] = lab.tiny());
    let listed = lab
        .run(&["image", "list", "--zone", "nas1", "-o", "json"])
        .exits(0);
    let items = listed.items();
    let item = items.iter().find(|item| item["volume"] == *base).unwrap();
    for (key, value) in [
        ("state", json!("ready")),
        ("wanted", json!(false)),
        ("image", json!("lt-old")),
        ("verifiedAgainst", json!("sha256")),
        ("instances", json!([])),
    ] {
        assert_eq!(item[key], value, "{key}: {item}");
    }
    // Young, then wanted, then without --images: it stays.
    let _ = lab.run(&PRUNE[..4]).exits(0).prints_only("");
    let _ = wanting.run(&gc(&["--images"])).exits(0).prints_only("");
    let _ = lab.run(&GC).exits(0).prints_only("");
    {
        // Somebody makes an overlay beside libvirt, which hasn't seen it when gc looks first.
        let _theirs = files(&lab, "lt-theirs", "true");
        let make = format!("qemu-img create -q -f qcow2 -F qcow2 -b {base} lt-theirs.img");
        lab.on("nas1", &format!("cd {POOL_DIR} && {make}"));
        let swept = Swept::by(&lab.cli(), &lab, &["--images"]);
        // Kept, and still an image: the marker is there.
        swept.took(&[], &[&base]);
        assert!(swept.has(&format!("{base}.sha256")), "{:?}", swept.left);
        let why = swept.about(&base)["reason"].to_string();
        assert!(why.contains("lt-theirs.img"), "{why}");
        let rm = ["image", "rm", "lt-old", "--zone", "nas1"];
        let _ = lab.run(&rm).exits(1).says("used by volume lt-theirs.img");
    }
    let dry = [&PRUNE[..], &["--dry-run"]].concat();
    let table = [&dry[..], &["-o", "table"]].concat();
    let _ = lab.run(&table).exits(0).prints("WHAT").prints(&base);
    let planned = lab.run(&dry).exits(0).prints(&base);
    let _ = lab.run(&PRUNE).exits(0).prints_only(&planned.stdout);
    assert_eq!(lab.volumes("nas1", &base), [""; 0]);
    // It can be pulled again, and removed by name; then it is absent.
    let pull = ["image", "pull", "lt-old", "--zone", "nas1"];
    let _ = wanting.run(&pull).exits(0);
    let rm = |what: &str| {
        wanting
            .run(&["image", "rm", what, "--zone", "nas1"])
            .exits(0)
    };
    let _ = rm(&base).prints(&base);
    assert_eq!(lab.volumes("nas1", &base), [""; 0]);
    let _ = rm("lt-old").says("already absent");
    let _ = lab.run(&["image", "rm", "no-such"]).exits(1);
}

#[test]
fn a_copy_in_another_pool_is_no_user_and_the_same_file_under_another_name_is() {
    let lab = lab!();
    let (_image, base) = pulled(&lab, "lt-twice");
    let rm = ["image", "rm", &base, "--zone", "nas1"];
    let undo = "virsh -q 'pool-destroy lt-twice; pool-undefine lt-twice' >/dev/null 2>&1
         rm -rf /var/lib/libvirt/lt-twice /var/lib/libvirt/images/lt-twice.qcow2; virsh -q pool-refresh default";
    let start = "virsh -q pool-define-as lt-twice dir --target /var/lib/libvirt/lt-twice && virsh -q pool-start lt-twice";
    {
        // libvirt takes another path for another directory.
        let make = format!(
            "cd /var/lib/libvirt && ln -s images lt-twice && {start} &&
             qemu-img create -q -f qcow2 -F qcow2 -b /var/lib/libvirt/lt-twice/{base} images/lt-twice.qcow2 &&
             virsh -q 'pool-refresh default; pool-refresh lt-twice'"
        );
        let _pool = lab.change("nas1", &make, undo);
        lab.run(&rm).exits(1).says("used by volume lt-twice.qcow2");
    }
    let make = format!(
        "cd /var/lib/libvirt && mkdir lt-twice && cp images/{base} lt-twice/ &&
         qemu-img create -q -f qcow2 -F qcow2 -b /var/lib/libvirt/lt-twice/{base} lt-twice/lt-twice.qcow2 && {start}"
    );
    let _pool = lab.change("nas1", &make, undo);
    lab.run(&rm).exits(0).prints(&base);
    let left = lab.on("nas1", "ls /var/lib/libvirt/lt-twice");
    assert_eq!(left.lines().count(), 2, "theirs stays: {left}");
}
