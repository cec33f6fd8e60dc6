//! The terminal in raw mode: every key goes to the guest, and comes back to the person however the run ends.

use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::error::{Error, Reason, Result};

/// How the terminal was before.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal at stdin in raw mode, until this is dropped, also by a panic.
pub struct RawTerminal(());

impl RawTerminal {
    /// Errors: [`Reason::LocalIo`] where stdin is no terminal.
    pub fn enter() -> Result<Self> {
        let failed = |error: rustix::io::Errno| {
            Error::permanent(Reason::LocalIo, "the terminal can't be made raw").because(error)
        };
        let before = tcgetattr(io::stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        // Noted first: a signal may end the process at any time.
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let terminal = RawTerminal(());
        // What was typed meanwhile is for the guest.
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).map_err(failed)?;
        Ok(terminal)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Makes the terminal what it was before [`RawTerminal::enter`]; nothing where it is that already. For whoever is
/// about to end the process.
pub fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // Fails only where the terminal is gone. `Flush` drops keys typed for the guest, which the shell would run.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    }
}
