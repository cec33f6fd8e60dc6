//! A real sshd with throw-away keys, and what the tests need around it.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use egressctl::cancel::Cancel;
use egressctl::config::{Address, HostKeyPolicy, KeySource, SshAuth, SshTarget};
use egressctl::error::{Error, Result};
use egressctl::ssh::{DialOptions, Link, dial};
use tempfile::TempDir;

const SSHD: &str = "/usr/sbin/sshd";

/// The types of the host keys, and of the keys to log in with.
pub(crate) const TYPES: [&str; 3] = ["ed25519", "ecdsa", "rsa"];

/// Skips the test, loudly, where there is no sshd or we may not start one.
#[macro_export]
macro_rules! require_sshd {
    () => {
        if !$crate::sshd::available() {
            return;
        }
    };
}

/// Whether an sshd can be started here; in CI that is a must.
pub(crate) fn available() -> bool {
    let root = is_root();
    let found = Path::new(SSHD).exists();
    if found && root {
        return true;
    }
    let cause = if found { "not root" } else { "no sshd" };
    assert!(
        std::env::var_os("CI").is_none(),
        "needs {SSHD} and root: {cause}"
    );
    std::io::stderr()
        .write_all(format!("SKIPPED: {cause}\n").as_bytes())
        .unwrap();
    false
}

fn is_root() -> bool {
    output("id", &["-u"]).trim() == "0"
}

pub(crate) fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Keys that all tests share, as RSA keys take long to make.
pub(crate) fn keys() -> &'static Path {
    static KEYS: OnceLock<PathBuf> = OnceLock::new();
    KEYS.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let dir = place.join("ssh-keys");
        if !dir.exists() {
            let made = TempDir::new_in(place).unwrap();
            for kind in TYPES {
                for name in ["host", "other", "id"] {
                    keygen(&made.path().join(format!("{name}_{kind}")), kind, "");
                }
            }
            // Another run may have been faster: its keys do as well.
            let _ = std::fs::rename(made.path(), &dir);
        }
        dir
    })
}

pub(crate) fn keygen(path: &Path, kind: &str, passphrase: &str) {
    let path = path.to_str().unwrap();
    output(
        "ssh-keygen",
        &["-q", "-t", kind, "-N", passphrase, "-f", path],
    );
}

/// `type base64` of a key made by [`keygen`].
pub(crate) fn public(path: &Path) -> String {
    let text = std::fs::read_to_string(format!("{}.pub", path.display())).unwrap();
    text.split_whitespace()
        .take(2)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A running sshd; killed with all its sessions when dropped.
pub(crate) struct Sshd {
    pub(crate) dir: TempDir,
    pub(crate) port: u16,
    child: Child,
}

impl Sshd {
    /// Starts one with more lines of `sshd_config(5)`.
    pub(crate) fn start(config: &[&str]) -> Self {
        Self::with_host_keys(config, &TYPES)
    }

    pub(crate) fn with_host_keys(config: &[&str], host_keys: &[&str]) -> Self {
        // RUST_LOG=debug shows the stages; a second initialisation fails.
        let _ = env_logger::builder().is_test(true).try_init();
        std::fs::create_dir_all("/run/sshd").unwrap();
        let dir = TempDir::new().unwrap();
        let port = free_port();
        let place = dir.path().display();
        let mut text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nPidFile none\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             AuthorizedKeysFile {place}/authorized_keys\n"
        );
        for kind in host_keys {
            let key = keys().join(format!("host_{kind}"));
            writeln!(text, "HostKey {}", key.display()).unwrap();
        }
        for line in config {
            writeln!(text, "{line}").unwrap();
        }
        std::fs::write(dir.path().join("sshd_config"), text).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new(SSHD)
            .args(["-D", "-e", "-f"])
            .arg(dir.path().join("sshd_config"))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let sshd = Sshd { dir, port, child };
        let logins: Vec<PathBuf> = TYPES
            .iter()
            .map(|kind| keys().join(format!("id_{kind}")))
            .collect();
        sshd.authorize(&logins);
        sshd.write_known_hosts(&sshd.all_known());
        sshd.wait_until_up();
        sshd
    }

    fn wait_until_up(&self) {
        let end = Instant::now() + Duration::from_secs(10);
        while !self.log().contains("Server listening") {
            assert!(Instant::now() < end, "sshd didn't start: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub(crate) fn authorize(&self, keys: &[PathBuf]) {
        let lines: String = keys.iter().map(|key| public(key) + "\n").collect();
        std::fs::write(self.dir.path().join("authorized_keys"), lines).unwrap();
    }

    pub(crate) fn host_name(&self) -> String {
        format!("[127.0.0.1]:{}", self.port)
    }

    /// A `known_hosts` line for one of the host keys.
    pub(crate) fn known(&self, kind: &str) -> String {
        format!("{} {}\n", self.host_name(), host_key("host", kind))
    }

    pub(crate) fn all_known(&self) -> String {
        TYPES.iter().map(|kind| self.known(kind)).collect()
    }

    pub(crate) fn known_hosts(&self) -> PathBuf {
        self.dir.path().join("known_hosts")
    }

    pub(crate) fn write_known_hosts(&self, text: &str) {
        std::fs::write(self.known_hosts(), text).unwrap();
    }

    pub(crate) fn target(&self) -> SshTarget {
        SshTarget {
            address: here(self.port),
            user: output("id", &["-un"]).trim().to_owned(),
            jump: None,
        }
    }

    pub(crate) fn auth(&self, key: &Path) -> SshAuth {
        SshAuth {
            key: KeySource::File(key.to_owned()),
            host_keys: HostKeyPolicy::KnownHosts(self.known_hosts()),
        }
    }

    /// Dials with the usual key.
    pub(crate) fn dial(&self) -> Result<Link> {
        dial_as(&self.target(), &self.auth(&keys().join("id_ed25519")))
    }

    /// A link whose forward to an echo server is open.
    pub(crate) fn echo_link(&self) -> Link {
        let link = self.dial().unwrap();
        link.open_forward(self.echo().to_str().unwrap()).unwrap();
        link
    }

    /// An echo server on a unix socket of the "host".
    pub(crate) fn echo(&self) -> PathBuf {
        self.serve("echo", |mut stream| {
            let mut buffer = vec![0; 256 * 1024];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
        })
    }

    /// A unix socket of the "host" whose connections get a thread each.
    pub(crate) fn serve(
        &self,
        name: &str,
        body: impl Fn(UnixStream) + Send + Clone + 'static,
    ) -> PathBuf {
        let path = self.dir.path().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, body) = (stream.unwrap(), body.clone());
                std::thread::spawn(move || body(stream));
            }
        });
        path
    }

    /// The process ids of the connections' sshd processes.
    pub(crate) fn sessions(&self) -> Vec<String> {
        let pid = self.child.id().to_string();
        let children = |pid: &str| -> Vec<String> {
            let output = Command::new("pgrep").args(["-P", pid]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            text.split_whitespace().map(str::to_owned).collect()
        };
        let mut found = children(&pid);
        let mut index = 0;
        while index < found.len() {
            found.extend(children(&found[index]));
            index += 1;
        }
        found
    }

    pub(crate) fn signal_sessions(&self, signal: &str) {
        for pid in self.sessions() {
            // It may have ended meanwhile.
            let _ = Command::new("kill")
                .args([signal, &pid])
                .stderr(Stdio::null())
                .status();
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.signal_sessions("-KILL");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        if std::thread::panicking() {
            let log = format!("sshd's log:\n{}\n", self.log());
            std::io::stderr().write_all(log.as_bytes()).unwrap();
        }
    }
}

/// Dials with the usual options.
pub(crate) fn dial_as(target: &SshTarget, auth: &SshAuth) -> Result<Link> {
    dial(
        "nas1",
        target,
        auth,
        &DialOptions::default(),
        &Cancel::new(),
    )
}

/// A port of this machine.
pub(crate) fn here(port: u16) -> Address {
    Address {
        host: "127.0.0.1".into(),
        port,
    }
}

/// A server on a port of this machine that never gets as far as the user.
pub(crate) fn server_at(port: u16) -> SshTarget {
    SshTarget {
        address: here(port),
        user: "virt".into(),
        jump: None,
    }
}

/// The usual key, to whatever answers.
pub(crate) fn unverified() -> SshAuth {
    SshAuth {
        key: KeySource::File(keys().join("id_ed25519")),
        host_keys: HostKeyPolicy::Ignore,
    }
}

/// `type base64` of one of the shared keys.
pub(crate) fn host_key(name: &str, kind: &str) -> String {
    public(&keys().join(format!("{name}_{kind}")))
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Everything an error tells, for comparisons.
pub(crate) fn told(error: &Error) -> String {
    let mut text = format!("{error}");
    for hint in error.hints() {
        write!(text, "\nhint: {hint}").unwrap();
    }
    text
}
