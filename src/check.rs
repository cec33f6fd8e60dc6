//! Looking a host over: how far a connection gets, and what an instance would miss. Reads only, but for having libvirt read
//! the pool's directory anew.

mod storage;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::config::{Firmware, Nic, Provider};
use crate::error::{ASK_CHECK, Class, Error, Reason, Result};
use crate::facts::{self, Emulator, NicState};
use crate::host::HostSession;
use crate::libvirt::Hypervisor;
use crate::{parallel, units};

use storage::find_images;
pub use storage::{CachedImage, PoolReport};

/// A name look-up that takes this long has run into the resolver's time-outs.
const SLOW_HOSTNAME: Duration = Duration::from_secs(4);

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something is to be mended: instances can't be made, or not as they should be (each start takes longer, or none can
    /// have a time to live).
    Error,
    /// Instances can be made, but something is worth knowing.
    Warning,
}

/// One thing found.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Whether it may go away by itself: the class of the error behind it.
    pub class: Class,
    /// The stable word.
    pub reason: Reason,
    /// What is wrong.
    pub message: String,
    /// Underlying causes.
    pub causes: Vec<String>,
    /// What to do.
    pub hints: Vec<String>,
}

/// What was found on one host.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostReport {
    /// The stage that failed: resolve, connect, handshake, host key, credentials, authenticate, forward, permission, libvirt
    /// and others; `all` where the host could be asked.
    pub stage: &'static str,
    /// libvirt's version.
    pub libvirt_version: Option<String>,
    /// QEMU's version.
    pub qemu_version: Option<String>,
    /// The host's own name.
    pub hostname: Option<String>,
    /// The pool, where it is there.
    pub pool: Option<PoolReport>,
    /// The base images in the pool, where it could be looked into.
    pub images: Option<Vec<CachedImage>>,
    /// The bridge or network, where it was found.
    pub nic: Option<String>,
    /// `kvm` or `qemu`.
    pub accelerator: Option<&'static str>,
    /// What instances can boot with.
    pub firmware: Vec<&'static str>,
    /// How far the host's clock is ahead of this machine's, in seconds.
    pub clock_skew_seconds: Option<i64>,
    /// The machine's own UUID.
    #[serde(skip)]
    pub machine: Option<String>,
    /// Everything wrong.
    pub problems: Vec<Problem>,
}

impl Problem {
    /// It as an error that says its word, too, for people.
    pub fn told(&self, host: &str) -> Error {
        let message = format!("{}: {}", self.reason, self.message);
        let error = Error::new(self.class, self.reason, message).on_host(host);
        let error = self.causes.iter().fold(error, Error::because);
        self.hints.iter().fold(error, Error::hint)
    }
}

impl HostReport {
    /// Whether nothing is to be mended: no problem is an error.
    pub fn is_healthy(&self) -> bool {
        self.problems
            .iter()
            .all(|problem| problem.severity != Severity::Error)
    }

    fn add(&mut self, severity: Severity, error: &Error) {
        self.problems.push(Problem {
            severity,
            class: error.class(),
            reason: error.reason(),
            message: error.message().to_owned(),
            causes: error.causes().to_vec(),
            // Nobody who just did that is sent to do it.
            hints: error
                .hints()
                .iter()
                .map(|hint| hint.strip_suffix(ASK_CHECK).unwrap_or(hint).to_owned())
                .collect(),
        });
    }

    /// Keeps a value, or notes why there is none.
    fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(Severity::Error, &error);
                None
            }
        }
    }
}

/// Looks the host over, on a connection of its own.
pub fn check(host: &HostSession, provider: &Provider) -> HostReport {
    let mut report = HostReport::default();
    report.take(provider.ensure_met());
    let hypervisor = match host.connect_apart() {
        Ok(hypervisor) => hypervisor,
        Err(error) => {
            report.stage = failed_stage(&error);
            report.add(Severity::Error, &error);
            return report;
        }
    };
    report.stage = "all";
    let hypervisor = &*hypervisor;
    if let Some(versions) = report.take(hypervisor.versions()) {
        report.libvirt_version = Some(units::version(versions.libvirt));
        report.qemu_version = Some(units::version(versions.hypervisor));
        report.take(facts::ensure_libvirt(versions.libvirt));
    }
    let volumes = storage::check_pool(&mut report, host, hypervisor);
    // What else there is to ask takes longer than to read some markers.
    let (images, ()) = parallel::both(
        || volumes.map(|all| find_images(hypervisor, host.pool(), &all, &provider.images)),
        || {
            check_nic(&mut report, host, hypervisor);
            check_emulator(&mut report, host, provider, hypervisor);
            check_clock(&mut report, hypervisor);
            report.machine = facts::machine(hypervisor).ok().flatten();
            check_hostname(&mut report, hypervisor);
        },
    );
    report.images = images.and_then(|images| report.take(images)).flatten();
    report
}

/// Warns where several of these hosts are one machine: each of its domains is then seen once for each.
pub fn warn_of_same_machines(reports: &mut [(String, HostReport)]) {
    let mut first_of: BTreeMap<String, String> = BTreeMap::new();
    for (host, report) in reports {
        let Some(machine) = report.machine.clone() else {
            continue;
        };
        let first = first_of.entry(machine).or_insert_with(|| host.clone());
        if first != host {
            let error = Error::permanent(
                Reason::SameMachine,
                format!("by its UUID it is the same machine as host {first}"),
            )
            .hint("leave one of the two out of the providers file")
            .hint("two machines of one UUID: set host_uuid in /etc/libvirt/libvirtd.conf on one of them");
            report.add(Severity::Warning, &error);
        }
    }
}

/// The stage that an error belongs to: some reasons say it; a time limit can pass at any.
fn failed_stage(error: &Error) -> &'static str {
    match error.reason() {
        Reason::ResolveFailed => "resolve",
        Reason::ConnectFailed => "connect",
        Reason::HandshakeFailed => "handshake",
        Reason::HostKeyUnknown | Reason::HostKeyMismatch | Reason::HostKeyRevoked => "host key",
        Reason::CredentialsUnavailable | Reason::KeyUnusable => "credentials",
        Reason::AuthenticationFailed => "authenticate",
        Reason::ForwardingRefused | Reason::SocketNotFound => "forward",
        Reason::PermissionDenied => "permission",
        Reason::LibvirtUnavailable => "libvirt",
        _ => error.stage().unwrap_or("connection"),
    }
}

fn check_nic(report: &mut HostReport, host: &HostSession, hypervisor: &dyn Hypervisor) {
    let nic = &host.config().nic;
    let Some(state) = report.take(facts::nic_state(hypervisor, nic)) else {
        return;
    };
    let (Nic::Bridge(name) | Nic::Network(name)) = nic;
    report.nic = match &state {
        NicState::Present => Some(name.clone()),
        NicState::Unknown => Some(format!("{name}?")),
        NicState::Missing(_) | NicState::Inactive => None,
    };
    report.take(facts::ensure_nic(&state, host.config()));
}

fn check_emulator(
    report: &mut HostReport,
    host: &HostSession,
    provider: &Provider,
    hypervisor: &dyn Hypervisor,
) {
    let found = facts::emulator(hypervisor, host.config().virt_type);
    let Some(emulator) = report.take(found) else {
        return;
    };
    report.accelerator = Some(emulator.accelerator.as_str());
    if emulator.fell_back {
        report.add(Severity::Warning, &fell_back());
    }
    report.firmware = firmware(&emulator);
    let wants_uefi = provider
        .images
        .iter()
        .any(|image| image.firmware == Firmware::Uefi)
        || provider.images.is_empty();
    if wants_uefi {
        report.take(facts::ensure_firmware(&emulator, Firmware::Uefi));
    }
}

fn firmware(emulator: &Emulator) -> Vec<&'static str> {
    let mut offered = vec![Firmware::Bios.as_str()];
    if emulator.capabilities.has_plain_efi() {
        offered.push(Firmware::Uefi.as_str());
    }
    offered
}

/// What `virtType: auto` on a host without KVM means.
pub fn fell_back() -> Error {
    Error::permanent(
        Reason::NoKvm,
        "the host has no KVM: instances run in software emulation, many times slower",
    )
    .hint(
        "enable virtualization in its firmware; or set virtType: qemu, and this is no longer said",
    )
}

fn check_clock(report: &mut HostReport, hypervisor: &dyn Hypervisor) {
    // A host that allows no command keeps its clock to itself.
    let Ok(Some(skew)) = facts::clock_offset(hypervisor) else {
        return;
    };
    report.clock_skew_seconds = Some(skew);
    if !facts::clocks_agree(skew) {
        let order = if skew > 0 { "ahead of" } else { "behind" };
        let apart = skew.unsigned_abs();
        let error = Error::permanent(
            Reason::ClockSkew,
            format!("the host's clock is {apart} s {order} this machine's"),
        )
        .hint("synchronise both clocks, for example with systemd-timesyncd or chrony");
        report.add(Severity::Error, &error);
    }
}

/// Last of all: on a host that can't resolve its own name this takes as long as the resolver's time-outs.
fn check_hostname(report: &mut HostReport, hypervisor: &dyn Hypervisor) {
    let started = Instant::now();
    report.hostname = report.take(hypervisor.hostname());
    let took = started.elapsed();
    if took >= SLOW_HOSTNAME {
        let error = Error::permanent(
            Reason::HostnameUnresolvable,
            format!(
                "the host can't resolve its own name: every start takes {} s longer",
                took.as_secs()
            ),
        )
        .hint("on the host: add its name to /etc/hosts, as in 127.0.1.1 nas1");
        report.add(Severity::Error, &error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_two_hosts_is_warned_of_once() {
        let of = |host: &str, machine: Option<&str>| {
            let machine = machine.map(str::to_owned);
            let report = HostReport {
                machine,
                ..HostReport::default()
            };
            (host.to_owned(), report)
        };
        let mut reports = [
            of("a", Some("1")),
            of("b", Some("2")),
            of("c", None),
            of("d", Some("1")),
            of("e", None),
        ];
        warn_of_same_machines(&mut reports);
        let counts = reports.iter().map(|(_, report)| report.problems.len());
        assert!(counts.eq([0, 0, 0, 1, 0]), "{reports:?}");
        let (_, report) = &reports[3];
        assert!(report.problems[0].message.ends_with("host a"));
        assert!(report.is_healthy());
    }

    #[test]
    fn nobody_is_sent_where_they_come_from() {
        let mut report = HostReport::default();
        let error = Error::transient(Reason::TimedOut, "no answer")
            .hint(format!("it may hang{ASK_CHECK}"))
            .hint("egressctl list");
        report.add(Severity::Error, &error);
        assert_eq!(report.problems[0].hints, ["it may hang", "egressctl list"]);
        let told = report.problems[0].told("nas1");
        assert_eq!(told.to_string(), "nas1: TimedOut: no answer");
        assert_eq!(told.class(), Class::Transient);
    }

    #[test]
    fn a_warning_leaves_a_host_healthy() {
        let mut report = HostReport::default();
        report.add(Severity::Warning, &fell_back());
        assert!(report.is_healthy());
        report.add(Severity::Error, &fell_back());
        assert!(!report.is_healthy());
    }
}
