//! Which process on which machine something belongs to, so that a dead owner on this machine is known at once.
//!
//! Claims and seeds carry this. From another machine (or another PID namespace) nothing can be said about a
//! process, so there only the lack of any sign of life counts.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// A process: machine, boot, PID namespace, PID and its start time, as one word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    place: String,
    pid: u32,
    started: String,
}

/// Whether a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It runs, on this machine.
    Alive,
    /// It ran on this machine, and has ended.
    Gone,
    /// It is another machine's, or nobody's that is known.
    Unknown,
}

impl Owner {
    /// This process.
    pub fn this_process() -> Self {
        let pid = std::process::id();
        Owner {
            place: place(),
            pid,
            started: start_time(pid).unwrap_or_default(),
        }
    }

    /// As one word of letters, digits and `:`.
    pub fn to_word(&self) -> String {
        format!("{}:{}:{}", self.place, self.pid, self.started)
    }

    /// Reads what [`to_word`](Self::to_word) wrote.
    pub fn parse(word: &str) -> Option<Self> {
        let mut parts = word.split(':');
        let owner = Owner {
            place: parts.next()?.to_owned(),
            pid: parts.next()?.parse().ok()?,
            started: parts.next()?.to_owned(),
        };
        parts.next().is_none().then_some(owner)
    }

    /// Whether it surely isn't running any more; false when that can't be known from here.
    pub fn is_gone(&self) -> bool {
        self.liveness() == Liveness::Gone
    }

    /// Whether it runs, as far as that can be known from here.
    pub fn liveness(&self) -> Liveness {
        if self.place.is_empty() || self.started.is_empty() || self.place != place() {
            return Liveness::Unknown;
        }
        match start_time(self.pid) {
            Some(started) if started == self.started => Liveness::Alive,
            // It, or whoever has its number now: which of them isn't shown.
            None if exists(self.pid) => Liveness::Unknown,
            Some(_) | None => Liveness::Gone,
        }
    }
}

/// Whether there is a process of that number. `/proc` may hide other users' processes (`hidepid=`, systemd's
/// `ProtectProc=`), kill(2) doesn't: it fails with EPERM.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// This machine in this boot, and the PID namespace: within it, a PID means one process.
fn place() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let text = format!(
        "{}{}{}",
        read("/etc/machine-id"),
        read("/proc/sys/kernel/random/boot_id"),
        namespace.display()
    );
    crate::image::digest::sha256_hex(text.as_bytes())[..16].to_owned()
}

/// Field 22 of `/proc/PID/stat`: the start time in clock ticks since boot (proc(5)).
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in parentheses and may hold anything: fields are counted after it.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_gone_and_a_reaped_child_is() {
        let me = Owner::this_process();
        assert_eq!(Owner::parse(&me.to_word()), Some(me.clone()));
        assert_eq!(me.liveness(), Liveness::Alive);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let owner = Owner {
            pid: child.id(),
            started: start_time(child.id()).unwrap_or("1".into()),
            ..me.clone()
        };
        child.wait().unwrap();
        assert!(owner.is_gone());
        assert!(exists(me.pid) && !exists(owner.pid) && !exists(0));
        let elsewhere = Owner {
            place: "elsewhere".into(),
            ..owner
        };
        assert_eq!(elsewhere.liveness(), Liveness::Unknown);
    }

    #[test]
    fn other_words_are_no_owners() {
        for word in ["", "a", "a:b:c", "a:1", "a:1:2:3"] {
            assert_eq!(Owner::parse(word), None, "{word}");
        }
    }
}
