//! What clap can't know of a mistake: what was meant.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The error with a tip, where there is one to give.
pub(super) fn helped(mut error: clap::Error, line: &[OsString]) -> clap::Error {
    if let Some(value) = pause_apart(&error, line) {
        let tip = format!("join it to the option: --watch={value}");
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// The value of `--watch`, which has to be joined to it as it may be left out, where it stands apart.
fn pause_apart(error: &clap::Error, line: &[OsString]) -> Option<String> {
    let ContextValue::String(odd) = error.get(ContextKind::InvalidArg)? else {
        return None;
    };
    let is_apart =
        |two: &[OsString]| two[0] == "--watch" && *two[1] == **odd && !odd.starts_with('-');
    let is_odd = error.kind() == ErrorKind::UnknownArgument && line.windows(2).any(is_apart);
    is_odd.then(|| odd.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_stands_apart_is_told_how_to_join() {
        let told = |text: &str| {
            let line: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            let error = crate::cli::command()
                .try_get_matches_from(&line)
                .unwrap_err();
            helped(error, &line).to_string()
        };
        let tip = "tip: join it to the option: --watch=1s";
        assert!(told("egressctl list --watch 1s").contains(tip));
        assert!(!told("egressctl list 1s").contains("--watch="));
        assert!(!told("egressctl list --watch --nope").contains("--watch="));
    }
}
