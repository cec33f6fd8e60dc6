//! `egressctl logs`.

use std::time::Duration;

use super::{Asked, Context};
use crate::cli::LogsArgs;
use crate::error::{Class, Error, Reason, Result};
use crate::guest::{Agent, GuestFile};
use crate::host::HostSession;
use crate::instance::Instance;

/// Where cloud-init's own steps write (`output` in the distributions' cloud.cfg).
const LOG: &str = "/var/log/cloud-init-output.log";
/// What cloud-init writes at its end, anew at each boot
/// (<https://docs.cloud-init.io/en/latest/explanation/return_codes.html>).
const FINISHED: &str = "/run/cloud-init/result.json";
/// How often a log that is followed is looked at.
const POLL: Duration = Duration::from_secs(1);

pub(super) fn run(args: &LogsArgs, context: &Context<'_>) -> Asked<Vec<Error>> {
    let (host, instance) = context.answering(&args.target)?;
    let shown = if args.follow {
        follow(context, host, &instance)
    } else {
        let hypervisor = host.connect()?;
        let agent = Agent::new(&*hypervisor, &instance.domain);
        open(agent).and_then(|file| {
            let shown = show(context, agent, &file);
            file.close_after(agent, host, shown).map(drop)
        })
    };
    shown.map_err(|error| error.on_host(host.name()))?;
    Ok(Vec::new())
}

fn open(agent: Agent<'_>) -> Result<GuestFile> {
    GuestFile::open(agent, LOG).map_err(|error| match error.reason() {
        // It may be there later.
        Reason::AgentRefused => error
            .with_class(Class::Transient)
            .while_doing(format!("{LOG} of instance {} can't be read", agent.name())),
        _ => error,
    })
}

/// Prints up to the present end; false once nobody reads any more.
fn show(context: &Context<'_>, agent: Agent<'_>, file: &GuestFile) -> Result<bool> {
    file.read_on(agent, &mut |bytes| context.ui.bytes(bytes))
}

/// Prints until cloud-init is done.
fn follow(context: &Context<'_>, host: &HostSession, instance: &Instance) -> Result<()> {
    let hypervisor = host.connect()?;
    let agent = Agent::new(&*hypervisor, &instance.domain);
    let cancel = &context.cancels.work;
    let mut told = false;
    let file = loop {
        match open(agent) {
            Ok(file) => break file,
            Err(error) if error.class() == Class::Transient && is_of_guest(&error) => {
                if !told {
                    context.ui.note(&format!(
                        "{}: waiting for the guest agent; egressctl console {} shows the boot",
                        agent.name(),
                        instance.id()
                    ));
                    told = true;
                }
            }
            Err(error) => return Err(error),
        }
        if context.ui.has_lost_reader() {
            return Ok(());
        }
        ensure_running(&*hypervisor, instance)?;
        cancel.wait(POLL);
        cancel.check()?;
    };
    let shown = show_until_finished(context, agent, &file);
    file.close_after(agent, host, shown)
}

/// Prints what there is and what comes, until cloud-init is done or nobody reads any more.
fn show_until_finished(context: &Context<'_>, agent: Agent<'_>, file: &GuestFile) -> Result<()> {
    let cancel = &context.cancels.work;
    loop {
        // Asked first: what is read after the end is all there is.
        let finished = is_there(agent, FINISHED)?;
        let wanted = show(context, agent, file)?;
        if finished || !wanted || context.ui.has_lost_reader() {
            return Ok(());
        }
        cancel.wait(POLL);
        cancel.check()?;
    }
}

/// Whether the guest isn't as far yet, rather than the way to it broken.
fn is_of_guest(error: &Error) -> bool {
    matches!(
        error.reason(),
        Reason::AgentUnavailable | Reason::AgentRefused
    )
}

fn ensure_running(hypervisor: &dyn crate::libvirt::Hypervisor, instance: &Instance) -> Result<()> {
    let state = hypervisor.domain_state(&instance.domain)?;
    if state.is_active() {
        return Ok(());
    }
    let name = &instance.domain.name;
    Err(Error::permanent(
        Reason::NotRunning,
        format!("instance {name} is {state}: no log will come"),
    ))
}

fn is_there(agent: Agent<'_>, path: &str) -> Result<bool> {
    match GuestFile::open(agent, path) {
        Ok(file) => file.close(agent).map(|()| true),
        Err(error) if error.reason() == Reason::AgentRefused => Ok(false),
        Err(error) => Err(error),
    }
}
