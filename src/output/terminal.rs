//! The terminal in another mode, for a guest's console or a passphrase; it is given back as it was however the run ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::error::{Error, Reason, Result};
use crate::parallel::lock;

/// The terminals whose modes are changed now, and how they were before; the latest last.
static BEFORE: Mutex<Vec<(File, Termios)>> = Mutex::new(Vec::new());

/// A terminal's modes, changed until this is dropped, also by a panic.
pub(super) struct Changed(());

impl Changed {
    /// Changes the modes; `when` says what becomes of what was typed before.
    pub(super) fn to(
        terminal: BorrowedFd<'_>,
        when: OptionalActions,
        change: impl FnOnce(&mut Termios),
    ) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut modes = before.clone();
        change(&mut modes);
        // Noted first: a signal may end the process at any time.
        let noted = File::from(terminal.try_clone_to_owned()?);
        changed().push((noted, before));
        let guard = Changed(());
        tcsetattr(terminal, when, &modes)?;
        Ok(guard)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        give_back(&mut changed());
    }
}

/// The terminal at stdin in raw mode, where every key goes to the guest, until this is dropped.
pub struct RawTerminal {
    _changed: Changed,
}

impl RawTerminal {
    /// Errors: [`Reason::LocalIo`] where stdin is no terminal.
    pub fn enter() -> Result<Self> {
        // What was typed meanwhile is for the guest.
        let changed = Changed::to(io::stdin().as_fd(), OptionalActions::Now, Termios::make_raw);
        match changed {
            Ok(changed) => Ok(RawTerminal { _changed: changed }),
            Err(error) => {
                let what = "the terminal can't be made raw";
                Err(Error::permanent(Reason::LocalIo, what).because(error))
            }
        }
    }
}

/// Makes the terminal what it was before any change; nothing where it is that already. For whoever is about to end the
/// process.
pub fn restore() {
    let mut changed = changed();
    while !changed.is_empty() {
        give_back(&mut changed);
    }
}

/// Takes the latest change back, if there is one.
fn give_back(changed: &mut Vec<(File, Termios)>) {
    if let Some((terminal, before)) = changed.pop() {
        // Fails only where the terminal is gone. `Flush` drops keys typed for the guest, or half a passphrase, which the
        // shell would run.
        let _ = tcsetattr(&terminal, OptionalActions::Flush, &before);
    }
}

fn changed() -> MutexGuard<'static, Vec<(File, Termios)>> {
    lock(&BEFORE)
}
