//! What is asked of the server, and what a refusal tells.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;

use super::*;
use crate::cancel::Cancel;

fn target(host: &str, port: u16) -> SshTarget {
    SshTarget {
        address: Address {
            host: host.into(),
            port,
        },
        user: "virt".into(),
        jump: None,
    }
}

/// The wire form of an ed25519 key made of one letter.
fn blob(letter: u8) -> Vec<u8> {
    [&b"\0\0\0\x0bssh-ed25519\0\0\0\x20"[..], &[letter; 32]].concat()
}

fn line(names: &str, letter: u8) -> String {
    format!("{names} ssh-ed25519 {}\n", STANDARD.encode(blob(letter)))
}

#[test]
fn known_types_are_asked_for_first_and_certificates_never() {
    let table: [(&[&str], &str); 4] = [
        (&[], "ssh-ed25519,ecdsa-sha2-nistp256"),
        (&["ssh-rsa"], "rsa-sha2-512,rsa-sha2-256,ssh-ed25519,"),
        (
            &["ecdsa-sha2-nistp521", "ssh-rsa"],
            "ecdsa-sha2-nistp521,rsa-sha2-512,rsa-sha2-256,ssh-ed25519,",
        ),
        (&["sk-ssh-ed25519@openssh.com"], "ssh-ed25519,"),
    ];
    for (known, beginning) in table {
        let known: Vec<String> = known.iter().map(|&kind| kind.to_owned()).collect();
        let list: Vec<String> = algorithms(&known).iter().map(ToString::to_string).collect();
        let list = list.join(",");
        assert!(list.starts_with(beginning), "{known:?}: {list}");
        assert_eq!(list.split(',').count(), 6, "{list}");
        assert!(
            !list.contains("cert") && !list.contains("ssh-rsa"),
            "{list}"
        );
    }
}

#[test]
fn refusals_are_permanent_and_give_the_line_that_would_fix_them() {
    let file = Path::new("/etc/known hosts");
    let scan = "ssh-keyscan -p 2222 -t ed25519 kvm1 >> '/etc/known hosts'";
    let table = [
        (
            "",
            2222,
            Reason::HostKeyUnknown,
            vec!["[kvm1]:2222", scan, "ssh-keygen -lf"],
        ),
        (
            "",
            22,
            Reason::HostKeyUnknown,
            vec!["host kvm1", "ssh-keyscan -t ed25519 kvm1 >>"],
        ),
        (
            &line("[kvm1]:2222", b'b'),
            2222,
            Reason::HostKeyMismatch,
            vec![
                "line 1",
                scan,
                "ssh-keygen -R '[kvm1]:2222' -f '/etc/known hosts'",
            ],
        ),
        (
            &line("kvm1", b'b'),
            2222,
            Reason::HostKeyUnknown,
            vec!["[kvm1]:2222", scan],
        ),
        (
            &line("@revoked *", b'a'),
            22,
            Reason::HostKeyRevoked,
            vec!["@revoked", "line 1"],
        ),
        (
            &line("@cert-authority *", b'a'),
            22,
            Reason::HostKeyUnknown,
            vec!["not supported"],
        ),
    ];
    for (text, port, reason, needles) in table {
        let hosts = KnownHosts::parse(text);
        let error = judge(&hosts, file, &target("kvm1", port), &blob(b'a')).unwrap_err();
        assert_eq!(
            (error.reason(), error.class()),
            (reason, Class::Permanent),
            "{text}"
        );
        let told = format!("{error}\n{}", error.hints().join("\n"));
        for needle in needles
            .into_iter()
            .chain([wire::fingerprint(&blob(b'a')).as_str()])
        {
            assert!(told.contains(needle), "{needle} in {told}");
        }
    }
    let hosts = KnownHosts::parse(&line("kvm1", b'a'));
    judge(&hosts, file, &target("kvm1", 2222), &blob(b'a')).unwrap();
}

#[test]
fn a_file_that_is_not_there_may_still_arrive() {
    let missing = HostKeyPolicy::KnownHosts("/nonexistent/known_hosts".into());
    let Err(error) = Verifier::load(
        &missing,
        &target("kvm1", 2222),
        &Deadline::new(Duration::from_secs(60), &Cancel::new()),
    ) else {
        panic!("loaded");
    };
    assert_eq!(error.class(), Class::Transient);
    assert_eq!(error.reason(), Reason::CredentialsUnavailable);
    assert!(error.message().contains("/nonexistent/known_hosts"));
    let line = "mkdir -p -m 700 /nonexistent && ssh-keyscan -p 2222 -t ed25519 kvm1 >> /nonexistent/known_hosts";
    assert_eq!(error.hints()[0], line);
    let any = Error::transient(Reason::CredentialsUnavailable, "x");
    let beside = with_scan(
        any,
        &target("kvm1", 22),
        "ssh-rsa",
        Path::new("known_hosts"),
    );
    // The line alone: it is pasted.
    assert_eq!(beside.hints()[0], "ssh-keyscan -t rsa kvm1 >> known_hosts");
    let compare = &beside.hints()[1];
    assert!(compare.ends_with("ssh_host_rsa_key.pub"), "{compare}");
}

#[test]
fn a_file_that_is_too_large_is_not_read_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("known_hosts");
    std::fs::write(&path, line("kvm1", b'x')).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(KNOWN_HOSTS_LIMIT + 1).unwrap();
    let policy = HostKeyPolicy::KnownHosts(path);
    let deadline = Deadline::new(Duration::from_secs(60), &Cancel::new());
    let Err(error) = Verifier::load(&policy, &target("kvm1", 22), &deadline) else {
        panic!("loaded");
    };
    assert_eq!(
        (error.class(), error.reason()),
        (Class::Permanent, Reason::CredentialsUnavailable)
    );
    assert_eq!(error.causes(), ["it is larger than 64 MiB"]);
}

#[test]
fn a_host_behind_another_is_scanned_from_there() {
    let behind = SshTarget {
        jump: Some(Box::new(target("bastion", 22))),
        ..target("kvm1", 2222)
    };
    let file = Path::new("/etc/known_hosts");
    let nothing = KnownHosts::parse("");
    let error = judge(&nothing, file, &behind, &blob(b'a')).unwrap_err();
    let line = "ssh virt@bastion ssh-keyscan -p 2222 -t ed25519 kvm1 >> /etc/known_hosts";
    assert_eq!(error.hints()[0], line);
}
