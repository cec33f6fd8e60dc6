//! Arguments of the commands that look after what there is: gc, extend, image list, prune and rm.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;

/// `egressctl gc`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl gc --dry-run --explain
  egressctl gc --quiet --metrics /var/lib/node_exporter/egressctl_gc.prom
  egressctl gc --keep wanted-uids --dry-run

Deletes expired instances, volumes without an instance and unfinished base
images; with --keep also instances that aren't listed, with --images also
unused base images. What is in doubt stays. Silent when there is nothing to do.")]
#[allow(clippy::struct_excessive_bools)] // Each is a switch of its own.
pub struct GcArgs {
    /// Decide and print, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Delete our instances that aren't in this file (- for stdin): one uid,
    /// name or ID a line; # begins a comment. Listed ones stay even when
    /// expired. It must name all that are to stay on these hosts, whichever
    /// provider entry or machine made them
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub keep: Option<PathBuf>,
    /// A keep list that is empty, or names no instance there is, is meant: keep
    /// none
    #[arg(long, requires = "keep")]
    pub keep_none: bool,
    /// Nothing younger than this goes
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::any)]
    pub min_age: Duration,
    /// Sweep the other hosts where one can't be read in full
    #[arg(long)]
    pub partial: bool,
    /// Also unused base images that the configuration doesn't want any more
    #[arg(long)]
    pub images: bool,
    /// Also show what was kept, and why
    #[arg(long)]
    pub explain: bool,
    /// Write metrics to this file, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub metrics: Option<PathBuf>,
    /// Only this host (can be repeated)
    #[arg(long, value_name = "HOST")]
    pub zone: Vec<String>,
}

/// `egressctl extend`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl extend web1 2h
  egressctl extend web1 --never")]
pub struct ExtendArgs {
    /// Name or ID of the instance
    #[arg(value_name = "NAME")]
    pub name: String,
    /// How long it shall live from now on, such as 2h
    #[arg(value_name = "DURATION", value_parser = duration::ttl,
          required_unless_present = "never", conflicts_with = "never")]
    pub duration: Option<Duration>,
    /// Let it live until it is deleted
    #[arg(long)]
    pub never: bool,
    /// Look on this host only
    #[arg(long, value_name = "HOST")]
    pub zone: Option<String>,
}

/// `egressctl image list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl image list
  egressctl image list --zone nas1 -o json")]
pub struct ImageListArgs {
    /// Only this host (can be repeated)
    #[arg(long, value_name = "HOST")]
    pub zone: Vec<String>,
}

/// `egressctl image prune`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl image prune --dry-run
  egressctl image prune --older-than 30d

Deletes base images that nothing uses and the configuration doesn't want any
more, and what unfinished pulls left.")]
pub struct PruneArgs {
    /// Decide and print, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Only images pulled longer ago than this
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::any)]
    pub older_than: Duration,
    /// Also show what was kept, and why
    #[arg(long)]
    pub explain: bool,
    /// Only this host (can be repeated)
    #[arg(long, value_name = "HOST")]
    pub zone: Vec<String>,
}

/// `egressctl image rm`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  egressctl image rm debian-12
  egressctl image rm base-debian-12-0123456789abcdef.qcow2 --zone nas1
  egressctl image rm https://example.net/debian-12.qcow2")]
pub struct ImageRmArgs {
    /// A base image's volume; or an image's key or the URL it was pulled from:
    /// then all of its volumes
    #[arg(value_name = "VOLUME|IMAGE|URL")]
    pub image: String,
    /// Only on this host (can be repeated) [default: all]
    #[arg(long, value_name = "HOST")]
    pub zone: Vec<String>,
}
