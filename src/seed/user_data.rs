//! Checks user-data, vendor-data and network-config before anything is made of them.
//!
//! cloud-init ignores what it doesn't understand with no more than a line in a log inside the guest, where nobody can
//! log in because the keys were in it. So the rule is:
//!
//! - **Refused**: what every cloud-init would ignore, or fail on, as a whole. No known first line; a byte order mark
//!   before it, or blanks where they do harm (a script's `#!` is none then); empty; base64 text; a MIME message without
//!   `MIME-Version`; a script with Windows line ends; cloud-config that isn't UTF-8, isn't valid YAML or whose root
//!   isn't a mapping.
//! - **Warned about**: what cloud-init takes, but hardly as it was meant. A key that stands twice (the last one wins).
//! - **Everything else passes, byte for byte**: nothing is repaired, decoded or re-encoded, and what can't be
//!   judged from outside (gzip, the parts of a MIME message, what a jinja template becomes) isn't judged.
//!
//! Messages name line and column, never content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::finding::Finding;
use super::yaml::{self, Root};

#[cfg(test)]
mod tests;

/// What cloud-init takes some user-data for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserDataKind {
    /// `#cloud-config`.
    CloudConfig,
    /// `#!`, a script.
    Script,
    /// `## template: jinja`, rendered and then taken by its second line.
    Jinja,
    /// `#include` or `#include-once`.
    Include,
    /// `#cloud-boothook`.
    Boothook,
    /// `#part-handler`.
    PartHandler,
    /// `#cloud-config-archive`.
    Archive,
    /// `#cloud-config-jsonp`.
    Jsonp,
    /// A MIME message.
    Mime,
    /// gzip.
    Gzip,
}

/// Data that cloud-init will take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// What for.
    pub kind: UserDataKind,
    /// What is odd about it.
    pub warnings: Vec<Finding>,
}

type Result<T> = std::result::Result<T, Finding>;

/// The first lines cloud-init knows (`cloudinit/handlers/__init__.py`), in lower case, the longer before its own start.
const HEADERS: [(&str, UserDataKind); 9] = [
    ("#cloud-config-archive", UserDataKind::Archive),
    ("#cloud-config-jsonp", UserDataKind::Jsonp),
    ("#cloud-config", UserDataKind::CloudConfig),
    ("#cloud-boothook", UserDataKind::Boothook),
    ("#include-once", UserDataKind::Include),
    ("#include", UserDataKind::Include),
    ("#part-handler", UserDataKind::PartHandler),
    ("## template: jinja", UserDataKind::Jinja),
    ("#!", UserDataKind::Script),
];

/// gzip's magic number (RFC 1952 section 2.3.1).
const GZIP: &[u8] = b"\x1f\x8b";

/// How far cloud-init looks for `MIME-Version:` (`cloudinit/user_data.py`), in bytes.
const MIME_HEAD: usize = 4096;

/// Checks user-data; `source` names it in messages, such as `--user-data squid.yaml`.
///
/// Errors: Usage.
pub fn check_user_data(source: &str, data: &[u8]) -> crate::error::Result<Checked> {
    check(data).map_err(|finding| finding.into_error(source))
}

/// Checks the configuration's `vendorData`. Beside the guest agent's script (`with_script`) it becomes a part of
/// a MIME message and is taken by its first line, so a MIME message can't be in it.
///
/// Errors: what is wrong with it.
pub fn check_vendor_data(text: &str, with_script: bool) -> Result<Checked> {
    let checked = check(text.as_bytes())?;
    if with_script && checked.kind == UserDataKind::Mime {
        return Err(Finding::of(
            "it is a MIME message, which can't stand beside the guest agent's script (installGuestAgent)",
        ));
    }
    Ok(checked)
}

/// Checks a network-config: the bare form of cloud-init's version 1 or 2.
///
/// Errors: Usage.
pub fn check_network_config(source: &str, data: &[u8]) -> crate::error::Result<()> {
    network_config(data).map_err(|finding| finding.into_error(source))
}

fn network_config(data: &[u8]) -> Result<()> {
    let document = yaml::read(utf8(data)?)?;
    let Root::Mapping(keys) = document.root else {
        return Err(Finding::of("it isn't a mapping").hint("begin it with `version: 2`"));
    };
    if let Some(fault) = document.duplicate_key {
        return Err(fault.into());
    }
    if keys.iter().any(|key| key == "network") {
        return Err(
            Finding::of("it is wrapped in `network:`, which a seed's network-config isn't").hint(
                "remove the `network:` line and indent the rest one level less, so that it begins with `version: 2`",
            ),
        );
    }
    if !keys.iter().any(|key| key == "version") {
        return Err(Finding::of("it has no `version:`")
            .hint("add `version: 2` (netplan's form) at its top"));
    }
    // cloud-init compares numbers, and has a handler for these two; text it takes for neither.
    match document.version {
        Some(1 | 2) => Ok(()),
        _ => Err(
            Finding::of("its `version:` is neither the number 1 nor 2").hint(
                "cloud-init reads `version: 1`, and `version: 2` (netplan's form), without quotes",
            ),
        ),
    }
}

fn check(data: &[u8]) -> Result<Checked> {
    let passed = |kind| {
        Ok(Checked {
            kind,
            warnings: Vec::new(),
        })
    };
    if data.starts_with(GZIP) {
        return passed(UserDataKind::Gzip);
    }
    check_start(data)?;
    let text = data.trim_ascii_start();
    let kind = header(first_line(text));
    let blanks = &data[..data.len() - text.len()];
    if !blanks.is_empty() && !kind.is_some_and(|kind| may_follow(kind, blanks)) {
        return Err(behind_blanks());
    }
    if let Some(has_version) = mime(data) {
        if has_version {
            return passed(UserDataKind::Mime);
        }
        return Err(
            Finding::of("it looks like a MIME message, but has no MIME-Version header").hint(
                "cloud-init takes for MIME only what has `MIME-Version: 1.0` among its headers",
            ),
        );
    }
    let Some(kind) = kind else {
        return Err(unknown_header(data));
    };
    match kind {
        UserDataKind::CloudConfig => cloud_config(data),
        UserDataKind::Archive => archive(data),
        UserDataKind::Jinja => jinja(data).and_then(|()| passed(kind)),
        UserDataKind::Script | UserDataKind::Boothook => {
            unix_line_ends(data).and_then(|()| passed(kind))
        }
        _ => passed(kind),
    }
}

/// Refuses what has no first line, or one in another encoding.
fn check_start(data: &[u8]) -> Result<()> {
    if data.trim_ascii().is_empty() {
        return Err(Finding::of("it is empty")
            .hint("leave it out for an instance without user-data of its own"));
    }
    if data.starts_with(b"\xEF\xBB\xBF") {
        return Err(Finding::of("it begins with a byte order mark (BOM)")
            .hint("save it as UTF-8 without BOM, or: sed -i '1s/^\\xEF\\xBB\\xBF//' FILE"));
    }
    if data.starts_with(b"\xFF\xFE") || data.starts_with(b"\xFE\xFF") {
        return Err(Finding::of("it is UTF-16").hint("save it as UTF-8 without BOM"));
    }
    Ok(())
}

/// Whether it is still taken for what it is, and works, behind these blanks. cloud-init strips them only to tell the kind
/// (`type_from_starts_with`), and hands on what it was given: to YAML and Python, where its header is a comment; but also
/// to the kernel, which finds no `#!`, and to the template engine, which finds no header.
fn may_follow(kind: UserDataKind, blanks: &[u8]) -> bool {
    match kind {
        UserDataKind::CloudConfig
        | UserDataKind::Archive
        | UserDataKind::Jsonp
        | UserDataKind::PartHandler => true,
        // It is read by lines, and an indented header is taken for a URL.
        UserDataKind::Include => blanks.ends_with(b"\n"),
        UserDataKind::Script
        | UserDataKind::Jinja
        | UserDataKind::Boothook
        | UserDataKind::Mime
        | UserDataKind::Gzip => false,
    }
}

fn behind_blanks() -> Finding {
    Finding::of("it begins with a blank or an empty line").hint(
        "begin it with `#!`, or with another of cloud-init's headers; blanks may stand before `#cloud-config` only",
    )
}

fn first_line(data: &[u8]) -> &[u8] {
    data.split(|&byte| byte == b'\n').next().unwrap_or_default()
}

/// What a first line makes of the data. cloud-init compares in lower case.
fn header(line: &[u8]) -> Option<UserDataKind> {
    let line = line.to_ascii_lowercase();
    let (word, kind) = HEADERS
        .iter()
        .find(|(word, _)| line.starts_with(word.as_bytes()))?;
    // cloud-init itself would take `#cloud-configuration` for the longest header that it begins with.
    let next = line.get(word.len()).copied();
    let ends = *kind == UserDataKind::Script
        || !next.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    ends.then_some(*kind)
}

/// Whether it looks like a MIME message, and whether cloud-init would take it for one.
fn mime(data: &[u8]) -> Option<bool> {
    let head = data[..data.len().min(MIME_HEAD)].to_ascii_lowercase();
    let mut headers = head
        .split(|&byte| byte == b'\n')
        .take_while(|line| !line.trim_ascii().is_empty());
    let starts =
        |line: &[u8]| line.starts_with(b"content-type:") || line.starts_with(b"mime-version:");
    if data.starts_with(b"#") || !headers.clone().any(starts) {
        return None;
    }
    Some(headers.any(|line| line.starts_with(b"mime-version:")))
}

fn cloud_config(data: &[u8]) -> Result<Checked> {
    let document = yaml::read(utf8(data)?).map_err(invalid_yaml)?;
    match document.root {
        Root::Empty | Root::Mapping(_) => {}
        Root::List | Root::Scalar => {
            return Err(Finding::of(
                "its cloud-config isn't a mapping of keys, so cloud-init would ignore it",
            ));
        }
    }
    let takes = "cloud-init takes the last and drops the others";
    let twice = document
        .duplicate_key
        .map(|fault| Finding::from(fault).hint(takes));
    Ok(Checked {
        kind: UserDataKind::CloudConfig,
        warnings: twice.into_iter().collect(),
    })
}

fn archive(data: &[u8]) -> Result<Checked> {
    let document = yaml::read(utf8(data)?).map_err(invalid_yaml)?;
    if document.root != Root::List {
        return Err(Finding::of("its cloud-config-archive isn't a list"));
    }
    Ok(Checked {
        kind: UserDataKind::Archive,
        warnings: Vec::new(),
    })
}

/// A template is taken by its second line, once rendered; what it renders to can't be checked here.
fn jinja(data: &[u8]) -> Result<()> {
    let rest = &data[(first_line(data).len() + 1).min(data.len())..];
    let second = rest
        .split(|&byte| byte == b'\n')
        .find(|line| !line.trim_ascii().is_empty())
        .unwrap_or_default();
    match header(second.trim_ascii()) {
        // What is rendered is handed to the kernel as it is.
        Some(UserDataKind::Script) if !rest.starts_with(b"#!") => Err(Finding::of(
            "an empty line or a blank stands between `## template: jinja` and `#!`",
        )
        .hint("put `#!` at the begin of its second line")),
        Some(UserDataKind::Script) => unix_line_ends(rest),
        Some(_) => Ok(()),
        // The header itself may come out of the template.
        None if second.trim_ascii_start().starts_with(b"{") => Ok(()),
        None => Err(Finding::of(
            "the line after `## template: jinja` is none of cloud-init's headers",
        )
        .hint("put `#cloud-config` (or `#!/bin/sh`) on its second line")),
    }
}

/// The kernel would look for an interpreter called `/bin/sh\r`.
fn unix_line_ends(data: &[u8]) -> Result<()> {
    let has_interpreter = data
        .split_inclusive(|&byte| byte == b'\n')
        .find(|line| line.starts_with(b"#!"));
    if has_interpreter.is_some_and(|line| line.ends_with(b"\r\n")) {
        return Err(
            Finding::of("it is a script with Windows line ends (CRLF), which can't run")
                .hint("convert it: sed -i 's/\\r$//' FILE"),
        );
    }
    Ok(())
}

fn utf8(data: &[u8]) -> Result<&str> {
    std::str::from_utf8(data).map_err(|e| {
        let before = &data[..e.valid_up_to()];
        let line = before.split(|&byte| byte == b'\n').count();
        Finding {
            line: Some(line),
            ..Finding::of("it isn't UTF-8")
        }
    })
}

fn invalid_yaml(fault: yaml::Fault) -> Finding {
    Finding::from(fault)
        .hint("cloud-init would ignore it as a whole; `cloud-init schema -c FILE` checks it too")
}

/// Why the first line is none of the known ones, as far as that can be guessed.
fn unknown_header(data: &[u8]) -> Finding {
    if is_base64_of_known(data) {
        return Finding::of("it is base64 text, which cloud-init would not decode")
            .hint("decode it first: base64 -d FILE");
    }
    let line = first_line(data).to_ascii_lowercase();
    let squeezed: Vec<u8> = line
        .iter()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .copied()
        .collect();
    if squeezed.starts_with(b"cloudconfig") {
        return Finding::of("its first line is almost, but not quite `#cloud-config`")
            .hint("write it exactly so: #cloud-config");
    }
    // cloud-init 22.2 dropped it, and no older one runs where there is upstart.
    if line.starts_with(b"#upstart-job") {
        return Finding::of(
            "it is a job for upstart, which cloud-init would ignore since version 22.2",
        )
        .hint("write a systemd unit by cloud-config's `write_files`, and start it in `runcmd`");
    }
    Finding::of("its first line is none of cloud-init's headers, so it would be ignored")
        .hint("begin cloud-config with the line `#cloud-config`, and a script with `#!/bin/sh`")
}

/// Whether it is base64 of something that would have been good.
fn is_base64_of_known(data: &[u8]) -> bool {
    let compact: Vec<u8> = data
        .iter()
        .filter(|b| !b.is_ascii_whitespace())
        .copied()
        .collect();
    let decoded = BASE64.decode(compact);
    decoded.is_ok_and(|data| {
        data.starts_with(GZIP) || mime(&data).is_some() || header(first_line(&data)).is_some()
    })
}
