//! `egressctl ssh`.

use std::fs::Permissions;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

use super::{Asked, Context};
use crate::cancel::Cancel;
use crate::cli::SshArgs;
use crate::config::Reach;
use crate::error::{Error, Reason, Result};
use crate::guest::{Agent, GuestFile};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::libvirt::Hypervisor;
use crate::reach::{self, Way};
use crate::shell;
use crate::ssh_client::{Session, config, known_hosts};

/// Where a guest keeps its public host keys, by type.
const HOST_KEYS: [&str; 3] = ["ed25519", "ecdsa", "rsa"];

/// Gives ssh's exit status, which is the command's own.
pub(super) fn run(args: &SshArgs, context: &Context<'_>) -> Asked<u8> {
    let (host, instance) = context
        .answering(&args.target)
        .map_err(|stopped| stopped.map(|error| with_user(error, &args.target.name)))?;
    let (instance, ip) = context.with_address(host, instance)?;
    // An agent that hung has cost the first connection.
    let hypervisor = host.connect()?;
    let way = reach::find(host, &*hypervisor, ip, args.port, args.via.into())
        .map_err(|error| error.on_host(host.name()))?;
    let keys = host_keys(context, host, &*hypervisor, &instance)?;
    drop(hypervisor);
    let files = Files::write(
        context,
        host,
        &instance,
        (ip, args.port),
        way,
        keys.as_deref(),
    )?;
    let mut command = Command::new("ssh");
    command.arg("-F").arg(files.config());
    if let Some(user) = &args.user {
        command.arg("-l").arg(user);
    }
    if let Some(identity) = &args.identity {
        command.arg("-i").arg(identity);
    }
    if args.tty {
        command.arg("-t");
    }
    command
        .arg("--")
        .arg(&instance.domain.name)
        .args(&args.command);
    let status = attend(&mut command, &context.cancels.work)?;
    context.cancels.work.check()?;
    Ok(code(status))
}

/// A name written as ssh itself takes it is no instance's, and what was meant is clear.
fn with_user(error: Error, name: &str) -> Error {
    match name.split_once('@') {
        Some((user, name)) if error.reason() == Reason::InvalidName && !user.is_empty() => error
            .hint(format!(
                "egressctl ssh {} -u {}",
                shell::quote(name),
                shell::quote(user)
            )),
        _ => error,
    }
}

/// The guest's host keys as its agent reads them, in the form of a `known_hosts` file; none where no agent answers.
fn host_keys(
    context: &Context<'_>,
    host: &HostSession,
    hypervisor: &dyn Hypervisor,
    instance: &Instance,
) -> Result<Option<String>> {
    let agent = Agent::new(hypervisor, &instance.domain);
    let mut files = Vec::new();
    let mut refused = None;
    for kind in HOST_KEYS {
        match read(agent, host, &format!("/etc/ssh/ssh_host_{kind}_key.pub")) {
            Ok(text) => files.push(text),
            // There is no key of that type.
            Err(error) if error.reason() == Reason::AgentRefused => refused = Some(error),
            Err(error) if error.reason() == Reason::AgentUnavailable => {
                refused = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let text = known_hosts(&instance.id(), &files);
    if !text.is_empty() {
        return Ok(Some(text));
    }
    let why = refused.map(|error| format!(": {}", error.message()));
    context.ui.warn(&format!(
        "the guest agent tells no SSH host keys, so your own known_hosts decides{}",
        why.unwrap_or_default()
    ));
    Ok(None)
}

fn read(agent: Agent<'_>, host: &HostSession, path: &str) -> Result<String> {
    let file = GuestFile::open(agent, path)?;
    let bytes = file.read(agent);
    let bytes = file.close_after(agent, host, bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What ssh reads; removed when dropped.
struct Files(tempfile::TempDir);

impl Files {
    fn write(
        context: &Context<'_>,
        host: &HostSession,
        instance: &Instance,
        (ip, port): (IpAddr, u16),
        way: Way,
        keys: Option<&str>,
    ) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::transient(Reason::LocalIo, "can't write a configuration for ssh").because(error)
        };
        let dir = tempfile::Builder::new()
            .prefix("egressctl-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(failed)?;
        let files = Files(dir);
        let known_hosts = files.0.path().join("known_hosts");
        if let Some(keys) = keys {
            std::fs::write(&known_hosts, keys).map_err(failed)?;
        }
        let through = match (&host.config().reach, way) {
            (Reach::Ssh(target), Way::Host) => Some((target, &context.provider.auth)),
            _ => None,
        };
        let text = config(&Session {
            name: &instance.domain.name,
            id: &instance.id(),
            ip,
            port,
            known_hosts: keys.map(|_| known_hosts.as_path()),
            through,
        });
        std::fs::write(files.config(), text).map_err(failed)?;
        Ok(files)
    }

    fn config(&self) -> std::path::PathBuf {
        let dir: &Path = self.0.path();
        dir.join("config")
    }
}

/// Runs it to its end. A signal for us alone is passed on; ssh restores the terminal itself.
fn attend(command: &mut Command, cancel: &Cancel) -> Result<ExitStatus> {
    cancel.check()?;
    let failed = |error: std::io::Error| {
        Error::permanent(Reason::LocalIo, "ssh can't be run")
            .because(error)
            .hint("the system's own is used: apt-get install openssh-client")
    };
    let mut child = command.spawn().map_err(failed)?;
    let pid = pid_of(&child);
    let guard = cancel.on_cancel(Box::new(move || {
        if let Some(pid) = pid {
            // It fails where the terminal's own signal was faster.
            let _ = kill_process(pid, Signal::TERM);
        }
    }));
    let status = child.wait().map_err(failed);
    drop(guard);
    status
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// As a shell has it.
fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}
