//! Metrics of a run in `node_exporter`'s textfile format, written so that a reader never sees half a file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use crate::check::{HostReport, Severity};
use crate::error::{Error, Reason, Result};
use crate::gc::Outcome;
use crate::gc::plan::Kind;

/// One metric's lines: its help, its type, its samples.
struct Metric {
    text: String,
    name: &'static str,
}

impl Metric {
    fn gauge(name: &'static str, help: &str) -> Self {
        Metric {
            text: format!("# HELP {name} {help}\n# TYPE {name} gauge\n"),
            name,
        }
    }

    fn sample(mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) -> Self {
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{}{labels} {value}", self.name);
        self
    }
}

/// A label's value by the text format's rules.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// What a gc run did.
pub fn of_gc(outcome: &Outcome, dry_run: bool, took: Duration, now: Timestamp) -> String {
    let mut objects = Metric::gauge(
        "egressctl_gc_objects",
        "Things by what the last run did with them: deleted, failed, kept; planned in a dry run.",
    );
    for (host, _) in &outcome.hosts {
        for kind in Kind::ALL {
            for result in ["deleted", "failed", "kept", "planned"] {
                let matching = outcome.items.iter().filter(|item| {
                    let word = match (item.goes, item.deleted) {
                        (false, _) => "kept",
                        (true, true) => "deleted",
                        (true, false) if dry_run => "planned",
                        (true, false) => "failed",
                    };
                    item.host == *host && item.kind == kind && word == result
                });
                let labels = [
                    ("host", host.as_str()),
                    ("kind", kind.as_str()),
                    ("result", result),
                ];
                objects = objects.sample(&labels, matching.count());
            }
        }
    }
    let mut read = Metric::gauge(
        "egressctl_gc_host_read",
        "Whether the host could be read in full.",
    );
    for (host, ok) in &outcome.hosts {
        read = read.sample(&[("host", host)], u8::from(*ok));
    }
    let success = Metric::gauge(
        "egressctl_gc_success",
        "Whether the last run ended without errors.",
    )
    .sample(&[], u8::from(outcome.errors.is_empty()));
    let at = Metric::gauge(
        "egressctl_gc_last_run_timestamp_seconds",
        "When the last run ended.",
    )
    .sample(&[], now.as_second());
    let took = Metric::gauge(
        "egressctl_gc_duration_seconds",
        "How long the last run took.",
    )
    .sample(&[], format!("{:.3}", took.as_secs_f64()));
    joined([at, took, success, read, objects])
}

/// What a check found.
pub fn of_check(reports: &[(String, HostReport)], now: Timestamp) -> String {
    let at = Metric::gauge(
        "egressctl_check_last_run_timestamp_seconds",
        "When the last check ended.",
    )
    .sample(&[], now.as_second());
    let mut healthy = Metric::gauge(
        "egressctl_host_healthy",
        "Whether instances can be made on the host.",
    );
    let mut problems = Metric::gauge("egressctl_host_problem", "A problem that the check found.");
    let mut capacity = Metric::gauge("egressctl_pool_capacity_bytes", "The storage pool's size.");
    let mut available = Metric::gauge(
        "egressctl_pool_available_bytes",
        "The storage pool's free room.",
    );
    let mut skew = Metric::gauge(
        "egressctl_host_clock_skew_seconds",
        "How far the host's clock is ahead of this machine's.",
    );
    for (host, report) in reports {
        let host = host.as_str();
        healthy = healthy.sample(&[("host", host)], u8::from(report.is_healthy()));
        let mut found: Vec<(&str, &str)> = report
            .problems
            .iter()
            .map(|problem| {
                let severity = match problem.severity {
                    Severity::Error => "error",
                    Severity::Warning => "warning",
                };
                (problem.reason.as_str(), severity)
            })
            .collect();
        // A series must not come twice.
        found.sort_unstable();
        found.dedup();
        for (reason, severity) in found {
            let labels = [("host", host), ("reason", reason), ("severity", severity)];
            problems = problems.sample(&labels, 1);
        }
        if let Some(pool) = &report.pool {
            let labels = [("host", host), ("pool", pool.name.as_str())];
            capacity = capacity.sample(&labels, pool.capacity_bytes);
            available = available.sample(&labels, pool.available_bytes);
        }
        if let Some(seconds) = report.clock_skew_seconds {
            skew = skew.sample(&[("host", host)], seconds);
        }
    }
    joined([at, healthy, problems, capacity, available, skew])
}

fn joined<const N: usize>(metrics: [Metric; N]) -> String {
    metrics.into_iter().map(|metric| metric.text).collect()
}

/// Puts the file there in one step: written beside it first, then renamed over it, readable for everybody.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let put = || -> std::io::Result<()> {
        // The collector reads *.prom only, and so never this one.
        let mut file = tempfile::Builder::new()
            .prefix(".egressctl-")
            .suffix(".tmp")
            .tempfile_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.as_file()
            .set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    put().map_err(|error| {
        Error::permanent(
            Reason::LocalIo,
            format!("the metrics file {} can't be written", path.display()),
        )
        .because(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::Item;

    fn item(kind: Kind, goes: bool, deleted: bool) -> Item {
        Item {
            host: "nas1".into(),
            kind,
            instance: Some("web".into()),
            volume: None,
            reason: "x".into(),
            goes,
            deleted,
        }
    }

    #[test]
    fn a_gc_run_is_counted() {
        let outcome = Outcome {
            items: vec![
                item(Kind::Expired, true, true),
                item(Kind::Expired, true, false),
                item(Kind::Orphan, false, false),
            ],
            errors: Vec::new(),
            hosts: vec![("nas1".into(), true), ("nas\"2".into(), false)],
            unmatched: Vec::new(),
        };
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let text = of_gc(&outcome, false, Duration::from_millis(1500), now);
        for line in [
            "# TYPE egressctl_gc_objects gauge",
            "egressctl_gc_last_run_timestamp_seconds 1800000000",
            "egressctl_gc_duration_seconds 1.500",
            "egressctl_gc_success 1",
            "egressctl_gc_host_read{host=\"nas1\"} 1",
            "egressctl_gc_host_read{host=\"nas\\\"2\"} 0",
            "egressctl_gc_objects{host=\"nas1\",kind=\"expired\",result=\"deleted\"} 1",
            "egressctl_gc_objects{host=\"nas1\",kind=\"expired\",result=\"failed\"} 1",
            "egressctl_gc_objects{host=\"nas1\",kind=\"orphan\",result=\"kept\"} 1",
            "egressctl_gc_objects{host=\"nas1\",kind=\"image\",result=\"deleted\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        let dry = of_gc(&outcome, true, Duration::ZERO, now);
        let planned = "egressctl_gc_objects{host=\"nas1\",kind=\"expired\",result=\"planned\"} 1";
        assert!(dry.contains(planned), "{dry}");
    }

    #[test]
    fn a_file_is_replaced_whole_and_readable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("egressctl.prom");
        write(&path, "one 1\n").unwrap();
        write(&path, "two 2\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two 2\n");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let error = write(&directory.path().join("none/x.prom"), "").unwrap_err();
        assert_eq!(error.reason(), Reason::LocalIo);
    }
}
