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
    ui.start_log(cli.global.verbose);
    let cancels = host::Cancels::new();
    if let Err(error) = signals::watch(&cancels) {
        ui.error(&error);
        return ExitCode::from(error.class().exit_code());
    }
    ExitCode::from(commands::main(&cli, &ui, &cancels))
}
