//! bash itself on a terminal, with the committed script: keys go in, and what the screen shows is looked at.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::support::Sandbox;

/// An interactive bash under script(1), which gives it a terminal.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    screen: String,
}

impl Terminal {
    /// `None` where script(1) isn't installed.
    fn start(sandbox: &Sandbox) -> Option<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_egressctl"));
        let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
        let mut child = Command::new("script")
            .args(["-qec", "bash --norc --noprofile -i", "/dev/null"])
            .env_clear()
            .env("PATH", path)
            .env("HOME", sandbox.home())
            .env("TERM", "dumb")
            .env("PS1", "ready> ")
            .env("EGRESSCTL_CONFIG", sandbox.home().join("providers.yaml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let (sender, output) = channel();
        let mut stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                let _ = sender.send(buffer[..count].to_vec());
            }
        });
        let keys = child.stdin.take().unwrap();
        Some(Terminal {
            child,
            keys,
            output,
            screen: String::new(),
        })
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text to appear after what was looked at before.
    fn expect(&mut self, text: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.screen.contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("no {text:?} on the screen:\n{}", self.screen);
            };
            // Bells are for ears.
            self.screen += &String::from_utf8_lossy(&bytes).replace('\x07', "");
        }
        let end = self.screen.find(text).unwrap() + text.len();
        self.screen.drain(..end);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_tab_key_completes_names_from_the_configuration() {
    let sandbox = Sandbox::new();
    sandbox.write("providers.yaml", super::complete::CONFIG);
    let Some(mut terminal) = Terminal::start(&sandbox) else {
        eprintln!("SKIPPED: there is no script(1)");
        return;
    };
    let script = crate::root().join("completions/egressctl.bash");
    terminal.expect("ready> ");
    terminal.press(&format!("source {}\n", script.display()));
    terminal.expect("ready> ");
    // A common beginning is filled in, then the choice is listed.
    terminal.press("egressctl list --zone=n\t");
    terminal.expect("--zone=nas");
    terminal.press("\t\t");
    terminal.expect("nas1  nas2");
    terminal.expect("ready> ");
    // The only one there is is filled in with a blank after it.
    terminal.press("\x15egressctl --provider away image pull f\t--zone f\t#");
    terminal.expect("image pull fedora --zone far #");
}
