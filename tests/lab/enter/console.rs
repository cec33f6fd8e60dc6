//! The serial console of the guest.

use std::time::Duration;

use rustix::termios::LocalModes;

use super::NAME;
use crate::cli::Cli;
use crate::support::{Cleanup, Lab};
use crate::terminal::Terminal;

/// Whether keys reach a program on the terminal as they are pressed.
pub(super) fn is_raw(terminal: &Terminal) -> bool {
    let modes = terminal.modes();
    assert_eq!(
        modes.contains(LocalModes::ICANON),
        modes.contains(LocalModes::ECHO)
    );
    !modes.contains(LocalModes::ICANON)
}

pub(super) fn is_a_terminal(lab: &Lab, cli: &Cli) {
    let mut first = Terminal::start(cli, &["console", NAME]);
    first.expect("^] leaves it");
    first.press("\r");
    first.expect("login:");
    assert!(is_raw(&first));
    // One at a time, unless it is taken.
    let mut second = Terminal::start(cli, &["console", NAME]);
    second.expect("somebody else has the console");
    second.expect("--force");
    assert_eq!(second.ends(), Some(4));
    let mut second = Terminal::start(cli, &["console", NAME, "--force"]);
    first.expect("the console was closed");
    assert!(!is_raw(&first));
    assert_eq!(first.ends(), Some(0));
    second.press("\r");
    second.expect("login:");
    second.press("\x1d");
    second.expect("left the console");
    assert!(!is_raw(&second));
    assert_eq!(second.ends(), Some(0));
    // However it ends, the terminal is as it was.
    let in_use = || {
        let mut terminal = Terminal::start(cli, &["console", NAME]);
        terminal.expect("^] leaves it");
        terminal.press("\r");
        terminal.expect("login:");
        assert!(is_raw(&terminal));
        terminal
    };
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("QUIT", 131)] {
        let mut terminal = in_use();
        terminal.signal(signal);
        terminal.expect("interrupted");
        assert!(!is_raw(&terminal));
        assert_eq!(terminal.ends(), Some(code));
    }
    // Also where nothing is waited for any more.
    let mut terminal = in_use();
    lab.lab(&["libvirtd", "nas1", "stop"]);
    let _goes_on = Cleanup::later(|| drop(lab.lab(&["libvirtd", "nas1", "cont"])));
    for _ in 0..3 {
        terminal.signal("TERM");
        // Within half a second they are one.
        std::thread::sleep(Duration::from_millis(700));
    }
    assert_eq!(terminal.ends(), None);
    assert!(!is_raw(&terminal));
    lab.lab(&["libvirtd", "nas1", "cont"]);
    let mut terminal = in_use();
    // The sshd of this very session; the listener stays, and so does the shell that has this pattern.
    lab.on("nas1", "pkill -f 'sshd.*[:] virt'");
    terminal.expect("connection was lost");
    assert!(!is_raw(&terminal));
    assert_eq!(terminal.ends(), Some(4));
}

pub(super) fn is_shown_where_nobody_types(cli: &Cli) {
    let running = cli.start(&["console", NAME]);
    // Written until the console has surely been taken by then; a look at it from here could take it first.
    let say = "for i in 1 2 3 4 5; do echo lt-enter on the console > /dev/ttyS0; sleep 2; done";
    cli.run(&["exec", NAME, "--", "sh", "-c", say]).exits(0);
    running.signal("TERM");
    running
        .wait()
        .exits(143)
        .prints("lt-enter on the console")
        .says("nothing is typed");
}
