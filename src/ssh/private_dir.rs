//! A directory that only we can enter, for one unix socket.

use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use tempfile::TempDir;

use super::abandoned;
use crate::error::{Error, Reason, Result};

/// The longest path of a unix socket, in bytes without the final zero (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// The directory's name starts with this, and goes on with so many random letters and digits.
pub(super) const PREFIX: &str = "egressctl-";
pub(super) const RANDOM_LETTERS: usize = 6;

/// The socket's name in the directory.
pub(super) const SOCKET_NAME: &str = "s";

/// A directory of mode 0700 with room for one socket; removed when dropped.
#[derive(Debug)]
pub(super) struct PrivateDir {
    _dir: TempDir,
    socket: PathBuf,
}

impl PrivateDir {
    /// In `$TMPDIR`, or where that makes the path too long in `$XDG_RUNTIME_DIR` or /tmp. The first one also removes there what
    /// runs left behind that were killed.
    pub(super) fn new() -> Result<Self> {
        // An empty variable counts as unset: it would be the working directory.
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let places = [set("TMPDIR"), set("XDG_RUNTIME_DIR")]
            .into_iter()
            .flatten()
            .map(PathBuf::from)
            .chain([PathBuf::from("/tmp")]);
        let mut error = Error::transient(
            Reason::LocalIo,
            "can't make a directory for a private socket",
        )
        .hint("set TMPDIR to a short path that can be written");
        for place in places {
            match Self::within(&place) {
                Ok(dir) => {
                    static ONCE: Once = Once::new();
                    ONCE.call_once(|| abandoned::sweep(&place));
                    return Ok(dir);
                }
                Err(cause) => error = error.because(format!("{}: {cause}", place.display())),
            }
        }
        Err(error)
    }

    pub(super) fn within(place: &Path) -> std::io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .rand_bytes(RANDOM_LETTERS)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(place)?;
        let socket = dir.path().join(SOCKET_NAME);
        if socket.as_os_str().as_bytes().len() > MAX_SOCKET_PATH {
            return Err(std::io::Error::other("the path is too long for a socket"));
        }
        Ok(PrivateDir { _dir: dir, socket })
    }

    /// Where to bind the socket.
    pub(super) fn socket_path(&self) -> &Path {
        &self.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_ours_alone_and_goes_away() {
        let dir = PrivateDir::new().unwrap();
        let place = dir.socket_path().parent().unwrap().to_owned();
        let mode = std::fs::metadata(&place).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(dir);
        assert!(!place.exists());
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let long = outer.path().join("x".repeat(100));
        std::fs::create_dir(&long).unwrap();
        assert!(PrivateDir::within(&long).is_err());
        assert_eq!(std::fs::read_dir(&long).unwrap().count(), 0);
    }
}
