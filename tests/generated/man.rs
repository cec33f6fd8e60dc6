//! Man pages, from the command tree and (for the file format) from the configuration's schema.

use std::collections::BTreeMap;

use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use serde_json::Value;

const MANUAL: &str = "egressctl";

const EXIT_STATUS: &[(&str, &str)] = &[
    (
        "0",
        "Done. Also: deleting what is already gone, and a reader that closed the pipe.",
    ),
    (
        "1",
        "Permanent failure: the same command will fail again until somebody changes something.",
    ),
    ("2", "The command line or the configuration is wrong."),
    ("3", "There is no such instance."),
    (
        "4",
        "Transient failure: the same command may succeed later.",
    ),
    ("5", "The host has too little room: pool space or memory."),
    ("6", "check or probe ran, and found something wrong."),
    (
        "129, 130, 131, 143",
        "Interrupted by SIGHUP, SIGINT, SIGQUIT or SIGTERM, after cleaning up what this run had half made.",
    ),
];

/// What commands that pass on another program's exit status have instead, after what they pass on.
const PASSED_ON: &[(&str, &str)] = &[
    (
        "121, 122, 123, 124, 125",
        "Failure of egressctl itself: permanent, usage, no such instance, transient (also a time limit), out of room. \
         A command line that can't be understood is 2.",
    ),
    (
        "129, 130, 131, 143",
        "Interrupted by SIGHUP, SIGINT, SIGQUIT or SIGTERM.",
    ),
];

/// Of whatever reads the file.
const EXIT_STATUS_OF_FILE: &[(&str, &str)] = &[(
    "2",
    "The file is missing or wrong: each error is told with line and key.",
)];

const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "EGRESSCTL_CONFIG",
        "The providers file, where --config isn't given.",
    ),
    (
        "EGRESSCTL_LIMITS",
        "Time limits in seconds, where others are needed: dial=10 rpc=30 start=90 stream=60 agent=10.",
    ),
    (
        "EGRESSCTL_PROVIDER",
        "The provider entry, where --provider isn't given.",
    ),
    ("NO_COLOR", "If not empty, no colour is used."),
    (
        "RUST_LOG",
        "What is logged on standard error, in place of --verbose.",
    ),
    (
        "SSH_AUTH_SOCK",
        "The SSH agent's socket, for sshAgent and for encrypted keys.",
    ),
    (
        "SSL_CERT_FILE, SSL_CERT_DIR",
        "The CAs to trust when downloading images, in place of the system's.",
    ),
    (
        "http_proxy, https_proxy, all_proxy, no_proxy",
        "Proxies for downloading images, by the URL's scheme, and what goes without one; also in upper case.",
    ),
    ("TMPDIR", "Where private sockets are put; /tmp if unset."),
    (
        "XDG_CACHE_HOME",
        "Where completion remembers names of instances for a moment; ~/.cache if unset.",
    ),
];

const FILES: &[(&str, &str)] = &[
    (
        "$XDG_CONFIG_HOME/egressctl/providers.yaml",
        "The user's providers file (~/.config if the variable is unset); see egressctl-providers(5).",
    ),
    (
        "/etc/egressctl/providers.yaml",
        "The system's, read if the user has none.",
    ),
];

/// The variables that the pages name.
pub(crate) fn variables() -> impl Iterator<Item = &'static str> {
    ENVIRONMENT.iter().flat_map(|(names, _)| names.split(", "))
}

/// All pages by file name.
pub(crate) fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    for path in super::commands() {
        let name = [&["egressctl".to_owned()], &path[..]].concat().join("-");
        pages.insert(format!("{name}.1"), command_page(&name, &find(&path)));
    }
    pages.insert("egressctl-providers.5".to_owned(), providers_page());
    pages
}

/// A command of the built tree.
pub(crate) fn find(path: &[String]) -> clap::Command {
    // The pages are the help: there is none of `help` itself, which they would send to.
    let mut root = egressctl::cli::command().disable_help_subcommand(true);
    root.build();
    let mut command = &root;
    for name in path {
        command = command.find_subcommand(name).unwrap();
    }
    command.clone()
}

/// The lines of the help's examples.
pub(crate) fn examples(command: &clap::Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let text = help.strip_prefix("Examples:\n").unwrap_or_default();
    text.lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.trim().to_owned())
        .collect()
}

fn command_page(name: &str, command: &clap::Command) -> String {
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(source())
        .manual(MANUAL);
    let mut page = Vec::new();
    man.render_title(&mut page).unwrap();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page).unwrap();
    }
    let mut rest = Roff::new();
    rest.control("SH", ["EXAMPLES"]);
    literal(&mut rest, &examples(command));
    notes(&mut rest, command);
    table(&mut rest, "EXIT STATUS", &exit_status(name));
    table(&mut rest, "ENVIRONMENT", ENVIRONMENT);
    table(&mut rest, "FILES", FILES);
    rest.control("SH", ["SEE ALSO"]);
    rest.text(see_also(name, command));
    rest.to_writer(&mut page).unwrap();
    String::from_utf8(page).unwrap()
}

fn exit_status(name: &str) -> Vec<(&'static str, &'static str)> {
    let passed_on = match name {
        "egressctl-exec" => {
            "The command's own exit status; 127 where there is no such command, 126 where it can't be run, 128 and N where \
             signal N ended it: 141 also where it was ended because nobody reads its output any more."
        }
        "egressctl-ssh" => {
            "The command's own exit status, as ssh gives it; 255 where ssh itself failed."
        }
        _ => return EXIT_STATUS.to_vec(),
    };
    [&[("0 to 255", passed_on)], PASSED_ON].concat()
}

/// What the help says after its examples.
fn notes(roff: &mut Roff, command: &clap::Command) {
    let help = command.get_after_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    // Of egressctl itself it is the exit status, which has a section of its own.
    let paragraphs = help.split("\n\n").skip(1);
    let paragraphs: Vec<&str> = paragraphs
        .filter(|text| !text.starts_with("Exit status:"))
        .collect();
    if paragraphs.is_empty() {
        return;
    }
    roff.control("SH", ["NOTES"]);
    for paragraph in paragraphs {
        roff.control("PP", []);
        roff.text([roman(paragraph.replace('\n', " "))]);
    }
}

fn source() -> String {
    format!("egressctl {}", env!("CARGO_PKG_VERSION"))
}

fn literal(roff: &mut Roff, lines: &[String]) {
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line.as_str())]);
    }
    roff.control("fi", []);
}

fn table(roff: &mut Roff, title: &str, rows: &[(&str, &str)]) {
    roff.control("SH", [title]);
    for (term, meaning) in rows {
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text([roman(*meaning)]);
    }
}

fn see_also(name: &str, command: &clap::Command) -> Vec<Inline> {
    let mut pages: Vec<String> = Vec::new();
    if let Some((parent, _)) = name.rsplit_once('-') {
        pages.push(format!("{parent}(1)"));
    }
    for sub in command.get_subcommands() {
        pages.push(format!("{name}-{}(1)", sub.get_name()));
    }
    pages.push("egressctl-providers(5)".to_owned());
    vec![roman(pages.join(", "))]
}

/// The file format, from the JSON schema, which comes from the same table as the validation.
fn providers_page() -> String {
    let schema = egressctl::config::schema();
    let definitions = &schema["$defs"];
    let mut roff = Roff::new();
    roff.control("TH", ["EGRESSCTL-PROVIDERS", "5", "", &source(), MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(
        "egressctl-providers - the providers file of egressctl",
    )]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "The file is YAML: a mapping with the key providers, or the bare list that would stand there, or a Kubernetes \
         ConfigMap whose data holds one of these. Each item of the list is a provider entry. Unknown and duplicate \
         keys are errors. All errors of a file are reported at once by egressctl-config-validate(1).",
    )]);
    let parts = [
        ("A PROVIDER ENTRY", &definitions["entry"]["else"]),
        ("THE KVM BLOCK", &definitions["block"]),
        ("AN IMAGE", &definitions["image"]),
        ("A MACHINE TYPE", &definitions["machineType"]),
        ("A HOST", &definitions["host"]),
    ];
    for (title, definition) in parts {
        roff.control("SH", [title]);
        keys(&mut roff, definition);
    }
    roff.control("SH", ["EXAMPLES"]);
    let example = std::fs::read_to_string(super::root().join("examples/providers/minimal.yaml"));
    let lines: Vec<String> = example.unwrap().lines().map(str::to_owned).collect();
    literal(&mut roff, &lines);
    table(&mut roff, "EXIT STATUS", EXIT_STATUS_OF_FILE);
    table(&mut roff, "ENVIRONMENT", &ENVIRONMENT[..2]);
    table(&mut roff, "FILES", FILES);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(
        "egressctl(1), egressctl-config-init(1), egressctl-config-validate(1), egressctl-config-view(1)",
    )]);
    roff.render()
}

fn keys(roff: &mut Roff, definition: &Value) {
    let required = definition["required"].as_array();
    for (key, value) in definition["properties"].as_object().unwrap() {
        roff.control("TP", []);
        let mut term = vec![bold(key.as_str())];
        if required.is_some_and(|all| all.iter().any(|one| one == key)) {
            term.push(roman(" (required)"));
        }
        if let Some(default) = value.get("default") {
            let default = default.as_str().map_or(default.to_string(), str::to_owned);
            term.push(roman(" (default "));
            term.push(italic(default));
            term.push(roman(")"));
        }
        roff.text(term);
        let description = value["description"].as_str().unwrap().replace('`', "");
        let choices = value["enum"].as_array().map(|all| {
            let words: Vec<&str> = all.iter().map(|word| word.as_str().unwrap()).collect();
            format!(" One of: {}.", words.join(", "))
        });
        roff.text([roman(description + &choices.unwrap_or_default())]);
    }
}
