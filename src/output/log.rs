//! The log: for whoever asked for it, and warnings for everybody.

use env_logger::{Builder, Logger, Target, WriteStyle};
use log::{Level, LevelFilter, Metadata, Record};
use serde_json::json;

use super::plain::plain;
use super::screen::Screen;
use super::secrets::Secrets;
use crate::config::process_env;

/// Those that never log: russh would log packets, and with them what passes through, cloud-init content too; the others
/// URLs and headers, and with them passwords and tokens.
const SILENT: [&str; 5] = ["russh", "reqwest", "hyper", "hyper_util", "h2"];

/// The filter without its directives about those: one about a module within them would count more than theirs. None
/// where nothing else is in it.
fn without_silent(filter: &str) -> Option<String> {
    // What is behind the slash is a pattern for messages.
    let (directives, pattern) = match filter.split_once('/') {
        Some((directives, pattern)) => (directives, Some(pattern)),
        None => (filter, None),
    };
    let silent = |directive: &&str| {
        SILENT
            .iter()
            .any(|module| directive.trim().starts_with(module))
    };
    let kept: Vec<&str> = directives.split(',').filter(|d| !silent(d)).collect();
    let kept = kept.join(",");
    let pattern = pattern.map(|pattern| format!("/{pattern}"));
    (!kept.trim().is_empty()).then(|| kept + &pattern.unwrap_or_default())
}

/// The log without what a terminal would act on; a warning in it is an event where all of stderr is JSON.
struct Log {
    lines: Logger,
    screen: Screen,
    secrets: Secrets,
}

/// Starts it; without effect where there is one already.
pub(super) fn start(verbose: u8, color: bool, screen: &Screen, secrets: &Secrets) {
    let level = match verbose {
        0 => "egressctl=warn",
        1 => "egressctl=info",
        _ => "egressctl=debug",
    };
    // One that is empty counts as unset.
    let filter = process_env("RUST_LOG");
    let filter = filter.as_ref().and_then(|text| text.to_str());
    let filter = filter.and_then(without_silent);
    let mut builder = Builder::new();
    builder.parse_filters(filter.as_deref().unwrap_or(level));
    for module in SILENT {
        builder.filter_module(module, LevelFilter::Off);
    }
    let lines = builder
        .format_target(false)
        .target(Target::Pipe(Box::new(screen.clone())))
        .write_style(if color {
            WriteStyle::Always
        } else {
            WriteStyle::Never
        })
        .build();
    let most = lines.filter();
    let log = Log {
        lines,
        screen: screen.clone(),
        secrets: secrets.clone(),
    };
    if log::set_boxed_logger(Box::new(log)).is_ok() {
        log::set_max_level(most);
    }
}

impl log::Log for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.lines.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.lines.matches(record) {
            return;
        }
        let text = self.secrets.out_of(&record.args().to_string());
        if self.screen.is_json() && record.level() <= Level::Warn {
            let event = json!({ "event": "warning", "message": text });
            self.screen.json(&event.to_string());
            return;
        }
        let text = plain(&text);
        self.lines.log(
            &Record::builder()
                .metadata(record.metadata().clone())
                .module_path(record.module_path())
                .file(record.file())
                .line(record.line())
                .args(format_args!("{text}"))
                .build(),
        );
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_have_secrets_logged() {
        let table = [
            ("debug", Some("debug")),
            ("russh=trace", None),
            (
                "russh::client=trace,russh_keys=trace, hyper_util::client=trace",
                None,
            ),
            (
                "info,reqwest::connect=trace/password",
                Some("info/password"),
            ),
            (
                "egressctl=debug,h2::codec=trace,russh::x",
                Some("egressctl=debug"),
            ),
            ("info/russh", Some("info/russh")),
        ];
        for (filter, kept) in table {
            assert_eq!(without_silent(filter).as_deref(), kept, "{filter}");
        }
    }
}
