//! Tests of checksum files in every shape that is met.

use super::*;
use crate::error::Class;

const NAME: &str = "debian-13.qcow2";

fn a() -> String {
    "a1".repeat(32)
}

fn b() -> String {
    "b2".repeat(32)
}

fn c() -> String {
    "c3".repeat(64)
}

#[test]
fn every_shape_is_read() {
    let (a, b, c) = (a(), b(), c());
    let upper = a.to_uppercase();
    let table = [
        (format!("{b}  other.qcow2\n{a}  {NAME}\n"), &a),
        (format!("{b} *other.qcow2\n{a} *{NAME}\n"), &a),
        (format!("{a}\t{NAME}\n"), &a),
        (format!("{a} {NAME}"), &a),
        (format!("SHA256 ({NAME}) = {a}\n"), &a),
        (
            format!("# comment\nSHA256 (x (1).iso) = {b}\nSHA256 ({NAME}) = {a}\n"),
            &a,
        ),
        (format!("SHA2-256({NAME})= {a}\n"), &a),
        (format!("SHA512 ({NAME}) = {c}\n"), &c),
        (format!("{a}\n"), &a),
        (format!("  {a}  "), &a),
        (a.clone(), &a),
        (c.clone(), &c),
        (format!("{b}  x\r\n{a}  {NAME}\r\n"), &a),
        (format!("{upper}  {NAME}\n"), &a),
        (format!("{a}  ./{NAME}\n"), &a),
        (format!("{a} *./{NAME}\n"), &a),
        (
            format!("{b}  my-{NAME}\n{a}  {NAME}\n{b}  {NAME}.sig\n"),
            &a,
        ),
        (format!("{b}  old/{NAME}\n{a}  {NAME}\n"), &a),
        (format!("{a}  {NAME}\n{a}  {NAME}\n"), &a),
        (format!("{a}  {NAME}\n{c}  {NAME}\n"), &c),
        (
            format!("d41d8cd98f00b204e9800998ecf8427e  {NAME}\n{a}  {NAME}\n"),
            &a,
        ),
        (
            format!("MD5 ({NAME}) = d41d8cd98f00b204e9800998ecf8427e\nSHA256 ({NAME}) = {a}\n"),
            &a,
        ),
        (format!("\u{feff}{a}  {NAME}\n"), &a),
        (
            format!(
                "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n# Fedora\nSHA256 ({NAME}) = {a}\n\
                 -----BEGIN PGP SIGNATURE-----\n\n{b}  {NAME}\n-----END PGP SIGNATURE-----\n"
            ),
            &a,
        ),
        (
            format!(
                "{b}  {NAME}\r\n-----BEGIN PGP SIGNED MESSAGE-----\r\nHash: SHA512\r\n\r\n- {a}  {NAME}\r\n\
                 -----BEGIN PGP SIGNATURE-----\r\nx\r\n-----END PGP SIGNATURE-----\r\n{b}  {NAME}\r\n"
            ),
            &a,
        ),
    ];
    for (text, hex) in table {
        let found = find_checksum("SUMS", &text, NAME).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(&found.hex, hex, "{text}");
        let expected = if hex.len() == 64 {
            Algorithm::Sha256
        } else {
            Algorithm::Sha512
        };
        assert_eq!(found.algorithm, expected, "{text}");
    }
}

#[test]
fn what_is_not_listed_or_not_clear_is_refused() {
    let (a, b, c) = (a(), b(), c());
    let table = [
        (String::new(), "no sha256 or sha512"),
        ("<html>nope</html>".into(), "no sha256 or sha512"),
        (
            format!("d41d8cd98f00b204e9800998ecf8427e  {NAME}\n"),
            "no sha256 or sha512",
        ),
        (format!("{}  {NAME}\n", &a[1..]), "no sha256 or sha512"),
        (format!("{}g  {NAME}\n", &a[1..]), "no sha256 or sha512"),
        (format!("SHA512 ({NAME}) = {a}\n"), "no sha256 or sha512"),
        (format!("MD5 ({NAME}) = {a}\n"), "no sha256 or sha512"),
        (format!("{a}  my-{NAME}\n"), "doesn't list"),
        (format!("{a}  {NAME}.sig\n"), "doesn't list"),
        (format!("{a}  old/{NAME}\n"), "doesn't list"),
        (format!("{a}  DEBIAN-13.QCOW2\n"), "doesn't list"),
        (format!("{a}\n{b}\n"), "doesn't list"),
        (format!("{a}\n{b}  other\n"), "doesn't list"),
        (
            format!("{a}  {NAME}\n{b}  {NAME}\n"),
            "two different sha256",
        ),
        (
            format!("{a}  {NAME}\n{c}  {NAME}\n{}  ./{NAME}\n", "dd".repeat(64)),
            "two different sha512",
        ),
        (
            format!(
                "-----BEGIN PGP SIGNED MESSAGE-----\n\n{a}  other\n-----BEGIN PGP SIGNATURE-----\n{a}  {NAME}\n"
            ),
            "doesn't list",
        ),
    ];
    for (text, why) in table {
        let error = find_checksum("https://x/SUMS", &text, NAME).unwrap_err();
        assert!(error.message().contains(why), "{text}: {error}");
        assert!(error.message().starts_with("https://x/SUMS "), "{error}");
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Permanent, Reason::ChecksumMismatch)
        );
    }
}

#[test]
fn errors_name_what_was_there_within_bounds() {
    let a = a();
    let names: Vec<_> = (0..1000)
        .map(|n| format!("{a}  {}-{n}", "\u{1b}x".repeat(500)))
        .collect();
    let error = find_checksum("SUMS", &names.join("\n"), NAME)
        .unwrap_err()
        .to_string();
    assert!(error.contains("and 992 more"), "{error}");
    assert!(!error.contains('\u{1b}'), "{error}");
    assert!(error.len() < 8000, "{}", error.len());
    let error = find_checksum("SUMS", &format!("{a}  one\n{a}  ./two\n"), NAME).unwrap_err();
    assert_eq!(error.causes(), ["it lists \"one\", \"./two\""]);
}

#[test]
fn a_pasted_digest_is_read_in_either_case() {
    assert_eq!(
        Checksum::from_hex(&a().to_uppercase()).unwrap().to_string(),
        format!("sha256:{}", a())
    );
    assert_eq!(
        Checksum::from_hex(&c()).unwrap().algorithm,
        Algorithm::Sha512
    );
    for bad in [
        "",
        "a",
        &a()[1..],
        &format!("{}g", &a()[1..]),
        &format!(" {}", a()),
        &"ž".repeat(32),
    ] {
        assert_eq!(Checksum::from_hex(bad), None, "{bad}");
    }
}
