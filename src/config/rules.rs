//! What the text values of the configuration must look like, one rule a kind.
//!
//! A rule takes the text as written and returns it in its canonical form, or what is wrong with it.

use crate::image::identity::URL_KEY;
use crate::name::is_identifier;
use crate::placement::AUTO;
use crate::url::{self, shown_text};

/// A kind of text.
pub(crate) struct Rule {
    /// The same as a regular expression, as far as it can be said, for the JSON schema.
    pub(crate) pattern: Option<&'static str>,
    /// The rule itself.
    pub(crate) check: fn(&str) -> Result<String, String>,
}

/// Host names, image and machine type keys: they end up in IDs and file names.
pub(crate) static IDENTIFIER: Rule = Rule {
    pattern: Some("^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"),
    check: identifier,
};
/// Hosts' names: identifiers, but for what `--zone` has another meaning for.
pub(crate) static HOST: Rule = Rule {
    pattern: IDENTIFIER.pattern,
    check: host,
};
/// Names of provider entries.
pub(crate) static NAME: Rule = Rule {
    pattern: Some(r"^\S(.*\S)?$"),
    check: name,
};
/// Names that become part of paths or XML: pools, networks.
pub(crate) static LIBVIRT_NAME: Rule = Rule {
    pattern: Some(r"^[^/\s]([^/]*[^/\s])?$"),
    check: libvirt_name,
};
/// Names of users on a host.
pub(crate) static USER: Rule = Rule {
    pattern: Some(r"^[^-/:\s][^/:\s]*$"),
    check: user,
};
/// Names of bridges: at most 15 bytes, IFNAMSIZ of `<linux/if.h>` less its NUL.
pub(crate) static BRIDGE: Rule = Rule {
    pattern: Some(r"^[^/:\s]{1,15}$"),
    check: bridge,
};
/// Absolute paths of unix sockets.
pub(crate) static SOCKET: Rule = Rule {
    pattern: Some("^/"),
    check: socket,
};
/// Where things are downloaded from.
pub(crate) static URL: Rule = Rule {
    pattern: Some("^[Hh][Tt][Tt][Pp][Ss]?://"),
    check: url,
};
/// SHA-256 digests.
pub(crate) static SHA256: Rule = Rule {
    pattern: Some(r"^\s*[0-9A-Fa-f]{64}\s*$"),
    check: |text| digest(text, 64),
};
/// SHA-512 digests.
pub(crate) static SHA512: Rule = Rule {
    pattern: Some(r"^\s*[0-9A-Fa-f]{128}\s*$"),
    check: |text| digest(text, 128),
};
/// `host`, `host:port`, IPv4, IPv6, `[IPv6]:port`.
pub(crate) static ADDRESS: Rule = Rule {
    pattern: None,
    check: |text| super::address::parse_address(text).map(|_| text.to_string()),
};
/// `[user@]host[:port]`, several separated by commas.
pub(crate) static PROXY_JUMP: Rule = Rule {
    pattern: None,
    check: |text| super::address::parse_jumps(text, "user").map(|_| text.to_string()),
};

/// Text in quotes for an error: escaped, not without end, and without what is secret in a URL, wherever one was put.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    let text = &shown_text(text);
    if text.chars().count() <= LONGEST {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(LONGEST).collect();
    format!("{start:?}…")
}

/// The rules that every text follows: something is there, on one line, without blanks around it.
fn ordinary(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("is empty".to_string());
    }
    if text.chars().any(char::is_control) {
        return Err("has a control character or line break in it".to_string());
    }
    if text.trim() != text {
        return Err(format!("{} has blanks around it", quoted(text)));
    }
    Ok(())
}

fn without(text: &str, refused: &[char]) -> Result<(), String> {
    match text
        .chars()
        .find(|c| refused.contains(c) || (c.is_whitespace() && refused.contains(&' ')))
    {
        Some(' ') => Err(format!("{} has a blank in it", quoted(text))),
        Some(c) => Err(format!("{} has a {c:?} in it", quoted(text))),
        None => Ok(()),
    }
}

fn name(text: &str) -> Result<String, String> {
    ordinary(text)?;
    Ok(text.to_string())
}

/// Whether it is a plain identifier: `[A-Za-z0-9][A-Za-z0-9._-]*`, at most 128 characters.
pub(crate) fn identifier(text: &str) -> Result<String, String> {
    const LONGEST: usize = 128;
    if text.is_empty() {
        return Err("is empty".to_string());
    }
    if !is_identifier(text) {
        return Err(format!(
            "{} is no plain identifier: letters, digits, `.`, `_` and `-`, beginning with a letter or digit",
            quoted(text)
        ));
    }
    if text.len() > LONGEST {
        return Err(format!(
            "is {} characters long, at most {LONGEST} fit",
            text.len()
        ));
    }
    Ok(text.to_string())
}

/// Whether it can be a host's name.
pub(crate) fn host(text: &str) -> Result<String, String> {
    if text == AUTO {
        return Err(format!(
            "{} can't be a host's name: --zone {AUTO} leaves the choice to egressctl",
            quoted(text)
        ));
    }
    identifier(text)
}

/// Images' keys: identifiers, but for the one that images without a key go under.
pub(crate) fn image_key(text: &str) -> Result<String, String> {
    if text == URL_KEY {
        return Err(format!(
            "{} can't be an image's key: images given by URL go under it",
            quoted(text)
        ));
    }
    identifier(text)
}

fn libvirt_name(text: &str) -> Result<String, String> {
    ordinary(text)?;
    without(text, &['/'])?;
    Ok(text.to_string())
}

/// Whether it can be a user's name on a host.
pub(crate) fn user(text: &str) -> Result<String, String> {
    ordinary(text)?;
    without(text, &['/', ':', ' '])?;
    if text.starts_with('-') {
        return Err(format!("{} begins with a dash", quoted(text)));
    }
    Ok(text.to_string())
}

/// Whether it can be a bridge's name.
pub(crate) fn bridge(text: &str) -> Result<String, String> {
    const LONGEST: usize = 15;
    ordinary(text)?;
    without(text, &['/', ':', ' '])?;
    if text.len() > LONGEST {
        return Err(format!(
            "{} is {} bytes long, and Linux's interface names have at most {LONGEST}",
            quoted(text),
            text.len()
        ));
    }
    if text == "." || text == ".." {
        return Err(format!("{} is no interface name", quoted(text)));
    }
    Ok(text.to_string())
}

fn socket(text: &str) -> Result<String, String> {
    /// `sun_path` of `unix(7)`, less its NUL.
    const LONGEST: usize = 107;
    ordinary(text)?;
    if !text.starts_with('/') {
        return Err(format!(
            "{} is no absolute path; the socket is on the host",
            quoted(text)
        ));
    }
    if text.len() > LONGEST {
        return Err(format!(
            "is {} bytes long, and socket paths have at most {LONGEST}",
            text.len()
        ));
    }
    Ok(text.to_string())
}

fn url(text: &str) -> Result<String, String> {
    ordinary(text)?;
    url::check(text)?;
    Ok(text.to_string())
}

fn digest(text: &str, wanted: usize) -> Result<String, String> {
    let name = if wanted == 64 { "SHA-256" } else { "SHA-512" };
    let text = text.trim().to_ascii_lowercase();
    if text.is_empty() {
        return Err(
            "is empty, which would mean an unchecked image; leave the key out for that".to_string(),
        );
    }
    if text.starts_with("sha256:") || text.starts_with("sha512:") {
        return Err("give the hex digits alone, without the algorithm in front".to_string());
    }
    if let Some(odd) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(format!(
            "{} is no {name}: {odd:?} is no hex digit",
            quoted(&text)
        ));
    }
    match text.len() {
        length if length == wanted => Ok(text),
        64 => Err("has 64 hex digits: this is a SHA-256, use `sha256`".to_string()),
        128 => Err("has 128 hex digits: this is a SHA-512, use `sha512`".to_string()),
        length => Err(format!("has {length} hex digits, a {name} has {wanted}")),
    }
}
