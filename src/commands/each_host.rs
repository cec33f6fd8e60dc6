//! One cause on several hosts.

use crate::error::Error;
use crate::output::Ui;

/// What a command ends with after `show` has printed its document with the failures of several hosts.
pub(super) fn show_each_host(
    ui: &Ui,
    failed: Vec<(&str, Error)>,
    show: impl FnOnce(Vec<Error>) -> Vec<Error>,
) -> Vec<Error> {
    let (errors, mut told) = each_host(ui, failed);
    let count = errors.len();
    // That it can't be printed is no host's failure.
    told.extend(show(errors).split_off(count));
    told
}

/// The failures of several hosts, for the document, which has one for each host, and for stderr: people are told once what
/// is no host's own (a wrong checksum, a server that is down), with the hosts named.
fn each_host(ui: &Ui, failed: Vec<(&str, Error)>) -> (Vec<Error>, Vec<Error>) {
    let mut errors: Vec<Error> = Vec::new();
    let mut causes: Vec<(Error, Vec<&str>)> = Vec::new();
    for (host, error) in failed {
        let of_host = error.clone().on_host(host);
        if errors.contains(&of_host) {
            continue;
        }
        errors.push(of_host);
        match causes.iter_mut().find(|(cause, _)| *cause == error) {
            Some((_, hosts)) => hosts.push(host),
            None => causes.push((error, vec![host])),
        }
    }
    let told = causes
        .into_iter()
        .map(|(error, hosts)| error.on_host(hosts.join(", ")))
        .collect();
    let told = if ui.errors_are_json() {
        errors.clone()
    } else {
        told
    };
    (errors, told)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;
    use crate::error::Reason;

    #[test]
    fn one_cause_on_several_hosts_is_told_once_and_documented_for_each() {
        let down = || Error::transient(Reason::DownloadFailed, "the server is down");
        let own = Error::transient(Reason::PoolBusy, "busy").on_host("nas3");
        let failed = || {
            let failed = [
                ("nas1", down()),
                ("nas3", own.clone()),
                ("nas2", down()),
                ("nas2", down()),
            ];
            failed.to_vec()
        };
        let ui = |words: &[&str]| {
            let cli = Cli::try_parse_from(words).unwrap();
            Ui::new(&cli.global)
        };
        let hosts = |errors: &[Error]| -> Vec<String> {
            let host = |error: &Error| error.host().unwrap().to_owned();
            errors.iter().map(host).collect()
        };
        let (errors, told) = each_host(&ui(&["egressctl", "list"]), failed());
        assert_eq!(hosts(&errors), ["nas1", "nas3", "nas2"]);
        assert_eq!(hosts(&told), ["nas1, nas2", "nas3"]);
        let (errors, told) = each_host(&ui(&["egressctl", "list", "-o", "json"]), failed());
        assert_eq!(errors, told);
    }
}
