//! Faults on demand, for tests only (feature `fault-injection`): the process dies, the connection breaks, or libvirt
//! refuses, exactly at the Nth call of the run.
//!
//! `EGRESSCTL_FAULT` is `kill:N`, `drop:N` (the connection breaks before the call), `lost:N` (after it: the daemon
//! did what was asked, and nobody heard) or `error:N`; calls are counted from 1 over all hosts and connections.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::closing::Downloads;
use super::error::LibvirtError;
use crate::ssh::Link;

static CALLS: AtomicU32 = AtomicU32::new(0);
static PLAN: OnceLock<Option<(String, u32)>> = OnceLock::new();

fn plan() -> Option<&'static (String, u32)> {
    let read = || {
        let plan = std::env::var("EGRESSCTL_FAULT").ok()?;
        let (kind, call) = plan.split_once(':')?;
        Some((kind.to_owned(), call.parse().ok()?))
    };
    PLAN.get_or_init(read).as_ref()
}

/// Makes one call, and strikes if it is the one.
pub(super) fn around<T>(
    rpc: &str,
    link: &Link,
    downloads: &Downloads,
    call: impl FnOnce() -> Result<T, LibvirtError>,
) -> Result<T, LibvirtError> {
    let Some((kind, number)) = plan() else {
        return call();
    };
    if CALLS.fetch_add(1, Ordering::SeqCst) + 1 != *number {
        return call();
    }
    log::warn!("fault injected: {kind} at call {number}, {rpc}");
    let failure = |domain| LibvirtError {
        code: 1,
        domain,
        int1: 0,
        message: format!("injected at {rpc}"),
    };
    if kind != "error" {
        // Another thread's download, cut off, can hang libvirtd itself: that is its fault, not what is tested here.
        downloads.wait();
    }
    match kind.as_str() {
        "kill" => {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
            call()
        }
        "drop" => {
            link.close();
            // The link's own thread closes it: the call shall find it closed.
            std::thread::sleep(std::time::Duration::from_millis(50));
            call()
        }
        // VIR_FROM_RPC: the client lost its connection.
        "lost" => {
            let _ = call();
            link.close();
            Err(failure(7))
        }
        _ => Err(failure(10)),
    }
}
