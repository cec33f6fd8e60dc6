//! What OpenSSH would say of each file, host and key.

use super::*;

/// A well-formed public key blob of that type, made of a letter.
fn blob(key_type: &str, letter: char) -> Vec<u8> {
    let body = letter.to_string().repeat(32);
    [key_type, &body]
        .iter()
        .flat_map(|text| {
            let length = u32::try_from(text.len()).unwrap().to_be_bytes();
            length.into_iter().chain(text.bytes()).collect::<Vec<_>>()
        })
        .collect()
}

/// `type base64`, as a file has it.
fn key(key_type: &str, letter: char) -> String {
    format!("{key_type} {}", STANDARD.encode(blob(key_type, letter)))
}

/// A name as `ssh-keygen -H` hides it.
fn hashed(name: &str) -> String {
    let salt = [7; 20];
    let mac = Hmac::<Sha1>::new_from_slice(&salt).unwrap();
    let hash = mac.chain_update(name).finalize().into_bytes();
    format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(hash))
}

/// The verdict's name, and the lines it refers to.
fn verdict(text: &str, host: &str, port: u16, offered: &[u8]) -> (&'static str, Vec<usize>) {
    let lines = |known: Vec<KnownKey>| known.into_iter().map(|key| key.line).collect();
    match KnownHosts::parse(text).verdict(host, port, offered) {
        Verdict::Match => ("match", vec![]),
        Verdict::Unknown { known } => ("unknown", lines(known)),
        Verdict::Mismatch { known } => ("mismatch", lines(known)),
        Verdict::Revoked { line } => ("revoked", vec![line]),
        Verdict::OnlyCa { lines } => ("only ca", lines),
    }
}

const ED: &str = "ssh-ed25519";
const RSA: &str = "ssh-rsa";
const EC: &str = "ecdsa-sha2-nistp256";

#[test]
fn names_match_by_openssh_rules() {
    let table = [
        ("h.ex", "h.ex", 22, true),
        ("h.ex", "H.EX", 22, true),
        ("H.EX", "h.ex", 22, true),
        ("h.ex", "h.exa", 22, false),
        ("a,h.ex,192.0.2.1", "h.ex", 22, true),
        ("a,h.ex,192.0.2.1", "192.0.2.1", 22, true),
        ("[h.ex]:2222", "h.ex", 2222, true),
        ("[H.ex]:2222", "h.ex", 2222, true),
        ("[h.ex]:2222", "h.ex", 22, false),
        ("[h.ex]:2222", "h.ex", 2223, false),
        ("h.ex", "h.ex", 2222, true),
        ("[h.ex]:22", "h.ex", 22, false),
        ("*.ex", "h.ex", 22, true),
        ("*.ex", "ex", 22, false),
        ("h?.ex", "h1.ex", 22, true),
        ("h?.ex", "h.ex", 22, false),
        ("*", "anything", 22, true),
        ("*", "anything", 2222, true),
        ("[*.ex]:2222", "h.ex", 2222, true),
        ("192.0.2.*", "192.0.2.77", 22, true),
        ("h*x*z", "hxyxz", 22, true),
        ("h*x*z", "hz", 22, false),
        ("!h1.ex,*.ex", "h1.ex", 22, false),
        ("*.ex,!h1.ex", "h1.ex", 22, false),
        ("*.ex,!h1.ex", "H1.EX", 22, false),
        ("*.ex,!h1.ex", "h2.ex", 22, true),
        ("!h1.ex,h1.ex", "h1.ex", 22, false),
        ("!h1.ex", "h2.ex", 22, false),
        ("2001:db8::10", "2001:db8::10", 22, true),
        ("2001:db8::10", "2001:DB8:0::10", 22, true),
        ("[2001:db8::10]:2222", "2001:db8::10", 2222, true),
        ("2001:db8::10", "2001:db8::11", 22, false),
        ("!2001:db8::10,*", "2001:DB8:0::10", 22, false),
        ("fe80::1%eth0", "fe80::1%eth0", 22, true),
    ];
    for (names, host, port, wanted) in table {
        let line = format!("{names} {} a comment\n", key(ED, 'a'));
        let (found, _) = verdict(&line, host, port, &blob(ED, 'a'));
        let wanted = if wanted { "match" } else { "unknown" };
        assert_eq!(found, wanted, "{names} for {host} port {port}");
    }
}

#[test]
fn hashed_names_match_with_and_without_port() {
    let table = [
        ("h.ex", "h.ex", 22, "match"),
        ("h.ex", "H.EX", 22, "match"),
        ("H.EX", "H.EX", 22, "match"),
        ("[h.ex]:2222", "h.ex", 2222, "match"),
        // Old `ssh-keyscan -H -p` hashed the bare name.
        ("h.ex", "h.ex", 2222, "match"),
        ("[h.ex]:2222", "h.ex", 22, "unknown"),
        ("2001:db8::10", "2001:db8::10", 22, "match"),
        ("other", "h.ex", 22, "unknown"),
    ];
    for (name, host, port, wanted) in table {
        let line = format!("{} {}\n", hashed(name), key(ED, 'a'));
        let (found, _) = verdict(&line, host, port, &blob(ED, 'a'));
        assert_eq!(found, wanted, "{name} for {host} port {port}");
    }
    // Made by `ssh-keygen -H` (OpenSSH 9.2) from the name `kvm1.example.net`.
    let sample = "|1|HkOlATVprvtDW6FprFwodk9LqAQ=|10YC4Xq0+TAtdlMl1lbU+QcDaJc=";
    let names = Names::parse(sample).unwrap();
    assert!(names.matches(&["kvm1.example.net".to_owned()]));
    assert!(!names.matches(&["kvm2.example.net".to_owned()]));
}

#[test]
fn keys_are_judged_by_type_and_port() {
    let (a, b) = (key(ED, 'a'), key(ED, 'b'));
    let table = [
        ("nothing known", String::new(), 22, ("unknown", vec![])),
        ("another key", format!("h {b}\n"), 22, ("mismatch", vec![1])),
        (
            "several keys of the type",
            format!("h {b}\nh {a}\n"),
            22,
            ("match", vec![]),
        ),
        (
            "several types",
            format!("h {}\nh {a}\n", key(RSA, 'r')),
            22,
            ("match", vec![]),
        ),
        (
            "only other types",
            format!("h {}\nh {}\n", key(RSA, 'r'), key(EC, 'e')),
            22,
            ("unknown", vec![1, 2]),
        ),
        (
            "another key and another type",
            format!("h {}\nh {b}\n", key(RSA, 'r')),
            22,
            ("mismatch", vec![1, 2]),
        ),
        (
            "port: another key there",
            format!("[h]:2222 {b}\nh {a}\n"),
            2222,
            ("mismatch", vec![1]),
        ),
        (
            "port: second chance",
            format!("h {a}\n"),
            2222,
            ("match", vec![]),
        ),
        (
            "port: the bare name's other key proves nothing",
            format!("h {b}\n"),
            2222,
            ("unknown", vec![]),
        ),
        (
            "port: other type there, bare name helps",
            format!("[h]:2222 {}\nh {a}\n", key(RSA, 'r')),
            2222,
            ("match", vec![]),
        ),
        (
            "port: other type there, bare name differs",
            format!("[h]:2222 {}\nh {b}\n", key(RSA, 'r')),
            2222,
            ("unknown", vec![1]),
        ),
    ];
    for (what, text, port, wanted) in table {
        assert_eq!(verdict(&text, "h", port, &blob(ED, 'a')), wanted, "{what}");
    }
}

#[test]
fn revocation_beats_everything_and_authorities_never_trust() {
    let (a, b) = (key(ED, 'a'), key(ED, 'b'));
    let table = [
        (
            "revoked before",
            format!("@revoked h {a}\nh {a}\n"),
            22,
            ("revoked", vec![1]),
        ),
        (
            "revoked behind",
            format!("h {a}\n@revoked h {a}\n"),
            22,
            ("revoked", vec![2]),
        ),
        (
            "by pattern",
            format!("h {a}\n@revoked * {a}\n"),
            22,
            ("revoked", vec![2]),
        ),
        (
            "hashed",
            format!("h {a}\n@revoked {} {a}\n", hashed("h")),
            22,
            ("revoked", vec![2]),
        ),
        (
            "with a port, by pattern",
            format!("[h]:2222 {a}\n@revoked * {a}\n"),
            2222,
            ("revoked", vec![2]),
        ),
        (
            "with a port, by the bare name",
            format!("[h]:2222 {a}\n@revoked h {a}\n"),
            2222,
            ("revoked", vec![2]),
        ),
        (
            "another host's",
            format!("h {a}\n@revoked other {a}\n"),
            22,
            ("match", vec![]),
        ),
        (
            "another key",
            format!("h {a}\n@revoked h {b}\n"),
            22,
            ("match", vec![]),
        ),
        (
            "a revoked line isn't a known key",
            format!("@revoked h {b}\n"),
            22,
            ("unknown", vec![]),
        ),
        (
            "only an authority",
            format!("# x\n@cert-authority * {a}\n"),
            22,
            ("only ca", vec![2]),
        ),
        (
            "an authority of another host",
            format!("@cert-authority *.ex {a}\n"),
            22,
            ("unknown", vec![]),
        ),
        (
            "an authority and the plain key",
            format!("@cert-authority * {b}\nh {a}\n"),
            22,
            ("match", vec![]),
        ),
        (
            "an authority and another plain key",
            format!("@cert-authority * {a}\nh {b}\n"),
            22,
            ("mismatch", vec![2]),
        ),
        (
            "an authority and another type",
            format!("@cert-authority * {a}\nh {}\n", key(RSA, 'r')),
            22,
            ("unknown", vec![2]),
        ),
    ];
    for (what, text, port, wanted) in table {
        assert_eq!(verdict(&text, "h", port, &blob(ED, 'a')), wanted, "{what}");
    }
}

#[test]
fn bad_lines_are_skipped_and_named() {
    let good = format!("h {}", key(ED, 'a'));
    let bad = [
        "h".to_owned(),
        "h ssh-ed25519".to_owned(),
        "h ssh-ed25519 AAAA".to_owned(),
        "h ssh-ed25519 ****".to_owned(),
        format!("h ssh-rsa {}", STANDARD.encode(blob(ED, 'a'))),
        format!("@unknown {good}"),
        "@revoked".to_owned(),
        format!("|2|x|y {}", key(ED, 'a')),
        format!("|1|x {}", key(ED, 'a')),
        // The format of SSH version 1.
        "h 1024 35 1234567".to_owned(),
    ];
    for line in bad {
        let text = format!("# comment\r\n\r\n{line}\r\n  {good}\r\n");
        let parsed = KnownHosts::parse(&text);
        assert_eq!(parsed.skipped_lines(), [3], "{line}");
        assert_eq!(
            parsed.verdict("h", 22, &blob(ED, 'a')),
            Verdict::Match,
            "{line}"
        );
    }
    let future = format!("h {}\n{good}\n", key("ssh-future", 'f'));
    assert_eq!(KnownHosts::parse(&future).skipped_lines(), [0_usize; 0]);
}

#[test]
fn tabs_and_a_missing_last_line_feed_are_read() {
    let tabs = format!(
        "h\t{}\tcomment with spaces\r",
        key(ED, 'a').replace(' ', "\t")
    );
    assert_eq!(verdict(&tabs, "h", 22, &blob(ED, 'a')).0, "match");
    let no_newline = format!("h {}", key(ED, 'a'));
    assert_eq!(verdict(&no_newline, "h", 22, &blob(ED, 'a')).0, "match");
}

#[test]
fn the_types_known_are_those_that_count_for_the_host() {
    let text = format!(
        "h {}\nh {}\n[h]:2222 {}\n@revoked h {}\n@cert-authority h {}\nother {}\n",
        key(RSA, 'r'),
        key(RSA, 's'),
        key(EC, 'e'),
        key(ED, 'a'),
        key(ED, 'b'),
        key(ED, 'c'),
    );
    let hosts = KnownHosts::parse(&text);
    assert_eq!(hosts.known_types("h", 22), [RSA]);
    assert_eq!(hosts.known_types("h", 2222), [EC, RSA]);
    assert!(hosts.known_types("none", 22).is_empty());
}

#[test]
fn a_known_key_is_described_as_ssh_keygen_does() {
    let text = format!("\nh {}\n", key(ED, 'b'));
    let Verdict::Mismatch { known } = KnownHosts::parse(&text).verdict("h", 22, &blob(ED, 'a'))
    else {
        panic!("no mismatch");
    };
    assert_eq!(known[0].line, 2);
    assert_eq!(known[0].key_type, ED);
    assert_eq!(known[0].fingerprint, wire::fingerprint(&blob(ED, 'b')));
    assert!(known[0].fingerprint.starts_with("SHA256:") && !known[0].fingerprint.ends_with('='));
}
