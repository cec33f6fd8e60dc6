//! Files and stdin that the command line names: read in full, up to a limit, or until a signal comes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use crate::cancel::Cancel;
use crate::error::{Error, Result};

/// Reads a file, or stdin for `-`; at most `most` bytes and one, by which the caller knows that there were more.
///
/// A terminal or a pipe may give nothing for ever, and a read of it goes on when a signal comes: so it has a thread of
/// its own, which is left behind then.
///
/// Errors: what `failed` makes of an I/O error; [`Reason::Interrupted`](crate::error::Reason::Interrupted).
pub fn read(
    path: &Path,
    most: u64,
    cancel: &Cancel,
    failed: impl FnOnce(io::Error) -> Error,
) -> Result<Vec<u8>> {
    let (sender, receiver) = channel();
    let cancelled = sender.clone();
    let _guard = cancel.on_cancel(Box::new(move || {
        let _ = cancelled.send(None);
    }));
    let owned = path.to_owned();
    let reader = move || {
        let _ = sender.send(Some(read_now(&owned, most)));
    };
    let name = "input".to_owned();
    if let Err(error) = thread::Builder::new().name(name).spawn(reader) {
        return Err(failed(error));
    }
    if let Ok(Some(read)) = receiver.recv() {
        return read.map_err(failed);
    }
    cancel.check()?;
    Err(failed(io::ErrorKind::Interrupted.into()))
}

fn read_now(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    if path == Path::new("-") {
        io::stdin().take(most + 1).read_to_end(&mut data)?;
    } else {
        File::open(path)?.take(most + 1).read_to_end(&mut data)?;
    }
    Ok(data)
}
