//! Completion, asked the way the scripts ask: values come from the configuration without any network, and quickly.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{REMOTE, Sandbox};

/// Beside the two hosts of [`REMOTE`].
const AWAY: &str = "\
- name: away
  type: kvm2
  kvm2:
    sshKeyFile: key
    knownHostsFile: known_hosts
    images:
      fedora: {url: 'https://192.0.2.1/f.qcow2'}
    machineTypes:
      tiny: {vcpus: 1, memoryMiB: 512}
    hosts:
    - {name: far, address: 192.0.2.1, user: virt, bridge: br0}
";

/// Two providers; none of their hosts answers.
pub(crate) fn config() -> String {
    [REMOTE, AWAY].concat()
}

/// egressctl asked for the last word's completions by this shell.
fn asked(sandbox: &Sandbox, shell: &str, words: &[&str]) -> Command {
    let mut command = sandbox.egressctl(&[]);
    command
        .args(["--", "egressctl"])
        .args(words)
        .env("COMPLETE", shell)
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("EGRESSCTL_CONFIG", sandbox.home().join("providers.yaml"));
    command
}

fn candidates(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Without the options that stand in for values where there are none.
fn values(mut candidates: Vec<String>) -> Vec<String> {
    candidates.retain(|word| !word.starts_with('-'));
    candidates
}

#[test]
fn values_come_from_the_configuration() {
    let sandbox = Sandbox::new();
    sandbox.write("providers.yaml", &config());
    let table: &[(&[&str], &[&str])] = &[
        (&["create", "--zone", ""], &["nas1", "nas2", "far", "auto"]),
        (&["create", "--provider", "away", "--zone", ""], &["far"]),
        (
            &["--provider=home", "list", "--zone", "na"],
            &["nas1", "nas2"],
        ),
        (
            &["create", "--image", "debian-1"],
            &["debian-12", "debian-13"],
        ),
        (&["--provider", "away", "image", "pull", ""], &["fedora"]),
        (&["create", "--machine-type", "s"], &["small"]),
        (&["list", "--provider", ""], &["home", "away"]),
        (&["list", "--provider", "none", "--zone", ""], &[]),
        (&["create", "--zone=nas2"], &["--zone=nas2"]),
        (&["list", "--no-h"], &["--no-headers"]),
        // As bash splits it.
        (&["create", "--zone", "=", "nas"], &["nas1", "nas2"]),
        (&["create", "--wait", "=", "a"], &["agent"]),
        (
            &["create", "--wait", "="],
            &["=ip", "=agent", "=cloud-init", "=port:"],
        ),
        (&["comp"], &["completion"]),
    ];
    for (words, expected) in table {
        let mut found = candidates(&mut asked(&sandbox, "bash", words));
        if *words.last().unwrap() == "=" {
            found = found.into_iter().map(|word| format!("={word}")).collect();
        }
        assert_eq!(found, *expected, "{words:?}");
    }
    let zsh = candidates(&mut asked(&sandbox, "zsh", &["create", "--zone", "nas1"]));
    assert_eq!(zsh, ["nas1"]);
    let fish = candidates(&mut asked(&sandbox, "fish", &["create", "--zone", "nas2"]));
    assert_eq!(fish, ["nas2"]);
}

#[test]
fn another_file_can_be_named_on_the_line() {
    let sandbox = Sandbox::new();
    sandbox.write("etc/other.yaml", &config());
    for path in ["etc/other.yaml", "~/etc/other.yaml"] {
        let words = ["--config", path, "--provider", "away", "list", "--zone", ""];
        let found = candidates(&mut asked(&sandbox, "bash", &words));
        assert_eq!(found, ["far"], "{path}");
    }
}

#[test]
fn a_missing_or_broken_configuration_is_no_news() {
    let sandbox = Sandbox::new();
    let ask = || candidates(&mut asked(&sandbox, "bash", &["create", "--zone", ""]));
    assert_eq!(ask(), [""; 0]);
    sandbox.write("providers.yaml", "providers: [");
    assert_eq!(ask(), [""; 0]);
}

#[test]
fn hosts_that_do_not_answer_cost_2_seconds_once_and_names_are_remembered() {
    let sandbox = Sandbox::new();
    sandbox.write("providers.yaml", &config());
    let ask = |words: &[&str]| {
        let began = Instant::now();
        let mut command = asked(&sandbox, "bash", words);
        command.env("XDG_CACHE_HOME", sandbox.home().join("cache"));
        (values(candidates(&mut command)), began.elapsed())
    };
    // Nobody answers.
    let (found, first) = ask(&["--provider", "home", "get", ""]);
    assert_eq!(found, [""; 0]);
    assert!(first < Duration::from_secs(4), "{first:?}");
    let file = std::fs::read_dir(sandbox.home().join("cache/egressctl")).unwrap();
    let file = file.map(|entry| entry.unwrap().path()).next().unwrap();
    let remembered = std::fs::read_to_string(&file).unwrap();
    let known = r#"{"host":"nas1","name":"web1","manager":"egressctl"},
        {"host":"nas1","name":"web2","manager":"egressctl"},
        {"host":"nas2","name":"web2","manager":"egressctl"},
        {"host":"nas2","name":"x;touch${IFS}/tmp/a;","manager":"egressctl"},
        {"host":"nas2;id","name":"web3","manager":"egressctl"},
        {"host":"nas2","name":"old","manager":"kvm"}"#;
    // The time stays the one of the first question: fresh for now.
    std::fs::write(&file, remembered.replace("[]", &format!("[{known}]"))).unwrap();
    let (found, second) = ask(&["--provider", "home", "delete", ""]);
    let ids = ["hosts/nas1/domains/web2", "hosts/nas2/domains/web2"];
    assert_eq!(found, ["web1", ids[0], ids[1]]);
    assert!(second < Duration::from_millis(1500), "{second:?}");
    let table: &[(&[&str], &[&str])] = &[
        (
            &["--provider", "home", "get", "--zone", "nas2", ""],
            &["web2"],
        ),
        (
            &["--provider", "home", "get", "--manager", "kvm", ""],
            &["old"],
        ),
        (
            &["--provider", "home", "get", "hosts/nas1/domains/web1"],
            &["hosts/nas1/domains/web1"],
        ),
    ];
    for (words, expected) in table {
        assert_eq!(ask(words).0, *expected, "{words:?}");
    }
}

/// Hosts of several providers that take a connection and say nothing.
#[test]
fn hosts_of_several_providers_are_asked_at_the_same_time() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let sandbox = Sandbox::new();
    sandbox.keygen("");
    let entry = REMOTE
        .trim_start_matches("providers:\n")
        .replace("192.0.2.1, user", &format!("'{address}', user"));
    let entries: Vec<String> = ["one", "two", "three"]
        .map(|name| entry.replace("- name: home", &format!("- name: {name}")))
        .into();
    sandbox.write(
        "providers.yaml",
        &format!("providers:\n{}", entries.concat()),
    );
    let began = Instant::now();
    let mut command = asked(&sandbox, "bash", &["get", ""]);
    command.env("XDG_CACHE_HOME", sandbox.home().join("cache"));
    assert_eq!(values(candidates(&mut command)), [""; 0]);
    let took = began.elapsed();
    // They were waited for, and all together.
    assert!(took > Duration::from_millis(1500), "{took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn another_programs_variable_is_left_alone() {
    let sandbox = Sandbox::new();
    let output = sandbox
        .egressctl(&["--version"])
        .env("COMPLETE", "1")
        .output()
        .unwrap();
    assert!(output.stdout.starts_with(b"egressctl "), "{output:?}");
}

/// bash itself, with the committed script, asked for all completions of a line as the Tab key does.
#[test]
fn bash_completes_with_the_committed_script() {
    let sandbox = Sandbox::new();
    sandbox.write("providers.yaml", &config());
    let script = crate::root().join("completions/egressctl.bash");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_egressctl"));
    // What readline does, without a terminal: split at COMP_WORDBREAKS, call the function, look at COMPREPLY.
    let drive = r#"
        source "$1"
        COMP_WORDS=(egressctl create --zone = nas); COMP_CWORD=4; COMP_TYPE=9
        _clap_complete_egressctl egressctl nas =
        echo "${COMPREPLY[@]}"
        COMP_WORDS=(egressctl create --wait =); COMP_CWORD=3
        _clap_complete_egressctl egressctl "" --wait
        echo "${COMPREPLY[@]}"
        complete -p egressctl
    "#;
    let run = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", drive, "bash"])
        .arg(&script)
        .env_clear()
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", program.parent().unwrap().display()),
        )
        .env("HOME", sandbox.home())
        .env("EGRESSCTL_CONFIG", sandbox.home().join("providers.yaml"))
        .output();
    let output = run.expect("bash is needed");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..2],
        ["nas1 nas2", "ip agent cloud-init port:"],
        "{text}"
    );
    assert!(lines[2].contains("_clap_complete_egressctl"), "{text}");
}
