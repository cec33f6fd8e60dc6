//! The command line, as clap types. No I/O and no decisions: those are the commands'.
// These comments are the help texts: backticks and escapes would be printed.
#![allow(clippy::doc_markdown, rustdoc::broken_intra_doc_links)]

mod args;
mod duration;
mod enter;
mod hint;
mod output;
mod upkeep;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches as _, Parser, Subcommand};

pub use args::{
    CheckArgs, CompletionArgs, ConfigCommand, CreateArgs, DeleteArgs, GetArgs, ImageCommand,
    InitArgs, ListArgs, ManagerArg, PullArg, PullArgs, ShellArg, WaitArg, is_label_key,
};

pub use duration::life;
pub use enter::{ConsoleArgs, ExecArgs, LogsArgs, ProbeArgs, SshArgs, TargetArgs, ViaArg};
pub use output::{FORMATS, Format, ProgressArg, SortBy};
pub use upkeep::{ExtendArgs, GcArgs, ImageListArgs, ImageRmArgs, PruneArgs};

/// Run proxy VMs on your own libvirt/KVM hypervisors over nothing but SSH
#[derive(Debug, Parser)]
#[command(
    name = "egressctl",
    version,
    propagate_version = true,
    max_term_width = 80,
    after_help = "Examples:
  egressctl check
  egressctl image pull debian-13
  egressctl create --zone nas1 --image debian-13 --wait
  egressctl list
  egressctl delete proxy-k3v2mzc7p5a2xq4e

Exit status: 0 done, 1 permanent failure, 2 usage or configuration,
3 not found, 4 transient failure (try again), 5 out of room, 6 unhealthy."
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Providers file (else $EGRESSCTL_CONFIG, then
    /// $XDG_CONFIG_HOME/egressctl/providers.yaml, then
    /// /etc/egressctl/providers.yaml)
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Provider entry to use; needed where the file has several
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "EGRESSCTL_PROVIDER",
        hide_env_values = true
    )]
    pub provider: Option<String>,
    /// Output format: table, wide (more columns), json, yaml (the same document),
    /// name (one a line), or columns=NAME,IP,... (a table of these)
    /// [default: table]
    #[arg(long, short, global = true, value_name = "FORMAT",
          value_parser = output::parse_format)]
    pub output: Option<Format>,
    /// Sort by this column; -COLUMN: largest first
    #[arg(long, global = true, value_name = "COLUMN", allow_hyphen_values = true,
          value_parser = output::parse_sort)]
    pub sort_by: Option<SortBy>,
    /// Leave out the table's header line
    #[arg(long, global = true)]
    pub no_headers: bool,
    /// How progress is shown on stderr
    #[arg(long, global = true, value_enum, value_name = "HOW", default_value_t = ProgressArg::Auto)]
    pub progress: ProgressArg,
    /// Only warnings and errors on stderr: no progress, no notes
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// No colour (also: NO_COLOR)
    #[arg(long, global = true)]
    pub no_color: bool,
    /// Log every call to libvirt on stderr; twice: XML and addresses too
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What of this, and of the command's options, tells which hosts and instances are meant.
    #[arg(skip)]
    pub given: Given,
}

/// The options that tell which hosts and instances are meant, where they stand on the command line: what the environment
/// says it says to the next command, too.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// `--config`.
    pub config: Option<String>,
    /// `--provider`.
    pub provider: Option<String>,
    /// `--manager`, of the commands that have it.
    pub manager: Option<String>,
}

impl Given {
    fn of(matches: &ArgMatches) -> Self {
        let mut matches = matches;
        while let Some((_, inner)) = matches.subcommand() {
            matches = inner;
        }
        let given = |name: &str| {
            let is_known = matches.try_contains_id(name).is_ok();
            let is_given = || matches.value_source(name) == Some(ValueSource::CommandLine);
            let mut values = (is_known && is_given()).then(|| matches.get_raw(name))??;
            Some(values.next()?.to_string_lossy().into_owned())
        };
        Given {
            config: given("config"),
            provider: given("provider"),
            manager: given("manager"),
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create an instance, or make sure that it runs
    Create(Box<CreateArgs>),
    /// Show one instance
    Get(GetArgs),
    /// List the instances of all hosts
    List(ListArgs),
    /// Delete instances with their volumes
    Delete(DeleteArgs),
    /// Log in to an instance, or run a command there, by ssh
    Ssh(SshArgs),
    /// Run a command in an instance, by its guest agent
    Exec(ExecArgs),
    /// Show what cloud-init printed in an instance
    Logs(LogsArgs),
    /// Use an instance's serial console
    Console(ConsoleArgs),
    /// Fetch a page through an instance's HTTP proxy
    Probe(ProbeArgs),
    /// Set how long an instance lives from now on
    Extend(ExtendArgs),
    /// Delete what nobody needs: expired instances, leftovers of crashes
    Gc(GcArgs),
    /// Work with base images
    #[command(
        subcommand,
        after_help = "Examples:
  egressctl image pull debian-13
  egressctl image list
  egressctl image prune --dry-run"
    )]
    Image(ImageCommand),
    /// Check every host and say what is wrong
    Check(CheckArgs),
    /// Work with the providers file
    #[command(
        subcommand,
        after_help = "Examples:
  egressctl config init --host nas1=virt@nas1.home.lan --bridge br0
  egressctl config validate"
    )]
    Config(ConfigCommand),
    /// Print a shell's completion script
    Completion(CompletionArgs),
}

impl Cli {
    /// The command line of this process, or what clap has to say about it.
    pub fn of_process() -> Result<Self, clap::Error> {
        let line: Vec<OsString> = std::env::args_os().collect();
        let matches = command()
            .try_get_matches_from(&line)
            .map_err(|error| hint::helped(error, &line))?;
        let mut cli = Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command()))?;
        // A variable that is empty counts as unset; an option that is empty was a mistake.
        let from_variable = matches.value_source("provider") == Some(ValueSource::EnvVariable);
        if from_variable && cli.global.provider.as_deref() == Some("") {
            cli.global.provider = None;
        }
        cli.global.given = Given::of(&matches);
        Ok(cli)
    }
}

/// The whole command tree, for completion scripts and man pages.
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_that_was_asked_for_is_told_from_the_default() {
        let table = [
            ("egressctl gc", None),
            ("egressctl gc -o table", Some(Format::Table)),
            ("egressctl -o table gc", Some(Format::Table)),
            ("egressctl image rm x -ojson", Some(Format::Json)),
        ];
        for (line, format) in table {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.global.output, format, "{line}");
        }
    }

    #[test]
    fn what_is_given_is_told_from_defaults_wherever_it_stands() {
        let given = |line: &str| {
            let matches = command().try_get_matches_from(line.split(' ')).unwrap();
            let given = Given::of(&matches);
            [given.config, given.provider, given.manager].map(Option::unwrap_or_default)
        };
        assert_eq!(given("egressctl list"), ["", "", ""]);
        assert_eq!(
            given("egressctl --config f --provider p get web1 --manager kvm"),
            ["f", "p", "kvm"]
        );
        assert_eq!(
            given("egressctl image rm x --provider=p --config=f"),
            ["f", "p", ""]
        );
    }

    #[test]
    fn the_tree_is_sound() {
        command().debug_assert();
    }
}
