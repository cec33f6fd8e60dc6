//! `egressctl console`.

use std::io::{IsTerminal as _, stdin};
use std::os::fd::AsFd as _;

use super::{Asked, Context};
use crate::cli::ConsoleArgs;
use crate::console::{End, attend};
use crate::error::Error;
use crate::output::RawTerminal;

pub(super) fn run(args: &ConsoleArgs, context: &Context<'_>) -> Asked<Vec<Error>> {
    let (host, instance) = context.running(&args.target)?;
    let name = &instance.domain.name;
    // Closed with the console; nothing else is asked after it.
    let hypervisor = host.connect()?;
    let console = hypervisor.open_console(&instance.domain, args.force)?;
    let types = stdin().is_terminal();
    context.ui.note(&if types {
        format!("{name}: connected to the console; ^] leaves it, Enter may bring a prompt")
    } else {
        format!("{name}: showing the console; stdin is no terminal, so nothing is typed")
    });
    let raw = types.then(RawTerminal::enter).transpose()?;
    let stdin = stdin();
    let keys = types.then(|| stdin.as_fd());
    let show = |bytes: &[u8]| context.ui.bytes(bytes);
    let end = attend(&*console, keys, &show, &context.cancels.work);
    drop(raw);
    match end.map_err(|error| error.on_host(host.name()))? {
        End::Left if types => context.ui.note(&format!("\n{name}: left the console")),
        End::Left => {}
        End::Closed => context.ui.note(&format!(
            "{}{name}: the console was closed: the domain stopped, or somebody else took it",
            if types { "\n" } else { "" }
        )),
    }
    Ok(Vec::new())
}
