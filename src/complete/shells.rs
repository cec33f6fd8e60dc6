//! What bash and zsh do otherwise than `clap_complete` expects.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::engine::complete;
use clap_complete::env::{Bash, EnvCompleter, Zsh};

/// bash splits words at `=` and wants only the last piece back; clap wants `--zone=nas1` whole.
pub(super) struct SplittingBash;

impl EnvCompleter for SplittingBash {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let mut script = Vec::new();
        Bash.write_registration(var, name, bin, completer, &mut script)?;
        // After `--wait=` the word to complete is empty, and `=` would be lost under it.
        let script = String::from_utf8_lossy(&script).replace(
            "-ge 4 ]]; then\n        words[COMP_CWORD]",
            "-ge 4 && \"${words[COMP_CWORD]}\" != \"=\" ]]; then\n        words[COMP_CWORD]",
        );
        buf.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let variable = |name: &str| std::env::var(name).ok();
        let index = variable("_CLAP_COMPLETE_INDEX").and_then(|index| index.parse().ok());
        let (args, index, prefix) = join_at_equals(args, index.unwrap_or_default());
        let separator = variable("_CLAP_IFS").unwrap_or_else(|| "\n".to_owned());
        let mut values: Vec<String> = complete(cmd, args, index, current_dir)?
            .iter()
            .map(|candidate| candidate.get_value().to_string_lossy().into_owned())
            .map(|value| value.strip_prefix(&prefix).unwrap_or(&value).to_owned())
            .collect();
        // Where a value is due, all the options that could stand here too are noise.
        if values.iter().any(|value| !value.starts_with('-')) {
            values.retain(|value| !value.starts_with('-'));
        }
        buf.write_all(values.join(&separator).as_bytes())
    }
}

/// zsh runs a file of its fpath as the completion's first call: it must answer that call, not only register itself.
pub(super) struct AutoloadedZsh;

impl EnvCompleter for AutoloadedZsh {
    fn name(&self) -> &'static str {
        Zsh.name()
    }

    fn is(&self, name: &str) -> bool {
        Zsh.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        Zsh.write_registration(var, name, bin, completer, buf)?;
        write!(
            buf,
            "\nif [ \"$funcstack[1]\" = \"_{name}\" ]; then\n    _clap_dynamic_completer_{name} \"$@\"\nfi\n"
        )
    }

    fn write_complete(
        &self,
        cmd: &mut Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        Zsh.write_complete(cmd, args, current_dir, buf)
    }
}

/// Puts `--zone`, `=`, `nas` together again; also gives the new index of the word to complete, and what of that word
/// the shell has put aside.
pub(super) fn join_at_equals(args: Vec<OsString>, index: usize) -> (Vec<OsString>, usize, String) {
    let mut joined: Vec<OsString> = Vec::new();
    let (mut new_index, mut prefix) = (index, String::new());
    let mut after_equals = false;
    for (place, word) in args.into_iter().enumerate() {
        let option = joined
            .last()
            .is_some_and(|last| last.to_string_lossy().starts_with("--"));
        let glue = after_equals || (word == "=" && option);
        after_equals = word == "=" && glue;
        match joined.last_mut().filter(|_| glue) {
            Some(last) => {
                if place == index {
                    let aside = if word == "=" { "=" } else { "" };
                    prefix = format!("{}{aside}", last.to_string_lossy());
                }
                last.push(word);
            }
            None => joined.push(word),
        }
        if place == index {
            new_index = joined.len() - 1;
        }
    }
    (joined, new_index, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn what_bash_split_is_joined_again() {
        // Words, index; joined words, index, prefix.
        type Case<'a> = (&'a [&'a str], usize, &'a [&'a str], usize, &'a str);
        let table: &[Case<'_>] = &[
            (&["e", "list", "--zo"], 2, &["e", "list", "--zo"], 2, ""),
            (
                &["e", "--zone", "=", "na"],
                3,
                &["e", "--zone=na"],
                1,
                "--zone=",
            ),
            (&["e", "--wait", "="], 2, &["e", "--wait="], 1, "--wait="),
            (
                &["e", "--zone", "=", "a", "get", ""],
                5,
                &["e", "--zone=a", "get", ""],
                3,
                "",
            ),
            (
                &["e", "--label", "=", "a", "=", "b"],
                5,
                &["e", "--label=a=b"],
                1,
                "--label=a=",
            ),
            (&["e", "get", "=", "x"], 3, &["e", "get", "=", "x"], 3, ""),
        ];
        for (words, index, joined, new_index, prefix) in table {
            let found = join_at_equals(os(words), *index);
            assert_eq!(
                found,
                (os(joined), *new_index, (*prefix).to_owned()),
                "{words:?}"
            );
        }
    }
}
