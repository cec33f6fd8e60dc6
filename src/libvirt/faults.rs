//! Faults on demand, for tests only (feature `fault-injection`): the process dies, the connection breaks, or libvirt
//! refuses, exactly at the Nth call of the run.
//!
//! `EGRESSCTL_FAULT` is `kill:N`, `drop:N` or `error:N`; calls are counted from 1 over all hosts and connections.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// Counts a call that is about to be made, and strikes if it is the one. An error stands for the call's own.
pub(super) fn strike(rpc: &str, link: &Link) -> Option<LibvirtError> {
    let (kind, call) = plan()?;
    if CALLS.fetch_add(1, Ordering::SeqCst) + 1 != *call {
        return None;
    }
    log::warn!("fault injected: {kind} at call {call}, {rpc}");
    match kind.as_str() {
        "kill" => {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
            None
        }
        "drop" => {
            link.close();
            None
        }
        _ => Some(LibvirtError {
            code: 1,
            domain: 10,
            int1: 0,
            message: format!("injected instead of {rpc}"),
        }),
    }
}
