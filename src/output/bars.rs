//! Where bars are drawn: stderr's terminal, which may vanish under them.

use std::io;

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};

/// How often bars are drawn anew at most, a second: indicatif's own default.
const HERTZ: u8 = 20;

/// stderr, for bars.
pub(super) fn target() -> ProgressDrawTarget {
    ProgressDrawTarget::term_like_with_hz(Box::new(Lasting(Term::buffered_stderr())), HERTZ)
}

/// A terminal on which drawing never fails. Once it is closed, every write to it does (EIO), by which indicatif panics
/// when a line is put above the bars (`MultiState::suspend`): in the middle of a clean-up.
/// Nothing can be done about a stderr that can't be written.
#[derive(Debug)]
struct Lasting(Term);

impl TermLike for Lasting {
    fn width(&self) -> u16 {
        self.0.size().1
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n).or(Ok(()))
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n).or(Ok(()))
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n).or(Ok(()))
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n).or(Ok(()))
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.0.write_line(line).or(Ok(()))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text).or(Ok(()))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line().or(Ok(()))
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush().or(Ok(()))
    }
}
