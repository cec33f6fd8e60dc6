//! `egressctl exec`.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::{Asked, Context};
use crate::cancel::Cancel;
use crate::cli::ExecArgs;
use crate::error::{Error, Reason, Result};
use crate::guest::{self, Agent, Program, STDIN_LIMIT, Sink};
use crate::input;
use crate::output::Ui;

/// Gives the command's own exit status.
pub(super) fn run(args: &ExecArgs, context: &Context<'_>) -> Asked<u8> {
    let cancel = &context.cancels.work;
    let stdin = args.stdin.then(|| read_stdin(cancel)).transpose()?;
    let (host, instance) = context.answering(&args.target)?;
    let hypervisor = host.connect()?;
    let program = Program {
        words: &args.command,
        stdin: stdin.as_deref(),
        timeout: args.timeout,
    };
    let agent = Agent::new(&*hypervisor, &instance.domain);
    let mut sink = To {
        ui: context.ui,
        printed: false,
    };
    let ended = guest::run(agent, &program, host, &mut sink);
    Ok(ended.map_err(|error| error.on_host(host.name()))?.status())
}

/// All of stdin: what is wrong with it shows before anything is started.
fn read_stdin(cancel: &Cancel) -> Result<Vec<u8>> {
    let failed = |cause: io::Error| {
        let error = Error::usage(Reason::BadArgument, "stdin can't be read").because(&cause);
        match cause.kind() {
            ErrorKind::FileTooLarge => error
                .hint("a guest's agent can't be given more than that; egressctl ssh has no limit"),
            _ => error,
        }
    };
    input::read(Path::new("-"), STDIN_LIMIT as u64, cancel, failed)
}

/// Where the command's output goes.
struct To<'a> {
    ui: &'a Ui,
    /// Whether stdout got anything.
    printed: bool,
}

impl Sink for To<'_> {
    fn stdout(&mut self, bytes: &[u8]) -> Result<bool> {
        self.printed = true;
        self.ui.bytes(bytes)
    }

    fn stderr(&mut self, bytes: &[u8]) -> Result<bool> {
        self.ui.stderr_bytes(bytes)
    }

    /// A command that has printed nothing goes on without a reader, as it would here: there may never have been one.
    fn is_left(&self) -> bool {
        self.printed && self.ui.has_lost_reader()
    }
}
