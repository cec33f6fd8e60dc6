//! Shells on a terminal, with the committed scripts: keys go in, and what the screen shows and what is run is looked at.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::support::Sandbox;

/// How long a shell may take; what is measured is whether it answers at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// An interactive shell under script(1), which gives it a terminal.
///
/// The `egressctl` on its PATH is the real one while the shell asks for completions; run by the person at the keyboard,
/// it notes its arguments. So redrawing and colours don't matter.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    screen: String,
    ran: PathBuf,
}

impl Terminal {
    /// Starts the shell and gives it what a user's start-up file would have.
    fn start(sandbox: &Sandbox, shell: &str, setup: &str) -> Self {
        let program = sandbox.write(
            "bin/egressctl",
            &format!(
                "#!/bin/sh\n[ -z \"$COMPLETE\" ] || exec {} \"$@\"\necho \"$*\" >> \"$HOME/ran\"\n",
                env!("CARGO_BIN_EXE_egressctl")
            ),
        );
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
        let mut child = Command::new("script")
            .args(["-qec", shell, "/dev/null"])
            .env_clear()
            .env("PATH", path)
            .env("HOME", sandbox.home())
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .env("PS1", "ready> ")
            .env("EGRESSCTL_CONFIG", sandbox.home().join("providers.yaml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("script(1) is needed: tests/lab/install");
        let (sender, output) = channel();
        let mut stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                let _ = sender.send(buffer[..count].to_vec());
            }
        });
        let keys = child.stdin.take().unwrap();
        let mut terminal = Terminal {
            child,
            keys,
            output,
            screen: String::new(),
            ran: sandbox.home().join("ran"),
        };
        terminal.expect("ready> ");
        // The word isn't in the command, whose echo must not be taken for its output.
        terminal.press(&format!("stty cols 100 rows 30; {setup}; echo set''up\r"));
        terminal.expect("setup");
        terminal.expect("ready> ");
        terminal
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text to appear after what was looked at before.
    fn expect(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.screen.contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("no {text:?} on the screen:\n{:?}", self.screen);
            };
            // Bells are for ears.
            self.screen += &String::from_utf8_lossy(&bytes).replace('\x07', "");
        }
        let end = self.screen.find(text).unwrap() + text.len();
        self.screen.drain(..end);
    }

    /// Presses Enter and waits until egressctl was run; its arguments.
    fn enter(&mut self) -> String {
        self.press("\r");
        let end = Instant::now() + PATIENCE;
        loop {
            if let Ok(ran) = std::fs::read_to_string(&self.ran)
                && ran.ends_with('\n')
            {
                std::fs::remove_file(&self.ran).unwrap();
                return ran.trim_end().to_owned();
            }
            while let Ok(bytes) = self.output.try_recv() {
                self.screen += &String::from_utf8_lossy(&bytes);
            }
            assert!(
                Instant::now() < end,
                "egressctl was not run:\n{:?}",
                self.screen
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a person types in any of the shells; `list` are the keys that list a choice.
fn completes(shell: &str, setup: &str, list: &str) {
    let sandbox = Sandbox::new();
    sandbox.write("providers.yaml", &super::complete::config());
    let mut terminal = Terminal::start(&sandbox, shell, setup);
    // The only one there is is filled in, with a blank after it.
    terminal.press("egressctl --provider away image pull f\t--zone f\t--quiet");
    assert_eq!(
        terminal.enter(),
        "--provider away image pull fedora --zone far --quiet",
        "{shell}"
    );
    // A common beginning is filled in, then the choice is listed.
    terminal.press("egressctl create --image debian-1");
    terminal.press(list);
    terminal.expect("debian-12");
    terminal.expect("debian-13");
    terminal.press("3 --machine-type sm\t");
    assert_eq!(
        terminal.enter(),
        "create --image debian-13 --machine-type small",
        "{shell}"
    );
    // Subcommands, options, and values after an equals sign.
    terminal.press("egressctl lis\t--no-h\t--zone=nas1");
    assert_eq!(terminal.enter(), "list --no-headers --zone=nas1", "{shell}");
    // Names of instances: remembered ones, as no host answers; quietly.
    let cache = sandbox.home().join(".cache/egressctl");
    assert!(!cache.exists());
    terminal.press("egressctl --provider home get we");
    terminal.press(list);
    let end = Instant::now() + PATIENCE;
    while !cache.exists() || std::fs::read_dir(&cache).unwrap().next().is_none() {
        assert!(Instant::now() < end, "nothing was remembered");
        std::thread::sleep(Duration::from_millis(20));
    }
    terminal.press("b1");
    assert_eq!(terminal.enter(), "--provider home get web1", "{shell}");
}

#[test]
fn bash_completes_on_a_terminal() {
    let script = crate::root().join("completions/egressctl.bash");
    let setup = format!("source {}", script.display());
    completes("bash --norc --noprofile -i", &setup, "\t\t");
}

#[test]
fn fish_completes_on_a_terminal() {
    let script = crate::root().join("completions/egressctl.fish");
    let setup = format!("source {}", script.display());
    completes(
        "fish --no-config --init-command 'function fish_prompt; echo -n \"ready> \"; end' -i",
        &setup,
        "\t",
    );
}

/// The file in a folder of fpath, as a package has it.
#[test]
fn zsh_completes_on_a_terminal() {
    let folder = crate::root().join("completions");
    let setup = format!(
        "fpath=({} $fpath); autoload -Uz compinit; compinit -u -D",
        folder.display()
    );
    completes("zsh -f -i", &setup, "\t");
}

/// bash splits words at `=`; the piece after it is completed all the same.
#[test]
fn bash_completes_after_an_equals_sign() {
    let sandbox = Sandbox::new();
    sandbox.write("providers.yaml", &super::complete::config());
    let script = crate::root().join("completions/egressctl.bash");
    let setup = format!("source {}", script.display());
    let mut terminal = Terminal::start(&sandbox, "bash --norc --noprofile -i", &setup);
    terminal.press("egressctl create --zone=na\t2 --wait=cl\t");
    assert_eq!(terminal.enter(), "create --zone=nas2 --wait=cloud-init");
    terminal.press("egressctl list --output=colu\tNAME");
    assert_eq!(terminal.enter(), "list --output=columns=NAME");
}
