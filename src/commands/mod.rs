//! One subcommand each: arguments are resolved, the work is done elsewhere, the result is shown.

mod check;
mod completion;
mod config;
mod create;
mod delete;
mod extend;
mod gc;
mod get;
mod image;
mod list;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cli::{Cli, Command, GlobalArgs, ManagerArg, PullArg};
use crate::config::{Config, Image, Provider, discover, load, process_env};
use crate::error::{Class, Error, Result};
use crate::find::Managers;
use crate::host::{Cancels, HostSession, SharedPrompt};
use crate::image::policy::PullPolicy;
use crate::output::{Ui, passphrase};
use crate::xml::metadata::Manager;

/// Runs one command. The errors of single hosts are in the list; one that stopped the whole command is the `Err`.
pub fn run(cli: &Cli, ui: &Ui, cancels: &Cancels) -> Result<Vec<Error>> {
    match &cli.command {
        Command::Completion(args) => completion::run(args, ui),
        Command::Config(command) => config::run(command, &cli.global, ui),
        Command::Create(args) => create::run(args, &Context::new(&cli.global, ui, cancels)?),
        Command::Get(args) => get::run(args, &Context::new(&cli.global, ui, cancels)?),
        Command::List(args) => list::run(args, &Context::new(&cli.global, ui, cancels)?),
        Command::Delete(args) => delete::run(args, &Context::new(&cli.global, ui, cancels)?),
        Command::Extend(args) => extend::run(args, &Context::new(&cli.global, ui, cancels)?),
        Command::Gc(args) => gc::run(args, &Context::new(&cli.global, ui, cancels)?),
        Command::Image(command) => image::run(command, &Context::new(&cli.global, ui, cancels)?),
        Command::Check(args) => check::run(args, &Context::new(&cli.global, ui, cancels)?),
    }
}

/// What commands that work with hosts need.
struct Context<'a> {
    ui: &'a Ui,
    provider: Provider,
    /// The images of all the file's providers, which may share pools.
    all_images: Vec<Image>,
    hosts: Vec<HostSession>,
    cancels: Cancels,
}

impl<'a> Context<'a> {
    fn new(global: &GlobalArgs, ui: &'a Ui, cancels: &Cancels) -> Result<Self> {
        let config = load_config(global)?;
        let provider = config.provider(global.provider.as_deref())?.clone();
        let all_images = config
            .providers
            .iter()
            .flat_map(|provider| provider.images.iter().cloned())
            .collect();
        let hosts = HostSession::of_provider(&provider, cancels, Some(&asks_once()));
        Ok(Context {
            ui,
            provider,
            all_images,
            hosts,
            cancels: cancels.clone(),
        })
    }

    /// The sessions of these hosts of the configuration.
    fn sessions(&self, hosts: &[&crate::config::Host]) -> Vec<&HostSession> {
        self.hosts
            .iter()
            .filter(|session| hosts.iter().any(|host| host.name == session.name()))
            .collect()
    }
}

/// A passphrase prompt that asks once for each question: all hosts of a provider share one key.
fn asks_once() -> SharedPrompt {
    let answers: Mutex<HashMap<String, Option<String>>> = Mutex::default();
    Arc::new(move |question: &str| {
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers
            .entry(question.to_owned())
            .or_insert_with(|| passphrase(question))
            .clone()
    })
}

fn load_config(global: &GlobalArgs) -> Result<Config> {
    load(
        &discover(global.config.as_deref(), &process_env)?,
        &process_env,
    )
}

impl From<ManagerArg> for Managers {
    fn from(arg: ManagerArg) -> Self {
        match arg {
            ManagerArg::Egressctl => Managers::only(Manager::Egressctl),
            ManagerArg::Kvm => Managers::only(Manager::Kvm),
            ManagerArg::Kvm2 => Managers::only(Manager::Kvm2),
            ManagerArg::All => Managers::all(),
        }
    }
}

impl From<PullArg> for PullPolicy {
    fn from(arg: PullArg) -> Self {
        match arg {
            PullArg::Always => PullPolicy::Always,
            PullArg::Missing => PullPolicy::Missing,
            PullArg::Never => PullPolicy::Never,
        }
    }
}

/// The exit code of a run with these failures: interrupted before all; transient only if every failure is, as the
/// code says whether the same command could succeed later.
pub fn exit_code(errors: &[Error]) -> u8 {
    let rank = |class: Class| match class {
        Class::Interrupted(_) => 6,
        Class::Usage => 5,
        Class::Permanent => 4,
        Class::QuotaExceeded => 3,
        Class::NotFound => 2,
        Class::Unhealthy => 1,
        Class::Transient => 0,
    };
    errors
        .iter()
        .map(Error::class)
        .max_by_key(|class| rank(*class))
        .map_or(0, Class::exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    #[test]
    fn several_failures_have_one_exit_code() {
        let error = |class| Error::new(class, Reason::LibvirtError, "x");
        let code = |classes: &[Class]| {
            exit_code(
                &classes
                    .iter()
                    .map(|class| error(*class))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(code(&[]), 0);
        assert_eq!(code(&[Class::Transient, Class::Transient]), 4);
        assert_eq!(code(&[Class::Transient, Class::Permanent]), 1);
        assert_eq!(code(&[Class::NotFound, Class::QuotaExceeded]), 5);
        assert_eq!(code(&[Class::Permanent, Class::Interrupted(15)]), 143);
    }
}
