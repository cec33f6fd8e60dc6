//! Asking for a key's passphrase: on the terminal only, without showing it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions};

use super::plain::one_line;
use super::terminal::Changed;
use crate::cancel::{Cancel, Wake};

/// Asks on the controlling terminal; `None` where there is none, for an empty answer, and once the run is cancelled.
pub fn passphrase(question: &str, cancel: &Cancel) -> Option<String> {
    let wake = Arc::new(Wake::new().ok()?);
    let waker = Arc::clone(&wake);
    let _guard = cancel.on_cancel(Box::new(move || waker.wake()));
    if cancel.is_set() {
        return None;
    }
    let mut terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    // Before the question, as an answer may come at once.
    let silent = Changed::to(terminal.as_fd(), OptionalActions::Flush, |modes| {
        modes.local_modes.remove(LocalModes::ECHO);
    });
    let silent = silent.ok()?;
    write!(terminal, "{}", one_line(question)).ok()?;
    let answer = line(&terminal, &wake);
    drop(silent);
    // The line's own end wasn't shown, nor that of an interrupted one.
    writeln!(terminal).ok()?;
    answer.filter(|answer| !answer.is_empty())
}

/// One line without its end; `None` when woken, and for what isn't text.
fn line(terminal: &File, wake: &Wake) -> Option<String> {
    let mut typed = Vec::new();
    let mut buffer = [0; 4096];
    // A read gives a line, or what was typed before Ctrl-D: more may come, unless that was nothing.
    while !typed.ends_with(b"\n") {
        let mut fds = [
            PollFd::new(wake, PollFlags::IN),
            PollFd::new(terminal, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) if !fds[0].revents().is_empty() => return None,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        match rustix::io::read(terminal, &mut buffer) {
            Ok(0) => break,
            Ok(count) => typed.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    let text = String::from_utf8(typed).ok()?;
    Some(text.trim_end_matches(['\r', '\n']).to_owned())
}
