//! Paths in the configuration: `~`, `$VAR` and `${VAR}`, and what relative ones are relative to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::rules::quoted;

/// The environment, as a function so that tests can have their own.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// This process's environment, in which an unset HOME is the passwd entry's home directory: cron jobs and
/// services often have none.
pub fn process_env(name: &str) -> Option<OsString> {
    let set = std::env::var_os(name).filter(|value| !value.is_empty());
    if name != "HOME" {
        return set;
    }
    // Asks getpwuid_r(3) when HOME is unset. Deprecated until Rust 1.87 for what it did on Windows.
    #[allow(deprecated)]
    set.or_else(|| {
        std::env::home_dir()
            .map(PathBuf::into_os_string)
            .filter(|home| !home.is_empty())
    })
}

/// The absolute path that `text` means in a configuration file in the directory `base`.
pub(crate) fn file_path(text: &str, base: &Path, env: Env<'_>) -> Result<PathBuf, String> {
    if text.contains("-----BEGIN") {
        return Err("holds a key itself; write it to a file and give that file's path".to_string());
    }
    if text.is_empty() {
        return Err("is empty".to_string());
    }
    if text.chars().any(char::is_control) {
        return Err("has a control character or line break in it".to_string());
    }
    let (mut path, rest) = match text.strip_prefix('~') {
        None => (String::new(), text),
        Some(rest) if rest.is_empty() || rest.starts_with('/') => (home(env)?, rest),
        Some(_) => {
            return Err(format!(
                "{}: only one's own `~/` is expanded, write the path in full",
                quoted(text)
            ));
        }
    };
    expand_variables(rest, &mut path, env).map_err(|what| format!("{}: {what}", quoted(text)))?;
    Ok(base.join(path))
}

/// The reverse of [`file_path`] for an absolute path: the text that means it.
pub(crate) fn file_text(path: &Path) -> String {
    path.display().to_string().replace('$', "$$")
}

fn home(env: Env<'_>) -> Result<String, String> {
    let home = variable("HOME", env).map_err(|what| format!("`~` can't be expanded: {what}"))?;
    if Path::new(&home).is_absolute() {
        Ok(home)
    } else {
        Err(format!(
            "`~` can't be expanded: HOME is {}, no absolute path",
            quoted(&home)
        ))
    }
}

/// An unset variable is an error: half a path would name some other file.
fn variable(name: &str, env: Env<'_>) -> Result<String, String> {
    match env(name).map(OsString::into_string) {
        None => Err(format!("the variable {name} is not set")),
        Some(Err(_)) => Err(format!("the variable {name} is not UTF-8")),
        Some(Ok(value)) if value.is_empty() => Err(format!("the variable {name} is empty")),
        Some(Ok(value)) => Ok(value),
    }
}

fn expand_variables(text: &str, out: &mut String, env: Env<'_>) -> Result<(), String> {
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let (name, after) = match after.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or("`${` without `}`")?,
            None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
        };
        let plain = !name.is_empty()
            && name.chars().all(is_name)
            && !name.starts_with(|c: char| c.is_ascii_digit());
        if !plain {
            return Err("only $VAR, ${VAR} and $$ (for a dollar sign) are understood".to_string());
        }
        out.push_str(&variable(name, env)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(())
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
