//! Where a process that can fail on demand waits at a call to libvirt, until the test lets it go on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::{Cli, Running};
use crate::support::{Lab, wait_until};

/// A gate, closed until it is opened or dropped.
pub(crate) struct Gate {
    file: PathBuf,
}

impl Gate {
    /// One that is closed.
    pub(crate) fn new(lab: &Lab, name: &str) -> Self {
        let file = lab.write(&format!("{name}.gate"), "");
        let _ = std::fs::remove_file(file.with_extension("reached"));
        Gate { file }
    }

    /// Starts a command of the binary that can fail on demand, and waits until it waits here: before the calls that are named
    /// as for `EGRESSCTL_FAULT`.
    #[track_caller]
    pub(crate) fn stops(&self, cli: Cli, faulty: &Path, calls: &str, args: &[&str]) -> Running {
        let running = cli
            .binary(faulty.to_owned())
            .env("EGRESSCTL_FAULT", format!("pause:{calls}"))
            .env("EGRESSCTL_GATE", &self.file)
            .start(args);
        let reached = self.file.with_extension("reached");
        wait_until("the gate is reached", Duration::from_secs(30), || {
            reached.exists()
        });
        running
    }

    /// Lets go on who waits here.
    pub(crate) fn open(&self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}
