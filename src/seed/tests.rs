//! Tests of seeds: their files, their mark, their silence; and the vendor-data in them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

fn spec() -> SeedSpec {
    SeedSpec {
        instance_id: "web-1-0f5e".into(),
        local_hostname: "web-1".into(),
        user_data: b"#cloud-config\npassword: SECRET\n".to_vec(),
        vendor_data: vendor_data(true, Some("#cloud-config\nSECRET: 1\n")),
        network_config: Some(b"version: 2 # SECRET\n".to_vec()),
        mark: mark(),
    }
}

fn mark() -> SeedMark {
    SeedMark {
        uid: "0f5e & \"x\"".into(),
        name: "web-1".into(),
        created_at: "2026-11-29T19:38:00Z".parse().unwrap(),
        owner: Some("place:1:2".into()),
    }
}

#[test]
fn debug_shows_no_contents() {
    let debug = format!("{:?} {:#?}", spec(), spec());
    assert!(
        !debug.contains("SECRET") && !debug.contains("83, 69, 67"),
        "{debug}"
    );
    assert!(debug.contains("user_data_bytes: 31"), "{debug}");
}

#[test]
fn the_image_is_the_same_for_the_same_spec_and_says_whose_it_is() {
    let image = spec().to_image().unwrap();
    assert_eq!(image, spec().to_image().unwrap());
    assert_eq!(read_mark(&image), Some(mark()));
    assert_eq!(read_mark(&image[..MARK_BYTES]), Some(mark()));
    assert_eq!(MARK_BYTES, 34 * 1024);
}

#[test]
fn only_a_whole_mark_counts() {
    let image = spec().to_image().unwrap();
    assert_eq!(read_mark(&[]), None);
    assert_eq!(read_mark(&image[..MARK_BYTES - 1]), None);
    assert_eq!(read_mark(&vec![0; MARK_BYTES]), None);
    let d = 16 * 2048;
    // Descriptor type, standard identifier, label, application, mark version, JSON.
    for at in [d, d + 1, d + 40, d + 574, d + 883, d + 890] {
        let mut other = image.clone();
        other[at] ^= 0x20;
        assert_eq!(read_mark(&other), None, "byte {at}");
    }
    let mut zeros = image.clone();
    zeros[d + 883..d + 883 + 512].fill(0);
    assert_eq!(read_mark(&zeros), None);
    let mut later = image;
    let version = b"{\"egressctl\":1".len() - 1 + d + 883;
    assert_eq!(later[version], b'1');
    later[version] = b'2';
    assert_eq!(read_mark(&later), None);
}

#[test]
fn a_mark_that_does_not_fit_is_refused() {
    let mut long = spec();
    long.mark.uid = "u".repeat(256);
    assert_eq!(
        read_mark(&long.to_image().unwrap()).unwrap().uid,
        long.mark.uid
    );
    long.mark.uid = "u".repeat(500);
    assert!(long.to_image().is_err());
}

#[test]
fn files_are_there_byte_for_byte() {
    let spec = spec();
    let image = spec.to_image().unwrap();
    let holds = |part: &[u8]| image.windows(part.len()).any(|window| window == part);
    assert!(holds(&spec.user_data));
    assert!(holds(
        b"instance-id: \"web-1-0f5e\"\nlocal-hostname: \"web-1\"\n"
    ));
    assert_eq!(
        spec.file_names(),
        ["meta-data", "user-data", "vendor-data", "network-config"]
    );
    let bare = SeedSpec {
        vendor_data: None,
        network_config: None,
        ..spec
    };
    assert_eq!(bare.file_names(), ["meta-data", "user-data"]);
    let image = bare.to_image().unwrap();
    for absent in ["vendor-data", "network-config"] {
        assert!(
            !image.windows(absent.len()).any(|w| w == absent.as_bytes()),
            "{absent}"
        );
    }
}

#[test]
fn meta_data_is_quoted_and_ascii() {
    let mut spec = spec();
    for id in ["1e3", "no", "12:30:45", "a: b", "a \"quoted\" \\ one", "#x"] {
        spec.instance_id = id.into();
        let text = spec.meta_data().unwrap();
        let expected = format!("instance-id: {}\n", serde_json::to_string(id).unwrap());
        assert!(text.starts_with(&expected), "{text}");
    }
    for id in ["", "a\nb", "\u{7f}", "ž"] {
        spec.instance_id = id.into();
        assert!(spec.meta_data().is_err(), "{id:?}");
    }
}

#[test]
fn default_user_data_passes_the_check() {
    let checked = check_user_data("default", DEFAULT_USER_DATA).unwrap();
    assert_eq!(checked.kind, UserDataKind::CloudConfig);
}

#[test]
fn vendor_data_is_script_text_both_or_none() {
    assert_eq!(vendor_data(false, None), None);
    assert_eq!(
        vendor_data(false, Some("#cloud-config\n{}\n")).unwrap(),
        b"#cloud-config\n{}\n"
    );
    let script = String::from_utf8(vendor_data(true, None).unwrap()).unwrap();
    assert!(script.starts_with("#!/bin/sh\n") && script.is_ascii() && !script.contains('\r'));
    // Whatever has these words in its first 4096 bytes is MIME to cloud-init.
    assert!(!script.to_lowercase().contains("mime-version:"));
    let both = vendor_data(true, Some("#cloud-config\n{}\n")).unwrap();
    let checked = check_user_data("vendor-data", &both).unwrap();
    assert_eq!(checked.kind, UserDataKind::Mime);
}

/// Python's parser is the one cloud-init uses.
#[test]
fn python_reads_both_parts_as_they_were() {
    let odd = "#cloud-config\n# ==egressctl==\n--==egressctl==--\n";
    let long = format!("#cloud-config\n# {}\n", "x".repeat(2000));
    for configured in [
        "#cloud-config\n{}\n",
        "#cloud-config\na: ž🦀\n",
        "#!/bin/sh\r\n",
        "#cloud-config",
        odd,
        &long,
    ] {
        let message = vendor_data(true, Some(configured)).unwrap();
        let code = "import email, sys, json\n\
            m = email.message_from_string(sys.stdin.buffer.read().decode())\n\
            print(json.dumps([[p.get_content_type(), p.get_payload(decode=True).decode(), p.get_filename()] \
            for p in m.walk() if not p.is_multipart()]))";
        let child = Command::new("python3")
            .args(["-c", code])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: python3 isn't installed");
            return;
        };
        child.stdin.take().unwrap().write_all(&message).unwrap();
        let output = child.wait_with_output().unwrap();
        let parts: Vec<(String, String, String)> = serde_json::from_slice(&output.stdout).unwrap();
        let script = String::from_utf8(vendor_data(true, None).unwrap()).unwrap();
        assert_eq!(parts.len(), 2, "{configured:?}");
        assert_eq!(
            parts[0],
            (
                "text/x-shellscript".into(),
                script,
                "egressctl-guest-agent.sh".into()
            )
        );
        assert_eq!(
            parts[1],
            ("text/plain".into(), configured.into(), "vendor-data".into())
        );
    }
}

#[test]
fn the_smallest_seed_is_as_long_as_one_that_was_never_filled_may_be() {
    let smallest = SeedSpec {
        user_data: Vec::new(),
        vendor_data: None,
        network_config: None,
        ..spec()
    };
    for image in [smallest.to_image().unwrap(), spec().to_image().unwrap()] {
        assert!(may_be_unwritten(image.len() as u64), "{}", image.len());
    }
    assert!(may_be_unwritten(64 << 20));
    let too_large = (64 << 20) + 2048;
    for bytes in [
        0,
        1,
        2048,
        MARK_BYTES as u64 - 2048,
        65535,
        65537,
        too_large,
    ] {
        assert!(!may_be_unwritten(bytes), "{bytes}");
    }
}
