//! Names: what an instance, its volumes and its ID may be called.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::error::{Error, Reason, Result};

/// The longest host name label, RFC 1123 section 2.1 with RFC 1035 section 2.3.4.
const MAX_LABEL: usize = 63;

/// What base image volumes are called; an instance of such a name would own a base image's volume name.
pub const BASE_IMAGE_PREFIX: &str = "base-";

/// How many base32 letters of a uid's digest go into a generated name (80 bits).
const GENERATED_LETTERS: usize = 16;

/// An instance's name: its domain's name and its guest's host name.
///
/// A lower-case RFC 1123 label, so it is safe in host names, file names, volume names and XML, is no
/// option (`-n`), no path (`../x`) and no QEMU protocol (`prefix:name`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceName(String);

impl InstanceName {
    /// Checks a name; what is wrong with it is a usage error.
    pub fn new(name: &str) -> Result<Self> {
        match fault_in(name) {
            None => Ok(InstanceName(name.to_owned())),
            Some(fault) => Err(invalid(name, &fault)),
        }
    }

    /// The name of an instance that nobody named: `proxy-` and 16 base32 letters from the uid.
    ///
    /// The letters are RFC 4648 base32, lower case, of the start of the SHA-256 of the uid's bytes: the same
    /// uid gives the same name, so that a create repeated after a crash finds what it made.
    pub fn from_uid(uid: &str) -> Self {
        let digest = Sha256::digest(uid.as_bytes());
        InstanceName(format!("proxy-{}", base32(&digest, GENERATED_LETTERS)))
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The overlay volume's name.
    pub fn overlay_volume(&self) -> String {
        format!("{self}.qcow2")
    }

    /// The seed volume's name.
    pub fn seed_volume(&self) -> String {
        format!("{self}-seed.iso")
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for InstanceName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        InstanceName::new(name)
    }
}

/// An instance's ID, `hosts/<host>/domains/<name>`: the operator's `providerID`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId {
    /// The host's name in the configuration.
    pub host: String,
    /// The instance's name.
    pub name: InstanceName,
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hosts/{}/domains/{}", self.host, self.name)
    }
}

impl FromStr for InstanceId {
    type Err = Error;

    fn from_str(id: &str) -> Result<Self> {
        let parts: Vec<&str> = id.split('/').collect();
        let ["hosts", host, "domains", name] = parts[..] else {
            return Err(Error::usage(
                Reason::InvalidName,
                format!("{} is no instance ID", shown(id)),
            )
            .hint(
                "an ID is hosts/<host>/domains/<name>; `egressctl list -o json` has each one's",
            ));
        };
        if !is_identifier(host) {
            return Err(Error::usage(
                Reason::InvalidName,
                format!("{} in {} is no host's name", shown(host), shown(id)),
            )
            .hint("the host is one of the configuration's hosts[].name"));
        }
        Ok(InstanceId {
            host: host.to_owned(),
            name: InstanceName::new(name)?,
        })
    }
}

/// What a NAME argument may be: a bare name, looked up on all hosts, or an ID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceRef {
    /// A name, on whichever host has it.
    Name(InstanceName),
    /// An ID, which names its host.
    Id(InstanceId),
}

impl InstanceRef {
    /// The instance's name.
    pub fn name(&self) -> &InstanceName {
        match self {
            InstanceRef::Name(name) => name,
            InstanceRef::Id(id) => &id.name,
        }
    }

    /// The host's name, if the argument gave one.
    pub fn host(&self) -> Option<&str> {
        match self {
            InstanceRef::Name(_) => None,
            InstanceRef::Id(id) => Some(&id.host),
        }
    }
}

impl fmt::Display for InstanceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstanceRef::Name(name) => name.fmt(f),
            InstanceRef::Id(id) => id.fmt(f),
        }
    }
}

impl FromStr for InstanceRef {
    type Err = Error;

    fn from_str(argument: &str) -> Result<Self> {
        // A name has no slash, so whatever has one was meant as an ID, and its error should say so.
        if argument.contains('/') {
            argument.parse().map(InstanceRef::Id)
        } else {
            argument.parse().map(InstanceRef::Name)
        }
    }
}

/// Whether a string can be a host's name or an image's key in the configuration:
/// `[A-Za-z0-9][A-Za-z0-9._-]*`.
pub fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// What is wrong with an instance's name, if anything.
fn fault_in(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if let Some(bad) = name.chars().find(|&c| !allowed(c)) {
        let what = match bad {
            'A'..='Z' => "an upper-case letter".to_owned(),
            ' ' => "a blank".to_owned(),
            '_' => "an underscore".to_owned(),
            c => format!("the character {c:?}"),
        };
        return Some(format!("it has {what}"));
    }
    if name.len() > MAX_LABEL {
        return Some(format!("it has {} characters", name.len()));
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Some("it begins or ends with a hyphen".to_owned());
    }
    if name.starts_with(BASE_IMAGE_PREFIX) {
        return Some(format!(
            "names that begin with {BASE_IMAGE_PREFIX} belong to base images"
        ));
    }
    None
}

fn invalid(name: &str, fault: &str) -> Error {
    Error::usage(
        Reason::InvalidName,
        format!("{} can't be an instance's name: {fault}", shown(name)),
    )
    .hint(format!(
        "it becomes the host name: 1 to {MAX_LABEL} lower-case letters, digits and hyphens, \
         beginning and ending with a letter or digit"
    ))
}

/// A string as it may appear in a message: quoted, control characters escaped, not endless.
fn shown(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start:?}…")
}

/// The first `letters` characters of the RFC 4648 base32 of some bytes, in lower case.
fn base32(bytes: &[u8], letters: usize) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bit = |n: usize| bytes.get(n / 8).map_or(0, |byte| (byte >> (7 - n % 8)) & 1);
    (0..letters)
        .map(|letter| (0..5).fold(0, |value, n| value << 1 | bit(letter * 5 + n)))
        .map(|value| char::from(ALPHABET[usize::from(value)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    #[test]
    fn good_names_pass_unchanged() {
        let longest = "a".repeat(63);
        for name in [
            "a", "0", "proxy-1", "7up", "a--b", "base", "basement", &longest,
        ] {
            assert_eq!(InstanceName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn bad_names_are_usage_errors_that_say_why() {
        let too_long = "a".repeat(64);
        let endless = "x y".repeat(200);
        let table = [
            ("", "it is empty"),
            ("web 1", "a blank"),
            ("../x", "the character '.'"),
            ("-n", "begins or ends with a hyphen"),
            ("n-", "begins or ends with a hyphen"),
            ("a&b", "the character '&'"),
            ("a:b", "the character ':'"),
            ("Web", "an upper-case letter"),
            ("a_b", "an underscore"),
            ("a.b", "the character '.'"),
            ("žába", "the character 'ž'"),
            ("a\nb", "the character '\\n'"),
            ("base-x", "belong to base images"),
            (&too_long, "64 characters"),
            (&endless, "a blank"),
        ];
        for (name, why) in table {
            let error = InstanceName::new(name).unwrap_err();
            assert_eq!(error.class(), Class::Usage, "{name:?}");
            assert_eq!(error.reason(), Reason::InvalidName, "{name:?}");
            assert!(error.message().contains(why), "{name:?}: {error}");
            assert!(error.message().len() < 250, "{error}");
            assert!(!error.message().contains('\n'), "{error}");
        }
    }

    #[test]
    fn base32_is_rfc_4648() {
        // Section 10's vectors, lower case, without padding.
        for (text, encoded) in [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("fooba", "mzxw6ytb"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(base32(text.as_bytes(), encoded.len()), encoded);
        }
    }

    #[test]
    fn a_generated_name_depends_on_the_uid_alone() {
        // printf %s 'abc' | sha256sum | xxd -r -p | base32 | cut -c-16 | tr A-Z a-z
        let name = InstanceName::from_uid("abc");
        assert_eq!(name.as_str(), "proxy-xj4bnp4pahh6uqkb");
        assert_ne!(name, InstanceName::from_uid("abd"));
        assert_eq!(InstanceName::new(name.as_str()).unwrap(), name);
    }

    #[test]
    fn volumes_are_called_after_the_instance() {
        let name = InstanceName::new("web-1").unwrap();
        assert_eq!(name.overlay_volume(), "web-1.qcow2");
        assert_eq!(name.seed_volume(), "web-1-seed.iso");
    }

    #[test]
    fn ids_round_trip() {
        let id: InstanceId = "hosts/nas1.lan/domains/web-1".parse().unwrap();
        assert_eq!((id.host.as_str(), id.name.as_str()), ("nas1.lan", "web-1"));
        assert_eq!(id.to_string(), "hosts/nas1.lan/domains/web-1");
        for bad in [
            "web-1",
            "hosts/nas1/domains",
            "hosts/nas1/domains/",
            "hosts//domains/a",
            "hosts/na s/domains/a",
            "hosts/-x/domains/a",
            "hosts/nas1/domains/a/b",
            "/hosts/nas1/domains/a",
            "Hosts/nas1/domains/a",
            "hosts/nas1/domains/A",
        ] {
            let error = bad.parse::<InstanceId>().unwrap_err();
            assert_eq!(error.reason(), Reason::InvalidName, "{bad}");
            assert_eq!(error.class(), Class::Usage, "{bad}");
        }
    }

    #[test]
    fn a_name_argument_is_a_name_or_an_id() {
        let bare: InstanceRef = "web-1".parse().unwrap();
        assert_eq!((bare.name().as_str(), bare.host()), ("web-1", None));
        let id: InstanceRef = "hosts/nas1/domains/web-1".parse().unwrap();
        assert_eq!((id.name().as_str(), id.host()), ("web-1", Some("nas1")));
        assert_eq!(id.to_string(), "hosts/nas1/domains/web-1");
        let error = "nas1/web-1".parse::<InstanceRef>().unwrap_err();
        assert!(error.message().contains("no instance ID"), "{error}");
    }
}
