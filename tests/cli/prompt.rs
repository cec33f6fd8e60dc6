//! A person at the prompt for a key's passphrase, on a terminal of their own.

use std::fs::File;
use std::io::Write as _;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::pty::Pty;
use crate::sandbox;
use crate::support::Sandbox;

/// How long the screen may take to show something; what is measured is whether it does at all.
const PATIENCE: Duration = Duration::from_secs(30);

const PROMPT: &str = "/key: ";

/// A shell in a session of its own, with a controlling terminal, that runs egressctl in the foreground; then it tells
/// the exit code and the terminal's modes.
struct Terminal {
    shell: Child,
    keys: Arc<File>,
    output: Receiver<Vec<u8>>,
    screen: String,
}

impl Terminal {
    fn start(sandbox: &Sandbox) -> Self {
        let pty = Pty::open();
        let program = env!("CARGO_BIN_EXE_egressctl");
        // Ctrl-C and Ctrl-\ are for the shell, too, which has to live on.
        let script = format!(
            "trap : INT QUIT; sh -c 'echo pid $$.; exec {program} list'; echo code $?.; stty -a; echo over"
        );
        // What this test's own shell may have had ignored stays so otherwise.
        let shell = Command::new("setsid")
            .args(["--ctty", "env", "--default-signal=HUP,INT,QUIT"])
            .args(["sh", "-c", &script])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", sandbox.home())
            .env("EGRESSCTL_CONFIG", sandbox.home().join("providers.yaml"))
            .env("EGRESSCTL_LIMITS", "dial=1")
            .stdin(pty.stdio())
            .stdout(pty.stdio())
            .stderr(pty.stdio())
            .spawn()
            .expect("setsid(1) is needed");
        // The programs' side stays theirs alone: it ends with them.
        let Pty { keys, output, .. } = pty;
        Terminal {
            shell,
            keys,
            output,
            screen: String::new(),
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text to appear after what was looked at before; what stands in front of it.
    #[track_caller]
    fn expect(&mut self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        while !self.screen.contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("no {text:?} on the screen:\n{}", self.screen);
            };
            self.screen += &String::from_utf8_lossy(&bytes);
        }
        let place = self.screen.find(text).unwrap();
        let rest = self.screen.split_off(place + text.len());
        let mut before = std::mem::replace(&mut self.screen, rest);
        before.truncate(place);
        before
    }

    /// egressctl's process id, once it is at the prompt.
    #[track_caller]
    fn at_the_prompt(&mut self) -> String {
        self.expect("pid ");
        let pid = self.expect(".");
        self.expect(PROMPT);
        pid
    }

    /// What was said until the end, and the exit code; the terminal must be as it was.
    #[track_caller]
    fn ends(mut self) -> (String, String) {
        let said = self.expect("code ");
        let code = self.expect(".");
        let modes = self.expect("over");
        let modes: Vec<&str> = modes.split_ascii_whitespace().collect();
        assert!(modes.contains(&"echo"), "{modes:?}");
        (said, code)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail where it has ended. What it ran is hung up.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A home whose key has a passphrase.
fn locked() -> Sandbox {
    let sandbox = sandbox("remote");
    sandbox.keygen("secret");
    sandbox
}

#[test]
fn ctrl_c_at_the_prompt_ends_it_and_the_terminal_shows_again_what_is_typed() {
    let sandbox = locked();
    let table = [
        ("", "\x03", "130"),
        ("half a passph", "\x03", "130"),
        ("half a passph", "\x1c", "131"),
    ];
    for (typed, key, expected) in table {
        let mut terminal = Terminal::start(&sandbox);
        terminal.at_the_prompt();
        terminal.press(typed);
        terminal.press(key);
        let (said, code) = terminal.ends();
        assert_eq!(code, expected, "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert!(!said.contains("passph"), "{said}");
    }
}

#[test]
fn a_signal_at_the_prompt_ends_it_and_the_terminal_shows_again_what_is_typed() {
    let sandbox = locked();
    for (signal, code) in [("TERM", "143"), ("INT", "130"), ("HUP", "129")] {
        let mut terminal = Terminal::start(&sandbox);
        let pid = terminal.at_the_prompt();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
        let (said, ended) = terminal.ends();
        assert_eq!(ended, code, "{said}");
    }
}

#[test]
fn what_is_typed_at_the_prompt_is_not_shown() {
    let sandbox = locked();
    let mut terminal = Terminal::start(&sandbox);
    terminal.at_the_prompt();
    // Ctrl-D ends no line that was begun.
    terminal.press("gue\x04ss\r");
    for again in ["(2 of 3)", "(3 of 3)"] {
        terminal.expect(again);
        terminal.expect(PROMPT);
        terminal.press("guess\r");
    }
    let (said, code) = terminal.ends();
    assert_eq!(code, "1", "{said}");
    assert!(said.contains("the passphrase is wrong"), "{said}");
    assert!(!said.contains("gue"), "{said}");
    let mut terminal = Terminal::start(&sandbox);
    terminal.at_the_prompt();
    terminal.press("\x04");
    let (said, code) = terminal.ends();
    assert_eq!(code, "1", "{said}");
    assert!(said.contains("no passphrase was given"), "{said}");
}

#[test]
fn a_slip_at_the_prompt_can_be_made_good() {
    let sandbox = locked();
    let mut terminal = Terminal::start(&sandbox);
    terminal.at_the_prompt();
    terminal.press("secert\r");
    terminal.expect("That isn't it (2 of 3)");
    terminal.expect(PROMPT);
    terminal.press("secret\r");
    // The hosts share the key, and nobody is asked for it again: the next thing is the network, where nobody answers.
    let (said, code) = terminal.ends();
    assert_eq!(code, "4", "{said}");
    assert!(!said.contains("Passphrase"), "{said}");
}
