//! egressctl on a terminal of its own: keys go in, and what the screen shows is looked at.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::termios::{LocalModes, tcgetattr};

use crate::cli::Cli;
use crate::pty::Pty;

/// How long the screen may take to show something: guests are slow without KVM.
const LIMIT: Duration = Duration::from_secs(60);

/// An egressctl whose stdin, stdout and stderr are one terminal.
pub(crate) struct Terminal {
    child: Child,
    keys: Arc<File>,
    /// The program's side, kept open so that the terminal outlives the program.
    side: OwnedFd,
    output: Receiver<Vec<u8>>,
    screen: String,
}

impl Terminal {
    /// Starts it; it isn't in a session of its own, so signals come by `signal` alone.
    pub(crate) fn start(cli: &Cli, args: &[&str]) -> Self {
        Self::of(cli.command(args))
    }

    /// Starts it in a session of its own, whose controlling terminal this is, as one that knows more than plain text.
    pub(crate) fn start_as_its_own(cli: &Cli, args: &[&str]) -> Self {
        let own = cli.command(args);
        let mut command = Command::new("setsid");
        // What this test's own shell may have had ignored stays so otherwise.
        command
            .args(["--ctty", "env", "--default-signal=HUP"])
            .arg(own.get_program())
            .args(own.get_args())
            .env_clear()
            .envs(
                own.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("TERM", "xterm");
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let pty = Pty::open();
        let child = command
            .stdin(pty.stdio())
            .stdout(pty.stdio())
            .stderr(pty.stdio())
            .spawn()
            .unwrap();
        let Pty { keys, side, output } = pty;
        Terminal {
            child,
            keys,
            side,
            output,
            screen: String::new(),
        }
    }

    /// Types.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text to appear after what was looked at before.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) {
        let end = Instant::now() + LIMIT;
        while !self.screen.contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("no {text:?} on the screen:\n{}", self.screen);
            };
            self.screen += &String::from_utf8_lossy(&bytes);
        }
        let end = self.screen.find(text).unwrap() + text.len();
        self.screen.drain(..end);
    }

    /// The terminal's modes.
    pub(crate) fn modes(&self) -> LocalModes {
        tcgetattr(self.side.as_fd()).unwrap().local_modes
    }

    /// Sends it a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Closes the terminal, as its window is closed or its connection breaks, and waits for the program's end; gives
    /// the exit code.
    pub(crate) fn close(mut self) -> Option<i32> {
        drop(std::mem::replace(
            &mut self.keys,
            File::open("/dev/null").unwrap().into(),
        ));
        self.ends()
    }

    /// Waits for its end; gives the exit code.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        for _ in 0..1200 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("it doesn't end; the screen:\n{}", self.screen);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail where it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
