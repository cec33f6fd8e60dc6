//! egressctl: proxy VMs on your own libvirt/KVM hypervisors, over nothing but SSH.
//!
//! Data flows one way: `cli` → `commands` → `config`, `placement` (what is meant) → `find`, `create`, `delete`, `gc`,
//! `image`, `check` (what to do) → `host` (one connection each) → `libvirt` (the seam) and `ssh` (the transport);
//! results come back as plain values, and only `output` prints them. See docs/architecture.md.
#![warn(missing_docs)]

pub mod address;
pub mod apart;
pub mod awake;
pub mod cancel;
pub mod check;
pub mod cli;
pub mod commands;
pub mod complete;
pub mod config;
pub mod console;
pub mod create;
pub mod delete;
pub mod error;
pub mod facts;
pub mod find;
#[cfg(test)]
mod fuzz;
pub mod gc;
pub mod guest;
pub mod host;
pub mod image;
pub mod input;
pub mod instance;
pub mod inventory;
mod lease;
pub mod leftover;
pub mod libvirt;
pub mod limits;
pub mod metrics;
pub mod name;
pub mod near;
pub mod output;
pub mod owner;
pub mod parallel;
pub mod placement;
pub mod probe;
pub mod reach;
pub mod seed;
pub mod sharing;
pub mod shell;
mod signals;
pub mod ssh;
pub mod ssh_client;
mod tab;
pub mod undo;
pub mod units;
pub mod url;
pub mod xml;
pub mod yaml11;

use std::process::ExitCode;

/// Runs the program: parses the command line, runs the command, prints its errors, gives the exit code.
pub fn main() -> ExitCode {
    if complete::answer() {
        return ExitCode::SUCCESS;
    }
    let cli = match cli::Cli::of_process() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(output::command_line(&error, std::env::args_os())),
    };
    let ui = output::Ui::new(&cli.global);
    start_log(cli.global.verbose, &ui);
    let cancels = host::Cancels::new();
    if let Err(error) = signals::watch(&cancels) {
        ui.error(&error);
        return ExitCode::from(error.class().exit_code());
    }
    ExitCode::from(commands::main(&cli, &ui, &cancels))
}

/// Those that never log: russh would log packets, and with them what passes through, cloud-init content too; the others
/// URLs and headers, and with them passwords and tokens.
const SILENT: [&str; 5] = ["russh", "reqwest", "hyper", "hyper_util", "h2"];

/// The filter without its directives about those: one about a module within them would count more than theirs. None
/// where nothing else is in it.
fn without_silent(filter: &str) -> Option<String> {
    // What is behind the slash is a pattern for messages.
    let (directives, pattern) = match filter.split_once('/') {
        Some((directives, pattern)) => (directives, Some(pattern)),
        None => (filter, None),
    };
    let silent = |directive: &&str| {
        SILENT
            .iter()
            .any(|module| directive.trim().starts_with(module))
    };
    let kept: Vec<&str> = directives.split(',').filter(|d| !silent(d)).collect();
    let kept = kept.join(",");
    let pattern = pattern.map(|pattern| format!("/{pattern}"));
    (!kept.trim().is_empty()).then(|| kept + &pattern.unwrap_or_default())
}

/// `-v` logs every call to libvirt, `-vv` also XML and addresses; `RUST_LOG` overrides both.
fn start_log(verbose: u8, ui: &output::Ui) {
    let level = match verbose {
        0 => "egressctl=warn",
        1 => "egressctl=info",
        _ => "egressctl=debug",
    };
    // One that is empty counts as unset.
    let filter = config::process_env("RUST_LOG");
    let filter = filter.as_ref().and_then(|text| text.to_str());
    let filter = filter.and_then(without_silent);
    let mut builder = env_logger::Builder::new();
    builder.parse_filters(filter.as_deref().unwrap_or(level));
    for module in SILENT {
        builder.filter_module(module, log::LevelFilter::Off);
    }
    builder
        .format_target(false)
        .target(env_logger::Target::Pipe(Box::new(ui.log())))
        .write_style(if ui.color() {
            env_logger::WriteStyle::Always
        } else {
            env_logger::WriteStyle::Never
        })
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_have_secrets_logged() {
        let table = [
            ("debug", Some("debug")),
            ("russh=trace", None),
            (
                "russh::client=trace,russh_keys=trace, hyper_util::client=trace",
                None,
            ),
            (
                "info,reqwest::connect=trace/password",
                Some("info/password"),
            ),
            (
                "egressctl=debug,h2::codec=trace,russh::x",
                Some("egressctl=debug"),
            ),
            ("info/russh", Some("info/russh")),
        ];
        for (filter, kept) in table {
            assert_eq!(without_silent(filter).as_deref(), kept, "{filter}");
        }
    }
}
