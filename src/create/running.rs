//! Starting a domain, and telling why one that was started doesn't run.

use std::time::{Duration, Instant};

use crate::error::{Error, Reason, Result};
use crate::libvirt::{
    DomainRef, DomainState, Hypervisor, PAUSED_SHUTTING_DOWN, PAUSED_STARTING_UP, SHUTOFF_DESTROYED,
};
use crate::shell;

/// How long a delete takes at most from the end of the domain's process to the end of the domain, on a busy host.
const DELETE_TAKES: Duration = Duration::from_secs(4);

/// The time between two looks at a domain that is neither running nor gone.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the domain; one that somebody else starts, or has started, is what was wanted.
pub(super) fn start(hypervisor: &dyn Hypervisor, domain: &DomainRef) -> Result<()> {
    hypervisor.create_domain(domain).map_err(|error| {
        if error.reason() == Reason::LibvirtError && was_deleted(hypervisor, domain) {
            return deleted_meanwhile(domain).because(error);
        }
        let denied = error.causes().iter().any(|cause| cause.contains("Permission denied"));
        let error = error.while_doing(format!("starting domain {}", domain.name));
        if denied {
            error.hint("QEMU may not read the pool's files: with AppArmor allow the pool's directory in /etc/apparmor.d/local/abstractions/libvirt-qemu, with SELinux label it virt_image_t")
        } else {
            error
        }
    })
}

/// Wakes the domain, whose guest sleeps in memory.
pub(super) fn wake(hypervisor: &dyn Hypervisor, domain: &DomainRef) -> Result<()> {
    hypervisor.wake_domain(domain).map_err(|error| {
        let error = error.while_doing(format!("waking domain {}", domain.name));
        error.hint(end_it(&domain.name))
    })
}

/// What to do about a guest that doesn't wake up.
fn end_it(name: &str) -> String {
    format!(
        "on the host: virsh destroy {}; the same command again then starts it",
        shell::quote(name)
    )
}

/// Whether the domain was deleted by somebody else, who ended its process while it was being started.
fn was_deleted(hypervisor: &dyn Hypervisor, domain: &DomainRef) -> bool {
    let is_gone = || {
        let state = hypervisor.domain_state(domain);
        state.is_err_and(|error| error.reason() == Reason::InstanceNotFound)
    };
    let deadline = Instant::now() + DELETE_TAKES;
    loop {
        if is_gone() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether a domain that was just started, and was seen in this state, runs.
///
/// A KVM guest on a host whose KVM doesn't work "starts" and is paused at once; one that another run deletes is on its
/// way through several states (QEMU says that it shuts down before it ends), and a moment later gone.
///
/// Errors: [`Reason::InstanceNotFound`] (Transient) where it was deleted; [`Reason::NotRunning`], Transient where
/// somebody ended it, and Permanent where it doesn't run by itself.
pub(super) fn ensure_running(
    hypervisor: &dyn Hypervisor,
    domain: &DomainRef,
    mut state: DomainState,
) -> Result<()> {
    let deadline = Instant::now() + DELETE_TAKES;
    while is_passing(state) && Instant::now() < deadline {
        std::thread::sleep(PAUSE);
        state = match hypervisor.domain_state(domain) {
            Ok(state) => state,
            Err(error) if error.reason() == Reason::InstanceNotFound => {
                return Err(deleted_meanwhile(domain));
            }
            Err(error) => return Err(error),
        };
    }
    let name = &domain.name;
    match state {
        // Somebody else starts it, and sees it through.
        DomainState::Running
        | DomainState::Blocked
        | DomainState::NoState
        | DomainState::Paused(PAUSED_STARTING_UP) => Ok(()),
        DomainState::Shutoff(SHUTOFF_DESTROYED) | DomainState::Shutdown => Err(Error::transient(
            Reason::NotRunning,
            format!("domain {name} was started, and at once ended by somebody else: it is {state}"),
        )
        .hint("run it again to start it")),
        DomainState::PmSuspended => Err(Error::permanent(
            Reason::NotRunning,
            format!("domain {name} was woken, but sleeps on: it is {state}"),
        )
        .hint(end_it(name))),
        _ => Err(Error::permanent(
            Reason::NotRunning,
            format!("domain {name} was started, but is {state}"),
        )
        .hint(format!(
            "on the host: tail /var/log/libvirt/qemu/{name}.log"
        ))
        .hint("on the host: virt-host-validate qemu (KVM may be there and still not work)")),
    }
}

/// Whether the state may be another a moment later.
fn is_passing(state: DomainState) -> bool {
    match state {
        DomainState::Paused(reason) => [PAUSED_STARTING_UP, PAUSED_SHUTTING_DOWN].contains(&reason),
        DomainState::Shutdown
        | DomainState::Shutoff(_)
        | DomainState::Crashed
        | DomainState::PmSuspended => true,
        _ => false,
    }
}

fn deleted_meanwhile(domain: &DomainRef) -> Error {
    let what = format!(
        "domain {} was deleted while it was being started",
        domain.name
    );
    Error::transient(Reason::InstanceNotFound, what)
}
