//! Names of instances: asked of the hosts within 2 s, and remembered for a moment.

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Words;
use crate::config::{Provider, process_env};
use crate::error::Result;
use crate::find::Managers;
use crate::host::{Cancels, HostSession};
use crate::image::digest::sha256_hex;
use crate::instance::Instance;
use crate::limits::TimeLimits;
use crate::name::InstanceId;

/// How long the hosts may take; with what comes before and after, 2 s in all.
const ANSWER_LIMIT: Duration = Duration::from_millis(1700);
/// How long connections may take to close after that.
const CLOSE_LIMIT: Duration = Duration::from_millis(150);
/// How old remembered names may be before the hosts are asked again, in seconds: a few presses of the Tab key.
const FRESH_SECONDS: u64 = 10;

/// What is remembered, in a file of its own for each configuration and provider.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Remembered {
    /// When the hosts were asked, in seconds since 1970.
    at: u64,
    instances: Vec<Known>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    host: String,
    name: String,
    manager: String,
}

/// The instances' names (IDs where a name stands twice, or an ID was begun), each with its host.
pub(super) fn candidates(words: &Words, current: &str) -> Vec<(String, Option<String>)> {
    let zone = words.value_of("--zone");
    let manager = words.value_of("--manager").unwrap_or("egressctl");
    let mut known = known_of(words, &words.providers());
    known.retain(|one| {
        one.is_nameable()
            && zone.is_none_or(|zone| zone == one.host)
            && (manager == "all" || manager == one.manager)
    });
    offered(known, current)
}

impl Known {
    fn id(&self) -> String {
        format!("hosts/{}/domains/{}", self.host, self.name)
    }

    /// Whether a command takes the name. A host may call its domains anything, and bash puts what it is offered on the
    /// line as it is: `x;reboot;` would be run.
    fn is_nameable(&self) -> bool {
        self.id().parse::<InstanceId>().is_ok()
    }
}

fn offered(mut known: Vec<Known>, current: &str) -> Vec<(String, Option<String>)> {
    known.sort_by(|a, b| (&a.name, &a.host).cmp(&(&b.name, &b.host)));
    let twice = |one: &Known| known.iter().filter(|other| other.name == one.name).count() > 1;
    known
        .iter()
        .map(|one| {
            if current.starts_with("hosts/") || twice(one) {
                (one.id(), None)
            } else {
                (one.name.clone(), Some(one.host.clone()))
            }
        })
        .collect()
}

/// What is remembered of the providers' instances; where that is too old, the hosts are asked.
fn known_of(words: &Words, providers: &[Provider]) -> Vec<Known> {
    let config = words.config_path();
    let file = |provider: &Provider| cache_file(config.as_deref()?, &provider.name);
    let now = now_seconds();
    let (mut known, mut stale) = (Vec::new(), Vec::new());
    for provider in providers {
        let file = file(provider);
        let old = file.as_deref().and_then(read).unwrap_or_default();
        if old.at <= now && now - old.at < FRESH_SECONDS {
            known.extend(old.instances);
        } else {
            stale.push((provider, file, old));
        }
    }
    let asked: Vec<&Provider> = stale.iter().map(|(provider, ..)| *provider).collect();
    let mut answers = ask(&asked);
    for (number, (provider, file, old)) in stale.into_iter().enumerate() {
        let mut instances = Vec::new();
        for host in &provider.hosts {
            if let Some(found) = answers.remove(&(number, host.name.clone())) {
                instances.extend(found);
            } else {
                // A host that is slow or away keeps what was known of it.
                let of_host = |one: &&Known| one.host == host.name;
                instances.extend(old.instances.iter().filter(of_host).cloned());
            }
        }
        let remembered = Remembered { at: now, instances };
        if let Some(error) = file.and_then(|file| write(&file, &remembered).err()) {
            log::debug!("completion: {error}");
        }
        known.extend(remembered.instances);
    }
    known
}

/// A host, by its provider's number among those that are asked, and its name there.
type Asked = (usize, String);
/// What one host answered.
type Answer = (Asked, Result<Vec<Known>>);

/// Asks all hosts of all providers at once, and takes what has come when the time is over.
fn ask(providers: &[&Provider]) -> HashMap<Asked, Vec<Known>> {
    let cancels = Cancels::new();
    let (sender, answers) = channel();
    for (number, provider) in providers.iter().enumerate() {
        // Nobody is asked for a passphrase in the middle of a line.
        for session in HostSession::of_provider(provider, &cancels, None, TimeLimits::default()) {
            let sender = sender.clone();
            // Where the system gives no thread, the host counts as one that is away.
            let _ = Builder::new().spawn(move || {
                let found = names_on(&session);
                let name = session.name().to_owned();
                // The connection is closed before the answer counts.
                drop(session);
                let _ = sender.send(((number, name), found));
            });
        }
    }
    drop(sender);
    let found = collect(&answers, ANSWER_LIMIT);
    cancels.work.set(0);
    collect(&answers, CLOSE_LIMIT);
    found
}

/// What arrives until all have answered or the time is over.
fn collect(answers: &Receiver<Answer>, limit: Duration) -> HashMap<Asked, Vec<Known>> {
    let end = Instant::now() + limit;
    let mut found = HashMap::new();
    while let Ok((host, answer)) =
        answers.recv_timeout(end.saturating_duration_since(Instant::now()))
    {
        match answer {
            Ok(instances) => {
                found.insert(host, instances);
            }
            Err(error) => log::debug!("completion: {error}"),
        }
    }
    found
}

fn names_on(session: &HostSession) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    for domain in session.connect()?.list_domains()? {
        let instance = Instance::from_domain(session.name(), domain)?;
        if let (true, Some(manager)) = (Managers::all().include(&instance), instance.manager()) {
            known.push(Known {
                host: instance.host.clone(),
                name: instance.domain.name.clone(),
                manager: manager.as_str().to_owned(),
            });
        }
    }
    Ok(known)
}

/// `$XDG_CACHE_HOME/egressctl/…` (XDG Base Directory Specification: a relative path is to be ignored).
fn cache_file(config: &Path, provider: &str) -> Option<PathBuf> {
    let xdg = process_env("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || Some(Path::new(&process_env("HOME")?).join(".cache"));
    let directory = xdg.or_else(home)?.join("egressctl");
    let config = fs::canonicalize(config).ok()?;
    let id = sha256_hex(format!("{}\n{provider}", config.display()).as_bytes());
    Some(directory.join(format!("instances-{}.json", &id[..16])))
}

fn read(file: &Path) -> Option<Remembered> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Replaces the file as a whole, for its owner's eyes only.
fn write(file: &Path, remembered: &Remembered) -> std::io::Result<()> {
    let Some(directory) = file.parent() else {
        return Ok(());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut temporary = tempfile::NamedTempFile::new_in(directory)?;
    temporary.write_all(&serde_json::to_vec(remembered)?)?;
    temporary.persist(file)?;
    Ok(())
}

fn now_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_remembered_is_private_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a/b/instances-x.json");
        let known = Known {
            host: "nas1".into(),
            name: "web1".into(),
            manager: "egressctl".into(),
        };
        let remembered = Remembered {
            at: 7,
            instances: vec![known.clone()],
        };
        write(&file, &remembered).unwrap();
        assert_eq!(read(&file).unwrap().instances, [known]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        fs::write(&file, "{").unwrap();
        assert!(read(&file).is_none());
    }

    #[test]
    fn only_names_that_a_command_takes_are_offered() {
        let known = |host: &str, name: &str| Known {
            host: host.into(),
            name: name.into(),
            manager: "egressctl".into(),
        };
        assert!(known("nas1", "web1").is_nameable());
        for odd in [
            "x;touch${IFS}/tmp/a;",
            "$(reboot)",
            "`id`",
            "a b",
            "-rf",
            "a\nb",
            "a\u{1b}b",
            "a/b",
            "",
        ] {
            assert!(!known("nas1", odd).is_nameable(), "{odd:?}");
        }
        assert!(!known("nas1;id", "web1").is_nameable());
        let both = [
            known("nas2", "web1"),
            known("nas1", "web1"),
            known("nas1", "web2"),
        ];
        let values: Vec<String> = offered(both.into(), "")
            .into_iter()
            .map(|(v, _)| v)
            .collect();
        assert_eq!(
            values,
            ["hosts/nas1/domains/web1", "hosts/nas2/domains/web1", "web2"]
        );
    }

    #[test]
    fn a_host_that_never_answers_is_given_up_in_time() {
        let (sender, answers) = channel();
        let began = Instant::now();
        assert!(collect(&answers, Duration::from_millis(50)).is_empty());
        assert!(began.elapsed() < Duration::from_secs(1));
        drop(sender);
    }
}
