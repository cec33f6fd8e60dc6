//! Each subcommand's arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::duration;
use super::enter::TargetArgs;
use super::upkeep::{ImageListArgs, ImageRmArgs, PruneArgs};

/// `egressctl create`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl create --zone nas1 --image debian-13
  egressctl create --image debian-13 --user-data squid.yaml --wait -o name
  egressctl create --image debian-13 --ttl 24h --label team=search
  egressctl create --zone auto --count 4 --name web --image debian-13")]
pub struct CreateArgs {
    /// Host to create it on; may be left out where there is only one. auto: the
    /// one with the image cached and most room
    #[arg(long, value_name = "HOST")]
    pub zone: Option<String>,
    /// Image: a key of the configuration's images, or an http(s) URL; may be
    /// left out where there is only one
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// When the image's server is asked
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = PullArg::Missing)]
    pub pull: PullArg,
    /// Machine type [default: the configuration's first]
    #[arg(long, value_name = "TYPE")]
    pub machine_type: Option<String>,
    /// Name, which is also the host name [default: made from the uid]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Identity for repeated runs: the same uid is the same instance
    /// [default: random]
    #[arg(long, value_name = "UID")]
    pub uid: Option<String>,
    /// Create so many at once: NAME-1 to NAME-N, or with names of their own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub count: Option<u32>,
    /// cloud-init user-data file, - for stdin; passed on byte for byte
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub user_data: Option<PathBuf>,
    /// cloud-init network-config file, - for stdin (one of the two)
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub network_config: Option<PathBuf>,
    /// Disk size in GiB [default: the configuration's diskSizeGb]
    #[arg(long, value_name = "GIB", value_parser = parse_gib)]
    pub disk_size: Option<u64>,
    /// Time to live, such as 24h: gc deletes it afterwards
    #[arg(long, value_name = "DURATION", value_parser = duration::ttl)]
    pub ttl: Option<Duration>,
    /// Label (can be repeated)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub labels: Vec<(String, String)>,
    /// Wait until it is ready: ip (an address is known), agent (the guest agent
    /// answers), cloud-init (cloud-init is done), port:N (TCP port N listens)
    #[arg(long, value_name = "WHAT", num_args = 0..=1,
          default_missing_value = "ip", value_parser = parse_wait)]
    pub wait: Option<WaitArg>,
    /// How long to wait, with --wait
    #[arg(long, value_name = "DURATION", default_value = "10m", requires = "wait",
          value_parser = duration::limit)]
    pub timeout: Duration,
    /// Print what would be made, and make nothing
    #[arg(long)]
    pub dry_run: bool,
}

fn parse_gib(text: &str) -> Result<u64, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = text.parse().ok().filter(|gib| (1..=65536).contains(gib));
        return number.ok_or_else(|| format!("{text} is not in 1..=65536"));
    }
    Err("it is a number of GiB, without a unit, such as 10".to_owned())
}

/// What `create --wait` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitArg {
    /// An address is known.
    Ip,
    /// The guest agent answers.
    Agent,
    /// cloud-init is done.
    CloudInit,
    /// This TCP port listens.
    Port(u16),
}

fn parse_wait(text: &str) -> Result<WaitArg, String> {
    match text {
        "ip" => Ok(WaitArg::Ip),
        "agent" => Ok(WaitArg::Agent),
        "cloud-init" => Ok(WaitArg::CloudInit),
        other => other
            .strip_prefix("port:")
            .and_then(|port| port.parse().ok())
            .filter(|port| *port != 0)
            .map(WaitArg::Port)
            .ok_or_else(|| "expected ip, agent, cloud-init or port:N".to_owned()),
    }
}

/// Whether a label can have this key.
pub fn is_label_key(key: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    (1..=63).contains(&key.len()) && key.chars().all(plain)
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    if !is_label_key(key) {
        return Err("a key has 1 to 63 letters, digits or ._-/".to_owned());
    }
    if value.len() > 255 || value.chars().any(char::is_control) {
        return Err("a value has at most 255 bytes and no control characters".to_owned());
    }
    if value.contains(',') {
        return Err("a value has no comma: repeat --label for another label".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// When an image's server is asked for it. A pinned image that is ready is never asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PullArg {
    /// Always: a newer image behind the same URL is pulled
    Always,
    /// If no image of that URL is ready on the host
    Missing,
    /// Never: use what is ready, else fail
    Never,
}

/// Whose instances are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ManagerArg {
    /// Ours
    Egressctl,
    /// The operator's, of type kvm
    Kvm,
    /// The operator's, of type kvm2
    Kvm2,
    /// All of these
    All,
}

/// `egressctl get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl get web1
  egressctl get hosts/nas1/domains/web1 -o json")]
pub struct GetArgs {
    /// Which instance.
    #[command(flatten)]
    pub target: TargetArgs,
}

/// `egressctl list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl list
  egressctl list --selector team=search -o json
  egressctl list --zone nas1 --manager all -o wide")]
pub struct ListArgs {
    /// Only this host (can be repeated)
    #[arg(long, value_name = "HOST")]
    pub zone: Vec<String>,
    /// Whose instances
    #[arg(long, value_enum, default_value_t = ManagerArg::Egressctl)]
    pub manager: ManagerArg,
    /// Only instances with this label (== is = too); KEY alone: whatever its
    /// value. Several, separated by commas or repeated: those with all of them
    #[arg(long, short = 'l', value_name = "KEY[=VALUE]", value_delimiter = ',')]
    pub selector: Vec<String>,
    /// List again every so often until interrupted
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true,
          default_missing_value = "2s", value_parser = duration::pause)]
    pub watch: Option<Duration>,
}

/// `egressctl delete`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl delete web1 web2
  egressctl delete web1 --dry-run
  egressctl delete hosts/nas1/domains/web1")]
pub struct DeleteArgs {
    /// Names or IDs of the instances
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Print what would go, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Look on this host only
    #[arg(long, value_name = "HOST")]
    pub zone: Option<String>,
    /// Whose instances
    #[arg(long, value_enum, default_value_t = ManagerArg::Egressctl)]
    pub manager: ManagerArg,
}

/// `egressctl image …`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Make an image ready on hosts, from one download
    Pull(PullArgs),
    /// List the base images on the hosts
    List(ImageListArgs),
    /// Delete base images that nobody uses or wants
    Prune(PruneArgs),
    /// Delete one image's base volumes, unless they are used
    Rm(ImageRmArgs),
}

/// `egressctl image pull`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl image pull debian-13
  egressctl image pull debian-13 --zone nas1 --zone nas2")]
pub struct PullArgs {
    /// Image: a key of the configuration's images, or an http(s) URL
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Only to this host (can be repeated) [default: all]
    #[arg(long, value_name = "HOST")]
    pub zone: Vec<String>,
    /// When the image's server is asked
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = PullArg::Always)]
    pub pull: PullArg,
}

/// `egressctl check`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl check
  egressctl check --zone nas1 -o json")]
pub struct CheckArgs {
    /// Only this host (can be repeated)
    #[arg(long, value_name = "HOST")]
    pub zone: Vec<String>,
    /// Write metrics to this file, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub metrics: Option<PathBuf>,
}

/// `egressctl config …`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the file and report every error in it
    #[command(after_help = "Examples:
  egressctl config validate
  egressctl config validate --config providers.yaml")]
    Validate,
    /// Print the provider with every default filled in
    #[command(after_help = "Examples:
  egressctl config view
  egressctl config view --provider home -o json")]
    View,
    /// Print the file's JSON schema
    #[command(after_help = "Examples:
  egressctl config schema > providers.schema.json")]
    Schema,
    /// Print or write a commented starter file
    Init(InitArgs),
}

/// `egressctl config init`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl config init --host nas1=virt@nas1.home.lan:22 --bridge br0
  egressctl config init --host nas1=virt@nas1.home.lan --write providers.yaml")]
pub struct InitArgs {
    /// Host as NAME=USER@ADDRESS[:PORT] (can be repeated)
    #[arg(long = "host", value_name = "HOST", required = true)]
    pub hosts: Vec<String>,
    /// Bridge on the hosts
    #[arg(long, default_value = "br0")]
    pub bridge: String,
    /// Write to this file, which must not exist yet; - for stdout, the default
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub write: Option<PathBuf>,
}

/// `egressctl completion`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl completion bash > /etc/bash_completion.d/egressctl
  egressctl completion zsh > /usr/local/share/zsh/site-functions/_egressctl
  egressctl completion fish > ~/.config/fish/completions/egressctl.fish")]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: ShellArg,
}

/// Shells with completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShellArg {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_may_stand_apart() {
        use clap::Parser as _;
        let port = Some(WaitArg::Port(3128));
        let table = [
            (&["--wait=port:3128"][..], port),
            (&["--wait", "port:3128"], port),
            (&["--wait", "--name", "web1"], Some(WaitArg::Ip)),
            (&["--name", "web1", "--wait"], Some(WaitArg::Ip)),
            (&["--name", "web1"], None),
        ];
        for (args, wanted) in table {
            let line = [&["egressctl", "create"], args].concat();
            let cli = crate::cli::Cli::try_parse_from(line).unwrap();
            let crate::cli::Command::Create(create) = cli.command else {
                panic!("{args:?}");
            };
            assert_eq!(create.wait, wanted, "{args:?}");
        }
    }

    #[test]
    fn a_disk_size_is_a_number_of_gib() {
        assert_eq!(parse_gib("10"), Ok(10));
        assert_eq!(parse_gib("65536"), Ok(65536));
        for far in ["0", "65537", "99999999999999999999"] {
            assert!(
                parse_gib(far).unwrap_err().contains("not in 1..=65536"),
                "{far}"
            );
        }
        for odd in ["10G", "10GiB", "", "ten", "+10", "1.5"] {
            assert!(
                parse_gib(odd).unwrap_err().contains("number of GiB"),
                "{odd}"
            );
        }
    }

    #[test]
    fn waits_are_parsed() {
        assert_eq!(parse_wait("port:3128"), Ok(WaitArg::Port(3128)));
        assert_eq!(parse_wait("cloud-init"), Ok(WaitArg::CloudInit));
        for bad in ["port:", "port:0", "port:99999", "address", ""] {
            assert!(parse_wait(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn selectors_are_separated_by_commas_or_repeated() {
        let line = ["egressctl", "list", "-l", "a=b,c", "--selector", "d=e"];
        let cli = <crate::cli::Cli as clap::Parser>::parse_from(line);
        let crate::cli::Command::List(args) = cli.command else {
            panic!("another command");
        };
        assert_eq!(args.selector, ["a=b", "c", "d=e"]);
    }

    #[test]
    fn labels_are_key_and_value() {
        assert_eq!(parse_label("a=b=c"), Ok(("a".into(), "b=c".into())));
        for bad in ["a", "=b", "a b=c", "a=\n", "a=b,c=d"] {
            assert!(parse_label(bad).is_err(), "{bad:?}");
        }
    }
}
