//! Which host keys are trusted, negotiated with a real server.

use egressctl::error::{Class, Error, Reason};

use crate::require_sshd;
use crate::sshd::{Sshd, TYPES, dial_as, host_key, keys, output, told, unverified};

fn refusal(sshd: &Sshd, known_hosts: &str) -> Error {
    sshd.write_known_hosts(known_hosts);
    let error = sshd.dial().unwrap_err();
    assert_eq!(error.class(), Class::Permanent, "{}", told(&error));
    assert_eq!(error.host(), Some("nas1"));
    error
}

#[test]
fn the_one_type_that_is_known_is_asked_for() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    for kind in TYPES {
        sshd.write_known_hosts(&sshd.known(kind));
        assert!(sshd.dial().is_ok(), "{kind}");
    }
}

#[test]
fn hashed_bare_and_noisy_files_connect() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let hashed = sshd.dir.path().join("hashed");
    std::fs::write(&hashed, sshd.known("ed25519")).unwrap();
    output("ssh-keygen", &["-q", "-H", "-f", hashed.to_str().unwrap()]);
    let hashed = std::fs::read_to_string(hashed).unwrap();
    assert!(hashed.starts_with("|1|"));
    let noisy = format!(
        "# comment\n\n127.0.0.1 unknown-type AAAA\njunk\n@cert-authority * {}\n{}",
        host_key("other", "ed25519"),
        sshd.known("rsa").replace('\n', "\r\n")
    );
    let bare = format!("127.0.0.1 {}\n", host_key("host", "ecdsa"));
    for text in [hashed, noisy, bare] {
        sshd.write_known_hosts(&text);
        assert!(sshd.dial().is_ok(), "{text}");
    }
}

#[test]
fn refusals_say_what_was_offered_known_and_how_to_go_on() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    let name = sshd.host_name();
    let fingerprint = output(
        "ssh-keygen",
        &["-lf", keys().join("host_ed25519.pub").to_str().unwrap()],
    );
    let fingerprint = fingerprint.split_whitespace().nth(1).unwrap();
    let scan = format!("ssh-keyscan -p {} -t ed25519 127.0.0.1 >>", sshd.port);
    let known = sshd.all_known();
    let ed25519 = host_key("host", "ed25519");
    let other = host_key("other", "ed25519");
    let table = [
        (
            String::new(),
            Reason::HostKeyUnknown,
            vec![fingerprint, &scan, &name],
        ),
        // The machine on port 22 behind the same address proves nothing.
        (
            format!("127.0.0.1 {other}\n"),
            Reason::HostKeyUnknown,
            vec![&scan, &name],
        ),
        (
            format!("{name} {other}\n"),
            Reason::HostKeyMismatch,
            vec![fingerprint, "line 1", &scan, "ssh-keygen -R"],
        ),
        (
            format!("@revoked {name} {ed25519}\n{known}"),
            Reason::HostKeyRevoked,
            vec![fingerprint, "line 1"],
        ),
        (
            format!("{known}@revoked * {ed25519}\n"),
            Reason::HostKeyRevoked,
            vec!["line 4"],
        ),
        (
            format!("@cert-authority * {ed25519}\n"),
            Reason::HostKeyUnknown,
            vec!["@cert-authority", "line 1"],
        ),
    ];
    for (text, reason, needles) in table {
        let error = refusal(&sshd, &text);
        let told = told(&error);
        assert_eq!(error.reason(), reason, "{text}\n{told}");
        for needle in needles {
            assert!(told.contains(needle), "{needle} in\n{told}");
        }
    }
}

#[test]
fn a_server_without_any_known_type_is_unknown() {
    require_sshd!();
    let sshd = Sshd::with_host_keys(&[], &["rsa"]);
    let error = refusal(&sshd, &sshd.known("ed25519"));
    assert_eq!(error.reason(), Reason::HostKeyUnknown);
    let text = told(&error);
    assert!(
        text.contains("no ssh-rsa key is known") && text.contains("ssh-ed25519 SHA256:"),
        "{text}"
    );
    assert!(text.contains("-t rsa"), "{text}");
}

#[test]
fn a_host_certificate_does_not_get_in_the_way() {
    require_sshd!();
    let dir = tempfile::tempdir().unwrap();
    let host = dir.path().join("host");
    std::fs::copy(keys().join("host_ed25519"), &host).unwrap();
    std::fs::copy(keys().join("host_ed25519.pub"), dir.path().join("host.pub")).unwrap();
    let authority = keys().join("other_ed25519");
    let args = [
        "-q",
        "-s",
        authority.to_str().unwrap(),
        "-I",
        "h",
        "-h",
        "-n",
        "127.0.0.1",
    ];
    output(
        "ssh-keygen",
        &[&args[..], &[dir.path().join("host.pub").to_str().unwrap()]].concat(),
    );
    let certificate = format!(
        "HostCertificate {}",
        dir.path().join("host-cert.pub").display()
    );
    let sshd = Sshd::start(&[&certificate]);
    sshd.dial().unwrap();
}

#[test]
fn a_missing_known_hosts_file_may_still_arrive() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    std::fs::remove_file(sshd.known_hosts()).unwrap();
    let error = sshd.dial().unwrap_err();
    assert_eq!(error.reason(), Reason::CredentialsUnavailable);
    assert_eq!(error.class(), Class::Transient);
    assert!(told(&error).contains(sshd.known_hosts().to_str().unwrap()));
}

#[test]
fn ignoring_host_keys_connects_to_anybody() {
    require_sshd!();
    let sshd = Sshd::start(&[]);
    dial_as(&sshd.target(), &unverified()).unwrap();
}
