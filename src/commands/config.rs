//! `egressctl config …`: the providers file, without any network.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use super::load_config;
use crate::cli::{ConfigCommand, Format, GlobalArgs, InitArgs};
use crate::config::{HostSpec, hides, init, schema, view, view_yaml};
use crate::error::{Error, Reason, Result};
use crate::host::Cancels;
use crate::output::Ui;
use crate::shell;

pub(super) fn run(
    command: &ConfigCommand,
    global: &GlobalArgs,
    ui: &Ui,
    cancels: &Cancels,
) -> Result<Vec<Error>> {
    match command {
        ConfigCommand::Validate => validate(global, ui, cancels)?,
        ConfigCommand::View => print_view(global, ui, cancels)?,
        ConfigCommand::Schema => {
            ensure_only(ui, "config schema", "JSON", &Format::Json)?;
            ui.data(&format!("{:#}\n", schema()))?;
        }
        ConfigCommand::Init(args) => {
            ensure_only(ui, "config init", "YAML", &Format::Yaml)?;
            start(args, ui)?;
        }
    }
    Ok(Vec::new())
}

fn validate(global: &GlobalArgs, ui: &Ui, cancels: &Cancels) -> Result<()> {
    if *ui.format() != Format::Table {
        return Err(Error::usage(
            Reason::BadArgument,
            "config validate prints one line for people, and no document",
        )
        .hint("leave -o out: the exit status says whether it is valid")
        .hint("the configuration as it is understood: egressctl config view -o json"));
    }
    let config = load_config(global, cancels)?;
    // A named provider shall exist, too.
    if global.provider.is_some() {
        config.provider(global.provider.as_deref())?;
    }
    let names: Vec<&str> = config
        .providers
        .iter()
        .map(|provider| provider.name.as_str())
        .collect();
    ui.data(&format!(
        "{}: valid; providers: {}\n",
        config.path.display(),
        names.join(", ")
    ))
}

/// Refuses a format that isn't the one there is; the default is none at all.
pub(super) fn ensure_only(ui: &Ui, command: &str, prints: &str, only: &Format) -> Result<()> {
    if *ui.format() == Format::Table || ui.format() == only {
        return Ok(());
    }
    let what = format!("{command} prints {prints}, and nothing else");
    Err(Error::usage(Reason::BadArgument, what).hint("leave -o out"))
}

fn print_view(global: &GlobalArgs, ui: &Ui, cancels: &Cancels) -> Result<()> {
    if *ui.format() != Format::Json {
        ensure_only(ui, "config view", "YAML or JSON", &Format::Yaml)?;
    }
    let config = load_config(global, cancels)?;
    let providers = match &global.provider {
        Some(_) => vec![config.provider(global.provider.as_deref())?],
        None => config.providers.iter().collect(),
    };
    let hidden: Vec<&str> = providers.iter().flat_map(|one| hides(one)).collect();
    if !hidden.is_empty() {
        ui.note(&format!(
            "shown without passwords and queries, so that they can't be downloaded from: the URLs of {}",
            hidden.join(", ")
        ));
    }
    match ui.format() {
        Format::Json => ui.data(&format!("{:#}\n", view(providers))),
        _ => ui.data(&view_yaml(providers)?),
    }
}

fn start(args: &InitArgs, ui: &Ui) -> Result<()> {
    let hosts = args
        .hosts
        .iter()
        .map(|host| host.parse::<HostSpec>())
        .collect::<Result<Vec<_>>>()?;
    let text = init(&hosts, &args.bridge)?;
    let file = args.write.as_ref().filter(|path| *path != Path::new("-"));
    let Some(path) = file else {
        return ui.data(&text);
    };
    write_new(path, &text)?;
    ui.note(&format!(
        "wrote {}; next: check the key and known_hosts in it, then: egressctl config validate --config {1} && egressctl check --config {1}",
        path.display(),
        shell::quote(&path.display().to_string())
    ));
    Ok(())
}

/// Never over a file that is there; its directory is made, as on a new machine there is none.
fn write_new(path: &Path, text: &str) -> Result<()> {
    let made = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => fs::create_dir_all(directory),
        _ => Ok(()),
    };
    made.and_then(|()| OpenOptions::new().write(true).create_new(true).open(path))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| {
            Error::usage(
                Reason::LocalIo,
                format!("{} can't be written", path.display()),
            )
            .because(error)
        })
}
