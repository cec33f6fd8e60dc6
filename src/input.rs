//! Files and stdin that the command line or the configuration names: read in full, up to a limit, or until a signal comes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use crate::apart::{apart, apart_within};
use crate::cancel::Cancel;
use crate::error::{Error, Result};

/// Whether the path is another way to say stdin, which can be read once only.
pub fn is_stdin(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"]
        .iter()
        .any(|name| path == Path::new(name))
}

/// Reads a file, or stdin for `-`; at most `most` bytes and one, by which the caller knows that there were more.
///
/// A terminal or a pipe may give nothing for ever, and a read of it goes on when a signal comes.
///
/// Errors: what `failed` makes of an I/O error; [`Reason::Interrupted`](crate::error::Reason::Interrupted).
pub fn read(
    path: &Path,
    most: u64,
    cancel: &Cancel,
    failed: impl FnOnce(io::Error) -> Error,
) -> Result<Vec<u8>> {
    if path == Path::new("-") {
        apart(cancel, "input", move || read_now(io::stdin(), most))?.map_err(failed)
    } else {
        read_file(path, most, cancel, failed)
    }
}

/// The same for files alone, whatever they are called.
///
/// Errors: those of [`read`].
pub fn read_file(
    path: &Path,
    most: u64,
    cancel: &Cancel,
    failed: impl FnOnce(io::Error) -> Error,
) -> Result<Vec<u8>> {
    read_file_within(path, most, Duration::MAX, cancel, failed)
}

/// The same within a time: a pipe that nobody writes into, or a server that is gone, gives nothing for ever.
///
/// Errors: those of [`read`]; what `failed` makes of [`ErrorKind::TimedOut`](io::ErrorKind::TimedOut).
pub fn read_file_within(
    path: &Path,
    most: u64,
    limit: Duration,
    cancel: &Cancel,
    failed: impl FnOnce(io::Error) -> Error,
) -> Result<Vec<u8>> {
    let owned = path.to_owned();
    let read = apart_within(cancel, "input", limit, move || {
        read_now(File::open(owned)?, most)
    })?;
    read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
        .map_err(failed)
}

fn read_now(from: impl io::Read, most: u64) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    from.take(most + 1).read_to_end(&mut data)?;
    Ok(data)
}
