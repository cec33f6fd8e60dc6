//! Metrics of a run in `node_exporter`'s textfile format, written so that a reader never sees half a file.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use crate::check::{HostReport, Severity};
use crate::error::{Class, Error, Reason, Result};
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
        "Whether the host has no problem that is an error.",
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
            if let Some(bytes) = pool.capacity_bytes {
                capacity = capacity.sample(&labels, bytes);
            }
            if let Some(bytes) = pool.available_bytes {
                available = available.sample(&labels, bytes);
            }
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

/// How many symbolic links are followed (the kernel's own limit).
const LINKS: usize = 40;

/// The mode of a file that isn't there yet: readable for everybody, as the collector is another user.
const MODE: u32 = 0o644;

/// Where metrics really go: never a link, which would be replaced instead of what it points to.
struct Target {
    file: PathBuf,
    mode: u32,
    /// User and group of the file that is there.
    owner: Option<(u32, u32)>,
}

impl Target {
    /// Looks at what is there.
    ///
    /// Errors: [`Reason::BadArgument`] (usage) where it is something that a file must not replace.
    fn find(path: &Path) -> Result<Self> {
        let refused = |what: &str| {
            let shown = path.display();
            let message = format!("the metrics file {shown} {what}");
            Error::usage(Reason::BadArgument, message)
                .hint("--metrics takes a file, which is replaced as a whole: name one in the directory that node_exporter reads")
        };
        if path == Path::new("-") {
            return Err(refused("can't be stdout"));
        }
        let mut file = path.to_owned();
        for _ in 0..LINKS {
            // The kernel's links to open files (/dev/stdout) name no place where a file could be put.
            if file.starts_with("/proc") {
                return Err(refused("is no place for a file"));
            }
            match std::fs::symlink_metadata(&file) {
                Ok(there) if there.is_symlink() => {
                    let aim = std::fs::read_link(&file).map_err(|e| unwritable(path, &e))?;
                    file = directory_of(&file).join(aim);
                }
                Ok(there) if there.is_file() => {
                    let mode = there.permissions().mode() & 0o777;
                    let owner = Some((there.uid(), there.gid()));
                    return Ok(Target { file, mode, owner });
                }
                Ok(_) => return Err(refused("is there already, and is no regular file")),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Ok(Target {
                        file,
                        mode: MODE,
                        owner: None,
                    });
                }
                Err(error) => return Err(unwritable(path, &error)),
            }
        }
        Err(refused("is a symbolic link to itself"))
    }

    /// A new file beside it. The collector reads `*.prom` only, and so never this one.
    fn beside(&self) -> std::io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new()
            .prefix(".egressctl-")
            .suffix(".tmp")
            .tempfile_in(directory_of(&self.file))
    }
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    // Where it is about the file beside it, the name of that says nothing.
    let why = error.to_string();
    let why = why.split(" at path ").next().unwrap_or_default();
    Error::usage(
        Reason::LocalIo,
        format!("the metrics file {} can't be written", path.display()),
    )
    .because(why)
}

/// Makes sure that metrics can be written there, before a command does anything.
///
/// Errors: [`Reason::BadArgument`] (usage) where something else than a file is there, [`Reason::LocalIo`] (usage) where
/// no file can be made.
pub fn ensure_writable(path: &Path) -> Result<()> {
    let made = Target::find(path)?.beside();
    made.map(drop).map_err(|error| unwritable(path, &error))
}

/// Puts the file there in one step: written beside it first, then renamed over it, with the mode that it had.
///
/// Errors: those of [`ensure_writable`] as class Permanent: the work is done by now.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let put = |target: &Target| -> std::io::Result<()> {
        let mut file = target.beside()?;
        file.write_all(text.as_bytes())?;
        // Only root can give it away; anybody else's is readable by the mode, or wasn't before.
        if let Some((user, group)) = target.owner
            && let Err(error) = fchown(file.as_file(), Some(user), Some(group))
        {
            log::debug!("{}: its owner changes: {error}", target.file.display());
        }
        file.as_file()
            .set_permissions(Permissions::from_mode(target.mode))?;
        file.as_file().sync_all()?;
        file.persist(&target.file).map_err(|error| error.error)?;
        Ok(())
    };
    Target::find(path)
        .and_then(|target| put(&target).map_err(|error| unwritable(path, &error)))
        .map_err(|error| error.with_class(Class::Permanent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::Item;
    use std::os::unix::fs::symlink;

    fn item(kind: Kind, goes: bool, deleted: bool) -> Item {
        Item {
            host: "nas1".into(),
            kind,
            instance: Some("web".into()),
            volume: None,
            reason: "x".into(),
            goes,
            deleted,
            busy: false,
            notes: Vec::new(),
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
        assert_eq!(error.class(), Class::Permanent);
    }

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_stays_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::write(at("real/x.prom"), "old").unwrap();
        std::fs::set_permissions(at("real/x.prom"), Permissions::from_mode(0o640)).unwrap();
        symlink("real/x.prom", at("near")).unwrap();
        symlink(at("near"), at("far")).unwrap();
        symlink("real/new.prom", at("dangling")).unwrap();
        for (link, file, mode) in [
            ("near", "real/x.prom", 0o640),
            ("far", "real/x.prom", 0o640),
            ("dangling", "real/new.prom", 0o644),
        ] {
            ensure_writable(&at(link)).unwrap();
            write(&at(link), link).unwrap();
            assert_eq!(std::fs::read_to_string(at(file)).unwrap(), link);
            assert_eq!(mode_of(&at(file)), mode, "{link}");
            assert!(at(link).is_symlink(), "{link}");
        }
        // Nothing is left beside them.
        assert_eq!(std::fs::read_dir(at("real")).unwrap().count(), 2);
    }

    #[test]
    fn what_is_no_file_is_refused_and_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        std::fs::create_dir(at("directory")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), mode).unwrap();
        symlink("fifo", at("link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/proc/self/fd/1", at("stdout")).unwrap();
        let names = ["directory", "socket", "fifo", "link", "loop", "stdout"];
        let kind = |name: &str| std::fs::symlink_metadata(at(name)).unwrap().file_type();
        let before = names.map(kind);
        for name in names {
            let error = ensure_writable(&at(name)).unwrap_err();
            assert_eq!(error.class(), Class::Usage, "{name}");
            assert_eq!(error.reason(), Reason::BadArgument, "{name}");
            assert!(write(&at(name), "x").is_err(), "{name}");
        }
        assert_eq!(names.map(kind), before);
        assert!(ensure_writable(Path::new("-")).is_err());
        let error = ensure_writable(&at("none/x.prom")).unwrap_err();
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Usage, Reason::LocalIo)
        );
    }
}
