//! Crashes at every step: the process dies, the connection breaks, an answer is lost or libvirt refuses at each call
//! of a pull, a create and a delete in turn; the same command again ends where an undisturbed one does. And where nobody
//! runs it again, gc takes what is left.
//!
//! The steps are counted by the binary itself (`$EGRESSCTL_FAULTY_BIN`, feature `fault-injection`), so a new call is
//! covered by itself.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use serde_json::json;

use crate::cli::{Cli, Run};
use crate::lab;
use crate::support::{HOSTS, Lab, POOL_DIR};

const NAME: &str = "lt-crash";

/// Faults tried so far.
static TRIED: AtomicUsize = AtomicUsize::new(0);

/// Runs whose answer was lost and that failed, when the image was stored and vouched for: others may use it already.
static KEPT: AtomicU32 = AtomicU32::new(0);

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Pull,
    Create,
    CreateBriefly,
    Delete,
}

impl Command {
    fn args(self, host: &'static str) -> Vec<&'static str> {
        let create = ["create", "--image", NAME, "--name", NAME, "--zone", host];
        match self {
            Command::Pull => vec!["image", "pull", NAME, "--zone", host],
            Command::Create => create.to_vec(),
            Command::CreateBriefly => [&create[..], &["--ttl", "1s"]].concat(),
            Command::Delete => vec!["delete", NAME, "--zone", host],
        }
    }
}

/// What an operation is, and what must be there before it.
struct Operation {
    command: Command,
    before: &'static [Command],
}

/// What stands on the host: volumes, domains, and which of those run.
#[derive(Debug, PartialEq, Eq)]
struct State(Vec<String>);

fn state(lab: &Lab, host: &str) -> State {
    let script = format!(
        "ls -A {POOL_DIR} | grep {NAME}; virsh -q list --all --name | grep {NAME} | sed 's/^/domain /'; \
         virsh -q list --name | grep {NAME} | sed 's/^/running /'; true"
    );
    State(lab.on(host, &script).lines().map(str::to_owned).collect())
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

/// Takes the instance away, and the image too unless it is to stay.
fn clear(lab: &Lab, host: &str, keep_image: bool) {
    let image = if keep_image { "" } else { "base-lt-crash-*" };
    lab.on(
        host,
        &format!(
            "virsh -q 'destroy {NAME}; undefine {NAME} --nvram' >/dev/null 2>&1
             cd {POOL_DIR}; rm -f {NAME}* {image}; virsh -q pool-refresh default"
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

/// What a failed run, that could still clean up, may leave: nothing, or the whole thing.
fn may_be_left(before: &State, after: &State, done: &State) -> bool {
    let mut new = after.0.iter().filter(|thing| !before.0.contains(thing));
    after == done || new.next().is_none()
}

/// Where faults are tried: half of the calls on each host, side by side.
struct Site<'a> {
    lab: &'a Lab,
    host: &'static str,
    binary: PathBuf,
}

impl Site<'_> {
    fn cli(&self) -> Cli {
        let tiny = json!({ NAME: self.lab.tiny() });
        let cli = self.lab.cli_with(|kvm| kvm["images"] = tiny);
        // Whoever dies here is dead: how long that takes to be believed is tested in `together`.
        cli.binary(self.binary.clone())
            .env("EGRESSCTL_IMPATIENT", "1")
    }

    fn run(&self, command: Command) -> Run {
        self.cli().run(&command.args(self.host))
    }

    fn state(&self) -> State {
        state(self.lab, self.host)
    }

    /// Makes it as it must be before the operation.
    fn set_up(&self, operation: &Operation) -> State {
        clear(self.lab, self.host, !operation.before.is_empty());
        for command in operation.before {
            self.run(*command).exits(0);
        }
        self.state()
    }

    /// Strikes this half of the calls; how many that were.
    fn converges(&self, operation: &Operation, kind: &str, first: usize) -> usize {
        let Site { lab, host, .. } = *self;
        self.set_up(operation);
        self.run(operation.command).exits(0);
        let done = self.state();
        // A refusal goes the way of a connection that breaks: every second call of it will do.
        let step = HOSTS.len() * if kind == "error" { 2 } else { 1 };
        for call in (first..).step_by(step) {
            assert!(call < 200, "the operation never gets past its faults");
            let before = self.set_up(operation);
            let fault = format!("{kind}:{call}");
            // A daemon that hangs costs every one of them a limit.
            let short = "dial=5 rpc=8 stream=8";
            let faulty = self.cli().env("EGRESSCTL_FAULT", &fault);
            let faulty = faulty.env("EGRESSCTL_LIMITS", short);
            let struck = faulty.run(&operation.command.args(host));
            let hung = revive(lab, host);
            if !struck.stderr().contains("fault injected") {
                assert!(call > 5, "{kind} struck {call} times only: {struck}");
                clear(lab, host, false);
                return (call - first) / step;
            }
            let after = self.state();
            let cleans_up = kind != "kill"
                && !hung
                && !struck.succeeded()
                && operation.command != Command::Delete;
            assert!(
                !cleans_up || may_be_left(&before, &after, &done),
                "{fault} left {after:?}\n{struck}"
            );
            if kind == "lost" && !struck.succeeded() && after == done {
                KEPT.fetch_add(1, Ordering::SeqCst);
            }
            let mut again = self.run(operation.command);
            if !again.succeeded() && revive(lab, host) {
                again = self.run(operation.command);
            }
            assert!(again.succeeded(), "after {fault}:\n{struck}\n{again}");
            assert_eq!(self.state(), done, "after {fault}:\n{struck}\n{again}");
        }
        unreachable!("the calls have an end")
    }

    /// Whatever a killed operation leaves, gc takes, and with it the instance, whose time is over; the image may stay,
    /// but only whole.
    fn is_collected(&self, operation: &Operation, first: usize) -> usize {
        let Site { lab, host, .. } = *self;
        clear(lab, host, false);
        let nothing = self.state();
        self.run(Command::Pull).exits(0);
        let image = self.state();
        let old = format!(
            "cd {POOL_DIR} && touch -c -d '2 hours ago' *{NAME}* && virsh -q pool-refresh default"
        );
        for call in (first..).step_by(HOSTS.len()) {
            assert!(call < 200, "the operation never gets past its faults");
            self.set_up(operation);
            let fault = format!("kill:{call}");
            let faulty = self.cli().env("EGRESSCTL_FAULT", &fault);
            let struck = faulty.run(&operation.command.args(host));
            revive(lab, host);
            if struck.succeeded() {
                assert!(call > 5, "it was killed {call} times only: {struck}");
                clear(lab, host, false);
                return (call - first) / HOSTS.len();
            }
            let _ = struck.was_killed();
            lab.on(host, &format!("{old} 2>/dev/null || true"));
            // Its time is over then.
            std::thread::sleep(std::time::Duration::from_secs(1));
            let gc = ["gc", "--zone", host, "--min-age", "0s"];
            let run = self.cli().run(&gc).exits(0);
            let left = self.state();
            let may_stay = left == image || operation.before.is_empty() && left == nothing;
            assert!(may_stay, "{fault} left {left:?}\n{run}");
        }
        unreachable!("the calls have an end")
    }
}

/// Tries faults on all hosts at once; says how many they were, for docs/reliability.md:
/// cargo test --test lab crash -- --nocapture
fn everywhere(what: &str, work: impl Fn(&Site<'_>, usize) -> usize + Sync) {
    let lab = lab!();
    let Some(binary) = faulty() else { return };
    let tried: usize = std::thread::scope(|scope| {
        let sites: Vec<_> = HOSTS
            .iter()
            .enumerate()
            .map(|(index, host)| {
                let (lab, binary, work) = (&lab, binary.clone(), &work);
                scope.spawn(move || work(&Site { lab, host, binary }, index + 1))
            })
            .collect();
        let ended = sites.into_iter().map(|site| match site.join() {
            Ok(tried) => tried,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.sum()
    });
    TRIED.fetch_add(tried, Ordering::SeqCst);
    let figures = format!("{what}: {tried} faults tried, 0 lost\n");
    std::io::Write::write_all(&mut std::io::stdout(), figures.as_bytes()).unwrap();
}

fn converges(operation: &Operation, kind: &str) {
    everywhere(&format!("{kind} {:?}", operation.command), |site, first| {
        site.converges(operation, kind, first)
    });
}

fn is_collected(operation: &Operation) {
    everywhere(
        &format!("gc after {:?}", operation.command),
        |site, first| site.is_collected(operation, first),
    );
}

#[test]
fn what_a_killed_pull_leaves_is_collected() {
    is_collected(&PULLS);
}

#[test]
fn what_a_killed_create_leaves_is_collected() {
    is_collected(&Operation {
        command: Command::CreateBriefly,
        before: &[Command::Pull],
    });
}

#[test]
fn what_a_killed_delete_leaves_is_collected() {
    is_collected(&Operation {
        command: Command::Delete,
        before: &[Command::Pull, Command::CreateBriefly],
    });
}

#[test]
fn a_pull_that_loses_any_answer() {
    converges(&PULLS, "lost");
    let (tried, kept) = (TRIED.load(Ordering::SeqCst), KEPT.load(Ordering::SeqCst));
    // Without a lab nothing was tried.
    assert!(
        tried == 0 || kept > 0,
        "an image that counts stays, whoever lost its answer"
    );
}

macro_rules! operations {
    ($($name:ident: $operation:expr, $kind:literal;)*) => {
        $(#[test] fn $name() { converges(&$operation, $kind); })*
    };
}

const PULLS: Operation = Operation {
    command: Command::Pull,
    before: &[],
};
const CREATES: Operation = Operation {
    command: Command::Create,
    before: &[Command::Pull],
};
const DELETES: Operation = Operation {
    command: Command::Delete,
    before: &[Command::Create],
};

operations! {
    a_pull_killed_at_any_call: PULLS, "kill";
    a_pull_refused_at_any_call: PULLS, "error";
    a_pull_cut_off_at_any_call: PULLS, "drop";
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
    assert!(!lab.has_domain("nas1", "lt-flag") && lab.volumes("nas1", "lt-flag").is_empty());
}
