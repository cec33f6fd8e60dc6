//! Pulls that must fail: what isn't the image, servers that fail, pools that can't take it. Nothing stays behind.

use serde_json::{Value, json};

use crate::lab;
use crate::pull::{add_image, assert_absent, assert_ready, with_image};
use crate::support::{Cleanup, Lab, POOL_DIR};

#[test]
fn bytes_that_are_not_the_image_are_not_kept() {
    let lab = lab!();
    let table = [
        (
            "/tiny.qcow2?lt-wrong",
            "ChecksumMismatch",
            "0000000000000000",
        ),
        (
            "/chunked/tiny.qcow2?lt-wrong",
            "ChecksumMismatch",
            "0000000000000000",
        ),
        (
            "/html/tiny.qcow2?lt-wrong",
            "NotAnImage",
            "/html/tiny.qcow2",
        ),
        ("/index.html?lt-wrong", "NotAnImage", "/index.html"),
    ];
    let key = "lt-wrong";
    let _image = lab.image(key);
    for (path, reason, cause) in table {
        let cli = lab.cli_with(|kvm| {
            add_image(&lab, kvm, key, path);
            kvm["images"][key]["sha256"] = json!("0".repeat(64));
        });
        let run = cli
            .run(&["image", "pull", key, "-o", "json"])
            .exits(1)
            .fails_with(reason, "");
        let error = &run.errors()[0];
        assert_eq!(error["class"], "Permanent", "{path}\n{run}");
        assert!(error["causes"].to_string().contains(cause), "{path}\n{run}");
        assert_absent(&lab, key);
    }
}

#[test]
fn a_wrong_checksum_is_told_with_both_digests_the_url_and_the_size() {
    let lab = lab!();
    let key = "lt-digests";
    let _image = lab.image(key);
    let cli = lab.cli_with(|kvm| {
        add_image(&lab, kvm, key, "/redirect/tiny.qcow2");
        kvm["images"][key]["sha256"] = json!("ab".repeat(32));
    });
    let right = lab.tiny()["sha256"].as_str().unwrap().to_owned();
    let size = std::fs::metadata(lab.path("www/tiny.qcow2")).unwrap().len();
    let run = cli.run(&["image", "pull", key]).exits(1);
    // After the redirect.
    let url = lab.url("/tiny.qcow2");
    let run = run
        .says(&"ab".repeat(32))
        .says(&right)
        .says(&url)
        .says(&size.to_string());
    assert_eq!(
        run.stderr.matches("error:").count(),
        1,
        "one cause for all hosts is told once\n{run}"
    );
    run.says("error: nas1, nas2: ").prints_only("");
    // A program gets one for each host.
    let run = cli.run(&["image", "pull", key, "-o", "json"]).exits(1);
    let errors = run.errors();
    let hosts: Vec<&Value> = errors.iter().map(|error| &error["host"]).collect();
    assert_eq!(hosts, ["nas1", "nas2"], "{run}");
    // Nor may create use what was not verified.
    let create = [
        "create",
        "--zone",
        "nas1",
        "--name",
        "lt-digests",
        "--image",
        key,
        "-o",
        "json",
    ];
    cli.run(&create).exits(1).fails_with("ChecksumMismatch", "");
    assert_absent(&lab, key);
    assert!(lab.volumes("nas1", "lt-digests").is_empty());
    assert!(!lab.has_domain("nas1", "lt-digests"));
}

#[test]
fn servers_that_refuse_or_fail_are_told_apart() {
    let lab = lab!();
    let key = "lt-server";
    let _image = lab.image(key);
    let table = [
        ("/no-such-file.qcow2", 1, "HttpStatus", "404"),
        ("/status/403/tiny.qcow2", 1, "HttpStatus", "403"),
        ("/status/503/tiny.qcow2", 4, "HttpStatus", "503"),
        ("/status/429/tiny.qcow2", 4, "HttpStatus", "429"),
    ];
    for (path, code, reason, told) in table {
        let run = with_image(&lab, key, path).run(&["image", "pull", key, "-o", "json"]);
        let run = run.exits(code).fails_with(reason, "");
        assert!(run.errors()[0].to_string().contains(told), "{path}\n{run}");
        assert!(
            run.errors()[0].to_string().contains(path),
            "which URL?\n{run}"
        );
        assert_absent(&lab, key);
    }
    let nobody = lab.cli_with(|kvm| {
        add_image(&lab, kvm, key, "/tiny.qcow2");
        kvm["images"][key]["url"] = json!(format!("http://{}:9/tiny.qcow2", lab.address("nas1")));
    });
    nobody
        .run(&["image", "pull", key, "-o", "json"])
        .exits(4)
        .fails_with("DownloadFailed", "");
    assert_absent(&lab, key);
}

/// A pool of the test's own on nas1, not started, on a file system of this size.
pub(crate) fn small_pool<'a>(lab: &'a Lab, size: &str) -> Cleanup<'a> {
    let dir = "/var/lib/libvirt/lt-pool";
    let undo = "virsh -q pool-destroy lt-pool; virsh -q pool-undefine lt-pool; umount /var/lib/libvirt/lt-pool";
    lab.change(
        "nas1",
        &format!(
            "({undo}) >/dev/null 2>&1; mkdir -p {dir} && mount -t tmpfs -o size={size},mode=711 tmpfs {dir} \
             && virsh -q pool-define-as lt-pool dir --target {dir}"
        ),
        "virsh -q pool-destroy lt-pool >/dev/null 2>&1; virsh -q pool-undefine lt-pool; umount /var/lib/libvirt/lt-pool",
    )
}

pub(crate) fn in_pool(kvm: &mut Value, pool: &str) {
    kvm["hosts"][0]["pool"] = json!(pool);
}

#[test]
fn a_pool_that_is_missing_or_stopped_costs_its_own_host_only() {
    let lab = lab!();
    let key = "lt-pools";
    let _pool = small_pool(&lab, "64m");
    for (pool, reason, hint) in [
        (
            "lt-nowhere",
            "PoolNotFound",
            "virsh pool-define-as lt-nowhere dir",
        ),
        ("lt-pool", "PoolNotActive", "virsh pool-start lt-pool"),
    ] {
        let _image = lab.image(key);
        let cli = lab.cli_with(|kvm| {
            add_image(&lab, kvm, key, "/tiny.qcow2?lt-pools");
            in_pool(kvm, pool);
        });
        let run = cli
            .run(&["image", "pull", key, "-o", "json"])
            .exits(1)
            .fails_with(reason, hint);
        assert_eq!(run.errors()[0]["host"], "nas1", "{run}");
        assert_eq!(run.item()["host"], "nas2", "the good host's result\n{run}");
        assert_ready(&lab, "nas2", key);
    }
    let missing = lab.cli_with(|kvm| {
        add_image(&lab, kvm, key, "/tiny.qcow2?lt-pools");
        in_pool(kvm, "lt-nowhere");
    });
    let run = missing
        .run(&["image", "pull", key, "--zone", "nas1"])
        .exits(1);
    run.says("error: nas1: there is no storage pool lt-nowhere")
        .says("default, lt-pool")
        .says("hint:");
}

#[test]
fn an_image_that_does_not_fit_is_refused_before_a_byte_is_stored() {
    let lab = lab!();
    let key = "lt-room";
    let _image = lab.image(key);
    // 8 MiB would fit, but not with the 16 MiB that must stay free.
    let _pool = small_pool(&lab, "20m");
    lab.virsh("nas1", &["pool-start", "lt-pool"]);
    for (path, told) in [
        ("/tiny.qcow2?lt-room", "available"),
        ("/chunked/tiny.qcow2?lt-room", "larger than"),
    ] {
        let cli = lab.cli_with(|kvm| {
            add_image(&lab, kvm, key, path);
            in_pool(kvm, "lt-pool");
        });
        let run = cli
            .run(&["image", "pull", key, "--zone", "nas1", "-o", "json"])
            .exits(5);
        let run = run.fails_with("PoolFull", "");
        let error = &run.errors()[0];
        assert_eq!(error["class"], "QuotaExceeded", "{run}");
        assert!(error["message"].to_string().contains(told), "{run}");
        assert_eq!(
            lab.on("nas1", "ls -A /var/lib/libvirt/lt-pool"),
            "",
            "{path}: nothing is left\n{run}"
        );
    }
    let cli = lab.cli_with(|kvm| {
        add_image(&lab, kvm, key, "/tiny.qcow2?lt-room");
        in_pool(kvm, "lt-pool");
    });
    let run = cli
        .run(&["image", "pull", key, "--zone", "nas1", "-v"])
        .exits(5)
        .says("needed")
        .says("hint:");
    let begun = format!("volume=base-{key}");
    let made: Vec<&str> = run
        .stderr
        .lines()
        .filter(|line| line.contains("rpc=virStorageVolCreateXML"))
        .collect();
    assert!(
        made.iter()
            .all(|line| !line.contains(&begun) || line.contains(".claim")),
        "{made:?}\n{run}"
    );
    // The other host has room.
    cli.run(&["image", "pull", key])
        .exits(5)
        .says("nas1")
        .prints("nas2");
    assert_ready(&lab, "nas2", key);
    assert!(
        lab.virsh("nas1", &["pool-info", "default"])
            .contains("running"),
        "libvirtd lives"
    );
}

#[test]
fn a_volume_of_that_name_in_use_is_never_replaced() {
    let lab = lab!();
    let key = "lt-used";
    let (_image, _user) = (lab.image(key), lab.instance("lt-used"));
    let cli = with_image(&lab, key, "/tiny.qcow2?lt-used");
    cli.run(&["image", "pull", key, "--zone", "nas1"])
        .exits(0)
        .prints("pulled");
    cli.run(&[
        "create", "--zone", "nas1", "--image", key, "--name", "lt-used",
    ])
    .exits(0)
    .prints("lt-used");
    let base = lab.volumes("nas1", &format!("base-{key}"))[0].clone();
    lab.on(
        "nas1",
        &format!("rm {POOL_DIR}/{base}.sha256 && virsh -q pool-refresh default"),
    );
    let before = lab.on("nas1", &format!("stat -c '%i %Y %s' {POOL_DIR}/{base}"));
    let run = cli
        .run(&["image", "pull", key, "--zone", "nas1", "-o", "json"])
        .exits(1);
    let run = run.fails_with("InDoubt", &format!("{base}.sha256"));
    assert!(
        run.errors()[0]["causes"].to_string().contains("lt-used"),
        "who uses it?\n{run}"
    );
    assert_eq!(
        lab.on("nas1", &format!("stat -c '%i %Y %s' {POOL_DIR}/{base}")),
        before
    );
}
