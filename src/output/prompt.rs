//! Asking for a key's passphrase: on the terminal only, without showing it.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Asks on the controlling terminal; `None` where there is none.
pub fn passphrase(question: &str) -> Option<String> {
    let mut terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    let before = tcgetattr(&terminal).ok()?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    write!(terminal, "{question}").ok()?;
    tcsetattr(&terminal, OptionalActions::Flush, &silent).ok()?;
    let mut answer = String::new();
    let read = BufReader::new(&terminal).read_line(&mut answer);
    // Whatever was read, the terminal shows again what is typed.
    tcsetattr(&terminal, OptionalActions::Flush, &before).ok()?;
    writeln!(terminal).ok()?;
    read.ok()?;
    let answer = answer.trim_end_matches(['\r', '\n']).to_owned();
    (!answer.is_empty()).then_some(answer)
}
