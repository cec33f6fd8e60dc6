//! The providers configuration: found, parsed, validated and printed.
//!
//! `discover` finds the file, `yaml` makes a tree with lines of it, `wrap` finds the provider entries in
//! that, `fields` and `build` turn them into the `model` by the tables (`table`) in `keys`, collecting every problem
//! on the way.

mod address;
mod build;
mod discover;
mod expand;
mod fields;
mod init;
mod keys;
mod model;
mod problems;
mod rules;
mod schema;
mod table;
mod view;
mod wrap;
mod yaml;

#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub use address::HostSpec;
pub use build::Skipped;
pub use discover::{discover, link_target};
pub use expand::{Env, process_env};
pub use init::init;
pub use model::{
    Address, Firmware, Host, HostKeyPolicy, Image, ImageFormat, KeySource, MachineType, Nic,
    Provider, ProviderKind, Reach, SshAuth, SshTarget, VirtType,
};
pub use schema::schema;
pub use view::{hides, view, view_yaml};

use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::input;
use crate::near::nearest;
use build::Builder;
use problems::Problems;

/// Where libvirt's socket is unless `hosts[].socket` says otherwise: libvirtd's, or with modular daemons virtproxyd's.
pub const DEFAULT_SOCKET: &str = "/var/run/libvirt/libvirt-sock";

/// Largest file read, in bytes: a `ConfigMap` can't be larger.
const MAX_FILE: u64 = 1 << 20;

/// A configuration file, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file.
    pub path: PathBuf,
    /// The entries of type `kvm` and `kvm2`, in file order.
    pub providers: Vec<Provider>,
    /// The entries that belong to the operator alone.
    pub skipped: Vec<Skipped>,
}

/// Reads and validates the file at `path`, which may be a pipe, until a signal comes.
///
/// Errors: Usage; [`Reason::Interrupted`].
pub fn load(path: &Path, env: Env<'_>, cancel: &Cancel) -> Result<Config> {
    let cannot = |what: String| {
        Error::usage(
            Reason::LocalIo,
            format!("can't read the configuration file {}", path.display()),
        )
        .because(what)
    };
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::FileTooLarge => cannot(format!("{error}, so it is no providers file")),
        _ => cannot(error.to_string()),
    };
    let bytes = input::read_file(path, MAX_FILE, cancel, failed)?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text, path, env),
        Err(error) => {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let line = 1 + good.matches('\n').count();
            let mut problems = Problems::new(path);
            problems.add(line, "", "not UTF-8 text");
            Err(problems.into_error())
        }
    }
}

/// Validates the text of the file `origin`, which is named in errors and whose directory relative paths are
/// relative to. All errors of the file come at once, each a cause of the error returned. What only a create would stumble
/// over is no error here: see [`Provider::unmet`].
pub fn parse(text: &str, origin: &Path, env: Env<'_>) -> Result<Config> {
    let mut problems = Problems::new(origin);
    let absolute = std::path::absolute(origin).unwrap_or_else(|_| origin.to_path_buf());
    let base = absolute.parent().unwrap_or(Path::new("/"));
    let (mut providers, mut skipped) = (Vec::new(), Vec::new());
    if let Some(found) = wrap::find(text, &mut problems) {
        problems.enter(found.lines);
        let mut builder = Builder {
            base,
            env,
            problems: &mut problems,
        };
        (providers, skipped) = builder.entries(&found.entries, found.path);
    }
    if problems.is_empty() {
        Ok(Config {
            path: origin.to_path_buf(),
            providers,
            skipped,
        })
    } else {
        Err(problems.into_error())
    }
}

impl Config {
    /// Says so where instances can't be made by every entry; as [`parse`] tells what is wrong for every command.
    ///
    /// Errors: Usage.
    pub fn ensure_met(&self) -> Result<()> {
        let unmet = self.providers.iter().flat_map(|one| &one.unmet);
        let unmet: Vec<&str> = unmet.map(String::as_str).collect();
        if unmet.is_empty() {
            return Ok(());
        }
        let file = self.path.display().to_string();
        Err(problems::in_one_error(&file, &unmet))
    }

    /// The entry of that name; without a name, the only one.
    pub fn provider(&self, name: Option<&str>) -> Result<&Provider> {
        let names: Vec<&str> = self
            .providers
            .iter()
            .map(|provider| provider.name.as_str())
            .collect();
        let file = self.path.display();
        let unknown = |message: String| Error::usage(Reason::UnknownProvider, message);
        let Some(name) = name else {
            return match self.providers.as_slice() {
                [only] => Ok(only),
                [] => Err(unknown(format!(
                    "{file} has no provider entry of type kvm or kvm2"
                ))),
                _ => Err(unknown(format!(
                    "{file} has several provider entries: {}",
                    names.join(", ")
                ))
                .hint("pick one with --provider NAME or EGRESSCTL_PROVIDER")),
            };
        };
        if let Some(provider) = self.providers.iter().find(|provider| provider.name == name) {
            return Ok(provider);
        }
        if let Some(skipped) = self.skipped.iter().find(|skipped| skipped.name == name) {
            return Err(unknown(format!(
                "provider {} is of type {}, which only the operator drives",
                rules::quoted(name),
                skipped.kind
            )));
        }
        let meant = match nearest(name, names.iter().copied()) {
            Some(meant) => format!(" (did you mean {meant}?)"),
            None => String::new(),
        };
        let error = unknown(format!(
            "{file} has no provider entry {}{meant}",
            rules::quoted(name)
        ));
        Err(error.because(format!(
            "its entries of type kvm and kvm2: {}",
            names.join(", ")
        )))
    }
}
