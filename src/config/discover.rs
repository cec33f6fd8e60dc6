//! Where the configuration file is looked for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::expand::Env;
use crate::error::{Error, Reason, Result};
use crate::shell;

/// The last place.
const SYSTEM_FILE: &str = "/etc/egressctl/providers.yaml";
/// The variable that names a file.
const VARIABLE: &str = "EGRESSCTL_CONFIG";

/// The configuration file: `--config`, `$EGRESSCTL_CONFIG`, `$XDG_CONFIG_HOME/egressctl/providers.yaml`,
/// `/etc/egressctl/providers.yaml`. One that is named must be there: another in its place would be a surprise.
pub fn discover(explicit: Option<&Path>, env: Env<'_>) -> Result<PathBuf> {
    if let Some(path) = explicit {
        return named("--config", path);
    }
    if let Some(path) = set(env, VARIABLE) {
        return named(&format!("${VARIABLE}"), Path::new(&path));
    }
    let user = user_file(env);
    let system = PathBuf::from(SYSTEM_FILE);
    for path in user.iter().chain([&system]) {
        if exists(path) {
            return Ok(path.clone());
        }
    }
    let starter = user.clone().unwrap_or(system);
    let user = match user {
        Some(path) => path.display().to_string(),
        None => "~/.config/egressctl/providers.yaml: neither XDG_CONFIG_HOME nor HOME is set"
            .to_string(),
    };
    let error = Error::usage(Reason::ConfigNotFound, "no configuration file")
        .because("--config: not given")
        .because(format!("${VARIABLE}: not set"))
        .because(format!(
            "{user}{}",
            if user.contains(": ") {
                ""
            } else {
                ": not there"
            }
        ))
        .because(format!("{SYSTEM_FILE}: not there"));
    Err(with_hint(error, &starter))
}

fn named(by: &str, path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(Error::usage(
            Reason::ConfigNotFound,
            format!("{by} names no file"),
        )
        .hint("egressctl config init --host nas1=virt@nas1.home.lan --bridge br0")
        .hint(format!(
            "that prints a starter file; without {by}, one is looked for in the usual places"
        )));
    }
    if exists(path) {
        return Ok(path.to_path_buf());
    }
    let message = format!("no configuration file {}, which {by} names", path.display());
    let mut error = Error::usage(Reason::ConfigNotFound, message);
    if let Some(target) = link_target(path) {
        error = error.because(format!("it is a link to {}: not there", target.display()));
    }
    Err(with_hint(error, path))
}

/// What a link leads to, at its end; none of what is no link.
pub fn link_target(path: &Path) -> Option<PathBuf> {
    const MOST_LINKS: usize = 40;
    let next = |path: &PathBuf| {
        let target = std::fs::read_link(path).ok()?;
        Some(path.parent()?.join(target))
    };
    std::iter::successors(next(&path.to_path_buf()), next)
        .take(MOST_LINKS)
        .last()
}

/// What to type next: a line that works once the host's own name, user and address are in it.
fn with_hint(error: Error, file: &Path) -> Error {
    // Nothing is written through a link.
    let file = link_target(file).unwrap_or_else(|| file.to_path_buf());
    error
        .hint(format!(
            "egressctl config init --host nas1=virt@nas1.home.lan --bridge br0 --write {}",
            shell::quote(&file.display().to_string())
        ))
        .hint("that writes a starter file: with your host's name, user and address; docs/hypervisor-setup.md says what the host needs")
}

fn set(env: Env<'_>, name: &str) -> Option<OsString> {
    env(name).filter(|value| !value.is_empty())
}

/// The user's own file (XDG Base Directory Specification: relative paths in the variable are to be ignored).
fn user_file(env: Env<'_>) -> Option<PathBuf> {
    let xdg = set(env, "XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let directory =
        xdg.or_else(|| set(env, "HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(directory.join("egressctl/providers.yaml"))
}

/// Whether something is there. What can't be looked at counts too: reading it will say why.
fn exists(path: &Path) -> bool {
    match path.metadata() {
        Ok(_) => true,
        Err(error) => !matches!(
            error.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
        ),
    }
}
