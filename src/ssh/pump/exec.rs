//! Commands that run on the host, for small probes.

use std::io::{ErrorKind, Read};
use std::time::Instant;

use ssh2::{Channel, ExtendedData};

use super::super::lane::READ_CHUNK;
use super::super::session::is_again;
use super::super::shared::{ExecOutput, OpenError, Reply};
use super::{Owner, Pump};

/// How much of a command's output is kept, in bytes.
const MAX_OUTPUT: usize = 1024 * 1024;

/// How many steps come in a row before it is another's turn.
const BURST: usize = 16;

/// A command on the host.
pub(super) struct Exec {
    pub(super) id: u64,
    pub(super) channel: Channel,
    pub(super) expires: Option<Instant>,
    command: String,
    stage: Stage,
    stdout: Vec<u8>,
    /// None once whoever asked was told that the time is over.
    reply: Option<Reply<ExecOutput>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    EndInput,
    Read,
    Close,
}

/// How far one step came.
enum Step {
    Next(Stage),
    Again,
    Done(Result<Option<i32>, OpenError>),
}

impl Exec {
    pub(super) fn new(
        id: u64,
        channel: Channel,
        command: String,
        expires: Option<Instant>,
        reply: Reply<ExecOutput>,
    ) -> Self {
        Exec {
            id,
            channel,
            expires,
            command,
            stage: Stage::Start,
            stdout: Vec::new(),
            reply: Some(reply),
        }
    }

    fn step(&mut self, may_send: bool, room_for_end: bool) -> Step {
        match self.stage {
            Stage::Start if may_send => {
                let ready = self
                    .channel
                    .handle_extended_data(ExtendedData::Ignore)
                    .and_then(|()| self.channel.exec(&self.command));
                stepped(ready, Stage::EndInput)
            }
            Stage::EndInput if room_for_end => stepped(self.channel.send_eof(), Stage::Read),
            Stage::Start | Stage::EndInput => Step::Again,
            Stage::Read => self.read(),
            Stage::Close => match self.channel.wait_close() {
                Err(cause) if is_again(&cause) => Step::Again,
                Err(cause) => Step::Done(Err(OpenError::Refused(cause.message().to_owned()))),
                Ok(()) => Step::Done(Ok(self.status())),
            },
        }
    }

    fn read(&mut self) -> Step {
        let mut chunk = vec![0; READ_CHUNK];
        match self.channel.read(&mut chunk) {
            Ok(0) if self.channel.eof() => Step::Next(Stage::Close),
            Ok(count) => {
                let room = MAX_OUTPUT - self.stdout.len();
                self.stdout.extend_from_slice(&chunk[..count.min(room)]);
                Step::Next(Stage::Read)
            }
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => Step::Again,
            Err(cause) => Step::Done(Err(OpenError::Refused(cause.to_string()))),
        }
    }

    /// Tells whoever asked, who may have gone.
    fn answer(&mut self, result: Result<Option<i32>, OpenError>) {
        let stdout = std::mem::take(&mut self.stdout);
        let output = result.map(|exit_status| ExecOutput {
            stdout,
            exit_status,
        });
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(output);
        }
    }

    /// The exit status; none when a signal ended the command.
    fn status(&self) -> Option<i32> {
        let signal = self.channel.exit_signal().ok();
        if signal.is_some_and(|signal| signal.exit_signal.is_some()) {
            return None;
        }
        self.channel.exit_status().ok()
    }
}

fn stepped(result: Result<(), ssh2::Error>, next: Stage) -> Step {
    match result {
        Ok(()) => Step::Next(next),
        Err(cause) if is_again(&cause) => Step::Again,
        Err(cause) => Step::Done(Err(OpenError::Refused(cause.message().to_owned()))),
    }
}

impl Pump {
    /// Goes on with one command.
    pub(super) fn step_exec(&mut self, id: u64) -> bool {
        let mut moved = false;
        for _ in 0..BURST {
            let may_send = self.pending.is_none();
            let room_for_end = self.may_send_small();
            let Some(index) = self.execs.iter().position(|exec| exec.id == id) else {
                return moved;
            };
            let exec = &mut self.execs[index];
            match exec.step(may_send, room_for_end) {
                Step::Next(stage) => exec.stage = stage,
                Step::Done(result) => {
                    exec.answer(result);
                    self.retire_exec(index);
                    return true;
                }
                Step::Again => {
                    self.claim(Owner::Exec(id));
                    self.retire_expired(index);
                    return moved;
                }
            }
            moved = true;
        }
        moved
    }

    fn retire_exec(&mut self, index: usize) {
        self.closing.push(self.execs.swap_remove(index).channel);
    }

    /// Gives a command up whose time is over, unless its unsent packet still has to go out.
    fn retire_expired(&mut self, index: usize) {
        let exec = &self.execs[index];
        if exec.reply.is_none() && self.pending != Some(Owner::Exec(exec.id)) {
            self.retire_exec(index);
        }
    }

    pub(super) fn expire_execs(&mut self, now: Instant) {
        for index in (0..self.execs.len()).rev() {
            let exec = &mut self.execs[index];
            if exec.expires.is_some_and(|end| end <= now) {
                exec.expires = None;
                exec.answer(Err(OpenError::Expired));
                self.retire_expired(index);
            }
        }
    }
}
