//! `egressctl completion`: the static script; it needs no configuration and no network.

use clap_complete::Shell;

use crate::cli::{CompletionArgs, ShellArg, command};
use crate::error::{Error, Result};
use crate::output::Ui;

pub(super) fn run(args: &CompletionArgs, ui: &Ui) -> Result<Vec<Error>> {
    ui.data(&script(args.shell))?;
    Ok(Vec::new())
}

/// A shell's completion script.
fn script(shell: ShellArg) -> String {
    let shell = match shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "egressctl", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
