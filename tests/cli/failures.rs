//! Several hosts that fail, each in its own way, and results that can't be printed.

use std::fs::File;
use std::process::Stdio;

use serde_json::Value;

use crate::{LOCAL, sandbox};

/// The first host may have its socket later; the second one's key never becomes one.
const UNLIKE: &str = "\
providers:
- name: unlike
  type: kvm
  kvm:
    sshKeyFile: key
    insecureIgnoreHostKey: true
    machineTypes:
      small: {vcpus: 1, memoryMiB: 1024}
    hosts:
    - {name: one, local: true, socket: /nonexistent/libvirt-sock, bridge: br0}
    - {name: two, address: '127.0.0.1:1', user: virt, bridge: br0}
";

/// What is told of each failure: its host and its reason.
fn told(output: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8(output.to_vec()).unwrap();
    let errors = text.lines().filter(|line| line.starts_with('{'));
    let word = |error: &Value, key: &str| error[key].as_str().unwrap_or("-").to_owned();
    errors
        .map(|line| serde_json::from_str(line).unwrap())
        .map(|error: Value| (word(&error, "host"), word(&error, "reason")))
        .collect()
}

#[test]
fn every_host_that_failed_is_told_and_counts() {
    let lines = [
        ("delete web1 -o json", 1),
        ("delete web1 --dry-run -o json", 1),
        ("delete web1 web2 -o json", 1),
        ("extend web1 1h -o json", 1),
        ("probe web1 -o json", 1),
        ("exec web1 -o json -- true", 121),
        ("ssh web1 -o json", 121),
        ("logs web1 -o json", 1),
        ("console web1 -o json", 1),
    ];
    let sandbox = sandbox("none");
    sandbox.write("providers.yaml", UNLIKE);
    sandbox.write("key", "this is no key\n");
    for (line, code) in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = sandbox.egressctl(&words);
        let output = command.env("EGRESSCTL_CONFIG", "providers.yaml").output();
        let output = output.unwrap();
        let pair = |host: &str, reason: &str| (host.to_owned(), reason.to_owned());
        let mut wanted = vec![
            pair("one", "SocketNotFound"),
            pair("two", "KeyUnusable"),
            pair("-", "PartialFailure"),
        ];
        if line.contains("web2") {
            wanted.push(pair("-", "PartialFailure"));
        }
        assert_eq!(told(&output.stderr), wanted, "{line}: {output:?}");
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        if let Ok(document) = serde_json::from_slice::<Value>(&output.stdout) {
            let errors = document["errors"].as_array().unwrap();
            assert_eq!(errors.len(), wanted.len(), "{line}: {document}");
        }
    }
}

#[test]
fn command_lines_in_hints_repeat_what_was_given() {
    let sandbox = sandbox("none");
    sandbox.write("it's providers.yaml", LOCAL);
    let hint = |words: &[&str]| {
        let mut command = sandbox.egressctl(words);
        let output = command
            .env("EGRESSCTL_CONFIG", "it's providers.yaml")
            .env("EGRESSCTL_PROVIDER", "here")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let error: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        error["hints"].to_string()
    };
    let line = ["image", "rm", "url", "-o", "json"];
    let plain = hint(&line);
    assert!(plain.contains("egressctl image list -o wide"), "{plain}");
    let given = [&line[..], &["--config", "it's providers.yaml"]].concat();
    let given = [&["--provider", "here"], &given[..]].concat();
    let repeated = hint(&given);
    let wanted = r"egressctl --config 'it'\\''s providers.yaml' --provider here image list -o wide";
    assert!(repeated.contains(wanted), "{repeated}");
}

#[test]
fn what_failed_is_told_though_stdout_cant_be_written() {
    let lines = [
        "list -o json",
        "get web1 -o json",
        "delete web1 -o json",
        "delete web1 --dry-run -o json",
        "extend web1 1h -o json",
        "probe web1 -o json",
        "gc --partial -o json",
        "gc --metrics m.prom -o json",
        "create --zone one --name web1 -o json",
        "create --zone one --name web1 --dry-run -o json",
        "image list -o json",
        "image prune -o json",
        "image rm debian-13 -o json",
        "image pull debian-13 --pull never -o json",
        "check --metrics m.prom -o json",
        "check --metrics m.prom --progress json",
    ];
    for line in lines {
        let sandbox = sandbox("local");
        assert!(LOCAL.contains("local: true"));
        let words: Vec<&str> = line.split(' ').collect();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = sandbox.egressctl(&words);
        let output = command
            .env("EGRESSCTL_CONFIG", "providers.yaml")
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .unwrap();
        let told = told(&output.stderr);
        let has = |wanted: &str| told.iter().any(|(_, reason)| reason == wanted);
        assert!(has("OutputFailed"), "{line}: {output:?}");
        assert!(has("SocketNotFound"), "{line}: {output:?}");
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        if line.contains("m.prom") {
            assert!(sandbox.home().join("m.prom").exists(), "{line}");
        }
    }
}
