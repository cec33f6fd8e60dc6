//! Tests of the checks: what passes as what, and what is refused with which words.

use super::*;
use crate::error::{Class, Reason};

#[test]
fn known_kinds_pass() {
    use UserDataKind as K;
    let mime: &[u8] =
        b"Content-Type: multipart/mixed; boundary=\"x\"\nMIME-Version: 1.0\n\n--x\n\nhi\n--x--\n";
    let table: [(&[u8], K); 33] = [
        (b"#cloud-config\n{}\n", K::CloudConfig),
        (b"#cloud-config", K::CloudConfig),
        (b"\n#cloud-config\na: 1\n", K::CloudConfig),
        (b" \r\n  #cloud-config\r\na: 1\r\n", K::CloudConfig),
        (b"\n#cloud-config-archive\n- x\n", K::Archive),
        (b"\n#cloud-config-jsonp\n[]\n", K::Jsonp),
        (b"\n #part-handler\ndef list_types(): pass\n", K::PartHandler),
        (b"\n#include\nhttps://example.org/x\n", K::Include),
        (b"#cloud-config\n# only comments\n", K::CloudConfig),
        (b"#cloud-config\r\npackages:\r\n- squid\r\n", K::CloudConfig),
        (b"#Cloud-Config\na: 1\n", K::CloudConfig),
        (b"#cloud-config # with a comment\na: 1\n", K::CloudConfig),
        (b"#cloud-config\n---\na: 1\n", K::CloudConfig),
        (b"#cloud-config\nwrite_files:\n- path: /x\n  encoding: b64\n  content: !!binary aGk=\n", K::CloudConfig),
        (b"#cloud-config\nruncmd:\n- |\n  if x; then\n  \ty\n  fi\n", K::CloudConfig),
        (b"#cloud-config\nusers: [default]\nssh_authorized_keys:\n- ssh-ed25519 AAAA x\nperm: 0644\n", K::CloudConfig),
        (b"#!/bin/sh\necho hi\n", K::Script),
        (b"#! /usr/bin/env python3\n", K::Script),
        (b"#!/bin/sh\n\xff\xfe\x00binary payload\r\n", K::Script),
        (b"## template: jinja\n#cloud-config\na: {{ v1.local_hostname }}\n", K::Jinja),
        (b"## template: jinja\n#!/bin/sh\necho {{ x }}\n", K::Jinja),
        (b"## template: jinja\n{% if x %}\n#cloud-config\n{% endif %}\n", K::Jinja),
        (b"#include\nhttps://example.org/x\n", K::Include),
        (b"#include https://example.org/x\n", K::Include),
        (b"#include-once\nhttps://example.org/x\n", K::Include),
        (b"#cloud-boothook\n#!/bin/sh\ntrue\n", K::Boothook),
        (b"#part-handler\ndef list_types(): pass\n", K::PartHandler),
        (b"#cloud-config-archive\n- type: text/cloud-config\n  content: x\n", K::Archive),
        (b"#cloud-config-jsonp\n[]\n", K::Jsonp),
        (mime, K::Mime),
        (b"MIME-Version: 1.0\nContent-Type: text/plain\n\nx\n", K::Mime),
        (b"From nobody Sat Nov 29 2026\r\nContent-Type: text/plain\r\nMIME-Version: 1.0\r\n\r\nx", K::Mime),
        (b"\x1f\x8b\x08\x00rest", K::Gzip),
    ];
    for (data, kind) in table {
        let checked = check_user_data("f", data).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert_eq!(checked.kind, kind, "{}", String::from_utf8_lossy(data));
        assert_eq!(checked.warnings, []);
    }
}

#[test]
fn what_would_be_ignored_is_refused_with_the_reason_and_without_content() {
    let base64_config = BASE64.encode("#cloud-config\nSECRET: 1\n");
    let base64_wrapped = BASE64.encode(format!("#!/bin/sh\n{}", "SECRET ".repeat(30)));
    let base64_wrapped = format!("{}\n{}\n", &base64_wrapped[..76], &base64_wrapped[76..]);
    let base64_gzip = BASE64.encode(b"\x1f\x8b\x08\x00SECRET");
    let table: [(&[u8], &str); 40] = [
        (b"", "it is empty"),
        (b" \n\n", "it is empty"),
        (b"packages: [SECRET]\n", "none of cloud-init's headers"),
        (b"SECRET", "none of cloud-init's headers"),
        (b"#upstart-job\nstart on SECRET\n", "a job for upstart"),
        (b"\n#!/bin/sh\nSECRET\n", "blank or an empty line"),
        (b" #!/bin/sh\nSECRET\n", "blank or an empty line"),
        (b"\n#cloud-boothook\nSECRET\n", "blank or an empty line"),
        (
            b"\n## template: jinja\n#cloud-config\nSECRET: 1\n",
            "blank or an empty line",
        ),
        (b"\n #include https://SECRET\n", "blank or an empty line"),
        (b"\npackages: [SECRET]\n", "blank or an empty line"),
        (b"\nMIME-Version: 1.0\n\nSECRET", "blank or an empty line"),
        (b"\n#cloud-config\n- SECRET\n", "isn't a mapping"),
        (
            b"\t#cloud-config\nSECRET: 1\n",
            "a tab, which YAML forbids at line 1",
        ),
        (b"\xEF\xBB\xBF#cloud-config\nSECRET: 1\n", "byte order mark"),
        (b"\xFF\xFE#\x00c\x00", "UTF-16"),
        (b"# cloud-config\nSECRET: 1\n", "almost, but not quite"),
        (b"#cloud_config\nSECRET: 1\n", "almost, but not quite"),
        (b"cloud-config\nSECRET: 1\n", "almost, but not quite"),
        (
            b"#cloud-configuration\nSECRET: 1\n",
            "almost, but not quite",
        ),
        (
            b"#cloud-config-archives\nSECRET: 1\n",
            "almost, but not quite",
        ),
        (base64_config.as_bytes(), "base64"),
        (base64_wrapped.as_bytes(), "base64"),
        (base64_gzip.as_bytes(), "base64"),
        (b"#!/bin/sh\r\necho SECRET\r\n", "Windows line ends"),
        (
            b"#cloud-boothook\r\n#!/bin/sh\r\nSECRET\r\n",
            "Windows line ends",
        ),
        (
            b"## template: jinja\r\n#!/bin/sh\r\nSECRET\r\n",
            "Windows line ends",
        ),
        (
            b"## template: jinja\n\n#!/bin/sh\nSECRET\n",
            "between `## template: jinja` and `#!`",
        ),
        (
            b"## template: jinja\nSECRET: 1\n",
            "after `## template: jinja`",
        ),
        (b"## template: jinja\n", "after `## template: jinja`"),
        (
            b"#cloud-config\nSECRET:\n\tx: 1\n",
            "a tab, which YAML forbids at line 3",
        ),
        (b"#cloud-config\nSECRET: [\n", "isn't valid YAML"),
        (
            b"#cloud-config\na: SECRET: x\n",
            "isn't valid YAML at line 2",
        ),
        (b"#cloud-config\n- SECRET\n", "isn't a mapping"),
        (b"#cloud-config\nSECRET\n", "isn't a mapping"),
        (
            b"#cloud-config\na: 1\nb: \xffSECRET\n",
            "isn't UTF-8 at line 3",
        ),
        (b"#cloud-config\na: 1\n---\nSECRET: 2\n", "isn't valid YAML"),
        (b"#cloud-config-archive\nSECRET: 1\n", "isn't a list"),
        (
            b"Content-Type: multipart/mixed; boundary=SECRET\n\n",
            "no MIME-Version header",
        ),
        (
            b"{\"ignition\": {\"SECRET\": 1}}\n",
            "none of cloud-init's headers",
        ),
    ];
    for (data, why) in table {
        let error = check_user_data("--user-data f", data).unwrap_err();
        let case = String::from_utf8_lossy(data);
        assert!(
            error.message().starts_with("--user-data f can't be used: "),
            "{error}"
        );
        assert!(error.message().contains(why), "{case:?}: {error}");
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Usage, Reason::InvalidUserData)
        );
        assert!(!format!("{error:?}").contains("SECRET"), "{error:?}");
    }
}

#[test]
fn a_key_that_stands_twice_is_a_warning() {
    let checked = check_user_data("f", b"#cloud-config\nruncmd: [a]\nruncmd: [SECRET]\n").unwrap();
    let told: Vec<String> = checked.warnings.iter().map(|one| one.told("f")).collect();
    assert_eq!(
        told,
        [
            "f: a key stands twice at line 3, column 1; cloud-init takes the last and drops the others"
        ]
    );
}

#[test]
fn vendor_data_may_not_be_mime_beside_the_script() {
    let mime = "MIME-Version: 1.0\nContent-Type: text/plain\n\nx\n";
    assert!(check_vendor_data(mime, false).is_ok());
    let finding = check_vendor_data(mime, true).unwrap_err();
    assert!(
        finding
            .to_string()
            .contains("the guest agent's script (installGuestAgent)"),
        "{finding}"
    );
    for text in ["#cloud-config\n{}\n", "\n#cloud-config\n{}\n"] {
        assert!(check_vendor_data(text, true).is_ok(), "{text:?}");
    }
    assert!(check_vendor_data("packages: [x]\n", true).is_err());
}

#[test]
fn network_config_is_the_bare_form() {
    let good = [
        "\u{feff}version: 2\nethernets: {}\n",
        "version: 2\nethernets:\n  a:\n    match: {macaddress: '52:54:00:01:02:03'}\n    dhcp4: true\n",
        "# by hand\nversion: 1\nconfig: []\n",
        "{\"version\": 2}",
    ];
    for text in good {
        check_network_config("f", text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    let bad: [(&[u8], &str); 15] = [
        (b"network:\n  version: 2\n", "wrapped in `network:`"),
        (b"network: {config: disabled}\n", "wrapped in `network:`"),
        (b"ethernets: {}\n", "no `version:`"),
        (b"version: 3\n", "neither the number 1 nor 2"),
        (b"version: \"2\"\n", "neither the number 1 nor 2"),
        (b"version: '1'\n", "neither the number 1 nor 2"),
        (b"version:\t2\n", "a tab"),
        (b"version: SECRET\n", "neither the number 1 nor 2"),
        (b"version: [2]\n", "neither the number 1 nor 2"),
        (b"", "isn't a mapping"),
        (b"- version: 2\n", "isn't a mapping"),
        (b"version: 2\nversion: 2\n", "stands twice at line 2"),
        (b"version: 2\n\tx: SECRET\n", "a tab"),
        (b"version: [SECRET\n", "isn't valid YAML"),
        (b"version: \xff\n", "isn't UTF-8"),
    ];
    for (data, why) in bad {
        let error = check_network_config("--network-config f", data).unwrap_err();
        assert!(error.message().contains(why), "{why}: {error}");
        assert!(!format!("{error:?}").contains("SECRET"), "{error:?}");
    }
    let error = check_network_config("f", bad[0].0).unwrap_err();
    assert!(
        error.hints()[0].contains("remove the `network:` line"),
        "{error:?}"
    );
}
