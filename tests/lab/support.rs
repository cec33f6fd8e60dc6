//! The lab for the tests: its hosts, its image server, faults, and clean-up that always happens.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Cli, Run};

/// The lab's hosts, in the order of its configuration.
pub(crate) const HOSTS: [&str; 2] = ["nas1", "nas2"];

/// All that a test makes on a host begins with this: domains, volumes, pools, keys of images.
pub(crate) const PREFIX: &str = "lt-";

/// The pool of the lab's hosts.
pub(crate) const POOL_DIR: &str = "/var/lib/libvirt/images";

/// Who uses which lab.
static LABS: Mutex<Labs> = Mutex::new(Labs {
    busy: Vec::new(),
    swept: Vec::new(),
    boots: false,
});
static FREED: Condvar = Condvar::new();

struct Labs {
    /// Those that a test is using.
    busy: Vec<PathBuf>,
    /// Those that were freed of what an earlier run left.
    swept: Vec<PathBuf>,
    /// Whether a guest boots in one of them.
    boots: bool,
}

/// A test's turn in a lab. One test at a time, whatever `--test-threads` says: they share its hosts and cut their cables.
struct Turn {
    lab: PathBuf,
    boots: bool,
}

impl Turn {
    /// Waits for a lab that nobody uses; one whose guest `boots`, also until no other guest does.
    fn wait(labs: &[PathBuf], boots: bool) -> Self {
        let mut state = Self::state();
        loop {
            let may = !(boots && state.boots);
            let mut free = labs.iter().filter(|lab| !state.busy.contains(lab));
            if let Some(lab) = free.next().filter(|_| may).cloned() {
                state.busy.push(lab.clone());
                state.boots |= boots;
                return Turn { lab, boots };
            }
            state = FREED.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether this is the first turn in that lab.
    fn is_first(&self) -> bool {
        let mut state = Self::state();
        let first = !state.swept.contains(&self.lab);
        if first {
            state.swept.push(self.lab.clone());
        }
        first
    }

    fn state() -> MutexGuard<'static, Labs> {
        LABS.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    // A test that fails leaves its turn, too.
    fn drop(&mut self) {
        let mut state = Self::state();
        state.busy.retain(|lab| *lab != self.lab);
        state.boots &= !self.boots;
        FREED.notify_all();
    }
}

/// The lab, or the end of the test where there is none. Where a guest `boots` in it, none does in another lab meanwhile: in
/// software emulation that takes a processor, and minutes.
#[macro_export]
macro_rules! lab {
    () => {
        match $crate::support::Lab::enter(false) {
            Some(lab) => lab,
            None => return,
        }
    };
    (boots) => {
        match $crate::support::Lab::enter(true) {
            Some(lab) => lab,
            None => return,
        }
    };
}

/// A running lab, with a directory and a configuration of this test's own.
pub(crate) struct Lab {
    dir: PathBuf,
    scratch: TempDir,
    config: Value,
    _turn: Turn,
}

impl Lab {
    /// A lab of those in `$EGRESSCTL_LAB`, as soon as one is free; `none` there says that it is left out on purpose.
    pub(crate) fn enter(boots: bool) -> Option<Self> {
        let labs: Vec<PathBuf> = match std::env::var("EGRESSCTL_LAB") {
            Ok(labs) if labs != "none" => std::env::split_paths(&labs).collect(),
            choice => {
                assert!(
                    choice.is_ok() || std::env::var("CI").as_deref() != Ok("true"),
                    "CI without a lab: set EGRESSCTL_LAB to a lab's directory (tests/run does), or to none"
                );
                skipped();
                return None;
            }
        };
        let turn = Turn::wait(&labs, boots);
        let first = turn.is_first();
        let dir = turn.lab.clone();
        let path = dir.join("providers.yaml");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("no lab at {}: {error}", path.display()));
        let lab = Lab {
            config: serde_saphyr::from_str(&text).unwrap(),
            dir,
            scratch: TempDir::new().unwrap(),
            _turn: turn,
        };
        for host in HOSTS {
            // An earlier test may have killed a client at the wrong moment.
            crate::crash::revive(&lab, host);
            // Elsewhere no guest has anything to do: OVMF alone takes all of a processor, for 10 s and more.
            let is_idle = lab.path(&format!("{host}/firmware/00-idle.json")).exists();
            if is_idle == boots {
                lab.lab(&["firmware", host, if boots { "own" } else { "idle" }]);
            }
        }
        if first {
            lab.sweep_all();
        }
        Some(lab)
    }

    /// A file or directory of the lab.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A path in this test's own directory.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Writes a file of this test's own.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.scratch(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// egressctl with the lab's own configuration.
    pub(crate) fn cli(&self) -> Cli {
        self.cli_with(|_| {})
    }

    /// egressctl with a changed configuration: `change` gets the provider's `kvm` block.
    pub(crate) fn cli_with(&self, change: impl FnOnce(&mut Value)) -> Cli {
        let mut config = self.config.clone();
        change(&mut config["providers"][0]["kvm"]);
        let file = tempfile::Builder::new()
            .prefix("providers-")
            .suffix(".yaml")
            .tempfile_in(self.scratch.path())
            .unwrap();
        // JSON is YAML.
        std::fs::write(file.path(), config.to_string()).unwrap();
        let (_, config) = file.keep().unwrap();
        Cli::new(config, self.scratch.path().to_owned())
    }

    /// Runs egressctl with the lab's own configuration.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.cli().run(args)
    }

    /// The configuration's entry of the image `tiny`, for images of a test's own with the same bytes.
    pub(crate) fn tiny(&self) -> Value {
        self.config["providers"][0]["kvm"]["images"]["tiny"].clone()
    }

    /// The image server's URL of a path that begins with a slash.
    pub(crate) fn url(&self, path: &str) -> String {
        let tiny = self.tiny()["url"].as_str().unwrap().to_owned();
        format!("{}{path}", tiny.strip_suffix("/tiny.qcow2").unwrap())
    }

    /// A host's address without the port.
    pub(crate) fn address(&self, host: &str) -> String {
        let hosts = self.config["providers"][0]["kvm"]["hosts"].as_array();
        let entry = hosts.unwrap().iter().find(|entry| entry["name"] == host);
        let address = entry.unwrap()["address"].as_str().unwrap();
        address.strip_suffix(":22").unwrap().to_owned()
    }

    /// This machine's address in the lab's LAN.
    pub(crate) fn gateway(&self) -> String {
        let address = self.address("nas1");
        format!("{}.1", address.rsplit_once('.').unwrap().0)
    }

    /// What the image server counted for a path, query included; none where nobody asked for it.
    pub(crate) fn served(&self, path: &str) -> Option<Served> {
        let client = reqwest::blocking::Client::builder().no_proxy().build();
        let answer = client.unwrap().get(self.url("/_stats")).send().unwrap();
        let stats: Value = serde_json::from_str(&answer.text().unwrap()).unwrap();
        let entry = stats.get(path)?;
        Some(Served {
            requests: entry["requests"].as_u64().unwrap(),
            heads: entry["heads"].as_u64().unwrap(),
            bytes: entry["bytes"].as_u64().unwrap(),
            ranges: entry["ranges"].as_array().unwrap().len(),
        })
    }

    /// Runs a command of the lab's script.
    pub(crate) fn lab(&self, args: &[&str]) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/lab");
        self.outside(&[&[script], args].concat())
    }

    /// Runs a command on a host, as root. What `lab exec` does, without a shell between: that took a tenth of all
    /// processor time.
    fn exec(&self, host: &str, command: &[&str]) -> String {
        let init = std::fs::read_to_string(self.path(&format!("{host}/init"))).unwrap();
        let enter = ["nsenter", "--target", init.trim(), "--pid", "--net"];
        let into = ["--mount", "--uts", "--ipc", "--root", "--wd"];
        self.outside(&[&enter, &into, command].concat())
    }

    fn outside(&self, command: &[&str]) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        // A daemon that hangs makes virsh wait for ever: the test shall fail, not the whole run.
        let output = Command::new("timeout")
            .args(["--kill-after=5", "300"])
            .args(command)
            .env("LAB_DIR", &self.dir)
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a shell script on a host, as root.
    pub(crate) fn on(&self, host: &str, script: &str) -> String {
        self.exec(host, &["sh", "-c", script])
    }

    /// Runs virsh on a host.
    pub(crate) fn virsh(&self, host: &str, args: &[&str]) -> String {
        self.exec(host, &[&["virsh", "--quiet"], args].concat())
    }

    /// Gives a domain this qcow2 file as its disk `vdc`: now (`--live`), or from its next start on (`--config`).
    pub(crate) fn attach_disk(&self, host: &str, domain: &str, file: &str, when: &str) {
        let disk = [file, "vdc", "--subdriver", "qcow2", when];
        self.virsh(host, &[&["attach-disk", domain], &disk[..]].concat());
    }

    /// The files in the host's pool whose names begin with this, sorted.
    pub(crate) fn volumes(&self, host: &str, prefix: &str) -> Vec<String> {
        let list = self.on(host, &format!("ls -A {POOL_DIR}"));
        let mut names: Vec<String> = list.lines().map(str::to_owned).collect();
        names.retain(|name| name.starts_with(prefix));
        names.sort();
        names
    }

    /// Whether the host has a domain of that name.
    pub(crate) fn has_domain(&self, host: &str, name: &str) -> bool {
        let list = self.virsh(host, &["list", "--all", "--name"]);
        list.lines().any(|line| line.trim() == name)
    }

    /// Names an instance of this test's own: nothing of it is there now, nor after the test, on any host.
    pub(crate) fn instance(&self, name: &str) -> Cleanup<'_> {
        assert!(name.starts_with(PREFIX), "{name}");
        let (name, lab) = (name.to_owned(), self);
        Cleanup::now_and_later(move || lab.sweep(&name))
    }

    /// Names an image key of this test's own: it is on no host now, nor after the test.
    pub(crate) fn image(&self, key: &str) -> Cleanup<'_> {
        assert!(key.starts_with(PREFIX), "{key}");
        let (key, lab) = (key.to_owned(), self);
        Cleanup::now_and_later(move || {
            for host in HOSTS {
                let files = format!("{POOL_DIR}/base-{key}-*");
                lab.on(
                    host,
                    &format!("rm -f {files} && virsh -q pool-refresh default"),
                );
            }
        })
    }

    /// Restarts a host's sshd with these lines in front of its configuration, until the end of the test.
    pub(crate) fn sshd(&self, host: &'static str, lines: &[&str]) -> Cleanup<'_> {
        self.lab(&[&["sshd", host], lines].concat());
        Cleanup::later(move || drop(self.lab(&["sshd", host])))
    }

    /// Pulls a host's network cable out, until the end of the test.
    pub(crate) fn cut(&self, host: &'static str) -> Cleanup<'_> {
        self.lab(&["cut", host]);
        Cleanup::later(move || drop(self.lab(&["heal", host])))
    }

    /// Has a host run another libvirt, `old` or `modular`, until the end of the test. What is to be gone by then has to be
    /// named after this.
    pub(crate) fn daemons(&self, host: &'static str, kind: &str) -> Cleanup<'_> {
        self.lab(&["daemons", host, kind]);
        Cleanup::later(move || {
            // A test may have ended some of them.
            self.lab(&["libvirtd", host, "restart"]);
            self.lab(&["daemons", host, "own"]);
        })
    }

    /// Makes a change on a host by a shell script, and undoes it by another at the end of the test.
    pub(crate) fn change(&self, host: &'static str, make: &str, undo: &'static str) -> Cleanup<'_> {
        self.on(host, make);
        Cleanup::later(move || drop(self.on(host, undo)))
    }

    /// Removes a domain with all that may hang on it, and the volumes that its instance would have.
    fn sweep(&self, name: &str) {
        for host in HOSTS {
            self.on(
                host,
                &format!(
                    "if virsh -q list --all --name | grep -qx {name}; then
                       virsh -q 'destroy {name}; undefine {name} --nvram --managed-save \
                         --snapshots-metadata --checkpoints-metadata' >/dev/null 2>&1
                     fi
                     if ls {POOL_DIR}/{name}.* {POOL_DIR}/{name}-* 2>/dev/null | grep -q .; then
                       rm -f {POOL_DIR}/{name}.* {POOL_DIR}/{name}-*
                       virsh -q pool-refresh default
                     fi"
                ),
            );
        }
    }

    /// What an earlier run left, killed in the middle of a test.
    fn sweep_all(&self) {
        for host in HOSTS {
            self.lab(&["heal", host]);
            self.lab(&["sshd", host]);
            self.on(
                host,
                &format!(
                    "for name in $(virsh -q list --all --name | grep ^{PREFIX}); do
                       virsh -q \"destroy $name; undefine $name --nvram --managed-save \
                         --snapshots-metadata --checkpoints-metadata\" >/dev/null 2>&1
                     done
                     for pool in $(virsh -q pool-list --all --name | grep ^{PREFIX}); do
                       virsh -q \"pool-destroy $pool; pool-undefine $pool\" >/dev/null 2>&1
                     done
                     virsh -q pool-start default >/dev/null 2>&1
                     chmod 770 /run/libvirt/libvirt-sock
                     rm -f {POOL_DIR}/{PREFIX}* {POOL_DIR}/base-{PREFIX}*
                     virsh -q pool-refresh default"
                ),
            );
            self.lab(&["daemons", host, "own"]);
        }
    }
}

/// Says that a test was skipped, past the test harness's capture.
fn skipped() {
    let test = std::thread::current();
    let name = test.name().unwrap_or("a test").to_owned();
    let text = format!("SKIPPED {name}: no lab (EGRESSCTL_LAB); tests/run runs it\n");
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

/// What the image server counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Served {
    /// GET requests.
    pub(crate) requests: u64,
    /// HEAD requests.
    pub(crate) heads: u64,
    /// Bytes of bodies.
    pub(crate) bytes: u64,
    /// Requests for a range.
    pub(crate) ranges: usize,
}

/// Something that is done at the end of a test, also when it fails.
#[must_use]
pub(crate) struct Cleanup<'a>(Box<dyn Fn() + 'a>);

impl<'a> Cleanup<'a> {
    /// At the end only.
    pub(crate) fn later(work: impl Fn() + 'a) -> Self {
        Cleanup(Box::new(work))
    }

    pub(crate) fn now_and_later(work: impl Fn() + 'a) -> Self {
        work();
        Self::later(work)
    }
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic would hide the first.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&self.0));
        } else {
            (self.0)();
        }
    }
}

/// Waits until it is so, at most that long.
#[track_caller]
pub(crate) fn wait_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
