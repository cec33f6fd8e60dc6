//! Passwords and tokens in an image's URL: used for the download, and neither kept on a host nor shown.

use serde_json::json;

use crate::cli::Checked;
use crate::lab;
use crate::support::{Cleanup, Lab, POOL_DIR};

const PASSWORD: &str = "hunter2pw";
const TOKEN: &str = "t0ps3cret";

/// A URL of the image server with a password and a token in it.
fn secret_url(lab: &Lab, path: &str, token: &str) -> String {
    let server = lab.url("");
    let server = server.strip_prefix("http://").unwrap();
    format!("http://me:{PASSWORD}@{server}{path}?token={token}")
}

/// What images by URL leave on nas1, gone now and later.
fn no_image_by_url(lab: &Lab) -> Cleanup<'_> {
    let sweep = move || {
        lab.on(
            "nas1",
            &format!("rm -f {POOL_DIR}/base-url-* && virsh -q pool-refresh default"),
        );
    };
    sweep();
    Cleanup::later(sweep)
}

#[track_caller]
fn tells_no_secret(run: Checked) -> Checked {
    for secret in [PASSWORD, TOKEN] {
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(!said.contains(secret), "{secret} was printed\n{run}");
    }
    run
}

/// Fails if any domain's definition, or any file in the pool, has the password or the token in it.
#[track_caller]
fn host_keeps_no_secret(lab: &Lab, name: &str) {
    let xml = lab.virsh("nas1", &["dumpxml", name]);
    let script =
        format!("cd {POOL_DIR} && grep -aclE '{PASSWORD}|{TOKEN}' base-url-* {name}* || true");
    let files = lab.on("nas1", &script);
    assert_eq!(files, "", "files with a secret");
    assert!(
        !xml.contains(PASSWORD) && !xml.contains(TOKEN),
        "the domain has a secret:\n{xml}"
    );
    assert!(xml.contains("tiny.qcow2?sha256:"), "{xml}");
}

#[test]
fn a_urls_secrets_are_neither_kept_nor_shown() {
    let lab = lab!();
    let name = "lt-secret";
    let _instance = lab.instance(name);
    let _image = no_image_by_url(&lab);
    let url = secret_url(&lab, "/tiny.qcow2", TOKEN);
    let create = |more: &[&str]| {
        let args = ["create", "--zone", "nas1", "--name", name, "--image"];
        lab.run(&[&args[..], more].concat())
    };
    tells_no_secret(create(&[&url, "--dry-run", "-vv"]).exits(0)).prints("tiny.qcow2?sha256:");
    tells_no_secret(create(&[&url, "--dry-run", "-o", "json"]).exits(0));
    let made = tells_no_secret(create(&[&url, "-vv", "-o", "json", "--progress", "json"]).exits(0));
    host_keeps_no_secret(&lab, name);
    let uuid = lab.virsh("nas1", &["domuuid", name]);

    // The same again is the same, whoever asks for it; another query is another image.
    tells_no_secret(create(&[&url]).exits(0));
    let other_user = url.replace(PASSWORD, "another");
    create(&[&other_user]).exits(0);
    assert_eq!(lab.virsh("nas1", &["domuuid", name]), uuid);
    let other_image = secret_url(&lab, "/tiny.qcow2", "another-token");
    tells_no_secret(create(&[&other_image, "-o", "json"]).exits(1))
        .fails_with("InstanceDiffers", "choose another --name")
        .never_says("another-token");
    assert_eq!(lab.volumes("nas1", "base-url-").len(), 2, "{made}");

    for args in [
        &["list", "-o", "wide", "--zone", "nas1"][..],
        &["get", name, "-o", "json", "-vv"],
        &["image", "list", "-o", "json", "--zone", "nas1", "-vv"],
        &["image", "pull", &url, "--zone", "nas1", "-vv"],
        &["image", "pull", &url, "--zone", "nas1", "--pull", "never"],
        &["gc", "--images", "--dry-run", "--explain", "-o", "json"],
    ] {
        tells_no_secret(lab.run(args).exits(0));
    }
    host_keeps_no_secret(&lab, name);
}

#[test]
fn what_no_server_sees_makes_no_other_image() {
    let lab = lab!();
    let _image = no_image_by_url(&lab);
    let url = format!("{}?x=1", lab.url("/tiny.qcow2"));
    let upper = url.replacen("http://", "HTTP://", 1);
    let pull = |url: &str| {
        let pull = ["image", "pull", url, "--zone", "nas1"];
        lab.run(&pull).exits(0);
    };
    for same in [&url, &format!("{url}#f"), &upper] {
        pull(same);
        assert_eq!(lab.volumes("nas1", "base-url-").len(), 2, "{same}");
    }
    let remove = ["image", "rm", &format!("{upper}#g"), "--zone", "nas1"];
    lab.run(&remove).exits(0).prints("base-url-");
    assert_eq!(lab.volumes("nas1", "base-url-").len(), 0);
}

#[test]
fn failures_of_a_download_tell_no_secrets() {
    let lab = lab!();
    let _image = no_image_by_url(&lab);
    for (path, code) in [
        ("/no-such-image.qcow2", 1),
        ("/html/tiny.qcow2", 1),
        ("/status/403/tiny.qcow2", 1),
        ("/redirect/no-such-image.qcow2", 1),
    ] {
        let url = secret_url(&lab, path, TOKEN);
        for more in [&["-vv"][..], &["-o", "json"], &["--pull", "never"]] {
            let pull = [&["image", "pull", &url, "--zone", "nas1"][..], more].concat();
            tells_no_secret(lab.run(&pull).exits(code));
        }
        // The log of the libraries underneath, too.
        let cli = lab.cli().env("RUST_LOG", "trace");
        tells_no_secret(
            cli.run(&["image", "pull", &url, "--zone", "nas1"])
                .exits(code),
        );
    }
}

#[test]
fn an_instance_whose_url_was_recorded_with_its_secrets_is_still_the_same() {
    let lab = lab!();
    let name = "lt-secret-old";
    let _instance = lab.instance(name);
    let _image = no_image_by_url(&lab);
    let url = secret_url(&lab, "/tiny.qcow2", TOKEN);
    let create = ["create", "--zone", "nas1", "--name", name, "--image", &url];
    lab.run(&create).exits(0);
    // As the first versions wrote it.
    let script = format!(
        "virsh -q dumpxml --inactive {name} >/tmp/{name}.xml
         sed -i 's|<egressctl:image>.*</egressctl:image>|<egressctl:image>{url}</egressctl:image>|;
                 s|specHash>[0-9a-f]*<|specHash>{}<|' /tmp/{name}.xml
         virsh -q define /tmp/{name}.xml && virsh -q destroy {name} && virsh -q start {name}",
        "0f".repeat(32)
    );
    lab.on("nas1", &script);
    assert!(lab.virsh("nas1", &["dumpxml", name]).contains(TOKEN));
    tells_no_secret(lab.run(&create).exits(0));
    let item = tells_no_secret(lab.run(&["get", name, "-o", "json"]).exits(0)).item();
    let image = item["image"].as_str().unwrap();
    assert!(image.contains("/tiny.qcow2?sha256:"), "{image}");
    // And is cleaned by the next change of its metadata.
    tells_no_secret(lab.run(&["extend", name, "2h"]).exits(0));
    host_keeps_no_secret(&lab, name);
    assert_ne!(item["specHash"], json!(null));
}
