//! A person at a guest's serial console: keys to the guest, the guest's bytes to the person, until one of them leaves.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::Builder;

use rustix::event::{PollFd, PollFlags, poll};

use crate::cancel::{Cancel, Wake};
use crate::error::{Error, Reason, Result};
use crate::libvirt::Console;
use crate::parallel::no_thread;

/// `^]`, as telnet and virsh have it.
const ESCAPE: u8 = 0x1d;

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The person left: the escape key, or no more input or output.
    Left,
    /// The other end closed it: the domain stopped, or somebody took the console.
    Closed,
}

/// Connects the two until one leaves. `keys` is where the person types, if they may; `show` gets what the guest
/// writes, and says whether anybody still reads.
///
/// Errors: [`Reason::Interrupted`], a lost connection, or what `show` fails with.
pub fn attend(
    console: &dyn Console,
    keys: Option<BorrowedFd<'_>>,
    show: &(dyn Fn(&[u8]) -> Result<bool> + Sync),
    cancel: &Cancel,
) -> Result<End> {
    let wake = Arc::new(Wake::new()?);
    let waker = Arc::clone(&wake);
    let _guard = cancel.on_cancel(Box::new(move || waker.wake()));
    std::thread::scope(|scope| {
        let showing = Builder::new().spawn_scoped(scope, || {
            // Also wakes when `show` panics.
            let _waker = WakeOnDrop(&wake);
            show_all(console, show)
        });
        let showing = showing.map_err(|cause| no_thread(&cause))?;
        let typed = type_all(console, keys, &wake);
        console.close();
        let shown = showing.join();
        cancel.check()?;
        match (typed, shown) {
            // Whatever receiving met then is only the closing itself.
            (Ok(Some(end)), _) => Ok(end),
            (Err(error), _) => Err(error),
            (Ok(None), Ok(shown)) => shown,
            (Ok(None), Err(panic)) => std::panic::resume_unwind(panic),
        }
    })
}

fn show_all(console: &dyn Console, show: &(dyn Fn(&[u8]) -> Result<bool> + Sync)) -> Result<End> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let count = console.receive(&mut buffer)?;
        if count == 0 {
            return Ok(End::Closed);
        }
        if !show(&buffer[..count])? {
            return Ok(End::Left);
        }
    }
}

/// Types until the person leaves; `None` where it was the other side that ended it.
fn type_all(
    console: &dyn Console,
    keys: Option<BorrowedFd<'_>>,
    wake: &Wake,
) -> Result<Option<End>> {
    let mut buffer = [0; 4096];
    loop {
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        if let Some(keys) = keys {
            fds.push(PollFd::from_borrowed_fd(keys, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(unreadable(error)),
        }
        if !fds[0].revents().is_empty() {
            return Ok(None);
        }
        let Some(keys) = keys else { continue };
        let count = match rustix::io::read(keys, &mut buffer) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            // The terminal has hung up.
            Err(rustix::io::Errno::IO) => 0,
            Err(error) => return Err(unreadable(error)),
        };
        let (wanted, leaves) = until_escape(&buffer[..count]);
        console.send(wanted)?;
        if leaves || count == 0 {
            return Ok(Some(End::Left));
        }
    }
}

/// The keys for the guest, and whether the escape key came after them.
fn until_escape(keys: &[u8]) -> (&[u8], bool) {
    match keys.iter().position(|key| *key == ESCAPE) {
        Some(place) => (&keys[..place], true),
        None => (keys, false),
    }
}

fn unreadable(error: rustix::io::Errno) -> Error {
    Error::transient(Reason::LocalIo, "the terminal can't be read").because(error)
}

struct WakeOnDrop<'a>(&'a Wake);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A guest that says what it is told to, and notes what is typed.
    struct Guest {
        says: Mutex<Receiver<&'static [u8]>>,
        typed: Mutex<Vec<u8>>,
        closed: (Mutex<bool>, Condvar),
    }

    impl Guest {
        fn new() -> (Self, Sender<&'static [u8]>) {
            let (sender, says) = channel();
            let guest = Guest {
                says: Mutex::new(says),
                typed: Mutex::default(),
                closed: (Mutex::new(false), Condvar::new()),
            };
            (guest, sender)
        }
    }

    impl Console for Guest {
        fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
            if let Ok(bytes) = self.says.lock().unwrap().recv() {
                buffer[..bytes.len()].copy_from_slice(bytes);
                return Ok(bytes.len());
            }
            // Silent from now on.
            let closed = self.closed.0.lock().unwrap();
            drop(self.closed.1.wait_while(closed, |closed| !*closed).unwrap());
            Err(Error::transient(Reason::ConnectionLost, "closed"))
        }

        fn send(&self, data: &[u8]) -> Result<()> {
            self.typed.lock().unwrap().extend_from_slice(data);
            Ok(())
        }

        fn close(&self) {
            *self.closed.0.lock().unwrap() = true;
            self.closed.1.notify_all();
        }
    }

    fn keys(typed: &[u8]) -> std::io::PipeReader {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(typed).unwrap();
        reader
    }

    #[test]
    fn the_escape_key_leaves_and_is_not_typed() {
        let (guest, _) = Guest::new();
        let keys = keys(b"ls\x1dnot this");
        let cancel = Cancel::new();
        let end = attend(&guest, Some(keys.as_fd()), &|_| Ok(true), &cancel);
        assert_eq!(end.unwrap(), End::Left);
        assert_eq!(*guest.typed.lock().unwrap(), b"ls");
        assert!(*guest.closed.0.lock().unwrap());
    }

    #[test]
    fn the_guests_end_and_a_reader_who_is_gone_end_it() {
        for (reads, expected) in [(true, End::Closed), (false, End::Left)] {
            let (guest, sender) = Guest::new();
            sender.send(b"boot").unwrap();
            sender.send(b"").unwrap();
            let shown = Mutex::new(Vec::new());
            let show = |bytes: &[u8]| {
                shown.lock().unwrap().extend_from_slice(bytes);
                Ok(reads)
            };
            let end = attend(&guest, None, &show, &Cancel::new());
            assert_eq!(end.unwrap(), expected);
            assert_eq!(*shown.lock().unwrap(), b"boot");
        }
    }

    #[test]
    fn a_signal_and_a_lost_connection_are_errors() {
        let (guest, _) = Guest::new();
        let cancel = Cancel::new();
        cancel.set(15);
        let error = attend(&guest, None, &|_| Ok(true), &cancel).unwrap_err();
        assert_eq!(error.reason(), Reason::Interrupted);
        let (guest, _) = Guest::new();
        guest.close();
        let error = attend(&guest, None, &|_| Ok(true), &Cancel::new()).unwrap_err();
        assert_eq!(error.reason(), Reason::ConnectionLost);
    }
}
