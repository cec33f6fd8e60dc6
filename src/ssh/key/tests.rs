//! What key files look like, without any real key: only what stands around one.

use std::process::Command;
use std::time::Duration;

use super::*;

/// Long enough for any file.
fn soon(cancel: &Cancel) -> Deadline {
    Deadline::new(Duration::from_secs(60), cancel)
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&length[..], bytes].concat()
}

fn blob(key_type: &str) -> Vec<u8> {
    [string(key_type.as_bytes()), string(&[1; 32])].concat()
}

/// OpenSSH's container with that cipher and public key, and nothing private in it.
fn container(cipher: &str, public: &[u8]) -> String {
    let bytes = [
        b"openssh-key-v1\0".to_vec(),
        string(cipher.as_bytes()),
        string(b"none"),
        string(b""),
        1_u32.to_be_bytes().to_vec(),
        string(public),
        string(b""),
    ]
    .concat();
    armour("OPENSSH PRIVATE KEY", &STANDARD.encode(bytes))
}

fn armour(label: &str, body: &str) -> String {
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

fn private(encrypted: bool, public: Option<Vec<u8>>) -> Kind {
    Kind::Private { encrypted, public }
}

#[test]
fn formats_are_told_apart_by_their_first_lines() {
    let ed25519 = blob("ssh-ed25519");
    let legacy = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA";
    let table = [
        (
            container("none", &ed25519),
            private(false, Some(ed25519.clone())),
        ),
        (
            container("aes256-ctr", &ed25519),
            private(true, Some(ed25519.clone())),
        ),
        (
            container("none", &ed25519).replace('\n', "\r\n"),
            private(false, Some(ed25519.clone())),
        ),
        (
            format!("\n\n{}", container("none", &ed25519)),
            private(false, Some(ed25519.clone())),
        ),
        (armour("RSA PRIVATE KEY", "AAAA"), private(false, None)),
        (armour("RSA PRIVATE KEY", legacy), private(true, None)),
        (armour("EC PRIVATE KEY", "AAAA"), private(false, None)),
        (armour("EC PRIVATE KEY", legacy), private(true, None)),
        (armour("PRIVATE KEY", "AAAA"), private(false, None)),
        (armour("ENCRYPTED PRIVATE KEY", "AAAA"), private(true, None)),
        (
            format!("ssh-ed25519 {} me@here", STANDARD.encode(&ed25519)),
            Kind::Public,
        ),
        (armour("PUBLIC KEY", "AAAA"), Kind::Public),
        (
            "---- BEGIN SSH2 PUBLIC KEY ----\nAAAA\n".to_owned(),
            Kind::Public,
        ),
    ];
    for (text, wanted) in table {
        assert_eq!(classify(&text), wanted, "{text}");
    }
}

/// As [`KeyFile::load`] does.
fn load(text: &str) -> Result<KeyFile> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("id");
    std::fs::write(&path, text).unwrap();
    KeyFile::load(&path, &soon(&Cancel::new()))
}

#[test]
fn a_key_may_stand_behind_its_curve_or_other_words_and_before_a_certificate() {
    let made = |args: &[&str]| {
        let output = Command::new("openssl").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let ec = made(&["ecparam", "-name", "prime256v1", "-genkey"]);
    assert!(ec.starts_with("-----BEGIN EC PARAMETERS-----"), "{ec}");
    let (_, alone) = ec.split_once("-----END EC PARAMETERS-----\n").unwrap();
    let bag = "Bag Attributes\n    friendlyName: me\nKey Attributes: <No Attributes>\n";
    let certificate = armour("CERTIFICATE", "AAAA");
    let texts = [
        ec.clone(),
        ec.replace('\n', "\r\n"),
        format!("{bag}{alone}{certificate}"),
        format!("{certificate}{alone}"),
        format!("  \n{alone}"),
    ];
    let public = |text: &str| {
        let key = load(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let key = key.unlock(None, &Cancel::new());
        let key = key.unwrap_or_else(|error| panic!("{text}: {error}"));
        key.public_key().clone()
    };
    let expected = public(alone);
    for text in texts {
        assert_eq!(public(&text), expected, "{text}");
    }
    let locked = format!("{bag}{}", armour("ENCRYPTED PRIVATE KEY", "AAAA"));
    assert!(load(&locked).unwrap().encrypted);
    let ed25519 = container("none", &blob("ssh-ed25519"));
    assert!(load(&format!("{bag}{ed25519}{certificate}")).is_ok());
    for text in [armour("EC PARAMETERS", "AAAA"), bag.to_owned()] {
        let error = load(&text).err().unwrap();
        assert_eq!(error.reason(), Reason::KeyUnusable, "{text}");
    }
}

#[test]
fn what_cannot_work_is_named() {
    let cut = container("none", &blob("ssh-ed25519"));
    let table = [
        (String::new(), "is empty"),
        ("hello\n".to_owned(), "is not a private key"),
        ("ssh-ed25519 AAAA".to_owned(), "is not a private key"),
        (cut[..cut.len() / 2].to_owned(), "is damaged"),
        (armour("OPENSSH PRIVATE KEY", ""), "is damaged"),
        (container("none", b""), "is damaged"),
        (
            container("none", &blob("sk-ssh-ed25519@openssh.com")),
            "FIDO",
        ),
        (container("none", &blob("ssh-dss")), "DSA"),
        (armour("DSA PRIVATE KEY", "AAAA"), "DSA"),
        ("PuTTY-User-Key-File-3: ssh-ed25519\n".to_owned(), "PuTTY"),
    ];
    for (text, needle) in table {
        let kind = classify(&text);
        let error = unusable(Path::new("/k"), &kind);
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Permanent, Reason::KeyUnusable)
        );
        assert!(error.message().contains(needle), "{text}: {error}");
        assert!(error.message().contains("/k"), "{error}");
        assert!(!error.hints().is_empty(), "{error}");
    }
}

#[test]
fn a_file_that_is_too_large_is_not_read_cut_off() {
    let key = container("none", &blob("ssh-ed25519"));
    let padded = |text: &str| text.to_owned() + &"\n".repeat(1 << 20);
    let error = load(&padded(&key)).err().unwrap();
    assert_eq!(
        (error.class(), error.reason()),
        (Class::Permanent, Reason::KeyUnusable)
    );
    assert_eq!(error.causes(), ["it is larger than 1 MiB"]);
    // What is beside it counts only if all of it was read, too.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("id");
    std::fs::write(&path, armour("ENCRYPTED PRIVATE KEY", "AAAA")).unwrap();
    let line = format!("ssh-rsa {}\n", STANDARD.encode(blob("ssh-rsa")));
    std::fs::write(dir.path().join("id.pub"), padded(&line)).unwrap();
    let file = KeyFile::load(&path, &soon(&Cancel::new())).unwrap();
    assert_eq!(file.public, None);
}

#[test]
fn a_file_that_cannot_be_read_may_still_arrive() {
    for kind in [
        ErrorKind::NotFound,
        ErrorKind::PermissionDenied,
        ErrorKind::IsADirectory,
    ] {
        let error = unreadable(Path::new("/k"), &kind.into(), &soon(&Cancel::new()));
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Transient, Reason::CredentialsUnavailable)
        );
        assert!(
            error.message().contains("/k") && !error.hints().is_empty(),
            "{error}"
        );
    }
}

#[test]
fn the_public_key_is_found_beside_a_pem_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("id");
    std::fs::write(&path, armour("ENCRYPTED PRIVATE KEY", "AAAA")).unwrap();
    assert_eq!(
        KeyFile::load(&path, &soon(&Cancel::new())).unwrap().public,
        None
    );
    let public = blob("ssh-rsa");
    let line = format!("ssh-rsa {} me@here\n", STANDARD.encode(&public));
    std::fs::write(dir.path().join("id.pub"), line).unwrap();
    let file = KeyFile::load(&path, &soon(&Cancel::new())).unwrap();
    assert_eq!(
        (file.encrypted, file.public.as_ref()),
        (true, Some(&public))
    );
}

#[test]
fn a_pipe_is_read_like_a_file_and_waited_for_no_longer_than_the_dial_may_take() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = |name: &str| {
        let path = dir.path().join(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    };
    let (path, text) = (pipe("id"), armour("ENCRYPTED PRIVATE KEY", "AAAA"));
    let cancel = Cancel::new();
    let a_moment = || Deadline::new(Duration::from_millis(300), &cancel);
    let Err(error) = KeyFile::load(&path, &a_moment()) else {
        panic!("loaded");
    };
    assert_eq!(
        (error.class(), error.reason()),
        (Class::Transient, Reason::CredentialsUnavailable)
    );
    assert_eq!(error.causes(), ["nothing came from it within 300ms"]);
    assert!(error.hints()[0].contains("a pipe"), "{error}");
    // Another one, as the first has a reader still; and beside it one that nobody writes into.
    let path = pipe("other");
    pipe("other.pub");
    let file = std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&path, &text).unwrap());
        let deadline = Deadline::new(Duration::from_secs(2), &cancel);
        KeyFile::load(&path, &deadline).unwrap()
    });
    assert_eq!((file.encrypted, file.public), (true, None));
}

#[test]
fn an_encrypted_key_without_anybody_to_ask_names_ssh_add() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my id");
    std::fs::write(&path, container("aes256-ctr", &blob("ssh-ed25519"))).unwrap();
    let give_up = |_: &str, _: &Cancel| None;
    for prompt in [None, Some(&give_up as &Prompt<'_>)] {
        let cancel = Cancel::new();
        let file = KeyFile::load(&path, &soon(&cancel)).unwrap();
        let Err(error) = file.unlock(prompt, &cancel) else {
            panic!("unlocked");
        };
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Permanent, Reason::KeyUnusable)
        );
        assert_eq!(error.hints(), [format!("ssh-add '{}'", path.display())]);
    }
}
