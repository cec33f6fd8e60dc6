//! Parsers of what others wrote, fed with mutated texts: none may panic, hang or contradict itself.
//!
//! The corpus is in tests/fuzz, and what other tests use as fixtures. Seed and count are fixed, so that a run can be
//! repeated: `FUZZ_COUNT=1000000 FUZZ_SEED=7 cargo test --release --lib fuzz` goes on for longer, elsewhere. Why this is no
//! cargo-fuzz target: docs/decisions.md.

mod mutate;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutate::Mutator;

use crate::config;
use crate::gc::keep::KeepList;
use crate::image::head::sniff;
use crate::image::names::BaseName;
use crate::image::sums::find_checksum;
use crate::ssh::known_hosts::KnownHosts;
use crate::xml::capabilities::{DomainCapabilities, HostCapabilities};
use crate::xml::domain_info::DomainInfo;
use crate::xml::metadata::{Manager, Mark};
use crate::xml::pool::PoolInfo;
use crate::xml::volume::VolumeInfo;

/// Mutations for each target in an ordinary test run.
const COUNT: u64 = 3000;

/// No input of the corpus' size may take longer, debug build and busy machine included.
const SLOW: Duration = Duration::from_secs(5);

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable);
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// The files of a directory below tests, sorted, so that a seed means the same everywhere.
fn corpus(directories: &[&str]) -> Vec<Vec<u8>> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut files: Vec<PathBuf> = Vec::new();
    for directory in directories {
        let entries = std::fs::read_dir(tests.join(directory)).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.sort();
    assert!(!files.is_empty(), "{directories:?} is empty");
    let read = |file: &PathBuf| std::fs::read(file).unwrap();
    files.iter().map(read).collect()
}

/// Feeds the corpus itself and mutations of it to `target`.
fn fuzz(directories: &[&str], target: impl Fn(&[u8])) {
    let corpus = corpus(directories);
    let mut mutator = Mutator::new(number("FUZZ_SEED", 1), &corpus);
    let mutations = (0..number("FUZZ_COUNT", COUNT)).map(|_| mutator.next_input());
    for input in corpus.iter().cloned().chain(mutations) {
        let began = Instant::now();
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target(&input)));
        let shown = String::from_utf8_lossy(&input);
        assert!(run.is_ok(), "panicked at {shown:?}");
        assert!(
            began.elapsed() < SLOW,
            "took {:?}: {shown:?}",
            began.elapsed()
        );
    }
}

fn text(target: impl Fn(&str)) -> impl Fn(&[u8]) {
    move |input| target(&String::from_utf8_lossy(input))
}

#[test]
fn providers_files() {
    let directories = ["configs/valid", "configs/invalid"];
    fuzz(
        &directories,
        text(|input| {
            let parsed = config::parse(input, Path::new("/etc/providers.yaml"), &|_| None);
            match parsed {
                Ok(config) => assert!(config.providers.iter().all(|p| !p.hosts.is_empty())),
                Err(error) => assert!(!error.message().is_empty()),
            }
        }),
    );
}

#[test]
fn known_hosts_files() {
    fuzz(
        &["fuzz/known_hosts"],
        text(|input| {
            let hosts = KnownHosts::parse(input);
            for (host, port) in [("nas1", 22), ("nas1", 2222), ("fe80::1%eth0", 22)] {
                // A key that is in no file is never taken for a known one.
                let verdict = hosts.verdict(host, port, b"\0\0\0\x0bssh-ed25519\0\0\0\x04none");
                assert_ne!(verdict, crate::ssh::known_hosts::Verdict::Match);
                let _ = hosts.known_types(host, port);
            }
        }),
    );
}

#[test]
fn libvirts_xml() {
    fuzz(
        &["fixtures/xml"],
        text(|input| {
            if let Ok(domain) = DomainInfo::parse(input) {
                assert!(!domain.name.is_empty());
                let _ = domain.paths().count();
            }
            if let Ok(volume) = VolumeInfo::parse(input) {
                assert!(!volume.name.is_empty());
            }
            if let Ok(pool) = PoolInfo::parse(input) {
                assert!(!pool.name.is_empty());
            }
            let _ = HostCapabilities::parse(input).map(|host| host.has_kvm());
            let _ = DomainCapabilities::parse(input).map(|domain| domain.has_plain_efi());
        }),
    );
}

#[test]
fn our_own_metadata() {
    fuzz(
        &["fixtures/xml"],
        text(|input| {
            let Ok(Mark::Egressctl(metadata)) = Mark::from_fragment(Manager::Egressctl, input)
            else {
                return;
            };
            // What can be read can be written, and is the same when it is read again.
            let written = metadata.to_xml().unwrap();
            let again = Mark::from_fragment(Manager::Egressctl, &written).unwrap();
            assert_eq!(again.metadata(), Some(&*metadata));
        }),
    );
}

#[test]
fn heads_of_images() {
    fuzz(&["fuzz/qcow2"], |input| {
        for format in [config::ImageFormat::Qcow2, config::ImageFormat::Raw] {
            if let Ok(head) = sniff(format, input) {
                assert_eq!(head.format, format);
            }
        }
    });
}

#[test]
fn checksum_files() {
    fuzz(
        &["fuzz/checksums"],
        text(|input| {
            if let Ok(found) = find_checksum("SUMS", input, "image.qcow2") {
                let hex = found.hex.as_str();
                assert!(input.to_ascii_lowercase().contains(hex), "from nowhere");
            }
        }),
    );
}

#[test]
fn headers_of_http() {
    fuzz(&["fuzz/headers"], text(crate::image::fuzz_headers));
}

#[test]
fn lists_and_names() {
    fuzz(
        &["fuzz/keep", "fuzz/checksums"],
        text(|input| {
            let _ = KeepList::parse("list", input.as_bytes(), false);
            for word in input.split_whitespace() {
                if let Some(base) = BaseName::parse(word) {
                    assert!(!base.key.is_empty());
                }
                if let Ok(name) = crate::name::InstanceName::new(word) {
                    assert!(name.as_str().len() <= 63 && !name.as_str().contains(['/', ':', '.']));
                }
            }
        }),
    );
}

#[test]
fn cloud_init_parts() {
    fuzz(&["fuzz/user_data"], |input| {
        let _ = crate::seed::check_user_data("file", input);
        let _ = crate::seed::check_network_config("file", input);
        let _ = crate::seed::read_mark(input);
    });
}
