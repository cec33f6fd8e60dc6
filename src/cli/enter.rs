//! Arguments of the commands that go into an instance: exec, logs, console, ssh, probe.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{ManagerArg, duration};
use crate::url::SecretUrl;

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
    /// How long the command may take; it is ended when that is over
    /// [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = duration::limit)]
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

/// Which way a port of an instance is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ViaArg {
    /// From here if that works, else from the host
    Auto,
    /// From this machine
    Direct,
    /// From the instance's host, through its SSH connection
    Host,
}

/// `egressctl ssh`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl ssh web1 --user debian
  egressctl ssh web1 -u debian -- sudo journalctl -u squid
  egressctl ssh web1 -u debian -t -- sudo htop

Runs the system's ssh with your own ~/.ssh/config. The instance's host keys are
read by its guest agent, so nothing is trusted on first use; where no agent
answers, your own known_hosts decides, with a warning.

Exit status: ssh's, which is the command's; 255 is ssh's own. Failures of
egressctl itself: 121 permanent, 122 usage, 123 no such instance, 124 transient.")]
pub struct SshArgs {
    /// Which instance.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Command and its arguments, read by the user's shell [default: a shell]
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<String>,
    /// User in the instance [default: ssh's own choice]
    #[arg(long, short = 'u', value_name = "USER",
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub user: Option<String>,
    /// Private key for the instance [default: ssh's own choice]
    #[arg(long, short = 'i', value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub identity: Option<PathBuf>,
    /// sshd's port in the instance
    #[arg(long, value_name = "PORT", default_value_t = 22, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Give the command a terminal
    #[arg(long, short = 't')]
    pub tty: bool,
    /// Which way to go
    #[arg(long, value_enum, value_name = "WAY", default_value_t = ViaArg::Auto)]
    pub via: ViaArg,
}

/// `egressctl probe`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl probe web1
  egressctl probe web1 --port 8888 -o json
  egressctl probe web1 --url https://example.com/

The page should answer with the address it is asked from, as plain text or as
JSON with ip or origin: that is the egress address. Other pages do, too, but
tell none. Redirects aren't followed. Exit status 6: no answer through the
proxy, or one with a status of 400 or more.")]
pub struct ProbeArgs {
    /// Which instance.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Page to fetch
    #[arg(long, value_name = "URL", default_value = "https://checkip.amazonaws.com/",
          value_hint = clap::ValueHint::Url)]
    pub url: SecretUrl,
    /// The HTTP proxy's port in the instance
    #[arg(long, value_name = "PORT", default_value_t = 3128, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// How long the page may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::limit)]
    pub timeout: Duration,
    /// Which way to go to the proxy
    #[arg(long, value_enum, value_name = "WAY", default_value_t = ViaArg::Auto)]
    pub via: ViaArg,
}
