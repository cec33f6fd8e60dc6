//! Faults on demand, for tests only (feature `fault-injection`): the process dies, the connection breaks, or libvirt
//! refuses, exactly at the Nth call of the run.
//!
//! `EGRESSCTL_FAULT` is `KIND:N`, at the Nth call over all hosts and connections, or `KIND:RPC:N`, at the first N calls
//! of that name, or `KIND:RPC:=N`, at the Nth of them. The kinds:
//!
//! - `kill`: the process dies.
//! - `drop`: the connection breaks before the call.
//! - `lost`: it breaks after the call; the daemon did what was asked, and nobody heard.
//! - `error`: an error of no special kind.
//! - `flag`: as a daemon says that is too old for a flag.
//! - `busy`: as it says of a volume that another stream still has.
//! - `hang`: no answer, until the connection is closed.
//! - `pause`: before the call, as long as there is a file `EGRESSCTL_GATE`, for at most a minute. The same file with the
//!   extension `reached` says that somebody waits.
//! - `sleep`: after the call the process is suspended, until it gets a SIGCONT.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::closing::Streams;
use super::error::LibvirtError;
use crate::ssh::Link;

static CALLS: AtomicU32 = AtomicU32::new(0);
static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

/// Which calls are struck, and how.
struct Plan {
    kind: String,
    rpc: Option<String>,
    number: u32,
    /// All calls before the Nth are struck, too.
    first: bool,
}

impl Plan {
    fn read() -> Option<Self> {
        let text = std::env::var("EGRESSCTL_FAULT").ok()?;
        let words: Vec<&str> = text.split(':').collect();
        let (kind, rpc, number) = match words[..] {
            [kind, number] => (kind, None, number),
            [kind, rpc, number] => (kind, Some(rpc.to_owned()), number),
            _ => return None,
        };
        let exactly = number.strip_prefix('=');
        Some(Plan {
            kind: kind.to_owned(),
            first: rpc.is_some() && exactly.is_none(),
            rpc,
            number: exactly.unwrap_or(number).parse().ok()?,
        })
    }

    /// Counts the call, and says whether it is struck.
    fn strikes(&self, rpc: &str) -> bool {
        if self.rpc.as_ref().is_some_and(|wanted| wanted != rpc) {
            return false;
        }
        let number = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
        number == self.number || (self.first && number < self.number)
    }
}

/// Makes one call, and strikes if it is the one.
pub(super) fn around<T>(
    rpc: &str,
    link: &Link,
    streams: &Streams,
    call: impl FnOnce() -> Result<T, LibvirtError>,
) -> Result<T, LibvirtError> {
    let Some(plan) = PLAN.get_or_init(Plan::read) else {
        return call();
    };
    if !plan.strikes(rpc) {
        return call();
    }
    let (kind, number) = (plan.kind.as_str(), plan.number);
    log::warn!("fault injected: {kind} at call {number}, {rpc}");
    let failure = |code, domain| LibvirtError {
        code,
        domain,
        int1: 0,
        message: format!("injected at {rpc}"),
    };
    if ["kill", "drop", "lost"].contains(&kind) {
        // Another thread's download, cut off, can hang libvirtd itself: that is its fault, not what is tested here.
        streams.wait();
    }
    match kind {
        "kill" => {
            signal(rustix::process::Signal::KILL);
            call()
        }
        "sleep" => {
            let done = call();
            signal(rustix::process::Signal::STOP);
            done
        }
        "drop" => {
            link.close();
            // The link's own thread closes it: the call shall find it closed.
            std::thread::sleep(Duration::from_millis(50));
            call()
        }
        // VIR_FROM_RPC: the client lost its connection.
        "lost" => {
            let _ = call();
            link.close();
            Err(failure(1, 7))
        }
        "hang" => {
            while !link.is_closed() {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(failure(1, 7))
        }
        "pause" => {
            wait_at_gate();
            call()
        }
        // VIR_ERR_OPERATION_INVALID of VIR_FROM_STORAGE
        "busy" => Err(LibvirtError {
            message: "volume is still in use.".to_owned(),
            ..failure(55, 18)
        }),
        // VIR_ERR_INVALID_ARG
        "flag" => Err(failure(8, 10)),
        _ => Err(failure(1, 10)),
    }
}

fn wait_at_gate() {
    let Some(gate) = std::env::var_os("EGRESSCTL_GATE").map(PathBuf::from) else {
        return;
    };
    let _ = std::fs::write(gate.with_extension("reached"), "");
    let end = Instant::now() + Duration::from_secs(60);
    while gate.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(signal: rustix::process::Signal) {
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
}
