//! SIGINT and SIGTERM: the first stops the work, the second its clean-up, the third the process.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Error, Reason, Result};
use crate::host::Cancels;

/// Watches for signals on a thread of its own, from now on.
pub(crate) fn watch(cancels: &Cancels) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::transient(Reason::LocalIo, "signals can't be watched").because(error)
    };
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let cancels = cancels.clone();
    let watch = move || {
        for signal in signals.forever() {
            if !cancels.work.is_set() {
                cancels.work.set(signal);
            } else if !cancels.cleanup.is_set() {
                cancels.cleanup.set(signal);
            } else {
                crate::output::restore_terminal();
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .map_err(failed)?;
    Ok(())
}
