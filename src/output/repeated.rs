//! egressctl's own command lines in hints, with the options of this run: pasted, they mean the same hosts and instances.

use crate::cli::{Given, command};
use crate::error::Error;
use crate::shell;

/// How a command line of ours begins.
const NAME: &str = "egressctl ";

/// The options to repeat.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    /// Those of every command that reads the providers file, and their values for a shell.
    global: Vec<(&'static str, String)>,
    manager: Option<String>,
}

impl Repeated {
    pub(super) fn new(given: &Given) -> Self {
        let option = |name, value: &Option<String>| Some((name, shell::quote(value.as_ref()?)));
        let global = [
            option("--config", &given.config),
            option("--provider", &given.provider),
        ];
        Repeated {
            global: global.into_iter().flatten().collect(),
            manager: given.manager.clone(),
        }
    }

    /// The text with them in each command line that takes them, and hasn't got them.
    pub(super) fn in_text(&self, text: &str) -> String {
        if self.global.is_empty() && self.manager.is_none() {
            return text.to_owned();
        }
        let mut parts = text.split(NAME);
        let mut shown = parts.next().unwrap_or_default().to_owned();
        for line in parts {
            // `/usr/bin/egressctl` is fine; `my-egressctl` is another's.
            let is_ours = !shown.ends_with(|c: char| c.is_alphanumeric() || "-_.".contains(c));
            shown.push_str(NAME);
            shown.push_str(&if is_ours {
                self.in_line(line)
            } else {
                line.to_owned()
            });
        }
        shown
    }

    /// The same of an error's hints.
    pub(super) fn in_error(&self, error: &Error) -> Error {
        error.clone().map_hints(|hint| self.in_text(hint))
    }

    /// `line` is what follows our name.
    fn in_line(&self, line: &str) -> String {
        let word =
            |text: &str| -> String { text.chars().take_while(char::is_ascii_lowercase).collect() };
        let name = word(line);
        let rest = &line[name.len()..];
        let tree = command();
        let Some(found) = tree.find_subcommand(&name) else {
            return line.to_owned();
        };
        // These read no providers file.
        let inner = word(rest.trim_start());
        if name == "completion" || (name == "config" && ["init", "schema"].contains(&&*inner)) {
            return line.to_owned();
        }
        let missing = self
            .global
            .iter()
            .filter(|(option, _)| !rest.contains(option));
        let mut words: Vec<String> = missing
            .map(|(option, value)| format!("{option} {value}"))
            .collect();
        words.push(name);
        let takes_manager = found.get_arguments().any(|arg| arg.get_id() == "manager");
        if let Some(manager) = self.manager.as_ref()
            && takes_manager
            && !rest.contains("--manager")
        {
            words.push(format!("--manager {manager}"));
        }
        words.join(" ") + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_in_hints_mean_the_same_hosts_and_instances() {
        let given = Given {
            config: Some("my providers.yaml".to_owned()),
            provider: Some("home".to_owned()),
            manager: Some("kvm".to_owned()),
        };
        let repeated = Repeated::new(&given);
        let all = "egressctl --config 'my providers.yaml' --provider home";
        let table = [
            ("egressctl check", format!("{all} check")),
            ("egressctl list", format!("{all} list --manager kvm")),
            (
                "or egressctl delete hosts/nas1/domains/web, `egressctl image list -o wide`",
                format!(
                    "or {all} delete --manager kvm hosts/nas1/domains/web, `{all} image list -o wide`"
                ),
            ),
            (
                "egressctl get web1 --manager all",
                format!("{all} get web1 --manager all"),
            ),
            (
                "egressctl config validate --config x && egressctl check --config x",
                "egressctl --provider home config validate --config x && egressctl --provider home check --config x"
                    .to_owned(),
            ),
            ("egressctl config view", format!("{all} config view")),
        ];
        for (text, wanted) in table {
            assert_eq!(repeated.in_text(text), wanted);
            assert_eq!(repeated.in_text(&wanted), wanted, "twice");
        }
        let as_they_are = [
            "egressctl config init --host a=b@c",
            "egressctl completion bash",
            "egressctl gives no such names",
            "egressctl",
            "my-egressctl list",
            "on the host: virsh list",
        ];
        for text in as_they_are {
            assert_eq!(repeated.in_text(text), text);
            assert_eq!(Repeated::new(&Given::default()).in_text(text), text);
        }
    }
}
