//! `egressctl config …`: the providers file, without any network.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::load_config;
use crate::cli::{ConfigCommand, Format, GlobalArgs, InitArgs};
use crate::config::{Config, HostSpec, hides, init, link_target, schema, view, view_yaml};
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
    config.ensure_met()?;
    // A named provider shall exist, too.
    if global.provider.is_some() {
        config.provider(global.provider.as_deref())?;
    }
    for warning in config.providers.iter().flat_map(|one| &one.warnings) {
        ui.warn(warning);
    }
    ui.data(&format!(
        "{}: valid; {}\n",
        config.path.display(),
        holds(&config)
    ))
}

/// What is in the file, for the verdict.
fn holds(config: &Config) -> String {
    let names: Vec<&str> = config
        .providers
        .iter()
        .map(|provider| provider.name.as_str())
        .collect();
    if names.is_empty() {
        return "but no provider entry of type kvm or kvm2, which every other command needs"
            .to_owned();
    }
    format!("providers: {}", names.join(", "))
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
        .and_then(|file| fill(path, file, text))
        .map_err(|error| not_written(path, &error))
}

/// Writes the text to the new file; one that couldn't be written in full is taken away, else it would be in the way.
fn fill(path: &Path, mut file: impl Write, text: &str) -> io::Result<()> {
    let written = file.write_all(text.as_bytes());
    drop(file);
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(path);
    }
    written
}

fn not_written(path: &Path, error: &io::Error) -> Error {
    let message = format!("{} can't be written", path.display());
    let told = Error::usage(Reason::LocalIo, message).because(error);
    if error.kind() != io::ErrorKind::AlreadyExists {
        return told;
    }
    match link_target(path) {
        Some(target) if !path.exists() => told.hint(format!(
            "it is a link to a file that isn't there: --write {}",
            shell::quote(&target.display().to_string())
        )),
        _ => told.hint(
            "it is left as it is: give the name of a new file, or leave --write out to see the starter on stdout",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes some bytes, as a disk does that is full then.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            match taken {
                0 => Err(io::ErrorKind::StorageFull.into()),
                _ => Ok(taken),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_starter_file_is_written_in_full_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/providers.yaml");
        write_new(&path, "a: 1\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a: 1\n");
        let error = write_new(&path, "b").unwrap_err();
        assert!(error.hints()[0].contains("left as it is"), "{error:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a: 1\n");

        assert!(fill(&path, Full(2), "a: 1\n").is_err());
        assert!(!path.exists());
    }

    #[test]
    fn a_link_to_nothing_is_told_by_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("p.yaml"), dir.path().join("real.yaml"));
        std::os::unix::fs::symlink("real.yaml", &link).unwrap();
        let error = write_new(&link, "a: 1\n").unwrap_err();
        let hint = format!("--write {}", target.display());
        assert!(error.hints()[0].contains(&hint), "{error:?}");
        assert!(!target.exists());
    }
}
