//! Waiting, in a way that Ctrl-C can end, for what can't be woken: the network inside a library, a terminal, a pipe.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::cancel::Cancel;
use crate::error::Result;
use crate::parallel::{no_thread, panicked};

/// Does what blocks on a thread of its own, called `name`, which a cancelled run leaves behind.
///
/// Errors: [`Reason::Interrupted`](crate::error::Reason::Interrupted), [`Reason::LocalIo`](crate::error::Reason::LocalIo).
pub fn apart<T: Send + 'static>(
    cancel: &Cancel,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    apart_within(cancel, name, Duration::MAX, work)?.ok_or_else(panicked)
}

/// The same for what is waited for no longer than `limit`: nothing where it isn't done by then, and is left behind, too.
///
/// Errors: those of [`apart`].
pub fn apart_within<T: Send + 'static>(
    cancel: &Cancel,
    name: &str,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>> {
    let (sender, receiver) = mpsc::channel();
    let wake = sender.clone();
    let _guard = cancel.on_cancel(Box::new(move || drop(wake.send(None))));
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(work)).map_err(|_| panicked());
            // Nobody listens any more when the run was cancelled, or the time was over.
            drop(sender.send(Some(result)));
        })
        .map_err(|cause| no_thread(&cause))?;
    match receiver.recv_timeout(limit) {
        Ok(Some(result)) => result.map(Some),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Ok(None) | Err(RecvTimeoutError::Disconnected) => {
            cancel.check().and_then(|()| Err(panicked()))
        }
    }
}
