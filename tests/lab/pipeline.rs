//! The CI job of examples/ with a real guest: a command that only works through the proxy VM.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cli::binary;
use crate::instances::boots;
use crate::lab;
use crate::support::wait_until;

#[test]
fn the_ci_job_fetches_a_page_through_its_own_proxy_and_leaves_nothing() {
    let lab = lab!(boots);
    let uid = format!("lt-ci-{}", std::process::id());
    let path = format!("/index.html?{uid}");
    let binary = binary();
    let folder = binary.parent().unwrap();
    let job = Command::new("examples/ci-pipeline.sh")
        .args(["curl", "-fsS", "--max-time", "30", &lab.url(&path)])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .env("HOME", lab.scratch(""))
        .env("EGRESSCTL_CONFIG", lab.path("providers.yaml"))
        .env("PROXY_ZONE", "nas1")
        .env("CI_JOB_ID", &uid)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let selector = format!("ci-job={uid}");
    let named = || lab.run(&["list", "--selector", &selector, "-o", "columns=NAME"]);
    let mut name = String::new();
    wait_until("its instance is there", Duration::from_secs(120), || {
        let run = named().exits(0);
        name = run
            .stdout
            .lines()
            .nth(1)
            .unwrap_or_default()
            .trim()
            .to_owned();
        !name.is_empty()
    });
    boots(&lab, &name);
    let output = job.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("Hello from the lab's web server"), "{page}");
    assert_eq!(lab.served(&path).unwrap().requests, 1);
    let log = std::fs::read_to_string(lab.path("log/server.log")).unwrap();
    let line = log.lines().find(|line| line.contains(&path)).unwrap();
    let machine = lab.url("");
    let machine = machine
        .trim_start_matches("http://")
        .split(':')
        .next()
        .unwrap();
    assert!(
        !line.contains(&format!(" {machine} ")),
        "not by the proxy: {line}"
    );
    let left = lab.run(&["list", "--selector", &format!("ci-job={uid}"), "-o", "name"]);
    left.exits(0).prints_only("");
}
