//! Going into a real guest: commands, logs, console, SSH and the proxy in it. One boot for all of it.

mod agents;
mod console;
mod exec;

use std::process::Command;
use std::time::Duration;

use crate::cli::Cli;
use crate::instances::{boots, create_guest};
use crate::lab;
use crate::support::{Lab, wait_until};
use crate::terminal::Terminal;

const NAME: &str = "lt-enter";

/// Another guest, for what takes two.
const SECOND: &str = "lt-enter-too";

/// A proxy, as in examples/cloud-init/squid.yaml, and a value that cloud-init warns of and gets over.
const USER_DATA: &str = "#cloud-config
write_files:
- path: /etc/squid/conf.d/egressctl.conf
  content: |
    http_access allow localnet
    shutdown_lifetime 1 second
packages:
- squid
manage_etc_hosts: lt-sometimes
users:
- name: lt
  shell: /bin/sh
  ssh_authorized_keys: ['PUBLIC KEY']
runcmd:
- echo lt-enter printed this
- systemctl is-active --quiet squid || systemctl enable --now squid
";

#[test]
fn an_instance_lets_us_in() {
    let lab = lab!(boots);
    let _instances = [NAME, SECOND].map(|name| lab.instance(name));
    let cli = lab.cli();
    create_tells_cloud_inits_result(&lab, &cli);
    exec::is_like_the_command_itself(&cli);
    exec::has_failures_of_its_own(&cli);
    exec::ends_with_its_reader(&cli);
    exec::ends_where_its_output_cant_be_written(&cli);
    logs_are_cloud_inits(&cli);
    ssh_knows_the_instance_and_passes_its_status(&lab, &cli);
    probe_tells_the_egress_address(&lab, &cli);
    ports_are_reached_through_the_host_where_they_must_be(&lab, &cli);
    console::is_a_terminal(&lab, &cli);
    console::is_shown_where_nobody_types(&cli);
    // The last ones: the agents don't come back.
    agents::that_hang_cost_their_own_rows_an_address_and_the_list_one_limit(&lab, &cli);
    a_hung_agent_and_a_stopped_domain_are_told_apart(&lab, &cli);
}

fn create_tells_cloud_inits_result(lab: &Lab, cli: &Cli) {
    let file = lab.write("user-data", USER_DATA.replace("PUBLIC KEY", &key(lab)));
    cli.run(&create_guest(NAME, &file, &[])).exits(0);
    cli.run(&["logs", NAME, "-o", "json"])
        .exits(4)
        .fails_with("AgentUnavailable", "create --wait=agent");
    // Waits for the agent, and ends by itself.
    let following = cli.start(&["logs", NAME, "--follow"]);
    boots(lab, NAME);
    following
        .wait()
        .exits(0)
        .says("waiting for the guest agent")
        .prints("lt-enter printed this");
    // Boots while the first one is looked at.
    cli.run(&create_guest(SECOND, &file, &[])).exits(0);
    let waits = ["--wait=cloud-init", "--timeout", "5m", "-o", "json"];
    let ready = cli.run(&create_guest(NAME, &file, &waits)).exits(0);
    assert_eq!(ready.item()["cloudInit"], "degraded", "{ready}");
    // cloud-init's messages quote user-data.
    ready
        .says("cloud-init is done, degraded by")
        .never_says("lt-sometimes");
}

fn logs_are_cloud_inits(cli: &Cli) {
    let logs = cli.run(&["logs", NAME, "--zone", "nas1"]).exits(0);
    let file = "/var/log/cloud-init-output.log";
    let file = cli.run(&["exec", NAME, "--", "cat", file]).exits(0);
    assert!(
        logs.stdout == file.stdout && !file.stdout.is_empty(),
        "{logs}"
    );
    // cloud-init is done: there is nothing to wait for.
    let followed = cli.run(&["logs", NAME, "-f"]).exits(0);
    followed.prints_only(&logs.stdout);
    followed_logs_leave_no_file_open(cli, &logs.stdout);
}

/// As if cloud-init weren't done: with a signal, and with a reader that leaves.
fn followed_logs_leave_no_file_open(cli: &Cli, log: &str) {
    let sh = |script: &str| cli.run(&["exec", NAME, "--", "sh", "-c", script]);
    let result = "/run/cloud-init/result.json";
    sh(&format!("mv {result} {result}.away")).exits(0);
    // The agent is the shell's parent.
    let is_open = || sh("ls -l /proc/$PPID/fd | grep -q cloud-init-output").ends_well();
    let limit = Duration::from_secs(60);
    let running = cli.start(&["logs", NAME, "-f"]);
    wait_until("the log is open", limit, is_open);
    running.signal("INT");
    running.wait().exits(130);
    assert!(!is_open());
    let mut running = cli.start(&["logs", NAME, "-f"]);
    running.read_and_leave(log.lines().next().unwrap());
    running.wait().exits(0).says_nothing();
    assert!(!is_open());
    sh(&format!("mv {result}.away {result}")).exits(0);
}

/// A key pair of this test's own; gives the public key.
fn key(lab: &Lab) -> String {
    let file = lab.scratch("guest-key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "lt", "-f"])
        .arg(&file)
        .status();
    assert!(made.unwrap().success());
    let public = std::fs::read_to_string(lab.scratch("guest-key.pub")).unwrap();
    public.trim().to_owned()
}

/// The arguments that log in as the guest's user.
fn as_lt<'a>(key: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["ssh", NAME, "-u", "lt", "-i", key], more].concat()
}

fn ssh_knows_the_instance_and_passes_its_status(lab: &Lab, cli: &Cli) {
    let key = lab.scratch("guest-key");
    let key = key.to_str().unwrap();
    for via in ["auto", "direct", "host"] {
        let script = "echo out; echo err >&2; echo $SSH_CONNECTION; exit 9";
        let run = cli.run(&as_lt(key, &["--via", via, "--", script])).exits(9);
        // Nothing was asked, nothing was trusted on first use.
        assert_eq!(run.stderr, "err\n", "{run}");
        let from = if via == "host" {
            lab.address("nas1")
        } else {
            lab.gateway()
        };
        assert!(run.stdout.starts_with(&format!("out\n{from} ")), "{run}");
    }
    cli.run_with_stdin(&as_lt(key, &["--", "cat"]), b"through ssh")
        .exits(0)
        .prints_only("through ssh");
    cli.run(&as_lt(key, &["--", "kill -9 $$"])).exits(255);
    assert!(!lab.scratch(".ssh/known_hosts").exists());
    // Another key than the agent tells: refused, whatever the person's own files say.
    let hide = "cd /etc/ssh && mkdir k && mv ssh_host_*.pub k && ssh-keygen -qt rsa -N '' -f other \
                && mv other.pub ssh_host_rsa_key.pub";
    cli.run(&["exec", NAME, "--", "sh", "-c", hide]).exits(0);
    cli.run(&as_lt(key, &["--", "true"]))
        .exits(255)
        .says("Host key verification failed");
    // No key at all: ssh's own rules, which don't know it either, and can't ask.
    let none = "cd /etc/ssh && rm ssh_host_rsa_key.pub other";
    cli.run(&["exec", NAME, "--", "sh", "-c", none]).exits(0);
    cli.run(&as_lt(key, &["--", "true"]))
        .exits(255)
        .says("your own known_hosts decides")
        .says("Host key verification failed");
    let back = "cd /etc/ssh && mv k/* . && rmdir k";
    cli.run(&["exec", NAME, "--", "sh", "-c", back]).exits(0);
    cli.run(&as_lt(key, &["--port", "2", "-o", "json", "--", "true"]))
        .exits(124)
        .fails_with("ConnectFailed", "");
    cli.run(&["ssh", "lt-nobody"]).exits(123);
}

fn probe_tells_the_egress_address(lab: &Lab, cli: &Cli) {
    let page = lab.url("/_client");
    let get = cli.run(&["get", NAME, "-o", "json"]).exits(0).item();
    for via in ["auto", "direct", "host"] {
        let args = ["probe", NAME, "--url", &page, "--via", via, "-o", "json"];
        let item = cli.run(&args).exits(0).item();
        assert_eq!(item["egressIp"], get["ip"], "{item}");
        assert_eq!(item["status"], 200, "{item}");
        let taken = if via == "host" { "host" } else { "direct" };
        assert_eq!(item["via"], taken, "{item}");
        assert!(item["latencyMs"].is_u64(), "{item}");
    }
    let table = cli.run(&["probe", NAME, "--url", &page]).exits(0);
    let table = table.prints("EGRESS").prints("direct");
    assert!(table.stdout.contains(get["ip"].as_str().unwrap()));
    // A page that fails is shown and told.
    let missing = lab.url("/no-such-page");
    let failed = cli.run(&["probe", NAME, "--url", &missing, "-o", "json"]);
    let failed = failed.exits(6).fails_with("ProbeFailed", "egressctl logs");
    assert_eq!(failed.item()["status"], 404, "{failed}");
    cli.run(&[
        "probe", NAME, "--url", &page, "--port", "3129", "-o", "json",
    ])
    .exits(6)
    .fails_with("ProbeFailed", "egressctl exec");
    // The proxy answers, and nobody behind it does.
    cli.run(&[
        "probe",
        NAME,
        "--url",
        "http://10.255.255.255:1/",
        "--timeout",
        "3s",
        "-o",
        "json",
    ])
    .exits(6)
    .says("ProbeFailed");
}

/// The guest's answers to this machine are dropped, as if that were in another network than the host.
fn ports_are_reached_through_the_host_where_they_must_be(lab: &Lab, cli: &Cli) {
    let ports = |what: &str| {
        let gateway = lab.gateway();
        let rules = format!(
            "for port in 22 3128; do ip rule {what} to {gateway} ipproto tcp sport $port blackhole; done"
        );
        cli.run(&["exec", NAME, "--", "sh", "-c", &rules]).exits(0);
    };
    ports("add");
    let file = lab.scratch("user-data");
    let wait = ["--wait=port:3128", "--timeout", "1m"];
    cli.run(&create_guest(NAME, &file, &wait)).exits(0);
    let key = lab.scratch("guest-key");
    let run = cli.run(&as_lt(
        key.to_str().unwrap(),
        &["--", "echo $SSH_CONNECTION"],
    ));
    let run = run.exits(0).says_nothing();
    assert!(run.stdout.starts_with(&lab.address("nas1")), "{run}");
    cli.run(&as_lt(
        key.to_str().unwrap(),
        &["--via", "direct", "--", "true"],
    ))
    .exits(124)
    .says("from here");
    let page = lab.url("/_client");
    let probe = cli.run(&["probe", NAME, "--url", &page, "-o", "json"]);
    assert_eq!(probe.exits(0).item()["via"], "host");
    ports("del");
}

fn a_hung_agent_and_a_stopped_domain_are_told_apart(lab: &Lab, cli: &Cli) {
    let exec = |command: &[&str]| cli.run(&[&["exec", NAME, "-o", "json", "--"], command].concat());
    exec(&["true"])
        .exits(124)
        .fails_with("AgentUnavailable", "create --wait=agent");
    let key = lab.scratch("guest-key");
    cli.run(&as_lt(key.to_str().unwrap(), &["--", "true"]))
        .exits(255)
        .says("your own known_hosts decides");
    let soon = ["exec", NAME, "--timeout", "4s", "-o", "json", "--", "true"];
    cli.run(&soon)
        .exits(124)
        .within(Duration::from_secs(15))
        .fails_with("AgentUnavailable", "egressctl check");
    let waits = ["--wait=agent", "--timeout", "10s"];
    cli.run(&create_guest(NAME, &lab.scratch("user-data"), &waits))
        .exits(4)
        .within(Duration::from_secs(25))
        .says("wasn't ready within 10 s");
    lab.virsh("nas1", &["suspend", NAME]);
    exec(&["true"])
        .exits(121)
        .says("it is paused")
        .fails_with("NotRunning", "egressctl create");
    lab.virsh("nas1", &["resume", NAME]);
    let mut console = Terminal::start(cli, &["console", NAME]);
    console.expect("^] leaves it");
    console.press("\r");
    console.expect("login:");
    lab.virsh("nas1", &["destroy", NAME]);
    console.expect("the domain stopped");
    assert!(!console::is_raw(&console));
    assert_eq!(console.ends(), Some(0));
    exec(&["true"])
        .exits(121)
        .says("shut off")
        .fails_with("NotRunning", "egressctl create");
}
