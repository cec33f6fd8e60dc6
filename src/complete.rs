//! Completion by the shell: answers `COMPLETE=bash egressctl -- WORD…`, and prints the script that makes a shell ask.
//!
//! Names of hosts, images and machine types come from the configuration, names of instances from the hosts
//! themselves. Whatever goes wrong is kept quiet: somebody is typing.

mod instances;
mod shells;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Arg, Command};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{EnvCompleter, Fish, Shells};

use crate::cancel::Cancel;
use crate::cli::{FORMATS, ShellArg, command};
use crate::config::{Config, Provider, discover, load, process_env};
use crate::placement::AUTO;
use shells::{AutoloadedZsh, SplittingBash, join_at_equals};

/// The variable by which the scripts ask; its value names the shell.
const VARIABLE: &str = "COMPLETE";
/// What the scripts call, found on the PATH.
const PROGRAM: &str = "egressctl";

/// Answers the shell that asks for completions; false where this run is none of that.
pub fn answer() -> bool {
    let shell = std::env::var_os(VARIABLE).unwrap_or_default();
    let known = ["bash", "zsh", "fish"];
    // Any other value is somebody else's variable.
    if Path::new(&shell)
        .file_name()
        .is_none_or(|name| !known.iter().any(|shell| name == *shell))
    {
        return false;
    }
    let words = Arc::new(Words::after_escape(std::env::args_os()));
    let request = CompleteEnv::with_factory(|| with_candidates(command(), &words))
        .var(VARIABLE)
        .bin(PROGRAM)
        .completer(PROGRAM)
        .shells(Shells(&[&SplittingBash, &AutoloadedZsh, &Fish]));
    let directory = std::env::current_dir().ok();
    if let Err(error) = request.try_complete(std::env::args_os(), directory.as_deref()) {
        log::debug!("completion: {error}");
    }
    true
}

/// The script that makes a shell ask; it finds egressctl on the PATH.
pub fn script(shell: ShellArg) -> String {
    let completer: &dyn EnvCompleter = match shell {
        ShellArg::Bash => &SplittingBash,
        ShellArg::Zsh => &AutoloadedZsh,
        ShellArg::Fish => &Fish,
    };
    let mut script = Vec::new();
    // Writing to memory doesn't fail.
    let _ = completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script);
    String::from_utf8_lossy(&script).trim().to_owned() + "\n"
}

/// What an argument's value is, for completion.
#[derive(Clone, Copy)]
enum Values {
    Providers,
    Hosts,
    HostsOrAuto,
    Images,
    MachineTypes,
    Instances,
    Waits,
    Formats,
}

impl Values {
    /// By the argument's name, which is the same in all subcommands.
    fn of(arg: &Arg, command: &str) -> Option<Self> {
        let instance = arg.is_positional()
            && arg
                .get_value_names()
                .is_some_and(|names| names.iter().any(|name| name == "NAME"));
        match arg.get_id().as_str() {
            "provider" => Some(Values::Providers),
            "zone" if command == "create" => Some(Values::HostsOrAuto),
            "zone" => Some(Values::Hosts),
            "image" => Some(Values::Images),
            "machine_type" => Some(Values::MachineTypes),
            "wait" => Some(Values::Waits),
            "output" => Some(Values::Formats),
            _ => instance.then_some(Values::Instances),
        }
    }

    fn candidates(self, words: &Words, current: &str) -> Vec<(String, Option<String>)> {
        let from_providers = |names: fn(&Provider) -> Vec<String>| {
            let names = words.providers().iter().flat_map(names).collect::<Vec<_>>();
            names.into_iter().map(|name| (name, None)).collect()
        };
        match self {
            Values::Providers => words
                .config()
                .map(|config| config.providers)
                .unwrap_or_default()
                .into_iter()
                .map(|provider| (provider.name, None))
                .collect(),
            Values::Hosts => {
                from_providers(|provider| provider.hosts.iter().map(|h| h.name.clone()).collect())
            }
            Values::HostsOrAuto => {
                let mut hosts = Values::Hosts.candidates(words, current);
                // With one host there is nothing to choose.
                if hosts.len() > 1 {
                    hosts.push((AUTO.to_owned(), None));
                }
                hosts
            }
            Values::Images => {
                from_providers(|provider| provider.images.iter().map(|i| i.key.clone()).collect())
            }
            Values::MachineTypes => from_providers(|provider| {
                let types = provider.machine_types.iter();
                types.map(|machine| machine.key.clone()).collect()
            }),
            Values::Instances => instances::candidates(words, current),
            Values::Formats => FORMATS.map(|word| (word.to_owned(), None)).into(),
            Values::Waits => ["ip", "agent", "cloud-init", "port:"]
                .map(|what| (what.to_owned(), None))
                .into(),
        }
    }
}

/// The command tree with our candidates wherever an argument's values are known.
fn with_candidates(command: Command, words: &Arc<Words>) -> Command {
    let name = command.get_name().to_owned();
    let add = |arg: Arg| match Values::of(&arg, &name) {
        None => arg,
        Some(values) => {
            let words = Arc::clone(words);
            arg.add(ArgValueCompleter::new(move |current: &OsStr| {
                let current = current.to_string_lossy();
                let mut found = values.candidates(&words, &current);
                found.retain(|(value, _)| value.starts_with(&*current));
                found.into_iter().map(candidate).collect()
            }))
        }
    };
    command
        .mut_args(add)
        .mut_subcommands(|subcommand| with_candidates(subcommand, words))
}

fn candidate((value, help): (String, Option<String>)) -> CompletionCandidate {
    CompletionCandidate::new(value).help(help.map(Into::into))
}

/// The command line so far, of which only a few options matter here.
struct Words(Vec<String>);

impl Words {
    /// The words after `--`, as the scripts pass them on; bash's are split at `=`.
    fn after_escape(args: impl Iterator<Item = OsString>) -> Self {
        let words = args.skip_while(|word| word != "--").skip(1).collect();
        let (joined, ..) = join_at_equals(words, 0);
        Words(
            joined
                .into_iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
        )
    }

    /// The value of a long option, the last one given.
    fn value_of(&self, option: &str) -> Option<&str> {
        let mut found = None;
        for (place, word) in self.0.iter().enumerate() {
            match word.strip_prefix(option) {
                Some("") => found = self.0.get(place + 1).map(String::as_str).or(found),
                Some(rest) => found = rest.strip_prefix('=').or(found),
                None => {}
            }
        }
        found.filter(|value| !value.is_empty())
    }

    fn config_path(&self) -> Option<PathBuf> {
        // The shell hands its words over before it expands them.
        let named = self.value_of("--config").map(|path| {
            let home = process_env("HOME");
            match (path.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => Path::new(&home).join(rest),
                _ => PathBuf::from(path),
            }
        });
        discover(named.as_deref(), &process_env).ok()
    }

    fn config(&self) -> Option<Config> {
        load(&self.config_path()?, &process_env, &Cancel::new()).ok()
    }

    /// The provider meant; all of them where that is still open.
    fn providers(&self) -> Vec<Provider> {
        let Some(config) = self.config() else {
            return Vec::new();
        };
        let variable = process_env("EGRESSCTL_PROVIDER");
        let variable = variable.as_ref().map(|name| name.to_string_lossy());
        let named = self.value_of("--provider").or(variable.as_deref());
        match (config.provider(named), named) {
            (Ok(provider), _) => vec![provider.clone()],
            (Err(_), None) => config.providers,
            (Err(_), Some(_)) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn options_are_found_among_the_words() {
        let words = |words: &[&str]| Words::after_escape(os(words).into_iter());
        let split = words(&["egressctl", "--", "egressctl", "--config", "=", "/a", "get"]);
        assert_eq!(split.value_of("--config"), Some("/a"));
        let last = words(&["x", "--", "x", "--zone", "a", "--zone=b"]);
        assert_eq!(last.value_of("--zone"), Some("b"));
        assert_eq!(last.value_of("--zon"), None);
        assert_eq!(words(&["x", "--", "x", "--zone="]).value_of("--zone"), None);
        assert_eq!(words(&["x", "--zone", "a"]).value_of("--zone"), None);
    }

    #[test]
    fn scripts_call_the_program_by_its_name_alone() {
        for shell in [ShellArg::Bash, ShellArg::Zsh, ShellArg::Fish] {
            let script = script(shell);
            assert!(
                script.contains("egressctl\" --") || script.contains("egressctl --"),
                "{script}"
            );
            assert!(!script.contains("target"), "{script}");
        }
        assert!(script(ShellArg::Bash).contains("!= \"=\" ]]"));
    }
}
