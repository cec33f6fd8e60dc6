//! A terminal that nobody sits at: programs get one side of it, a test has the other.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Both sides, and what is written on the programs' side, as it comes.
pub(crate) struct Pty {
    /// What is written here, somebody types. Once it is dropped, the terminal is closed.
    pub(crate) keys: Arc<File>,
    /// The programs' side.
    pub(crate) side: OwnedFd,
    /// What the screen shows.
    pub(crate) output: Receiver<Vec<u8>>,
}

impl Pty {
    /// A new one; it is nobody's controlling terminal yet.
    pub(crate) fn open() -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let flags =
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let side = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
        let keys = Arc::new(File::from(ours));
        let (sender, output) = channel();
        let open = Arc::downgrade(&keys);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Some(screen) = open.upgrade() {
                // Not for long: this keeps the terminal open.
                let moment = Timespec {
                    tv_sec: 0,
                    tv_nsec: 50_000_000,
                };
                let mut fds = [PollFd::new(&*screen, PollFlags::IN)];
                if matches!(poll(&mut fds, Some(&moment)), Ok(0)) {
                    continue;
                }
                let Ok(count @ 1..) = (&*screen).read(&mut buffer) else {
                    break;
                };
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Pty { keys, side, output }
    }

    /// For a program's stdin, stdout or stderr.
    pub(crate) fn stdio(&self) -> Stdio {
        Stdio::from(self.side.try_clone().unwrap())
    }
}
