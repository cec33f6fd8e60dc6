//! Commands on this very machine, as a host with `local: true` runs them.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::shared::ExecOutput;
use crate::error::{Error, Reason, Result};
use crate::parallel::no_thread;

/// Runs a probe on this machine, at most that long.
pub(super) fn exec(command: &str, limit: Duration) -> Result<ExecOutput> {
    let failed = |cause: std::io::Error| {
        Error::transient(Reason::LocalIo, "can't run a command on this machine").because(cause)
    };
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut pipe = child.stdout.take();
    let (sender, output) = mpsc::channel();
    // A thread, as the pipe may stay open in a grandchild for longer than the limit.
    let reader = Builder::new().spawn(move || {
        let mut stdout = Vec::new();
        if let Some(pipe) = &mut pipe {
            // What came before a failure is better than nothing.
            let _ = pipe.read_to_end(&mut stdout);
        }
        // Nobody listens any more once the limit has passed.
        let _ = sender.send(stdout);
    });
    if let Err(cause) = reader {
        // It may have ended by itself meanwhile.
        let _ = child.kill();
        let _ = child.wait();
        return Err(no_thread(&cause));
    }
    let end = Instant::now() + limit;
    let stdout = output.recv_timeout(limit);
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(ExecOutput {
                stdout: stdout.unwrap_or_default(),
                exit_status: status.code(),
            });
        }
        if Instant::now() >= end {
            // It may have ended by itself meanwhile.
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::transient(
                Reason::TimedOut,
                format!("a command took longer than {limit:.0?}"),
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_is_ended() {
        let started = Instant::now();
        let error = exec("sleep 30", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.reason(), Reason::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_command_here_has_output_and_status() {
        let output = exec("echo out; echo err >&2; exit 3", Duration::from_secs(10)).unwrap();
        assert_eq!(output.stdout, b"out\n");
        assert_eq!(output.exit_status, Some(3));
    }
}
