//! Arguments of the commands that go into an instance: exec, logs, console.

use std::time::Duration;

use clap::Args;

use super::ManagerArg;

/// Which instance is meant.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Name or ID of the instance
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Look on this host only
    #[arg(long, value_name = "HOST")]
    pub zone: Option<String>,
    /// Whose instances
    #[arg(long, value_enum, default_value_t = ManagerArg::Egressctl)]
    pub manager: ManagerArg,
}

/// `egressctl exec`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl exec web1 -- systemctl is-active squid
  egressctl exec web1 --timeout 5m -- apt-get -y upgrade
  egressctl exec web1 --stdin -- tee /etc/squid/conf.d/x.conf

Runs as root, without a terminal and without a shell: for pipes and variables
say sh -c '...'. Output comes as it is, stdout and stderr apart.

Exit status: the command's own, 128+N where signal N ended it, 127 where there
is no such command. Failures of egressctl itself: 121 permanent, 122 usage,
123 no such instance, 124 transient or --timeout.")]
pub struct ExecArgs {
    /// Which instance.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Command and its arguments
    #[arg(value_name = "CMD", last = true, required = true, num_args = 1..)]
    pub command: Vec<String>,
    /// Read stdin to its end, at most 2 MiB, and give it to the command
    #[arg(long, short = 'i')]
    pub stdin: bool,
    /// How long the command may take; it isn't ended when that is over
    /// [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub timeout: Option<Duration>,
}

/// `egressctl logs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl logs web1
  egressctl logs web1 --follow

Shows /var/log/cloud-init-output.log, read by the guest agent: what cloud-init's
own steps printed. The boot before that is on the console.")]
pub struct LogsArgs {
    /// Which instance.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Go on until cloud-init is done; waits for the guest agent first
    #[arg(long, short = 'f')]
    pub follow: bool,
}

/// `egressctl console`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl console web1
  egressctl console web1 > boot.log

The guest's serial console, as libvirt has it: press Enter for a prompt, ^] to
leave. Where stdin is no terminal, nothing is typed: the output is shown until
the domain stops or a signal ends egressctl.")]
pub struct ConsoleArgs {
    /// Which instance.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Take the console from whoever has it
    #[arg(long)]
    pub force: bool,
}
