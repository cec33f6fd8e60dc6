//! Crashes at every step: the process dies, the connection breaks, an answer is lost or libvirt refuses at each call
//! of a pull, a create and a delete in turn; the same command again ends where an undisturbed one does. And where nobody
//! runs it again, gc takes what is left.
//!
//! The steps are counted by the binary itself (`$EGRESSCTL_FAULTY_BIN`, feature `fault-injection`), so a new call is
//! covered by itself.

use std::path::PathBuf;

use serde_json::json;

use crate::lab;
use crate::support::{Lab, POOL_DIR};

const NAME: &str = "lt-crash";
const HOST: &str = "nas1";

/// What an operation is, and what must be there before it.
struct Operation {
    command: &'static [&'static str],
    before: &'static [&'static [&'static str]],
}

const PULL: &[&str] = &["image", "pull", NAME, "--zone", HOST];
const CREATE: &[&str] = &["create", "--zone", HOST, "--image", NAME, "--name", NAME];
const CREATE_BRIEFLY: &[&str] = &[
    "create", "--zone", HOST, "--image", NAME, "--name", NAME, "--ttl", "1ms",
];
const DELETE: &[&str] = &["delete", NAME, "--zone", HOST];

/// What stands on the host: volumes, domains, and which of those run.
#[derive(Debug, PartialEq, Eq)]
struct State(Vec<String>);

fn state(lab: &Lab) -> State {
    let script = format!(
        "ls -A {POOL_DIR} | grep {NAME}; virsh -q list --all --name | grep {NAME} | sed 's/^/domain /'; \
         virsh -q list --name | grep {NAME} | sed 's/^/running /'; true"
    );
    State(lab.on(HOST, &script).lines().map(str::to_owned).collect())
}

/// Restarts a daemon that answers nobody any more. libvirtd 11.3 can hang for good when a client disappears while one of
/// its streams ends (docs/decisions.md); that is its fault, and not what is looked for here.
pub(crate) fn revive(lab: &Lab, host: &str) -> bool {
    let probe = "timeout 8 virsh -q version >/dev/null 2>&1 && echo lives || true";
    if lab.on(host, probe).contains("lives") {
        return false;
    }
    lab.lab(&["libvirtd", host, "restart"]);
    true
}

fn clear(lab: &Lab) {
    lab.on(
        HOST,
        &format!(
            "virsh -q 'destroy {NAME}; undefine {NAME} --nvram' >/dev/null 2>&1
             rm -f {POOL_DIR}/{NAME}* {POOL_DIR}/base-{NAME}-*; virsh -q pool-refresh default"
        ),
    );
}

/// The binary that can fail on demand; tests/run builds it.
pub(crate) fn faulty() -> Option<PathBuf> {
    let binary = std::env::var_os("EGRESSCTL_FAULTY_BIN").map(PathBuf::from);
    assert!(
        binary.is_some() || std::env::var("CI").as_deref() != Ok("true"),
        "CI without EGRESSCTL_FAULTY_BIN: build with --features fault-injection (tests/run does)"
    );
    if binary.is_none() {
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            b"SKIPPED: EGRESSCTL_FAULTY_BIN names no binary with fault injection\n",
        );
    }
    binary
}

/// What a failed run, that could still clean up, may leave: the whole thing, or what nobody can know to be its own,
/// as the answer to the creation was lost before anything was written into it.
fn may_be_left(before: &State, after: &State, done: &State) -> bool {
    let new: Vec<&String> = after
        .0
        .iter()
        .filter(|thing| !before.0.contains(thing))
        .collect();
    let unwritten = |thing: &&String| thing.contains("-seed.iso") || thing.contains(".claim");
    after == done || new.is_empty() || new.iter().all(unwritten) && new.len() == 1
}

fn converges(operation: &Operation, kind: &str) {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let cli = || {
        lab.cli_with(|kvm| kvm["images"] = json!({ NAME: lab.tiny() }))
            .binary(binary.clone())
    };
    let set_up = || {
        clear(&lab);
        for command in operation.before {
            cli().run(command).exits(0);
        }
        state(&lab)
    };
    set_up();
    cli().run(operation.command).exits(0);
    let done = state(&lab);
    for call in 1.. {
        assert!(call < 200, "the operation never gets past its faults");
        let before = set_up();
        let fault = format!("{kind}:{call}");
        // A daemon that hangs costs every one of them a limit.
        let short = "dial=5 rpc=8 stream=8";
        let faulty = cli()
            .env("EGRESSCTL_FAULT", &fault)
            .env("EGRESSCTL_LIMITS", short);
        let struck = faulty.run(operation.command);
        let hung = revive(&lab, HOST);
        if !struck.stderr().contains("fault injected") {
            assert!(call > 5, "{kind} struck {call} times only: {struck}");
            // The figures of docs/reliability.md: cargo test --test lab crash -- --nocapture
            let figures = format!(
                "{kind} {:?}: {} faults tried, 0 lost\n",
                operation.command,
                call - 1
            );
            std::io::Write::write_all(&mut std::io::stdout(), figures.as_bytes()).unwrap();
            break;
        }
        let after = state(&lab);
        let cleans_up =
            kind != "kill" && !hung && !struck.succeeded() && operation.command[0] != "delete";
        assert!(
            !cleans_up || may_be_left(&before, &after, &done),
            "{fault} left {after:?}\n{struck}"
        );
        let mut again = cli().run(operation.command);
        if !again.succeeded() && revive(&lab, HOST) {
            again = cli().run(operation.command);
        }
        assert!(again.succeeded(), "after {fault}:\n{struck}\n{again}");
        assert_eq!(state(&lab), done, "after {fault}:\n{struck}\n{again}");
    }
    clear(&lab);
}

/// Whatever a killed operation leaves, gc takes, and with it the instance, whose time is over; the image may stay, but
/// only whole.
fn is_collected(operation: &Operation) {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let cli = || {
        lab.cli_with(|kvm| kvm["images"] = json!({ NAME: lab.tiny() }))
            .binary(binary.clone())
    };
    clear(&lab);
    let nothing = state(&lab);
    cli().run(PULL).exits(0);
    let image = state(&lab);
    let old = format!(
        "cd {POOL_DIR} && touch -c -d '2 hours ago' *{NAME}* && virsh -q pool-refresh default"
    );
    for call in 1.. {
        assert!(call < 200, "the operation never gets past its faults");
        if operation.before.is_empty() {
            clear(&lab);
        }
        for command in operation.before {
            cli().run(command).exits(0);
        }
        let fault = format!("kill:{call}");
        let struck = cli().env("EGRESSCTL_FAULT", &fault).run(operation.command);
        revive(&lab, HOST);
        if struck.succeeded() {
            assert!(call > 5, "it was killed {call} times only: {struck}");
            break;
        }
        let _ = struck.was_killed();
        lab.on(HOST, &format!("{old} 2>/dev/null || true"));
        let run = cli()
            .run(&["gc", "--zone", HOST, "--min-age", "0s"])
            .exits(0);
        let left = state(&lab);
        let may_stay = left == image || operation.before.is_empty() && left == nothing;
        assert!(may_stay, "{fault} left {left:?}\n{run}");
    }
    clear(&lab);
}

#[test]
fn what_a_killed_pull_leaves_is_collected() {
    is_collected(&PULLS);
}

#[test]
fn what_a_killed_create_leaves_is_collected() {
    is_collected(&Operation {
        command: CREATE_BRIEFLY,
        before: &[PULL],
    });
}

#[test]
fn what_a_killed_delete_leaves_is_collected() {
    is_collected(&Operation {
        command: DELETE,
        before: &[PULL, CREATE_BRIEFLY],
    });
}

macro_rules! operations {
    ($($name:ident: $operation:expr, $kind:literal;)*) => {
        $(#[test] fn $name() { converges(&$operation, $kind); })*
    };
}

const PULLS: Operation = Operation {
    command: PULL,
    before: &[],
};
const CREATES: Operation = Operation {
    command: CREATE,
    before: &[PULL],
};
const DELETES: Operation = Operation {
    command: DELETE,
    before: &[CREATE],
};

operations! {
    a_pull_killed_at_any_call: PULLS, "kill";
    a_pull_refused_at_any_call: PULLS, "error";
    a_pull_cut_off_at_any_call: PULLS, "drop";
    a_pull_that_loses_any_answer: PULLS, "lost";
    a_create_killed_at_any_call: CREATES, "kill";
    a_create_cut_off_at_any_call: CREATES, "drop";
    a_create_that_loses_any_answer: CREATES, "lost";
    a_create_refused_at_any_call: CREATES, "error";
    a_delete_killed_at_any_call: DELETES, "kill";
    a_delete_cut_off_at_any_call: DELETES, "drop";
    a_delete_that_loses_any_answer: DELETES, "lost";
    a_delete_refused_at_any_call: DELETES, "error";
}

#[test]
fn a_daemon_too_old_for_a_flag_is_asked_without_it() {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let _instance = lab.instance("lt-flag");
    lab.run(&crate::instances::create("lt-flag", &[])).exits(0);
    let cli = lab.cli().binary(binary);
    let cli = cli.env("EGRESSCTL_FAULT", "flag:virDomainUndefineFlags:1");
    let run = cli.run(&["delete", "lt-flag", "--zone", "nas1"]).exits(0);
    run.says("fault injected").prints("volume lt-flag-seed.iso");
    assert!(!lab.has_domain(HOST, "lt-flag") && lab.volumes(HOST, "lt-flag").is_empty());
}
