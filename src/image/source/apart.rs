//! Waiting for the network in a way that Ctrl-C can end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::parallel::panicked;

/// Does what blocks in the network on a thread of its own, which a cancelled run leaves behind: it can't be woken.
pub(super) fn apart<T: Send + 'static>(
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    let wake = sender.clone();
    let _guard = cancel.on_cancel(Box::new(move || drop(wake.send(None))));
    std::thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()));
            // Nobody listens any more when the run was cancelled.
            drop(sender.send(Some(result)));
        })
        .map_err(|error| Error::transient(Reason::LocalIo, "no thread for HTTP").because(error))?;
    match receiver.recv() {
        Ok(Some(result)) => result,
        Ok(None) | Err(_) => cancel.check().and_then(|()| Err(panicked())),
    }
}
