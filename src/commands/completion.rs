//! `egressctl completion`: the script for a shell; it needs no configuration and no network.

use super::config::ensure_only;
use crate::cli::{CompletionArgs, Format};
use crate::complete::script;
use crate::error::{Error, Result};
use crate::output::Ui;

pub(super) fn run(args: &CompletionArgs, ui: &Ui) -> Result<Vec<Error>> {
    ensure_only(ui, "completion", "a shell's script", &Format::Table)?;
    ui.data(&script(args.shell))?;
    Ok(Vec::new())
}
