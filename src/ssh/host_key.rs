//! Which host keys to ask for, and whether the one offered may be trusted.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use russh::keys::{Algorithm, EcdsaCurve, HashAlg};

use super::by_hand;
use super::known_hosts::{self, KnownHosts, KnownKey, Verdict};
use super::session::Deadline;
use super::wire;
use crate::config::{Address, HostKeyPolicy, SshTarget};
use crate::error::{Class, Error, Reason, Result};
use crate::input;
use crate::shell;

/// The most that is read of a `known_hosts` file, in bytes.
const KNOWN_HOSTS_LIMIT: u64 = 64 << 20;

/// Key types in the order we prefer without other knowledge, each with the algorithms that use it. Never
/// certificates: we know no authorities.
const KEY_TYPES: [(&str, &[Algorithm]); 5] = [
    ("ssh-ed25519", &[Algorithm::Ed25519]),
    ("ecdsa-sha2-nistp256", &[ecdsa(EcdsaCurve::NistP256)]),
    ("ecdsa-sha2-nistp384", &[ecdsa(EcdsaCurve::NistP384)]),
    ("ecdsa-sha2-nistp521", &[ecdsa(EcdsaCurve::NistP521)]),
    ("ssh-rsa", &[rsa(HashAlg::Sha512), rsa(HashAlg::Sha256)]),
];

const fn ecdsa(curve: EcdsaCurve) -> Algorithm {
    Algorithm::Ecdsa { curve }
}

const fn rsa(hash: HashAlg) -> Algorithm {
    Algorithm::Rsa { hash: Some(hash) }
}

/// How the host's key is verified, with the `known_hosts` file as it is now.
pub(super) enum Verifier {
    /// By what this file says.
    Known { file: PathBuf, hosts: KnownHosts },
    /// Not at all, as configured.
    Ignore,
}

impl Verifier {
    /// Reads the `known_hosts` file, before the network is used; `target` is the host that it is read for.
    pub(super) fn load(
        policy: &HostKeyPolicy,
        target: &SshTarget,
        deadline: &Deadline,
    ) -> Result<Self> {
        let file = match policy {
            HostKeyPolicy::Ignore => return Ok(Verifier::Ignore),
            HostKeyPolicy::KnownHosts(file) => file,
        };
        let failed = |cause| unreadable(file, target, &cause, deadline);
        let (left, cancel) = (deadline.left(), deadline.cancel());
        let bytes = input::read_file_within(file, KNOWN_HOSTS_LIMIT, left, cancel, failed)?;
        let hosts = KnownHosts::parse(&String::from_utf8_lossy(&bytes));
        if !hosts.skipped_lines().is_empty() {
            log::warn!(
                target: super::LOG_TARGET,
                "{}: unreadable lines skipped: {}",
                file.display(),
                line_list(hosts.skipped_lines())
            );
        }
        Ok(Verifier::Known {
            file: file.clone(),
            hosts,
        })
    }

    /// The algorithms to ask for: of the key types known for the host first, so that the server doesn't offer
    /// another one.
    pub(super) fn algorithms(&self, address: &Address) -> Vec<Algorithm> {
        algorithms(&match self {
            Verifier::Ignore => Vec::new(),
            Verifier::Known { hosts, .. } => hosts.known_types(&address.host, address.port),
        })
    }

    /// Refuses the key that the server proved to own unless the file says it is the host's.
    pub(super) fn verify(&self, blob: &[u8], target: &SshTarget) -> Result<()> {
        match self {
            Verifier::Ignore => {
                log::warn!(
                    target: super::LOG_TARGET,
                    "host key of {} not verified (insecureIgnoreHostKey): {}",
                    target.address,
                    wire::fingerprint(blob)
                );
                Ok(())
            }
            Verifier::Known { file, hosts } => judge(hosts, file, target, blob),
        }
    }
}

fn unreadable(
    file: &Path,
    target: &SshTarget,
    cause: &std::io::Error,
    deadline: &Deadline,
) -> Error {
    let path = shell::quote(&file.display().to_string());
    let error = Error::transient(
        Reason::CredentialsUnavailable,
        format!("known_hosts file {} can't be read", file.display()),
    );
    if cause.kind() == ErrorKind::TimedOut {
        let (cause, hint) = deadline.nothing_came();
        return error.because(cause).hint(hint);
    }
    let error = error.because(cause);
    match cause.kind() {
        ErrorKind::FileTooLarge => error
            .with_class(Class::Permanent)
            .hint("knownHostsFile must name a known_hosts file"),
        ErrorKind::NotFound => with_scan(error, target, "ssh-ed25519", file),
        _ => error.hint(format!("ls -l {path}")),
    }
}

/// The algorithms of the known types first, then the others.
fn algorithms(known: &[String]) -> Vec<Algorithm> {
    let rank = |key_type: &str| known.iter().position(|known| known == key_type);
    let mut types = KEY_TYPES;
    types.sort_by_key(|(key_type, _)| rank(key_type).unwrap_or(usize::MAX));
    types
        .iter()
        .flat_map(|(_, algorithms)| algorithms.iter().cloned())
        .collect()
}

fn judge(hosts: &KnownHosts, file: &Path, target: &SshTarget, blob: &[u8]) -> Result<()> {
    let address = &target.address;
    let name = known_hosts::host_name(&address.host, address.port);
    let key_type = wire::blob_type(blob).unwrap_or("unknown");
    let offered = format!("{key_type} {}", wire::fingerprint(blob));
    let file_name = file.display();
    let error = match hosts.verdict(&address.host, address.port, blob) {
        Verdict::Match => return Ok(()),
        Verdict::Revoked { line } => {
            return Err(Error::permanent(
                Reason::HostKeyRevoked,
                format!("the host key of {name} is revoked"),
            )
            .because(format!("it offered {offered}"))
            .because(format!("line {line} of {file_name} marks that key @revoked"))
            .hint("give the host a new key, or find out who answers at its address"));
        }
        Verdict::Unknown { known } if known.is_empty() => {
            Error::permanent(Reason::HostKeyUnknown, format!("unknown host {name}"))
                .because(format!("it offered {offered}"))
                .because(format!("{file_name} has no key for it"))
        }
        Verdict::Unknown { known } => Error::permanent(
            Reason::HostKeyUnknown,
            format!("no {key_type} key is known for {name}"),
        )
        .because(format!("it offered {offered}"))
        .because(format!("{file_name} has {}", key_list(&known))),
        Verdict::OnlyCa { lines } => {
            Error::permanent(Reason::HostKeyUnknown, format!("unknown host {name}"))
                .because(format!("it offered {offered}"))
                .because(format!(
                    "{file_name} has only @cert-authority entries for it (line {}), which are not supported",
                    line_list(&lines)
                ))
        }
        Verdict::Mismatch { known } => {
            let error = Error::permanent(
                Reason::HostKeyMismatch,
                format!("the host key of {name} is not the known one: somebody may be listening in"),
            )
            .because(format!("it offered {offered}"))
            .because(format!("{file_name} has {}", key_list(&known)))
            .hint(format!(
                "only if the host's key was changed on purpose: ssh-keygen -R {} -f {}",
                shell::quote(&name),
                shell::quote(&file_name.to_string())
            ));
            return Err(with_scan(error, target, key_type, file));
        }
    };
    Err(with_scan(error, target, key_type, file))
}

fn key_list(keys: &[KnownKey]) -> String {
    keys.iter()
        .map(|key| format!("{} {} (line {})", key.key_type, key.fingerprint, key.line))
        .collect::<Vec<_>>()
        .join(", ")
}

fn line_list(lines: &[usize]) -> String {
    let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
    lines.join(", ")
}

/// With the line that adds the key by ssh-keyscan(1), to a file whose directory may not be there yet, and how to be sure of
/// it.
fn with_scan(error: Error, target: &SshTarget, key_type: &str, file: &Path) -> Error {
    let short = match key_type {
        "ssh-rsa" => "rsa",
        ecdsa if ecdsa.starts_with("ecdsa-") => "ecdsa",
        _ => "ed25519",
    };
    let directory = file.parent().filter(|directory| {
        !directory.as_os_str().is_empty() && matches!(directory.try_exists(), Ok(false))
    });
    let make = directory.map(|directory| {
        let directory = shell::quote(&directory.display().to_string());
        format!("mkdir -p -m 700 {directory} && ")
    });
    error
        .hint(format!(
            "{}{} >> {}",
            make.unwrap_or_default(),
            by_hand::keyscan(target, short),
            shell::quote(&file.display().to_string())
        ))
        .hint(format!(
            "before you trust it, compare its fingerprint with what the host says: \
             ssh-keygen -lf /etc/ssh/ssh_host_{short}_key.pub"
        ))
}

#[cfg(test)]
mod tests;
