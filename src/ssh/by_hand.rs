//! Command lines for the person, about a server or the way to it: through its jump hosts, each word quoted. Pure, but
//! for a look whether a file is there.

use std::path::Path;

use crate::config::SshTarget;
use crate::shell::quote;

/// ssh-keyscan(1) for a key of that type, as the last of the jump hosts runs it: by itself it goes through none.
pub(super) fn keyscan(target: &SshTarget, key_type: &str) -> String {
    let address = &target.address;
    let port = match address.port {
        22 => String::new(),
        port => format!("-p {port} "),
    };
    let scan = |host: &str| format!("ssh-keyscan {port}-t {key_type} {host}");
    let host = quote(&address.host);
    let Some(last) = &target.jump else {
        return scan(&host);
    };
    let before = last.jump.as_ref().map(|jump| {
        let chain = chain(jump);
        format!("-J {} ", quote(&chain))
    });
    let port = match last.address.port {
        22 => String::new(),
        port => format!("-p {port} "),
    };
    format!(
        "ssh {}{port}{} {}",
        before.unwrap_or_default(),
        quote(&format!("{}@{}", last.user, last.address.host)),
        // The jump host's shell takes quotes away, too.
        scan(&quote(&host))
    )
}

/// ssh-copy-id(1) for that key file, or for every key of the agent.
pub(super) fn copy_id(target: &SshTarget, key: Option<&Path>) -> String {
    let identity = key.map(|key| {
        let (make, public) = public_key(key);
        format!("{make}ssh-copy-id -i {public} ")
    });
    let through = target.jump.as_ref().map(|jump| {
        let option = format!("ProxyJump={}", chain(jump));
        format!("-o {} ", quote(&option))
    });
    format!(
        "{}-p {} {}{}",
        identity.unwrap_or_else(|| "ssh-copy-id ".to_owned()),
        target.address.port,
        through.unwrap_or_default(),
        quote(&format!("{}@{}", target.user, target.address.host)),
    )
}

/// The file of the public key as a word, and the command that makes it where it isn't there.
fn public_key(key: &Path) -> (String, String) {
    let mut public = key.as_os_str().to_owned();
    public.push(".pub");
    let public = Path::new(&public);
    let word = quote(&public.display().to_string());
    let make = matches!(public.try_exists(), Ok(false)).then(|| {
        let key = quote(&key.display().to_string());
        format!("ssh-keygen -y -f {key} > {word} && ")
    });
    (make.unwrap_or_default(), word)
}

/// The jump hosts up to this one, as ssh's `-J` takes them.
fn chain(last: &SshTarget) -> String {
    // ssh takes percent signs (of an IPv6 address's scope) for its own.
    let host = last.address.host.replace('%', "%%");
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let port = match last.address.port {
        22 => String::new(),
        port => format!(":{port}"),
    };
    let hop = format!("{}@{host}{port}", last.user);
    match &last.jump {
        Some(before) => format!("{},{hop}", chain(before)),
        None => hop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Address;

    fn target(user: &str, host: &str, port: u16, jump: Option<SshTarget>) -> SshTarget {
        SshTarget {
            address: Address {
                host: host.to_owned(),
                port,
            },
            user: user.to_owned(),
            jump: jump.map(Box::new),
        }
    }

    #[test]
    fn keys_are_scanned_from_the_last_jump_host() {
        let bastion = target("me", "bastion", 2222, None);
        let inner = target(r"CORP\alice", "fe80::1%eth0", 22, Some(bastion.clone()));
        let table = [
            (None, 22, "ssh-keyscan -t rsa nas1"),
            (None, 2200, "ssh-keyscan -p 2200 -t rsa nas1"),
            (
                Some(bastion),
                2200,
                "ssh -p 2222 me@bastion ssh-keyscan -p 2200 -t rsa nas1",
            ),
            (
                Some(inner.clone()),
                22,
                r"ssh -J me@bastion:2222 'CORP\alice@fe80::1%eth0' ssh-keyscan -t rsa nas1",
            ),
            (
                Some(target("virt", "third", 22, Some(inner))),
                22,
                r"ssh -J 'me@bastion:2222,CORP\alice@[fe80::1%%eth0]' virt@third ssh-keyscan -t rsa nas1",
            ),
        ];
        for (jump, port, expected) in table {
            assert_eq!(
                keyscan(&target("virt", "nas1", port, jump), "rsa"),
                expected
            );
        }
    }

    #[test]
    fn keys_are_copied_through_the_jump_hosts_and_from_a_file_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("my id");
        let shown = key.display();
        let bastion = target("me", "bastion", 2222, None);
        let nas = target("a$(id)", "nas1", 22, Some(bastion));
        let copy = format!(
            "ssh-copy-id -i '{shown}.pub' -p 22 -o ProxyJump=me@bastion:2222 'a$(id)@nas1'"
        );
        assert_eq!(
            copy_id(&nas, Some(&key)),
            format!("ssh-keygen -y -f '{shown}' > '{shown}.pub' && {copy}")
        );
        std::fs::write(dir.path().join("my id.pub"), "").unwrap();
        assert_eq!(copy_id(&nas, Some(&key)), copy);
        assert_eq!(
            copy_id(&target("virt", "nas1", 22, None), None),
            "ssh-copy-id -p 22 virt@nas1"
        );
    }

    /// ssh reads the chain as it is meant.
    #[test]
    fn ssh_understands_the_chain() {
        let first = target("me", "2001:db8::1", 2222, None);
        let second = target(r"CORP\alice", "fe80::1%eth0", 22, Some(first));
        let jump = format!("ProxyJump={}", chain(&second));
        let output = std::process::Command::new("ssh")
            .args(["-G", "-F", "none", "-o", &jump, "nas1"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let read = text.lines().find(|line| line.starts_with("proxyjump "));
        assert_eq!(
            read,
            Some(r"proxyjump me@[2001:db8::1]:2222,CORP\alice@[fe80::1%%eth0]"),
            "{text}"
        );
    }
}
