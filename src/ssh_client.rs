//! The configuration for the system's ssh: the instance's address, its host keys, and the way through its host. Pure.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use crate::config::{HostKeyPolicy, KeySource, SshAuth, SshTarget};

/// What a session to an instance needs.
#[derive(Debug)]
pub struct Session<'a> {
    /// What ssh is told to connect to: the instance's name.
    pub name: &'a str,
    /// The instance's ID, which its host keys are filed under.
    pub id: &'a str,
    /// Its address.
    pub ip: IpAddr,
    /// sshd's port in it.
    pub port: u16,
    /// A `known_hosts` file with its host keys; none leaves that to the person's own ssh configuration.
    pub known_hosts: Option<&'a Path>,
    /// The host to go through, and how to log in there.
    pub through: Option<(&'a SshTarget, &'a SshAuth)>,
}

/// The text of an `ssh_config` file for `ssh -F`. The person's own configuration counts after it.
pub fn config(session: &Session<'_>) -> String {
    // Options that an older OpenSSH doesn't know (KnownHostsCommand, before 8.5) end it also in blocks that don't count,
    // so this stands before all of them; and instead of the person's own line, which may have to name others.
    let mut text = String::from("# Written by egressctl for one session.\nIgnoreUnknown *\n");
    let jump = session.through.map(|_| jump_name(0));
    block(&mut text, session.name);
    option(&mut text, "HostName", &escaped(&session.ip.to_string()));
    option(&mut text, "Port", &session.port.to_string());
    option(&mut text, "ProxyJump", jump.as_deref().unwrap_or("none"));
    // A shared connection may be one to an earlier machine at this address.
    option(&mut text, "ControlPath", "none");
    if let Some(file) = session.known_hosts {
        option(&mut text, "HostKeyAlias", session.id);
        verified_by(&mut text, file);
    }
    if let Some((target, auth)) = session.through {
        jumps(&mut text, target, auth);
    }
    text.push_str("\nHost *\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n");
    text
}

/// The host and its own jump hosts, all with the provider's key and `known_hosts` file.
fn jumps(text: &mut String, target: &SshTarget, auth: &SshAuth) {
    let mut next = Some(target);
    let mut number = 0;
    while let Some(target) = next {
        block(text, &jump_name(number));
        next = target.jump.as_deref();
        number += 1;
        let jump = next.map(|_| jump_name(number));
        option(text, "HostName", &escaped(&target.address.host));
        option(text, "Port", &target.address.port.to_string());
        option(text, "User", &target.user);
        option(text, "ProxyJump", jump.as_deref().unwrap_or("none"));
        option(text, "ControlPath", "none");
        option(text, "ForwardAgent", "no");
        if let KeySource::File(key) = &auth.key {
            option(text, "IdentityFile", &escaped(&key.display().to_string()));
            option(text, "IdentitiesOnly", "yes");
        }
        match &auth.host_keys {
            HostKeyPolicy::KnownHosts(file) => verified_by(text, file),
            HostKeyPolicy::Ignore => {
                no_command(text);
                option(text, "UserKnownHostsFile", "/dev/null");
                option(text, "GlobalKnownHostsFile", "/dev/null");
                option(text, "StrictHostKeyChecking", "no");
                option(text, "LogLevel", "ERROR");
            }
        }
    }
}

/// No instance's name has an underscore.
fn jump_name(number: usize) -> String {
    format!("egressctl_host_{number}")
}

/// The keys of this file count, and no others.
fn verified_by(text: &mut String, file: &Path) {
    option(
        text,
        "UserKnownHostsFile",
        &escaped(&file.display().to_string()),
    );
    option(text, "GlobalKnownHostsFile", "/dev/null");
    option(text, "StrictHostKeyChecking", "yes");
    option(text, "UpdateHostKeys", "no");
    option(text, "VerifyHostKeyDNS", "no");
    option(text, "CheckHostIP", "no");
    no_command(text);
}

/// No command of the person's own configuration brings host keys.
fn no_command(text: &mut String) {
    option(text, "KnownHostsCommand", "none");
}

fn block(text: &mut String, name: &str) {
    // Writing to a string doesn't fail.
    let _ = writeln!(text, "\nHost {name}");
}

fn option(text: &mut String, keyword: &str, value: &str) {
    // ProxyJump takes quotes for a part of its value; only paths can need them.
    let _ = if value.contains(char::is_whitespace) {
        writeln!(text, "  {keyword} \"{value}\"")
    } else {
        writeln!(text, "  {keyword} {value}")
    };
}

/// Percent signs begin tokens in ssh's configuration.
fn escaped(value: &str) -> String {
    value.replace('%', "%%")
}

/// The lines of a `known_hosts` file for public keys as sshd keeps them: `type base64 comment`. What is no key is left
/// out: it comes from the guest.
pub fn known_hosts(id: &str, public_keys: &[String]) -> String {
    let mut text = String::new();
    for line in public_keys.iter().flat_map(|file| file.lines()) {
        let mut words = line.split_ascii_whitespace();
        let (Some(kind), Some(key)) = (words.next(), words.next()) else {
            continue;
        };
        let is_kind = |c: char| c.is_ascii_alphanumeric() || "-@.".contains(c);
        let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
        // Not a host pattern, a marker or a certificate.
        let plain =
            kind.starts_with("ssh-") || kind.starts_with("ecdsa-") || kind.starts_with("sk-");
        if plain
            && !kind.contains("cert")
            && kind.chars().all(is_kind)
            && key.chars().all(is_base64)
        {
            let _ = writeln!(text, "{id} {kind} {key}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Address;

    #[test]
    fn keys_are_filed_under_the_id_and_nothing_else_is() {
        let files = [
            "ssh-ed25519 AAAAC3Nz root@web1\n".to_owned(),
            "ecdsa-sha2-nistp256 AAAAE2Vj\n* ssh-rsa AAAA\n@cert-authority * ssh-rsa AAAA\n"
                .to_owned(),
            "ssh-ed25519-cert-v01@openssh.com AAAA\nssh-rsa A\u{1b}A\n\nssh-rsa\n".to_owned(),
        ];
        let id = "hosts/nas1/domains/web1";
        assert_eq!(
            known_hosts(id, &files),
            format!("{id} ssh-ed25519 AAAAC3Nz\n{id} ecdsa-sha2-nistp256 AAAAE2Vj\n")
        );
    }

    /// What ssh itself makes of it, for the destination and for each hop.
    fn effective(text: &str, host: &str) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let output = std::process::Command::new("ssh")
            .args(["-G", "-F", file.path().to_str().unwrap(), host])
            .env("HOME", "/nonexistent")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn ssh_understands_it() {
        let auth = SshAuth {
            key: KeySource::File("/etc/my keys/id 100%".into()),
            host_keys: HostKeyPolicy::KnownHosts("/etc/my keys/known_hosts".into()),
        };
        let target = |name: &str, port, jump| SshTarget {
            address: Address {
                host: name.to_owned(),
                port,
            },
            user: "virt".to_owned(),
            jump,
        };
        let bastion = target("bastion", 2222, None);
        let nas = target("nas1.home.lan", 22, Some(Box::new(bastion)));
        let text = config(&Session {
            name: "web1",
            id: "hosts/nas1/domains/web1",
            ip: "192.0.2.7".parse().unwrap(),
            port: 22,
            known_hosts: Some(Path::new("/tmp/x y/known_hosts")),
            through: Some((&nas, &auth)),
        });
        // Where the person's own configuration is read.
        let (rest, _) = text.split_once("\nHost *\n").unwrap();
        let text = format!(
            "{rest}\nHost elsewhere\n  NewerThanAny yes\nHost *\n  IgnoreUnknown UseKeychain\n  UseKeychain yes\n  KnownHostsCommand /bin/keys %H\n"
        );
        let has = |options: &[String], wanted: &[&str]| {
            for line in wanted {
                assert!(options.iter().any(|o| o == line), "{line}: {options:#?}");
            }
        };
        let guest = effective(&text, "web1");
        has(
            &guest,
            &[
                "hostname 192.0.2.7",
                "hostkeyalias hosts/nas1/domains/web1",
                "stricthostkeychecking true",
                "proxyjump egressctl_host_0",
                "globalknownhostsfile /dev/null",
            ],
        );
        assert!(
            !guest.iter().any(|line| line.contains("my keys")),
            "{guest:#?}"
        );
        let first = effective(&text, "egressctl_host_0");
        let asks = |options: &[String]| {
            let command = |option: &String| option.starts_with("knownhostscommand");
            options.iter().any(command)
        };
        assert!(!asks(&guest) && !asks(&first), "{guest:#?} {first:#?}");
        assert!(asks(&effective(&text, "elsewhere")));
        has(
            &first,
            &[
                "hostname nas1.home.lan",
                "user virt",
                "identitiesonly yes",
                "stricthostkeychecking true",
                "proxyjump egressctl_host_1",
            ],
        );
        has(
            &effective(&text, "egressctl_host_1"),
            &["hostname bastion", "port 2222"],
        );
        let direct = config(&Session {
            name: "web1",
            id: "hosts/nas1/domains/web1",
            ip: "2001:db8::7".parse().unwrap(),
            port: 2200,
            known_hosts: None,
            through: None,
        });
        let direct = effective(&direct, "web1");
        has(
            &direct,
            &[
                "hostname 2001:db8::7",
                "port 2200",
                "stricthostkeychecking ask",
            ],
        );
        assert!(!direct.iter().any(|line| line.starts_with("proxyjump")));
    }
}
