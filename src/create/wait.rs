//! Waiting until an instance is ready: it has an address, its agent answers, cloud-init is done, a port listens.

use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::address;
use crate::error::{Class, Error, Reason, Result};
use crate::guest::Agent;
use crate::host::HostSession;
use crate::instance::Instance;
use crate::reach;

/// How often the instance is looked at.
const POLL: Duration = Duration::from_secs(2);
const AGENT_LIMIT: Duration = Duration::from_secs(5);
/// A command in the guest: without KVM, cloud-init's own start takes many seconds.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// The most that is repeated of cloud-init's status, in characters: it is one word, but the guest may say anything.
const STATUS_LENGTH: usize = 40;

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
    /// With cloud-init's result, where it was waited for.
    Ready(Option<CloudInitResult>),
    /// Not yet: what was seen.
    NotYet(String),
}

/// Waits; gives cloud-init's result, where that was waited for. `tell` gets what was seen, at each look, and the
/// instance becomes what it was then, with its addresses, also where the wait fails.
///
/// Errors: [`Reason::NotReady`] when the time is up (Transient), with what was seen last, or when cloud-init failed
/// (Permanent); [`Reason::NotRunning`] when
/// the domain stops; the instance stays in either case. [`Reason::InstanceNotFound`] (Transient) when it was deleted.
pub fn wait(
    host: &HostSession,
    instance: &mut Instance,
    what: WaitFor,
    timeout: Duration,
    tell: &dyn Fn(&str),
) -> Result<Option<CloudInitResult>> {
    let deadline = Instant::now() + timeout;
    let name = instance.domain.name.clone();
    loop {
        let seen = match look(host, instance, what, deadline, tell) {
            Ok(Look::Ready(cloud_init)) => return Ok(cloud_init),
            Ok(Look::NotYet(seen)) => seen,
            Err(error) if error.reason() == Reason::InstanceNotFound => return Err(error),
            // A connection that breaks while waiting is dialled again.
            Err(error) if error.class() == Class::Transient => error.to_string(),
            Err(error) => return Err(error.on_host(host.name())),
        };
        tell(&seen);
        if Instant::now() >= deadline {
            return Err(not_ready(host, &name, what, timeout, &seen));
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
        "egressctl console hosts/{}/domains/{name}",
        host.name()
    ))
    .hint("there it shows what it is doing")
}

fn not_running(instance: &Instance) -> Error {
    Error::permanent(
        Reason::NotRunning,
        format!(
            "instance {} is {}: there is nothing to wait for",
            instance.domain.name, instance.state
        ),
    )
}

fn vanished(instance: &Instance) -> Error {
    let what = format!("instance {} was deleted meanwhile", instance.domain.name);
    Error::transient(Reason::InstanceNotFound, what)
        .on_host(&instance.host)
        .hint("somebody deleted it: run it again to make it anew")
}

fn look(
    host: &HostSession,
    instance: &mut Instance,
    what: WaitFor,
    deadline: Instant,
    tell: &dyn Fn(&str),
) -> Result<Look> {
    let hypervisor = host.connect()?;
    // Its XML anew, too: it shows whether an agent is there by now.
    let found = hypervisor.read_domain(&instance.domain)?;
    let found = found.ok_or_else(|| vanished(instance))?;
    let defined = instance.defined.take();
    *instance = Instance::from_domain(host.name(), found)?;
    if let Some(defined) = defined {
        instance.define(*defined);
    }
    if !instance.may_have_addresses() {
        return Err(not_running(instance));
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let domain = instance.domain.clone();
    let agent =
        Agent::new(&*hypervisor, &domain).within(AGENT_LIMIT.min(left).max(Duration::from_secs(1)));
    let mut cloud_init_result = None;
    // An agent that hangs is asked for nothing else.
    match what {
        WaitFor::Ip | WaitFor::Port(_) => {}
        WaitFor::Agent => {
            if let Err(error) = agent.ping() {
                return Ok(Look::NotYet(error.nearest().to_owned()));
            }
        }
        WaitFor::CloudInit => match cloud_init(agent, deadline, tell) {
            Ok(CloudInit::Ended(result)) => cloud_init_result = Some(result),
            Ok(CloudInit::Running(status)) => return Ok(Look::NotYet(status)),
            Ok(CloudInit::Failed(error)) => {
                let id = instance.id();
                return Err(error
                    .hint(format!("egressctl logs {id}"))
                    .hint(format!("egressctl exec {id} -- cloud-init status --long")));
            }
            Err(error) => return Ok(Look::NotYet(error.nearest().to_owned())),
        },
    }
    let (addresses, asked) = address::Asker::new(host).find(instance);
    instance.addresses = addresses;
    if let (WaitFor::Port(port), Some(ip)) = (what, instance.addresses.primary()) {
        // An agent that hung has cost the first connection.
        let hypervisor = host.connect()?;
        return match reach::find(host, &*hypervisor, ip, port, None) {
            Ok(_) => Ok(Look::Ready(None)),
            Err(error) if error.reason() == Reason::Interrupted => Err(error),
            Err(error) => {
                let seen = error.causes().join("; ");
                Ok(Look::NotYet(format!("{ip} port {port}: {seen}")))
            }
        };
    }
    if instance.addresses.primary().is_none() {
        let answers: Vec<String> = asked
            .iter()
            .map(|a| format!("{}: {}", a.source.as_str(), a.answer))
            .collect();
        return Ok(Look::NotYet(answers.join("; ")));
    }
    Ok(Look::Ready(cloud_init_result))
}

/// cloud-init's result, where it came to an end without errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudInitResult {
    /// All went well.
    Done,
    /// It is done, and had to help itself in that many cases: cloud-init calls that degraded.
    Degraded(usize),
}

enum CloudInit {
    Ended(CloudInitResult),
    Running(String),
    Failed(Box<Error>),
}

/// cloud-init's own word on how it went (`cloud-init status`).
fn cloud_init(agent: Agent<'_>, deadline: Instant, tell: &dyn Fn(&str)) -> Result<CloudInit> {
    let started = agent.call(
        "guest-exec",
        &json!({ "path": "cloud-init", "arg": ["status", "--format", "json"], "capture-output": true }),
    )?;
    let pid = json!({ "pid": started["pid"] });
    // Waited for to its end: asking anew before that would fill the guest with commands that slow each other down.
    let since = Instant::now();
    let deadline = deadline.min(since + COMMAND_LIMIT);
    let ended = loop {
        let status = agent.call("guest-exec-status", &pid)?;
        if status["exited"].as_bool() == Some(true) || Instant::now() >= deadline {
            break status;
        }
        if since.elapsed() >= AGENT_LIMIT {
            tell("cloud-init takes its time to tell its status");
        }
        std::thread::sleep(Duration::from_millis(250));
    };
    let output = ended["out-data"].as_str().unwrap_or_default();
    let output = base64::engine::general_purpose::STANDARD
        .decode(output)
        .unwrap_or_default();
    let report: Value = serde_json::from_slice(&output).unwrap_or_default();
    Ok(judge(agent.name(), &report))
}

/// What a status report means: <https://docs.cloud-init.io/en/latest/explanation/return_codes.html>. Its messages
/// quote user-data, so they are counted and not shown.
fn judge(name: &str, report: &Value) -> CloudInit {
    let errors = report["errors"].as_array().map_or(0, Vec::len);
    match report["status"].as_str() {
        Some("done") if errors == 0 => CloudInit::Ended(match recoverable(report) {
            0 => CloudInitResult::Done,
            count => CloudInitResult::Degraded(count),
        }),
        Some("done" | "error") => CloudInit::Failed(Box::new(Error::permanent(
            Reason::NotReady,
            format!("cloud-init in instance {name} ended with errors ({errors})"),
        ))),
        Some("disabled") => CloudInit::Failed(Box::new(Error::permanent(
            Reason::NotReady,
            format!("cloud-init is disabled in instance {name}"),
        ))),
        Some(status) => {
            let status: String = status.chars().take(STATUS_LENGTH).collect();
            CloudInit::Running(format!("status {status}"))
        }
        None => CloudInit::Running("no status yet".to_owned()),
    }
}

/// How many errors cloud-init got over, where it calls itself degraded by them.
fn recoverable(report: &Value) -> usize {
    let by_severity = report["recoverable_errors"].as_object();
    let count: usize = by_severity
        .into_iter()
        .flat_map(|all| all.values())
        .map(|messages| messages.as_array().map_or(0, Vec::len))
        .sum();
    match report["extended_status"].as_str() {
        Some(status) if status.contains("degraded") => count.max(1),
        // Deprecations alone, say.
        Some(_) => 0,
        // Before 23.4.
        None => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_inits_result_counts_not_only_its_end() {
        let ended = |report| match judge("web1", &report) {
            CloudInit::Ended(result) => Some(result),
            _ => None,
        };
        let done = json!({"status": "done", "errors": [], "recoverable_errors": {}});
        assert_eq!(ended(done), Some(CloudInitResult::Done));
        // As Debian 12's cloud-init 22.4 has it.
        let done = json!({"status": "done", "errors": []});
        assert_eq!(ended(done), Some(CloudInitResult::Done));
        let degraded = json!({"status": "done", "extended_status": "degraded done", "errors": [],
            "recoverable_errors": {"WARNING": ["a", "b"], "DEPRECATED": ["c"]}});
        assert_eq!(ended(degraded), Some(CloudInitResult::Degraded(3)));
        let deprecated = json!({"status": "done", "extended_status": "done", "errors": [],
            "recoverable_errors": {"DEPRECATED": ["c"]}});
        assert_eq!(ended(deprecated), Some(CloudInitResult::Done));
        let degraded = json!({"status": "done", "extended_status": "degraded done", "errors": []});
        assert_eq!(ended(degraded), Some(CloudInitResult::Degraded(1)));
        for running in [json!({"status": "running"}), json!({})] {
            assert!(matches!(judge("web1", &running), CloudInit::Running(_)));
        }
        let long = json!({"status": "x".repeat(1 << 20)});
        assert!(matches!(judge("web1", &long), CloudInit::Running(status) if status.len() < 60));
        for failed in [
            json!({"status": "error", "errors": ["x"]}),
            json!({"status": "error", "errors": []}),
            json!({"status": "done", "errors": ["x"]}),
            json!({"status": "disabled"}),
        ] {
            assert!(
                matches!(judge("web1", &failed), CloudInit::Failed(_)),
                "{failed}"
            );
        }
    }
}
