//! How long things may take: the defaults, and `$EGRESSCTL_LIMITS` for networks and hosts that need others. And how
//! many files may be open.

use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, Reason, Result};
use crate::libvirt::Limits;
use crate::parallel::lock;

/// The environment variable that sets limits: `dial=10 rpc=30 start=90 stream=60 agent=10`, in whole seconds; any of
/// them may be left out.
pub const VARIABLE: &str = "EGRESSCTL_LIMITS";

/// The longest limit that may be set, in seconds: a day. What takes longer hangs.
const MOST: u64 = 86_400;

/// The time limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// All stages of dialling a host, jump hosts included.
    pub dial: Duration,
    /// The calls to libvirt.
    pub calls: Limits,
}

impl Default for TimeLimits {
    fn default() -> Self {
        TimeLimits {
            dial: Duration::from_secs(10),
            calls: Limits::default(),
        }
    }
}

impl TimeLimits {
    /// From the variable's value, if it is set. Errors: Usage, naming the word that is wrong.
    pub fn parse(text: Option<&str>) -> Result<Self> {
        let mut limits = TimeLimits::default();
        for word in text.unwrap_or_default().split([' ', ',']) {
            if word.is_empty() {
                continue;
            }
            let (name, value) = word.split_once('=').ok_or_else(|| wrong(word))?;
            let seconds = value.parse().map_err(|_| wrong(word))?;
            if !(1..=MOST).contains(&seconds) {
                return Err(wrong(word));
            }
            let limit = match name {
                "dial" => &mut limits.dial,
                "rpc" => &mut limits.calls.rpc,
                "start" => &mut limits.calls.start,
                "stream" => &mut limits.calls.stream,
                "agent" => &mut limits.calls.agent,
                _ => return Err(wrong(word)),
            };
            *limit = Duration::from_secs(seconds);
        }
        Ok(limits)
    }
}

/// Raises this process's soft limit on open files to the hard one (getrlimit(2), `RLIMIT_NOFILE`).
///
/// A host takes about ten descriptors while it is asked: the usual soft limit of 1,024 would end at a hundred hosts.
/// Where the system refuses, it stays as it was.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::debug!("the limit on open files stays {limit:?}: {error}");
    }
}

/// Files that opening one connection takes at most: its sockets, an event loop's, and those that are open only while libvirt's
/// client library is loaded and reads its own configuration. Ten stay open.
const OF_A_CONNECTION: u64 = 16;

/// Connections that are being opened right now.
static OPENING: Mutex<u64> = Mutex::new(0);

/// Room for the files of one connection that is being opened.
#[derive(Debug)]
pub struct FileRoom(());

impl FileRoom {
    /// Takes it; to be kept until the connection is open. libvirt's client library is built on `GLib`, which ends the
    /// whole process where it can't open a file (`g_wakeup_new`): so nobody may get that far.
    ///
    /// Errors: Transient, [`Reason::LocalIo`].
    pub fn take() -> Result<Self> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let mut opening = lock(&OPENING);
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
        if open + (*opening + 1) * OF_A_CONNECTION > limit {
            let what = format!("this process may have {limit} files open, and {open} of them are");
            let error = Error::transient(Reason::LocalIo, what);
            return Err(
                error.hint("ulimit -n, or systemd's LimitNOFILE=: about ten for each host, and 30")
            );
        }
        *opening += 1;
        Ok(FileRoom(()))
    }
}

impl Drop for FileRoom {
    fn drop(&mut self) {
        *lock(&OPENING) -= 1;
    }
}

fn wrong(word: &str) -> Error {
    Error::usage(
        Reason::BadArgument,
        format!("{VARIABLE} has {word:?}, which sets no time limit"),
    )
    .hint("as in: EGRESSCTL_LIMITS='dial=10 rpc=30 start=90 stream=60 agent=10', in seconds")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    #[test]
    fn what_isnt_set_keeps_its_default() {
        let defaults = TimeLimits::default();
        assert_eq!(TimeLimits::parse(None).unwrap(), defaults);
        assert_eq!(TimeLimits::parse(Some("")).unwrap(), defaults);
        let set = TimeLimits::parse(Some(" rpc=5,stream=7 dial=1")).unwrap();
        assert_eq!(set.dial, Duration::from_secs(1));
        assert_eq!(set.calls.rpc, Duration::from_secs(5));
        assert_eq!(set.calls.stream, Duration::from_secs(7));
        assert_eq!(set.calls.start, defaults.calls.start);
        assert_eq!(set.calls.agent, defaults.calls.agent);
    }

    #[test]
    fn what_cant_be_a_limit_is_named() {
        for word in [
            "rpc",
            "rpc=",
            "rpc=0",
            "rpc=-1",
            "rpc=5s",
            "rpc=99999999",
            "calls=5",
            "=5",
        ] {
            let error = TimeLimits::parse(Some(&format!("dial=5 {word}"))).unwrap_err();
            assert_eq!(error.class(), Class::Usage, "{word}");
            assert!(error.message().contains(word), "{error}");
        }
    }
}
