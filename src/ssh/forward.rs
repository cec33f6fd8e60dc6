//! Why the way to a socket can't be opened, found out as far as the host tells.

use std::fmt::{self, Display};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use super::link::Link;
use super::tcp::NOBODY_THERE;
use crate::config::Address;
use crate::error::{Error, Reason};
use crate::shell;

/// What the probe's answer begins with, to tell it from a login shell's own output.
const MARK: &str = "egressctl-socket:";

/// The error for a unix socket that the server wouldn't connect to.
///
/// sshd says "connect failed" for a missing socket, for one that may not be used, and (with
/// `AllowTcpForwarding no`) for forwarding that is switched off: a probe on the host tells which.
pub(super) fn refused(link: &Link, socket: &str, cause: &str) -> Error {
    if !cause.contains("connect failed") {
        return forwarding_refused(socket).because(cause);
    }
    let user = link.user().unwrap_or_default();
    match probe(link, socket).as_deref() {
        Some("missing") => missing(socket),
        Some("denied") => denied(socket, user),
        Some("silent") => silent(socket).because(cause),
        Some("listening") => forwarding_refused(socket).because(cause),
        _ => Error::transient(
            Reason::ForwardingRefused,
            format!("the host doesn't connect us to {socket}"),
        )
        .because(cause)
        .hint(format!(
            "either there is no such socket: ls -l {}",
            shell::quote(socket)
        ))
        .hint(FORWARDING_HINT),
    }
}

const FORWARDING_HINT: &str = "sshd on the host must have AllowStreamLocalForwarding and \
    AllowTcpForwarding set to yes or local, and no DisableForwarding (sshd -T shows them)";

fn forwarding_refused(socket: &str) -> Error {
    Error::permanent(
        Reason::ForwardingRefused,
        format!("sshd refuses to forward to the unix socket {socket}"),
    )
    .hint(FORWARDING_HINT)
}

fn missing(socket: &str) -> Error {
    Error::transient(
        Reason::SocketNotFound,
        format!("there is no socket {socket} on the host"),
    )
    .hint("systemctl enable --now libvirtd.socket")
    .hint("with modular daemons: systemctl enable --now virtproxyd.socket")
}

fn denied(socket: &str, user: &str) -> Error {
    Error::permanent(
        Reason::PermissionDenied,
        format!("{user} may not use the socket {socket}"),
    )
    .hint(format!(
        "as root, on the host: usermod -aG libvirt {}",
        shell::quote(user)
    ))
}

fn silent(socket: &str) -> Error {
    Error::transient(
        Reason::LibvirtUnavailable,
        format!("nobody listens on the socket {socket}"),
    )
    .hint("systemctl restart libvirtd.socket")
    .hint("with modular daemons: systemctl restart virtproxyd.socket")
}

/// What the host says about the socket: missing, denied, silent or listening.
fn probe(link: &Link, socket: &str) -> Option<String> {
    let output = link.exec(&probe_command(socket), link.open_limit()).ok()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = stdout.lines().find_map(|line| line.strip_prefix(MARK))?;
    Some(answer.trim().to_owned())
}

/// A POSIX shell command; /proc/net/unix has flag 00010000 for sockets that listen.
fn probe_command(socket: &str) -> String {
    let path = Path::new(socket);
    let base = path.file_name().unwrap_or_default().to_string_lossy();
    let parent = path.parent().unwrap_or(Path::new("/")).to_string_lossy();
    format!(
        "s={}; d={}; if test -S \"$s\"; then \
         if ! test -w \"$s\"; then echo {MARK}denied; \
         elif ! test -r /proc/net/unix; then echo {MARK}unknown; \
         elif grep ' 00010000 ' /proc/net/unix | grep -F -q {}; then echo {MARK}listening; \
         else echo {MARK}silent; fi; \
         elif test -d \"$d\" && ! test -x \"$d\"; then echo {MARK}denied; \
         else echo {MARK}missing; fi",
        shell::quote(socket),
        shell::quote(&parent),
        shell::quote(&format!("/{base}")),
    )
}

/// The error for a socket of this machine.
pub(super) fn local(socket: &str, cause: &std::io::Error) -> Error {
    match cause.kind() {
        ErrorKind::NotFound => missing(socket).because(cause),
        ErrorKind::PermissionDenied => {
            let user = std::env::var("USER").unwrap_or_else(|_| "$USER".into());
            denied(socket, &user).because(cause)
        }
        _ => silent(socket).because(cause),
    }
}

/// What a host that makes a TCP connection for us is to us.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    /// It is on the way to another host.
    Jump,
    /// An instance's.
    Host,
}

impl Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Jump => "jump host",
            Role::Host => "host",
        })
    }
}

/// The error for a TCP connection that a host wouldn't make.
pub(super) fn tcp_refused(role: Role, peer: &str, address: &Address, cause: &str) -> Error {
    if cause.contains("prohibited") {
        return Error::permanent(
            Reason::ForwardingRefused,
            format!("{role} {peer} refuses to forward to {address}"),
        )
        .because(cause)
        .hint(format!(
            "sshd on the {role} must have AllowTcpForwarding yes or local (and see PermitOpen)"
        ));
    }
    Error::transient(
        Reason::ConnectFailed,
        format!("{role} {peer} can't connect to {address}"),
    )
    .because(cause)
    .hint(format!(
        "on the {role}: nc -vz {} {}",
        shell::quote(&address.host),
        address.port
    ))
}

/// The error for a TCP connection that a host began, and that came to nothing in that time.
pub(super) fn tcp_silent(role: Role, peer: &str, address: &Address, limit: Duration) -> Error {
    Error::transient(
        Reason::ConnectFailed,
        format!("{role} {peer}: no answer from {address}"),
    )
    .because(format!("it waited {limit:.1?}"))
    .hint(NOBODY_THERE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::here;
    use super::*;

    /// Runs the probe here, where the tests decide what it finds.
    fn answer(socket: &Path) -> String {
        let command = probe_command(&socket.display().to_string());
        let output = here::exec(&command, Duration::from_secs(10)).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().strip_prefix(MARK).unwrap().to_owned()
    }

    /// The same as a user without rights: as nobody where we are root, who may do everything.
    fn answer_to_others(socket: &Path) -> String {
        std::fs::set_permissions(socket, PermissionsExt::from_mode(0o000)).unwrap();
        let command = probe_command(&socket.display().to_string());
        let quoted = shell::quote(&command);
        let command = format!(
            "if test $(id -u) = 0; then setpriv --reuid 65534 --clear-groups sh -c {quoted}; \
             else {command}; fi"
        );
        let output = here::exec(&command, Duration::from_secs(10)).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().strip_prefix(MARK).unwrap().to_owned()
    }

    #[test]
    fn the_probe_tells_missing_silent_and_listening_sockets_apart() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let path = dir.path().join("it's a socket");
        assert_eq!(answer(&path), "missing");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(answer(&path), "listening");
        assert_eq!(answer_to_others(&path), "denied");
        drop(listener);
        assert_eq!(answer(&path), "silent");
        assert_eq!(answer(&dir.path().join("none/s")), "missing");
    }
}
