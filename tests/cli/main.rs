//! The binary's wiring: whole standard output, standard error and exit status of what needs no host.
//!
//! `BLESS=1 cargo test --test cli` rewrites tests/cli/expected; read the difference before committing it.

mod cases;
mod colour;
mod documents;
mod escapes;
mod failures;
mod interrupts;
mod json;
mod pipes;
mod prompt;
#[path = "../support/pty.rs"]
mod pty;
#[path = "../support/schema.rs"]
mod schema;
mod secrets;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use cases::{CASES, Case};
use support::{REMOTE, Sandbox};

/// Two providers with a host each.
const TWO: &str = "\
providers:
- name: home
  type: kvm
  kvm:
    sshKeyFile: key
    knownHostsFile: known_hosts
    machineTypes:
      small: {vcpus: 1, memoryMiB: 1024}
    hosts:
    - {name: nas1, address: 192.0.2.1, user: virt, bridge: br0}
- name: away
  type: kvm2
  kvm2:
    sshKeyFile: key
    knownHostsFile: known_hosts
    machineTypes:
      small: {vcpus: 1, memoryMiB: 1024}
    hosts:
    - {name: nas3, address: 192.0.2.1, user: virt, bridge: br0}
";

/// Two machines without libvirt, as far as their sockets go.
const LOCAL: &str = "\
providers:
- name: here
  type: kvm
  kvm:
    images:
      debian-13: {url: 'https://192.0.2.1/13.qcow2'}
    machineTypes:
      small: {vcpus: 1, memoryMiB: 1024}
    hosts:
    - {name: one, local: true, socket: /nonexistent/libvirt-sock, bridge: br0}
    - {name: two, local: true, socket: /nonexistent/libvirt-sock, bridge: br0}
";

/// Two providers, whose vendorData cloud-init would ignore and take.
const VENDOR: &str = "\
providers:
- name: here
  type: kvm
  kvm:
    vendorData: |
      #cloud-config
      users:
      \t- secret
    images:
      debian-13: {url: 'https://192.0.2.1/13.qcow2'}
    machineTypes:
      small: {vcpus: 1, memoryMiB: 1024}
    hosts:
    - {name: one, local: true, socket: /nonexistent/libvirt-sock, bridge: br0}
- name: there
  type: kvm2
  kvm2:
    vendorData: |

      #cloud-config
      packages: [secret]
    images:
      debian-13: {url: 'https://192.0.2.1/13.qcow2'}
    machineTypes:
      small: {vcpus: 1, memoryMiB: 1024}
    hosts:
    - {name: two, local: true, socket: /nonexistent/libvirt-sock, bridge: br0}
";

const BROKEN: &str = "\
providers:
- name: home
  type: kvm
  kvm:
    sshKeyFile: key
    knwonHostsFile: known_hosts
    machineTypes: {}
";

fn sandbox(config: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let text = match config {
        "remote" => REMOTE,
        "local" => LOCAL,
        "broken" => BROKEN,
        "two" => TWO,
        "vendor" => VENDOR,
        _ => "",
    };
    if !text.is_empty() {
        sandbox.write("providers.yaml", text);
    }
    sandbox.write("headless.yaml", "packages: [squid]\n");
    sandbox.write(
        "twice.yaml",
        "#cloud-config\npackages: [a]\npackages: [b]\n",
    );
    sandbox.write("tab.yaml", "#cloud-config\nusers:\n\t- name: secret\n");
    sandbox.write("wrapped.yaml", "network:\n  version: 2\n");
    sandbox.write("quoted.yaml", "version: \"2\"\nethernets: {}\n");
    sandbox.write("others.yaml", "providers: [{name: cloud, type: gcp}]\n");
    sandbox
}

/// Standard output, standard error and exit status in one text; paths of this machine are `$HOME`.
fn transcript(sandbox: &Sandbox, output: &Output) -> String {
    let text = |bytes: &[u8]| {
        let home = sandbox.home().to_str().unwrap();
        String::from_utf8_lossy(bytes).replace(home, "$HOME")
    };
    let code = output.status.code();
    format!(
        "{}---\n{}--- {}\n",
        text(&output.stdout),
        text(&output.stderr),
        code.map_or("killed".to_owned(), |code| code.to_string())
    )
}

fn expected(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cli/expected")
        .join(name)
}

/// Runs one case; what differs, if anything.
fn check(&(name, config, line): &Case) -> Option<String> {
    let sandbox = sandbox(config);
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut command = sandbox.egressctl(&words);
    if sandbox.home().join("providers.yaml").exists() {
        command.env("EGRESSCTL_CONFIG", "providers.yaml");
    }
    let began = Instant::now();
    let output = command.output().unwrap();
    let took = began.elapsed();
    let actual = format!("$ egressctl {line}\n{}", transcript(&sandbox, &output));
    let file = expected(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &actual).unwrap();
    }
    let wanted = std::fs::read_to_string(&file).unwrap_or_default();
    let mut fault = String::new();
    if actual != wanted {
        let _ = write!(fault, "{name}\n--- expected\n{wanted}--- actual\n{actual}");
    }
    if took > Duration::from_secs(3) {
        let _ = write!(fault, "{name}: took {took:?}: was a host dialled?");
    }
    (!fault.is_empty()).then_some(fault)
}

#[test]
fn commands_that_need_no_host_say_exactly_this() {
    let faults: Vec<String> = CASES.iter().filter_map(check).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let names: BTreeSet<&str> = CASES.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names.len(), CASES.len(), "a name stands twice");
    let forgotten: Vec<_> = std::fs::read_dir(expected(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|file| !names.contains(&file.as_str()))
        .collect();
    assert!(
        forgotten.is_empty(),
        "files that belong to no case: {forgotten:?}"
    );
}

#[test]
fn a_starter_file_is_written_once_and_is_valid() {
    let sandbox = sandbox("none");
    let init = [
        "config",
        "init",
        "--host",
        "nas1=virt@nas1",
        "--write",
        "new/my directory/providers.yaml",
    ];
    let output = sandbox.egressctl(&init).output().unwrap();
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("egressctl check --config 'new/my directory/providers.yaml'"),
        "{said}"
    );
    let validate = [
        "config",
        "validate",
        "--config",
        "new/my directory/providers.yaml",
    ];
    let output = sandbox.egressctl(&validate).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let again = sandbox.egressctl(&init).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "{again:?}");
}

#[test]
fn an_empty_variable_is_an_unset_one() {
    let sandbox = sandbox("remote");
    let run = |words: &[&str]| {
        let mut command = sandbox.egressctl(words);
        command.env("EGRESSCTL_CONFIG", "providers.yaml");
        for name in [
            "EGRESSCTL_PROVIDER",
            "EGRESSCTL_LIMITS",
            "RUST_LOG",
            "TMPDIR",
        ] {
            command.env(name, "");
        }
        command.output().unwrap()
    };
    let output = run(&["config", "validate"]);
    assert!(output.status.success(), "{output:?}");
    let output = run(&["delete", "hosts/gone/domains/web1"]);
    assert!(output.status.success(), "{output:?}");
    // An option that is empty was a mistake.
    let output = run(&["config", "validate", "--provider", ""]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// ld.so's own answer to what a program is linked to (ld.so(8)).
#[test]
fn what_asks_no_host_loads_no_libvirt() {
    let sandbox = sandbox("remote");
    let mut command = sandbox.egressctl(&["--version"]);
    let output = command
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()
        .unwrap();
    let linked = String::from_utf8(output.stdout).unwrap();
    assert!(linked.contains("libc.so"), "{linked}");
    assert!(
        !linked.contains("libvirt"),
        "src/libvirt/raw.rs lacks a call: {linked}"
    );
}

#[test]
fn odd_uids_are_refused_before_any_host_is_asked() {
    let sandbox = sandbox("remote");
    let long = "x".repeat(129);
    for uid in ["", " ", "a b", "a\u{1b}[31m", "a\nb", "#1", "a,b", &long] {
        let words = [
            "create",
            "--zone",
            "nas1",
            "--image",
            "debian-13",
            "--uid",
            uid,
        ];
        let output = sandbox
            .egressctl(&words)
            .env("EGRESSCTL_CONFIG", "providers.yaml")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{uid:?}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("--uid"), "{uid:?}: {said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
        assert!(said.lines().all(|line| line.len() < 200), "{said}");
    }
}

#[test]
fn content_of_user_data_is_never_shown() {
    let sandbox = sandbox("remote");
    for verbosity in ["-q", "-v", "-vv"] {
        let args = [
            "create",
            "--zone",
            "nas1",
            "--image",
            "debian-13",
            "--user-data",
            "tab.yaml",
            verbosity,
        ];
        let output = sandbox
            .egressctl(&args)
            .env("EGRESSCTL_CONFIG", "providers.yaml")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = transcript(&sandbox, &output);
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn an_input_that_is_too_large_is_named_and_not_used_cut_off() {
    let sandbox = sandbox("remote");
    let table = [
        ("exec web1 --stdin -- true", 122, 2, "stdin can't be read"),
        (
            "create --zone nas1 --image debian-13 --user-data -",
            2,
            16,
            "can't read user-data from stdin",
        ),
        (
            "gc --keep -",
            2,
            64,
            "the keep list from stdin can't be read: nothing was touched",
        ),
    ];
    for (line, code, limit, what) in table {
        let path = sandbox.write("large", "");
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len((limit << 20) + 1).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let output = sandbox
            .egressctl(&words)
            .env("EGRESSCTL_CONFIG", "providers.yaml")
            .stdin(std::fs::File::open(&path).unwrap())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let told = format!("error: {what}\n  it is larger than {limit} MiB");
        assert!(said.contains(&told), "{line}: {said}");
    }
}
