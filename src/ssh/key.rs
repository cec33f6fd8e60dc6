//! The private key file: read at every dial, and judged before the network is used.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use openssl::pkey::PKey;
use russh::keys::PrivateKey;

use super::session::Deadline;
use super::wire::{self, Reader};
use crate::cancel::Cancel;
use crate::error::{Class, Error, Reason, Result};
use crate::input;
use crate::shell;

/// The most that is read of a key file, in bytes.
const KEY_LIMIT: u64 = 1 << 20;

/// How often a passphrase is asked for.
const PROMPTS: u32 = 3;

/// How a passphrase is asked for: gets the prompt, returns the answer, or none when given up; at once when the run is
/// cancelled.
pub type Prompt<'a> = dyn Fn(&str, &Cancel) -> Option<String> + Sync + 'a;

/// A key file as it is, perhaps still encrypted. Has no `Debug` on purpose.
pub(super) struct KeyFile {
    pub(super) path: PathBuf,
    text: String,
    /// Whether it takes a passphrase.
    pub(super) encrypted: bool,
    /// Its public key, where the file or `KEY.pub` beside it tells.
    pub(super) public: Option<Vec<u8>>,
}

/// What the file's first lines say it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Private {
        encrypted: bool,
        public: Option<Vec<u8>>,
    },
    Public,
    Unsupported(&'static str),
    Garbage(&'static str),
}

impl KeyFile {
    /// Reads and judges the file.
    pub(super) fn load(path: &Path, deadline: &Deadline) -> Result<Self> {
        let bytes = read(path, deadline)?;
        // Line feeds alone are what every reader of keys takes.
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        let text = private_block(&text).unwrap_or(&text).trim();
        match classify(text) {
            Kind::Private { encrypted, public } => Ok(KeyFile {
                path: path.to_owned(),
                text: format!("{text}\n"),
                encrypted,
                public: public.or_else(|| public_beside(path, deadline)),
            }),
            kind => Err(unusable(path, &kind)),
        }
    }

    /// The key itself, once its passphrase (if it has one) is known to be right.
    pub(super) fn unlock(self, prompt: Option<&Prompt<'_>>, cancel: &Cancel) -> Result<PrivateKey> {
        if !self.encrypted {
            return decode(&self.text, None)
                .ok_or_else(|| unusable(&self.path, &Kind::Garbage("is damaged")));
        }
        let Some(prompt) = prompt else {
            return Err(
                self.locked("it is encrypted, and there is nobody to ask for its passphrase")
            );
        };
        for attempt in 1..=PROMPTS {
            let mut question = format!("Passphrase for {}: ", self.path.display());
            if attempt > 1 {
                // Another question, as whoever remembers the answers has the wrong one to the first.
                question = format!("That isn't it ({attempt} of {PROMPTS}). {question}");
            }
            let answer = prompt(&question, cancel);
            cancel.check()?;
            let Some(answer) = answer else {
                return Err(self.locked("no passphrase was given"));
            };
            if let Some(key) = decode(&self.text, Some(&answer)) {
                return Ok(key);
            }
        }
        Err(self.locked("the passphrase is wrong"))
    }

    fn locked(&self, cause: &str) -> Error {
        Error::permanent(
            Reason::KeyUnusable,
            format!("the private key {} can't be used", self.path.display()),
        )
        .because(cause)
        .hint(format!(
            "ssh-add {}",
            shell::quote(&self.path.display().to_string())
        ))
    }
}

fn read(path: &Path, deadline: &Deadline) -> Result<Vec<u8>> {
    let failed = |cause| unreadable(path, &cause, deadline);
    let (left, cancel) = (deadline.left(), deadline.cancel());
    let bytes = input::read_file_within(path, KEY_LIMIT, left, cancel, failed)?;
    let mode = std::fs::metadata(path).map_or(0o600, |data| data.permissions().mode());
    if mode & 0o077 != 0 {
        log::warn!(
            target: super::LOG_TARGET,
            "private key {} is readable by others (mode {:03o}): chmod 600 {}",
            path.display(),
            mode & 0o777,
            shell::quote(&path.display().to_string())
        );
    }
    Ok(bytes)
}

fn unreadable(path: &Path, cause: &std::io::Error, deadline: &Deadline) -> Error {
    let error = Error::transient(
        Reason::CredentialsUnavailable,
        format!("private key file {} can't be read", path.display()),
    );
    if cause.kind() == ErrorKind::TimedOut {
        let (cause, hint) = deadline.nothing_came();
        return error.because(cause).hint(hint);
    }
    let error = error.because(cause);
    match cause.kind() {
        ErrorKind::FileTooLarge => error
            .with_class(Class::Permanent)
            .with_reason(Reason::KeyUnusable)
            .hint("sshKeyFile must name the key file itself"),
        ErrorKind::NotFound => error.hint("put the key there, or correct sshKeyFile in the config"),
        ErrorKind::IsADirectory => error.hint("sshKeyFile must name the key file itself"),
        _ => error.hint(format!(
            "ls -l {}",
            shell::quote(&path.display().to_string())
        )),
    }
}

fn unusable(path: &Path, kind: &Kind) -> Error {
    let shown = path.display().to_string();
    let error =
        |what: &str| Error::permanent(Reason::KeyUnusable, format!("the key file {shown} {what}"));
    match kind {
        Kind::Public => {
            let private = shown.strip_suffix(".pub").unwrap_or("the private key file");
            error("is a public key").hint(format!("set sshKeyFile to the private key: {private}"))
        }
        Kind::Unsupported(what) => error(what)
            .hint("ssh-keygen -t ed25519 -f FILE")
            .hint("that makes a key that works; add FILE.pub to the host"),
        Kind::Garbage(what) => {
            error(what).hint(format!("check it: ssh-keygen -yf {}", shell::quote(&shown)))
        }
        Kind::Private { .. } => error("can't be used"),
    }
}

/// From the first line that begins a private key to the one that ends it. OpenSSL writes a curve's parameters before
/// it, or what a PKCS#12 file says of it.
fn private_block(text: &str) -> Option<&str> {
    let mut at = 0;
    let mut begin = None;
    for line in text.split_inclusive('\n') {
        let word = line.trim();
        if begin.is_none() && word.starts_with("-----BEGIN ") && word.ends_with("PRIVATE KEY-----")
        {
            begin = Some(at);
        }
        at += line.len();
        if let Some(begin) = begin
            && word.starts_with("-----END ")
        {
            return text.get(begin..at);
        }
    }
    text.get(begin?..)
}

/// What kind of file this is; of a private key, the block alone.
fn classify(text: &str) -> Kind {
    let text = text.trim();
    let first = text.lines().next().unwrap_or_default().trim_end();
    let pem = |encrypted| Kind::Private {
        encrypted,
        public: None,
    };
    match first {
        "" => Kind::Garbage("is empty"),
        "-----BEGIN OPENSSH PRIVATE KEY-----" => openssh(text),
        "-----BEGIN RSA PRIVATE KEY-----" | "-----BEGIN EC PRIVATE KEY-----" => {
            // RFC 1421 headers, as OpenSSL writes them.
            pem(text.contains("\nProc-Type: 4,ENCRYPTED") || text.contains("\nDEK-Info:"))
        }
        "-----BEGIN PRIVATE KEY-----" => pem(false),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----" => pem(true),
        "-----BEGIN DSA PRIVATE KEY-----" => {
            Kind::Unsupported("is a DSA key, which OpenSSH no longer accepts")
        }
        line if line.starts_with("PuTTY-User-Key-File") => {
            Kind::Unsupported("is in PuTTY's format (puttygen FILE -O private-openssh converts it)")
        }
        line if is_public(line) => Kind::Public,
        _ => Kind::Garbage("is not a private key in OpenSSH, PEM or PKCS#8 format"),
    }
}

fn is_public(first: &str) -> bool {
    let mut words = first.split_ascii_whitespace();
    let one_line = words
        .next()
        .zip(words.next())
        .is_some_and(|(key_type, base64)| wire::decode_key(key_type, base64).is_some());
    one_line
        || [
            "---- BEGIN SSH2 PUBLIC KEY ----",
            "-----BEGIN PUBLIC KEY-----",
            "-----BEGIN RSA PUBLIC KEY-----",
        ]
        .contains(&first)
}

/// OpenSSH's own container (its PROTOCOL.key): what it says without being decrypted.
fn openssh(text: &str) -> Kind {
    let damaged = Kind::Garbage("is damaged");
    let base64: String = text
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .map(str::trim)
        .collect();
    let Ok(container) = STANDARD.decode(base64) else {
        return damaged;
    };
    let mut reader = Reader::new(&container);
    let magic = reader.bytes(15);
    let (Some(b"openssh-key-v1\0"), Some(cipher), Some(_kdf), Some(_options)) =
        (magic, reader.string(), reader.string(), reader.string())
    else {
        return damaged;
    };
    let (Some(_count), Some(public)) = (reader.u32(), reader.string()) else {
        return damaged;
    };
    match wire::blob_type(public) {
        None => damaged,
        Some(kind) if kind.starts_with("sk-") => {
            Kind::Unsupported("is a FIDO security key, which is not supported")
        }
        Some("ssh-dss") => Kind::Unsupported("is a DSA key, which OpenSSH no longer accepts"),
        Some(_) => Kind::Private {
            encrypted: cipher != b"none",
            public: Some(public.to_vec()),
        },
    }
}

/// The public key in `KEY.pub`, which ssh-keygen leaves beside `KEY`.
fn public_beside(path: &Path, deadline: &Deadline) -> Option<Vec<u8>> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".pub");
    let beside = Path::new(&beside);
    let failed = |cause| unreadable(beside, &cause, deadline);
    let (left, cancel) = (deadline.left(), deadline.cancel());
    let bytes = input::read_file_within(beside, KEY_LIMIT, left, cancel, failed).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let mut words = text.split_ascii_whitespace();
    wire::decode_key(words.next()?, words.next()?)
}

/// The key, if that passphrase opens it.
///
/// OpenSSL reads what it or an old ssh-keygen wrote (PEM and PKCS#8), encrypted in any of its ways.
fn decode(text: &str, passphrase: Option<&str>) -> Option<PrivateKey> {
    if text.starts_with("-----BEGIN OPENSSH ") {
        return russh::keys::decode_secret_key(text, passphrase).ok();
    }
    let passphrase = passphrase.unwrap_or_default().as_bytes();
    // A callback, as OpenSSL would ask at the terminal by itself.
    let key = PKey::private_key_from_pem_callback(text.as_bytes(), |buffer| {
        let room = buffer.get_mut(..passphrase.len());
        Ok(room.map_or(0, |room| {
            room.copy_from_slice(passphrase);
            passphrase.len()
        }))
    });
    let plain = key.ok()?.private_key_to_pem_pkcs8().ok()?;
    russh::keys::decode_secret_key(std::str::from_utf8(&plain).ok()?, None).ok()
}

#[cfg(test)]
mod tests;
