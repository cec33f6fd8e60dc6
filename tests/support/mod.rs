//! Runs the real binary in an environment that has nothing of this machine's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A provider with two hosts. Nothing answers at 192.0.2.1 (RFC 5737): a command that dialled it would take 10 s.
pub(crate) const REMOTE: &str = "\
providers:
- name: home
  type: kvm
  kvm:
    sshKeyFile: key
    knownHostsFile: known_hosts
    images:
      debian-12: {url: 'https://192.0.2.1/12.qcow2'}
      debian-13: {url: 'https://192.0.2.1/13.qcow2'}
    machineTypes:
      small: {vcpus: 1, memoryMiB: 1024}
    hosts:
    - {name: nas1, address: 192.0.2.1, user: virt, bridge: br0}
    - {name: nas2, address: 192.0.2.1, user: virt, bridge: br0}
";

/// A temporary home and what egressctl runs in there.
pub(crate) struct Sandbox {
    home: PathBuf,
}

impl Sandbox {
    /// An empty home.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let home = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("home-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        Sandbox { home }
    }

    /// The home, which is also the working directory.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Puts a file into the home.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Makes the key that [`REMOTE`] names, and an empty `known_hosts` file; gives the key's path.
    pub(crate) fn keygen(&self, passphrase: &str) -> PathBuf {
        self.write("known_hosts", "");
        let key = self.home.join("key");
        let made = Command::new("ssh-keygen")
            .args(["-qt", "ed25519", "-N", passphrase, "-f"])
            .arg(&key)
            .status();
        assert!(made.unwrap().success());
        key
    }

    /// egressctl with these arguments, its environment cleared.
    pub(crate) fn egressctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_egressctl"));
        command
            .args(args)
            .env_clear()
            .env("HOME", &self.home)
            .env("COLUMNS", "80")
            .env("NO_COLOR", "1")
            .current_dir(&self.home)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}
