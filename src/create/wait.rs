//! Waiting until an instance is ready: it has an address, its agent answers, cloud-init is done, a port listens.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::address;
use crate::error::{Class, Error, Reason, Result};
use crate::host::HostSession;
use crate::instance::Instance;
use crate::libvirt::{DomainRef, Hypervisor};

/// How often the instance is looked at.
const POLL: Duration = Duration::from_secs(2);
const AGENT_LIMIT: Duration = Duration::from_secs(5);
/// A command in the guest: without KVM, cloud-init's own start takes many seconds.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
const PORT_LIMIT: Duration = Duration::from_secs(2);

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// An address is known.
    Ip,
    /// The guest agent answers.
    Agent,
    /// cloud-init is done.
    CloudInit,
    /// This TCP port listens.
    Port(u16),
}

impl std::fmt::Display for WaitFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WaitFor::Ip => f.write_str("an address"),
            WaitFor::Agent => f.write_str("the guest agent"),
            WaitFor::CloudInit => f.write_str("cloud-init"),
            WaitFor::Port(port) => write!(f, "port {port}"),
        }
    }
}

/// How one look ended.
enum Look {
    Ready(Box<Instance>),
    /// Not yet: what was seen.
    NotYet(String),
}

/// Waits; gives the instance back with its addresses.
///
/// Errors: [`Reason::NotReady`] (Transient) when the time is up, with what was seen last; [`Reason::NotRunning`] when
/// the domain stops; the instance stays in either case.
pub fn wait(
    host: &HostSession,
    instance: &Instance,
    what: WaitFor,
    timeout: Duration,
    tell: &dyn Fn(&str),
) -> Result<Instance> {
    let deadline = Instant::now() + timeout;
    let name = &instance.domain.name;
    let mut told = String::new();
    loop {
        let seen = match look(host, instance, what, deadline) {
            Ok(Look::Ready(instance)) => return Ok(*instance),
            Ok(Look::NotYet(seen)) => seen,
            // A connection that breaks while waiting is dialled again.
            Err(error) if error.class() == Class::Transient => error.to_string(),
            Err(error) => return Err(error.on_host(host.name())),
        };
        if seen != told {
            tell(&format!("{name}: waiting for {what}: {seen}"));
            told = seen;
        }
        if Instant::now() >= deadline {
            return Err(not_ready(host, name, what, timeout, &told));
        }
        host.cancels().work.wait(POLL);
        host.cancels().work.check()?;
    }
}

fn not_ready(
    host: &HostSession,
    name: &str,
    what: WaitFor,
    timeout: Duration,
    seen: &str,
) -> Error {
    Error::transient(
        Reason::NotReady,
        format!(
            "instance {name} runs, but {what} wasn't ready within {} s",
            timeout.as_secs()
        ),
    )
    .on_host(host.name())
    .because(format!("seen last: {seen}"))
    .hint(format!(
        "the instance was kept; on the host: virsh console {name}"
    ))
}

fn look(host: &HostSession, instance: &Instance, what: WaitFor, deadline: Instant) -> Result<Look> {
    let hypervisor = host.connect()?;
    let state = hypervisor.domain_state(&instance.domain)?;
    let mut now = Instance {
        state,
        ..instance.clone()
    };
    if !now.may_have_addresses() {
        return Err(Error::permanent(
            Reason::NotRunning,
            format!(
                "instance {} is {state}: there is nothing to wait for",
                now.domain.name
            ),
        ));
    }
    let (addresses, asked) = address::find(&*hypervisor, &now);
    now.addresses = addresses;
    match what {
        WaitFor::Ip => {}
        WaitFor::Agent => {
            if let Err(error) = agent(&*hypervisor, &now.domain, "guest-ping", &json!({})) {
                return Ok(Look::NotYet(cause(&error)));
            }
        }
        WaitFor::CloudInit => match cloud_init(&*hypervisor, &now.domain, deadline) {
            Ok(CloudInit::Done) => {}
            Ok(CloudInit::Running(status)) => return Ok(Look::NotYet(status)),
            Ok(CloudInit::Failed(error)) => return Err(*error),
            Err(error) => return Ok(Look::NotYet(cause(&error))),
        },
        WaitFor::Port(port) => {
            if let Some(ip) = now.addresses.primary() {
                return Ok(match knock(ip, port) {
                    Ok(()) => Look::Ready(Box::new(now)),
                    Err(error) => Look::NotYet(format!("{ip} port {port}: {error}")),
                });
            }
        }
    }
    if now.addresses.primary().is_none() {
        let answers: Vec<String> = asked
            .iter()
            .map(|a| format!("{}: {}", a.source.as_str(), a.answer))
            .collect();
        return Ok(Look::NotYet(answers.join("; ")));
    }
    Ok(Look::Ready(Box::new(now)))
}

fn cause(error: &Error) -> String {
    error
        .causes()
        .first()
        .map_or(error.message(), String::as_str)
        .to_owned()
}

fn knock(ip: IpAddr, port: u16) -> std::io::Result<()> {
    TcpStream::connect_timeout(&SocketAddr::new(ip, port), PORT_LIMIT).map(drop)
}

/// One guest-agent command (QEMU's qemu-ga-ref).
fn agent(
    hypervisor: &dyn Hypervisor,
    domain: &DomainRef,
    command: &str,
    arguments: &Value,
) -> Result<Value> {
    let request = json!({ "execute": command, "arguments": arguments }).to_string();
    let answer = hypervisor.agent_command(domain, &request, AGENT_LIMIT)?;
    let answer: Value = serde_json::from_str(&answer).map_err(|error| {
        Error::transient(Reason::LibvirtError, "the guest agent's answer is no JSON").because(error)
    })?;
    Ok(answer["return"].clone())
}

enum CloudInit {
    Done,
    Running(String),
    Failed(Box<Error>),
}

/// cloud-init's own word on how it went (`cloud-init status`).
fn cloud_init(
    hypervisor: &dyn Hypervisor,
    domain: &DomainRef,
    deadline: Instant,
) -> Result<CloudInit> {
    let started = agent(
        hypervisor,
        domain,
        "guest-exec",
        &json!({ "path": "cloud-init", "arg": ["status", "--format", "json"], "capture-output": true }),
    )?;
    let pid = json!({ "pid": started["pid"] });
    // Waited for to its end: asking anew before that would fill the guest with commands that slow each other down.
    let deadline = deadline.min(Instant::now() + COMMAND_LIMIT);
    let ended = loop {
        let status = agent(hypervisor, domain, "guest-exec-status", &pid)?;
        if status["exited"].as_bool() == Some(true) || Instant::now() >= deadline {
            break status;
        }
        std::thread::sleep(Duration::from_millis(250));
    };
    let output = ended["out-data"].as_str().unwrap_or_default();
    let output = base64::engine::general_purpose::STANDARD
        .decode(output)
        .unwrap_or_default();
    let report: Value = serde_json::from_slice(&output).unwrap_or_default();
    Ok(judge(&domain.name, &report))
}

/// What a status report means: <https://docs.cloud-init.io/en/latest/explanation/return_codes.html>.
fn judge(name: &str, report: &Value) -> CloudInit {
    let errors = report["errors"].as_array().map_or(0, Vec::len);
    match report["status"].as_str() {
        Some("done") if errors == 0 => CloudInit::Done,
        Some("done" | "error") => CloudInit::Failed(Box::new(
            Error::permanent(
                Reason::NotReady,
                format!("cloud-init in instance {name} ended with errors ({errors})"),
            )
            .hint("in the guest: cloud-init status --long, and /var/log/cloud-init-output.log"),
        )),
        Some("disabled") => CloudInit::Failed(Box::new(Error::permanent(
            Reason::NotReady,
            format!("cloud-init is disabled in instance {name}"),
        ))),
        Some(status) => CloudInit::Running(format!("status {status}")),
        None => CloudInit::Running("no status yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_inits_result_counts_not_only_its_end() {
        let judged = |report| judge("web1", &report);
        assert!(matches!(
            judged(json!({"status": "done", "errors": []})),
            CloudInit::Done
        ));
        assert!(matches!(
            judged(json!({"status": "running"})),
            CloudInit::Running(_)
        ));
        assert!(matches!(judged(json!({})), CloudInit::Running(_)));
        assert!(matches!(
            judged(json!({"status": "error", "errors": ["x"]})),
            CloudInit::Failed(_)
        ));
        assert!(matches!(
            judged(json!({"status": "done", "errors": ["x"]})),
            CloudInit::Failed(_)
        ));
    }
}
