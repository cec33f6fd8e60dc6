//! One subcommand each: arguments are resolved, the work is done elsewhere, the result is shown.

mod check;
mod completion;
mod config;
mod console;
mod create;
mod delete;
mod each_host;
mod exec;
mod extend;
mod gc;
mod get;
mod image;
mod list;
mod logs;
mod probe;
mod ssh;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::address;
use crate::cancel::Cancel;
use crate::cli::{Cli, Command, GlobalArgs, ManagerArg, PullArg, TargetArgs, ViaArg};
use crate::config::{Config, Image, Provider, discover, load, process_env};
use crate::error::{Class, Error, Reason, Result};
use crate::find::{self, Managers};
use crate::host::{Cancels, HostSession, SharedPrompt};
use crate::image::policy::PullPolicy;
use crate::instance::Instance;
use crate::libvirt::DomainState;
use crate::limits::{self, TimeLimits};
use crate::name::InstanceRef;
use crate::output::{Ui, passphrase};
use crate::parallel::{self, lock};
use crate::placement;
use crate::reach::Way;
use crate::shell;
use crate::xml::metadata::Manager;
use each_host::show_each_host;

/// Runs the command, tells its errors, and gives the exit code.
pub fn main(cli: &Cli, ui: &Ui, cancels: &Cancels) -> u8 {
    let passes_on = matches!(cli.command, Command::Exec(_) | Command::Ssh(_));
    let errors = match run(cli, ui, cancels) {
        Ok(Outcome::Status(status)) => return status,
        Ok(Outcome::Errors(errors)) | Err(Stopped(errors)) => errors,
    };
    for error in &errors {
        ui.error(error);
    }
    match exit_code(&errors) {
        code @ 1..OWN_FAILURES if passes_on => OWN_FAILURES + code,
        code => code,
    }
}

/// Where another program's exit status is passed on, our own failures have this and their class's code: apart from
/// what programs commonly exit with, and 124 for a time limit, as timeout(1) has it.
const OWN_FAILURES: u8 = 120;

/// How a command ended, if nothing stopped it.
enum Outcome {
    /// With these failures of single hosts.
    Errors(Vec<Error>),
    /// With the exit status of another program.
    Status(u8),
}

/// What stopped a whole command: several errors where it was several hosts' failures.
struct Stopped(Vec<Error>);

impl Stopped {
    /// The same, each error changed.
    fn map(self, change: impl Fn(Error) -> Error) -> Self {
        Stopped(self.0.into_iter().map(change).collect())
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Stopped(vec![error])
    }
}

/// Result of what several hosts' failures may stop.
type Asked<T> = std::result::Result<T, Stopped>;

/// Runs one command. The errors of single hosts are in the list; what stopped the whole command is the `Err`.
fn run(cli: &Cli, ui: &Ui, cancels: &Cancels) -> Asked<Outcome> {
    let context = || Context::new(&cli.global, ui, cancels);
    let errors = match &cli.command {
        Command::Completion(args) => completion::run(args, ui)?,
        Command::Config(command) => config::run(command, &cli.global, ui, cancels)?,
        Command::Create(args) => create::run(args, &context()?)?,
        Command::Get(args) => get::run(args, &context()?)?,
        Command::List(args) => list::run(args, &context()?)?,
        Command::Delete(args) => delete::run(args, &context()?)?,
        Command::Exec(args) => return exec::run(args, &context()?).map(Outcome::Status),
        Command::Logs(args) => logs::run(args, &context()?)?,
        Command::Ssh(args) => return ssh::run(args, &context()?).map(Outcome::Status),
        Command::Probe(args) => probe::run(args, &context()?)?,
        Command::Console(args) => console::run(args, &context()?)?,
        Command::Extend(args) => extend::run(args, &context()?)?,
        Command::Gc(args) => gc::run(args, &context()?)?,
        Command::Image(command) => image::run(command, &context()?)?,
        Command::Check(args) => check::run(args, &context()?)?,
    };
    Ok(Outcome::Errors(errors))
}

/// What commands that work with hosts need.
struct Context<'a> {
    ui: &'a Ui,
    provider: Provider,
    /// The images of all the file's providers, which may share pools.
    all_images: Vec<Image>,
    /// The hosts of the file's other providers, each with its provider's name.
    others: Vec<(String, String)>,
    hosts: Vec<HostSession>,
    cancels: Cancels,
}

impl Drop for Context<'_> {
    /// All hosts at once: each parting is a round trip.
    fn drop(&mut self) {
        let hosts = std::mem::take(&mut self.hosts);
        let count = hosts.len();
        parallel::map(hosts, count, drop);
    }
}

/// The error for an instance that does nothing; virsh has this command to change that.
fn not_running(host: &HostSession, instance: &Instance, virsh: &str) -> Error {
    let name = &instance.domain.name;
    let error = Error::permanent(
        Reason::NotRunning,
        format!("instance {name} doesn't run: it is {}", instance.state),
    );
    // A create takes none but our own.
    let hint = if instance.metadata().is_some() {
        format!(
            "to start it, run the egressctl create that made it again, with --zone {} --name {name}",
            host.name()
        )
    } else {
        format!("on the host: virsh {virsh} {}", shell::quote(name))
    };
    error.on_host(host.name()).hint(hint)
}

impl<'a> Context<'a> {
    fn new(global: &GlobalArgs, ui: &'a Ui, cancels: &Cancels) -> Result<Self> {
        let config = load_config(global, cancels)?;
        let provider = config.provider(global.provider.as_deref())?.clone();
        let all_images = config
            .providers
            .iter()
            .flat_map(|provider| provider.images.iter().cloned())
            .collect();
        let others = config
            .providers
            .iter()
            .filter(|other| other.name != provider.name)
            .flat_map(|other| {
                let hosts = other.hosts.iter();
                hosts.map(|host| (host.name.clone(), other.name.clone()))
            })
            .collect();
        let limits = process_env(limits::VARIABLE);
        let limits = TimeLimits::parse(
            limits
                .as_ref()
                .map(|text| text.to_string_lossy())
                .as_deref(),
        )?;
        limits::raise_open_files();
        let hosts = HostSession::of_provider(&provider, cancels, Some(&asks_once()), limits);
        Ok(Context {
            ui,
            provider,
            all_images,
            others,
            hosts,
            cancels: cancels.clone(),
        })
    }

    /// What a NAME argument means, and the hosts it may be on; none of them is asked.
    fn meant(&self, name: &str, zone: Option<&str>) -> Result<(InstanceRef, Vec<&HostSession>)> {
        let wanted: InstanceRef = name.parse()?;
        if zone.is_some() {
            placement::zone(&self.provider, zone)?;
        }
        let unconfigured = || placement::unconfigured(&self.provider, &wanted);
        let hosts = self.hosts_of(&wanted, zone)?.ok_or_else(unconfigured)?;
        Ok((wanted, hosts))
    }

    /// The hosts that it may be on; `None` where its ID names one that is configured nowhere.
    ///
    /// Errors: a usage error where the ID names a host of another provider, which nobody looks at.
    fn hosts_of(
        &self,
        wanted: &InstanceRef,
        zone: Option<&str>,
    ) -> Result<Option<Vec<&HostSession>>> {
        let found = find::hosts_of(&self.hosts, wanted, zone)?;
        let is_its = |(host, _): &&(String, String)| Some(host.as_str()) == wanted.host();
        if found.is_none()
            && let Some((host, other)) = self.others.iter().find(is_its)
        {
            let what = format!(
                "host {host} is of provider {other}, not of {}",
                self.provider.name
            );
            return Err(Error::usage(Reason::BadArgument, what)
                .hint(format!("--provider {}", shell::quote(other))));
        }
        Ok(found)
    }

    /// The one instance that is meant, and its host.
    ///
    /// Errors: also where a host that couldn't be asked might have the name, too.
    fn instance(
        &self,
        name: &str,
        zone: Option<&str>,
        managers: Managers,
    ) -> Asked<(&HostSession, Instance)> {
        let (wanted, hosts) = self.meant(name, zone)?;
        let name = wanted.name().as_str();
        let found = find::by_name(&hosts, name, managers);
        find::ensure_one(name, &found.instances)?;
        self.ensure_all_asked(name, &hosts, &found.errors, "done")?;
        let instance = found.instances.first().cloned();
        let instance =
            instance.ok_or_else(|| find::not_among(name, wanted.host().or(zone), &found))?;
        let host = hosts.into_iter().find(|host| host.name() == instance.host);
        Ok((host.ok_or_else(|| find::not_found(name, None))?, instance))
    }

    /// Makes sure that every host told whether it has the name: where it may stand on another, too, which one was meant
    /// isn't ours to guess.
    ///
    /// Errors: each host's own, and, where there are others, that nothing was `done` for want of them.
    fn ensure_all_asked(
        &self,
        name: &str,
        hosts: &[&HostSession],
        errors: &[Error],
        done: &str,
    ) -> Asked<()> {
        if errors.is_empty() {
            return Ok(());
        }
        self.cancels.work.check()?;
        let mut errors = errors.to_vec();
        if hosts.len() > 1 {
            let what = format!("not every host could be asked for {name}, so nothing was {done}");
            let error = Error::transient(Reason::PartialFailure, what);
            errors.push(error.hint("name the instance by its ID, or add --zone"));
        }
        Err(Stopped(errors))
    }

    /// The one instance to go into: it must run.
    fn running(&self, target: &TargetArgs) -> Asked<(&HostSession, Instance)> {
        let managers = target.manager.into();
        let (host, instance) = self.instance(&target.name, target.zone.as_deref(), managers)?;
        if instance.state.is_active() {
            return Ok((host, instance));
        }
        Err(not_running(host, &instance, "start").into())
    }

    /// The same, where something in the guest is to answer: a paused one has a console, and nobody at it.
    fn answering(&self, target: &TargetArgs) -> Asked<(&HostSession, Instance)> {
        let (host, instance) = self.running(target)?;
        match instance.state {
            DomainState::Paused(_) => Err(not_running(host, &instance, "resume").into()),
            DomainState::PmSuspended => Err(not_running(host, &instance, "dompmwakeup").into()),
            _ => Ok((host, instance)),
        }
    }

    /// The instance with its addresses, and the one to use.
    fn with_address(
        &self,
        host: &HostSession,
        mut instance: Instance,
    ) -> Result<(Instance, IpAddr)> {
        let (addresses, asked) = address::Asker::new(host).find(&instance);
        self.cancels.work.check()?;
        instance.addresses = addresses;
        if let Some(ip) = instance.addresses.primary() {
            return Ok((instance, ip));
        }
        let name = &instance.domain.name;
        let mut error = Error::transient(
            Reason::NotReady,
            format!("no address of instance {name} is known"),
        )
        .on_host(host.name());
        for asked in asked {
            error = error.because(format!("{}: {}", asked.source.as_str(), asked.answer));
        }
        Err(error
            .hint(format!("egressctl console {}", instance.id()))
            .hint("there the guest shows what it is doing"))
    }

    /// The names of the provider's hosts that aren't among these.
    fn left_out(&self, hosts: &[&HostSession]) -> Vec<String> {
        let is_in = |name| hosts.iter().any(|host| host.name() == name);
        let names = self.hosts.iter().map(HostSession::name);
        names
            .filter(|name| !is_in(*name))
            .map(str::to_owned)
            .collect()
    }

    /// The sessions of these hosts of the configuration.
    fn sessions(&self, hosts: &[&crate::config::Host]) -> Vec<&HostSession> {
        self.hosts
            .iter()
            .filter(|session| hosts.iter().any(|host| host.name == session.name()))
            .collect()
    }
}

/// A passphrase prompt that asks once for each question: all hosts of a provider share one key. That nobody could be
/// asked any more in a cancelled run is no answer.
fn asks_once() -> SharedPrompt {
    let answers: Mutex<HashMap<String, Option<String>>> = Mutex::default();
    Arc::new(move |question: &str, cancel: &Cancel| {
        let mut answers = lock(&answers);
        if let Some(answer) = answers.get(question) {
            return answer.clone();
        }
        let answer = passphrase(question, cancel);
        if !cancel.is_set() {
            answers.insert(question.to_owned(), answer.clone());
        }
        answer
    })
}

fn load_config(global: &GlobalArgs, cancels: &Cancels) -> Result<Config> {
    load(
        &discover(global.config.as_deref(), &process_env)?,
        &process_env,
        &cancels.work,
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

impl From<ViaArg> for Option<Way> {
    fn from(arg: ViaArg) -> Self {
        match arg {
            ViaArg::Auto => None,
            ViaArg::Direct => Some(Way::Direct),
            ViaArg::Host => Some(Way::Host),
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
