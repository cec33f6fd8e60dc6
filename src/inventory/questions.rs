//! Asking the host's shell about files, several at once.

use crate::error::Result;
use crate::libvirt::Hypervisor;

/// Longer paths (`PATH_MAX`) don't exist.
const LONGEST_PATH: usize = 4096;

/// What a file's own question is answered with where there is no such file.
pub(super) const GONE: &str = "gone";

/// What is printed where it can't be told.
pub(super) const UNKNOWN: &str = "unknown";

/// The host's answer about each of these paths, as far as it gives any. `question` is a shell command that prints one line
/// about the file `$f`, which exists, or [`UNKNOWN`], which is no answer; [`GONE`] is the answer where there is no such file.
///
/// Errors: a lost connection. Where the host runs no commands for us, there is no answer.
pub(super) fn ask(
    hypervisor: &dyn Hypervisor,
    paths: &[String],
    question: &str,
) -> Result<Vec<(String, Option<String>)>> {
    let unanswered = || paths.iter().map(|path| (path.clone(), None)).collect();
    let plain: Vec<&String> = paths.iter().filter(|path| is_plain(path)).collect();
    if plain.is_empty() {
        return Ok(unanswered());
    }
    let answer = hypervisor.host_command(&command(&plain, question))?;
    let answer = answer.unwrap_or_default();
    let mut lines: Vec<&str> = answer.lines().collect();
    // Without the last line it wasn't our command that ran (a forced command, say), or not all of it.
    if lines.pop() != Some("end") || lines.len() != plain.len() {
        return Ok(unanswered());
    }
    let mut lines = lines.into_iter();
    let answers = paths.iter().map(|path| {
        let line = if is_plain(path) { lines.next() } else { None };
        let line = line.filter(|line| *line != UNKNOWN);
        (path.clone(), line.map(str::to_owned))
    });
    Ok(answers.collect())
}

/// Whether a path can be put between single quotes in every shell.
fn is_plain(path: &str) -> bool {
    let strange = |c: char| c == '\'' || c == '\\' || c.is_control();
    path.starts_with('/') && path.len() < LONGEST_PATH && !path.contains(strange)
}

/// One line for each path: the question's, [`GONE`], or [`UNKNOWN`]. A file is gone only if the directory it would be in can be
/// read and has others: an empty one may be a file system that isn't mounted. The user's shell may be any, so that sh is
/// named.
fn command(paths: &[&String], question: &str) -> String {
    let words: Vec<String> = paths.iter().map(|path| format!("'{path}'")).collect();
    format!(
        "sh -c 'for f do \
           d=\"${{f%/*}}\"; \
           if [ -f \"$f\" ] || [ -b \"$f\" ]; then \
             {question}; \
           elif [ ! -e \"$f\" ] && [ ! -L \"$f\" ] && [ -x \"$d\" ] && [ -n \"$(ls -A \"$d\" 2>/dev/null)\" ]; then \
             echo {GONE}; \
           else echo {UNKNOWN}; fi; \
         done; echo end' sh {}",
        words.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_a_shell_could_misread_are_not_asked_for() {
        for path in ["/srv/x.qcow2", "/srv/a b $c \"d\".qcow2"] {
            assert!(is_plain(path), "{path}");
        }
        for path in ["srv", "/a'b", "/a\\b", "/a\nb"] {
            assert!(!is_plain(path), "{path}");
        }
    }
}
