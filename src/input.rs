//! Files and stdin that the command line or the configuration names: read in full, up to a limit, or until a signal comes.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;
use std::time::Duration;

use crate::apart::{apart, apart_within};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::units;

/// Whether the path is another way to say stdin, which can be read once only.
pub fn is_stdin(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"]
        .iter()
        .any(|name| path == Path::new(name))
}

/// What an input is called in messages: a file by its path, `-` as `stdin`.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") {
        "stdin".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Reads a file, or stdin for `-`, of at most `most` bytes: a part of one is never given.
///
/// A terminal or a pipe may give nothing for ever, and a read of it goes on when a signal comes.
///
/// Errors: what `failed` makes of an I/O error, which is [`ErrorKind::FileTooLarge`] where there is more;
/// [`Reason::Interrupted`](crate::error::Reason::Interrupted).
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
/// Errors: those of [`read`]; what `failed` makes of [`ErrorKind::TimedOut`].
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
    read.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
        .map_err(failed)
}

fn read_now(from: impl io::Read, most: u64) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    // One more shows that there is more.
    from.take(most + 1).read_to_end(&mut data)?;
    if data.len() as u64 > most {
        let what = format!("it is larger than {}", units::bytes(most));
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_its_limit_is_refused_and_never_cut_off() {
        let read = |bytes: usize| read_now(&*vec![b'x'; bytes], 2048);
        assert_eq!(read(2048).unwrap().len(), 2048);
        let error = read(2049).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it is larger than 2 KiB");
    }
}
