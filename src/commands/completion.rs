//! `egressctl completion`: the script for a shell; it needs no configuration and no network.

use crate::cli::CompletionArgs;
use crate::complete::script;
use crate::error::{Error, Result};
use crate::output::Ui;

pub(super) fn run(args: &CompletionArgs, ui: &Ui) -> Result<Vec<Error>> {
    ui.data(&script(args.shell))?;
    Ok(Vec::new())
}
