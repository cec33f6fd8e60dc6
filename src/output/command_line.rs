//! What is wrong with a command line, told before there is anything that the line asks for.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};

use clap::error::ErrorKind;

use super::secrets::Secrets;
use super::{as_json, plain_json};
use crate::cli;
use crate::error::{Class, Error, Reason};

/// Prints what clap has to say (help, version, or what is wrong with the command line) and gives the exit code.
///
/// What is wrong is one JSON object where the line, as far as it can be read, asks for JSON; all of it is plain where it
/// asks for no colour.
pub fn command_line(said: &clap::Error, line: impl Iterator<Item = OsString>) -> u8 {
    let line: Vec<OsString> = line.collect();
    let secrets = Secrets::of(line.iter().cloned());
    let is_document = asks(&line, Some('o'), "--output", "json");
    let among_events = asks(&line, None, "--progress", "json");
    if said.use_stderr() && (is_document || among_events) {
        let error = match said.kind() {
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => incomplete(&line),
            _ => as_error(&secrets.out_of(&said.render().to_string())),
        };
        let text = as_json(&error, is_document, among_events).unwrap_or_default();
        let _ = writeln!(io::stderr(), "{}", plain_json(&text));
        return Class::Usage.exit_code();
    }
    let text = said.render().to_string();
    let cleaned = secrets.out_of(&text);
    let plain = words(&line).any(|word| word == "--no-color");
    let printed = if said.use_stderr() && (plain || cleaned != text) {
        io::stderr().write_all(cleaned.as_bytes())
    } else if plain {
        io::stdout().write_all(cleaned.as_bytes())
    } else {
        said.print()
    };
    match printed {
        // Help that a full disk swallowed is no help; a reader that went away had enough of it.
        Err(error) if !said.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            // Nothing can be done about a stderr that can't be written.
            let _ = writeln!(io::stderr(), "error: stdout can't be written\n  {error}");
            Class::Permanent.exit_code()
        }
        _ => u8::try_from(said.exit_code()).unwrap_or(2),
    }
}

/// The first line is what is wrong, and the rest helps.
fn as_error(text: &str) -> Error {
    let mut parts = text.trim().splitn(2, '\n');
    let first = parts.next().unwrap_or_default();
    let error = Error::usage(
        Reason::BadArgument,
        first.strip_prefix("error: ").unwrap_or(first),
    );
    match parts.next() {
        Some(rest) => error.hint(rest.trim()),
        None => error,
    }
}

/// The error for a line that ends before its command does: clap has nothing but the help for it.
fn incomplete(line: &[OsString]) -> Error {
    let mut command = cli::command();
    command.build();
    let mut at = &command;
    for word in words(line).skip(1) {
        at = at.find_subcommand(word).unwrap_or(at);
    }
    let name = at.get_bin_name().unwrap_or("egressctl");
    let known: Vec<&str> = at
        .get_subcommands()
        .map(clap::Command::get_name)
        .filter(|name| *name != "help")
        .collect();
    Error::usage(
        Reason::BadArgument,
        format!("{name} requires a subcommand: {}", known.join(", ")),
    )
    .hint(format!("{name} --help"))
}

/// The words that may be egressctl's own options.
fn words(line: &[OsString]) -> impl Iterator<Item = &OsString> {
    line.iter().take_while(|word| *word != "--")
}

/// Whether the line has that option with that value, however it is written.
fn asks(line: &[OsString], short: Option<char>, long: &str, value: &str) -> bool {
    let flags = flags();
    let mut next = words(line).skip(1);
    words(line).any(|word| {
        let following = next.next().map(OsString::as_os_str);
        let given = match short {
            Some(short) if !word.to_string_lossy().starts_with("--") => {
                after_short(word, short, &flags)
            }
            _ => after_long(word, long),
        };
        given.is_some_and(|given| match given.as_str() {
            "" => following == Some(OsStr::new(value)),
            given => given == value,
        })
    })
}

/// What stands in the word behind `--name`, if it is that: nothing where the value is the next word.
fn after_long(word: &OsStr, name: &str) -> Option<String> {
    let word = word.to_string_lossy();
    match word.strip_prefix(name)? {
        "" => Some(String::new()),
        rest => rest.strip_prefix('=').map(str::to_owned),
    }
}

/// The same behind a letter that may stand in one word with others before it, which take no value.
fn after_short(word: &OsStr, short: char, flags: &[char]) -> Option<String> {
    let word = word.to_string_lossy();
    let letters = word.strip_prefix('-')?;
    let at = letters.find(|letter| !flags.contains(&letter))?;
    let rest = letters[at..].strip_prefix(short)?;
    Some(rest.strip_prefix('=').unwrap_or(rest).to_owned())
}

/// The letters that take no value, whatever the command.
fn flags() -> Vec<char> {
    fn collect(command: &clap::Command, flags: &mut Vec<char>, takers: &mut Vec<char>) {
        for arg in command.get_arguments() {
            let list = if arg.get_action().takes_values() {
                &mut *takers
            } else {
                &mut *flags
            };
            list.extend(arg.get_short());
        }
        for inner in command.get_subcommands() {
            collect(inner, flags, takers);
        }
    }
    let (mut flags, mut takers) = (vec!['h', 'V'], Vec::new());
    collect(&cli::command(), &mut flags, &mut takers);
    flags.retain(|flag| !takers.contains(flag));
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn json_is_asked_for_in_many_ways() {
        for good in [
            "egressctl -o json nope",
            "egressctl -ojson nope",
            "egressctl -o=json nope",
            "egressctl -qo json nope",
            "egressctl -vqojson nope",
            "egressctl -vvo=json nope",
            "egressctl nope --output json",
            "egressctl nope --output=json",
            "egressctl logs web1 -fo json --nope",
        ] {
            assert!(asks(&line(good), Some('o'), "--output", "json"), "{good}");
        }
        for bad in [
            "egressctl nope",
            "egressctl -o yaml nope",
            "egressctl -ojsonx nope",
            "egressctl -o",
            "egressctl ssh -uojson nope",
            "egressctl list -lo json",
            "egressctl --outputjson nope",
            "egressctl exec web1 -- ls -o json",
        ] {
            assert!(!asks(&line(bad), Some('o'), "--output", "json"), "{bad}");
        }
        assert!(asks(
            &line("egressctl --progress json x"),
            None,
            "--progress",
            "json"
        ));
    }

    #[test]
    fn a_line_without_its_subcommand_is_told_in_one_sentence() {
        let error = incomplete(&line("egressctl -o json image"));
        assert_eq!(
            error.message(),
            "egressctl image requires a subcommand: pull, list, prune, rm"
        );
        assert_eq!(error.hints(), ["egressctl image --help"]);
        let error = incomplete(&line("egressctl -o json"));
        assert!(
            error
                .message()
                .starts_with("egressctl requires a subcommand: create, ")
        );
    }
}
