//! `egressctl check`.

use super::Context;
use crate::check::{HostReport, Problem, Severity, check, warn_of_same_machines};
use crate::cli::CheckArgs;
use crate::error::{Class, Error, Reason, Result};
use crate::output::{CheckRecord, Document};
use crate::{metrics, parallel, placement};

pub(super) fn run(args: &CheckArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<CheckRecord>()?;
    if let Some(path) = &args.metrics {
        metrics::ensure_writable(path)?;
    }
    let hosts = context.sessions(&placement::zones(&context.provider, &args.zone)?);
    for warning in &context.provider.warnings {
        context.ui.warn(warning);
    }
    let count = hosts.len();
    let mut reports = parallel::map(hosts, count, |host| {
        (host.name().to_owned(), check(host, &context.provider))
    });
    context.cancels.work.check()?;
    warn_of_same_machines(&mut reports);
    let problems = reports
        .iter_mut()
        .flat_map(|(_, report)| &mut report.problems);
    for hint in problems.flat_map(|problem| &mut problem.hints) {
        *hint = context.ui.hint(hint);
    }
    let problems = |(host, report): &(String, HostReport)| {
        let told = |problem: &Problem| (problem.severity, problem.told(host));
        report.problems.iter().map(told).collect::<Vec<_>>()
    };
    let found: Vec<(Severity, Error)> = reports.iter().flat_map(problems).collect();
    let text = metrics::of_check(&reports, jiff::Timestamp::now());
    let unhealthy = reports
        .iter()
        .filter(|(_, report)| !report.is_healthy())
        .count();
    let records = reports
        .into_iter()
        .map(|(host, report)| CheckRecord::new(&host, report))
        .collect();
    let mut errors = context.ui.show(Document::of(records));
    // The document has them; what nobody got has to be said here.
    if *context.ui.format() != crate::cli::Format::Json || !errors.is_empty() {
        for (severity, error) in &found {
            match severity {
                Severity::Error => context.ui.error(error),
                Severity::Warning => context.ui.warning(error),
            }
        }
    }
    if unhealthy > 0 {
        errors.push(Error::new(
            Class::Unhealthy,
            Reason::Unhealthy,
            verdict(unhealthy, count),
        ));
    }
    if let Some(path) = &args.metrics {
        errors.extend(metrics::write(path, &text).err());
    }
    Ok(errors)
}

/// What the last line says. Not that none of them could run an instance: some problems only hinder.
fn verdict(unhealthy: usize, count: usize) -> String {
    let have = if unhealthy == 1 { "has" } else { "have" };
    format!("{unhealthy} of {count} hosts {have} problems")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_hosts_with_problems() {
        assert_eq!(verdict(1, 2), "1 of 2 hosts has problems");
        assert_eq!(verdict(2, 2), "2 of 2 hosts have problems");
    }
}
