//! URLs that may hold secrets: a password before the host, a token or signature in the query.
//!
//! Such a URL can be asked for, and compared, but not shown by accident: what prints it gets it without them.

use std::fmt;

use reqwest::Url;

use crate::image::digest::sha256_hex;

/// What a query is replaced by in records: this and so many hex digits of its hash.
const HASHED: &str = "sha256:";
const HASH_DIGITS: usize = 16;

/// What a query is replaced by in messages and markers.
pub const CUT_QUERY: &str = "?…";

/// An http(s) URL, written in one way for all that mean the same. `Display` and `Debug` leave credentials and query out.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The URL, for whoever downloads from it; never for messages, logs or records.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it goes over a connection that isn't encrypted.
    pub fn is_plain_http(&self) -> bool {
        self.0.to_ascii_lowercase().starts_with("http:")
    }

    /// The last segment of its path.
    pub fn file_name(&self) -> &str {
        let path = self.0.split('?').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }

    /// What tells its content from others', to be hashed: the whole URL but for the credentials, as who asks doesn't
    /// matter. The query does, and so this must not be shown either.
    pub fn identity(&self) -> String {
        match Url::parse(&self.0) {
            Ok(mut url) if has_credentials(&url) => {
                strip_credentials(&mut url);
                url.into()
            }
            _ => self.0.clone(),
        }
    }

    /// For records that are compared later: without credentials, and a hash in place of the query. The record of a
    /// record is the same.
    pub fn record(&self) -> String {
        let Ok(mut url) = Url::parse(&self.0) else {
            return shown_text(&self.0);
        };
        let query = url.query().filter(|query| !is_hashed(query));
        let hash = query.map(|query| sha256_hex(query.as_bytes())[..HASH_DIGITS].to_owned());
        if hash.is_none() && !has_credentials(&url) {
            return self.0.clone();
        }
        strip_credentials(&mut url);
        if let Some(hash) = hash {
            url.set_query(Some(&format!("{HASHED}{hash}")));
        }
        url.into()
    }
}

impl From<&str> for SecretUrl {
    fn from(text: &str) -> Self {
        SecretUrl(normal(text).unwrap_or_else(|| text.to_owned()))
    }
}

/// The URL without its fragment, which no server sees, with scheme and host in lower case and without the scheme's own
/// port; none for what [`check`] refuses. Path and query stay as they are given: what they mean is the server's, and
/// markers on hosts hold hashes of them.
fn normal(text: &str) -> Option<String> {
    check(text).ok()?;
    let origin = Url::parse(text).ok()?.origin().ascii_serialization();
    let (scheme, host) = origin.split_once("://")?;
    let (_, given) = text.split_once("://")?;
    let (given, _fragment) = given.split_once('#').unwrap_or((given, ""));
    let end = given.find(['/', '\\', '?']).unwrap_or(given.len());
    let (authority, rest) = given.split_at(end);
    let credentials = authority.rfind('@').map_or("", |at| &authority[..=at]);
    let slash = if rest.starts_with(['/', '\\']) {
        ""
    } else {
        "/"
    };
    Some(format!("{scheme}://{credentials}{host}{slash}{rest}"))
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_text(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretUrl({self})")
    }
}

/// A URL for messages and markers: without credentials, and without its query, which may be a signature.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    strip_credentials(&mut url);
    url.set_fragment(None);
    let cut = url.query().is_some();
    url.set_query(None);
    if cut {
        format!("{url}{CUT_QUERY}")
    } else {
        url.into()
    }
}

/// The same for text that may be a URL or not. One that is mistyped, with a slash too few or no scheme, may hold a
/// password or token all the same: no more of it is shown than how it begins.
pub fn shown_text(text: &str) -> String {
    let in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let scheme = text
        .trim_start()
        .split_once("://")
        .map(|(scheme, _)| scheme);
    match Url::parse(text) {
        Ok(url) if scheme.is_some_and(|scheme| scheme.chars().all(in_scheme)) => shown(&url),
        _ => match harmless_start(text) {
            Some(start) => format!("{start}…"),
            None => text.to_owned(),
        },
    }
}

/// The start of a text that may hold credentials or a token further on; none where it has neither. `user@host:port`
/// and names have neither.
fn harmless_start(text: &str) -> Option<&str> {
    if let Some((before, after)) = text.rsplit_once('@')
        && (before.contains([':', '/', '\\', '?']) || after.contains(['/', '\\', '?']))
    {
        let is_at_start = |scheme: &str| {
            let start = text.get(..scheme.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        let scheme = ["https", "http"].into_iter().find(|s| is_at_start(s));
        let rest = &text[scheme.map_or(0, str::len)..];
        let rest = rest.trim_start_matches([':', '/', '\\']);
        return Some(&text[..text.len() - rest.len()]);
    }
    let (before, after) = text.split_once(['?', '#'])?;
    let is_query = text[before.len()..].starts_with('?') || before.contains('/');
    (is_query && !after.is_empty()).then(|| &text[..=before.len()])
}

/// Refuses what can't be asked for, with what is wrong with it; the text never shows more than [`shown_text`].
pub fn check(text: &str) -> Result<(), String> {
    let shown = format!("{:?}", shown_text(text));
    if text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return Err(format!("{shown} has a blank or control character in it"));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(format!("{shown} is no http(s) URL"));
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(format!("{shown} is neither http nor https"));
    }
    // `Url` would take the first path segment of `https:///x` for the host.
    if rest.is_empty() || rest.starts_with(['/', '?', '#', '\\', ':']) {
        return Err(format!("{shown} names no host"));
    }
    match Url::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{shown} is not valid: {error}")),
    }
}

fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

fn strip_credentials(url: &mut Url) {
    // Fails only for URLs without a host, which have no credentials either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
}

fn is_hashed(query: &str) -> bool {
    let digits = query.strip_prefix(HASHED).unwrap_or_default();
    digits.len() == HASH_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "https://me:hunter2@example.net/a.img?token=t0ps3cret#s3ction";

    #[test]
    fn urls_are_shown_without_secrets() {
        let table = [
            ("https://example.net/a.img", "https://example.net/a.img"),
            ("https://me:secret@example.net/a", "https://example.net/a"),
            (
                "https://example.net/a?sig=secret#x",
                "https://example.net/a?…",
            ),
            ("https://me:secret@[bad/a", "https://…"),
            // Mistyped.
            ("https:/me:secret@example.net/a", "https:/…"),
            ("HTTP:me:secret@example.net/a?b@c", "HTTP:…"),
            ("https//me:secret@example.net/a?sig=secret", "https//…"),
            ("https:\\\\me:secret@example.net", "https:\\\\…"),
            ("//me:secret@example.net/a?sig=secret", "//…"),
            (" https:/me:secret@example.net/a", "…"),
            ("https ://me:secret@example.net/a", "https…"),
            ("me:secret@example.net/a?sig=secret", "…"),
            ("me:secret@example.net/a?u=http://x", "…"),
            ("secret@example.net/a", "…"),
            ("me:sec@ret/@example.net", "…"),
            ("me:secret@example.net", "…"),
            ("example.net/a?sig=secret", "example.net/a?…"),
            ("example.net/a?u=secret@x", "…"),
            ("example.net/a#secret", "example.net/a#…"),
            ("a?secret", "a?…"),
            // Nothing of the kind.
            ("debian-13", "debian-13"),
            ("https:/example.net/a", "https:/example.net/a"),
            ("a#1", "a#1"),
            ("what?", "what?"),
            ("nas1=virt@nas1.lan:22", "nas1=virt@nas1.lan:22"),
            ("hosts/nas1/domains/web1", "hosts/nas1/domains/web1"),
            ("", ""),
        ];
        for (url, wanted) in table {
            assert_eq!(shown_text(url), wanted, "{url}");
            assert_eq!(SecretUrl::from(url).to_string(), wanted);
        }
    }

    #[test]
    fn nothing_that_can_be_printed_holds_a_secret() {
        let url = SecretUrl::from(SECRET);
        for text in [url.to_string(), format!("{url:?}"), url.record()] {
            for secret in ["hunter2", "me:", "t0ps3cret", "s3ction"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
        assert_eq!(Some(url.expose()), SECRET.strip_suffix("#s3ction"));
    }

    #[test]
    fn what_means_the_same_is_one_url() {
        let table = [
            ("https://x/d?f=1#a#b", "https://x/d?f=1"),
            ("https://x/d#", "https://x/d"),
            ("HTTPS://Example.NET/D?F=1", "https://example.net/D?F=1"),
            ("http://x:80/d", "http://x/d"),
            ("https://x:443/d", "https://x/d"),
            ("https://x:80/d", "https://x:80/d"),
            ("http://X:8080", "http://x:8080/"),
            ("http://X?f", "http://x/?f"),
            ("HTTP://Me:P@W@[::1]:80/a", "http://Me:P@W@[::1]/a"),
            ("https://x/d?mail=A@B", "https://x/d?mail=A@B"),
            // As markers have hashed it: what the server makes of these is its own.
            ("https://x/a/../{b}%20|", "https://x/a/../{b}%20|"),
            ("https://x/d?sha256:0f#s", "https://x/d?sha256:0f"),
            // Refused, and shown as it was given.
            ("HTTPS:///X/d#a", "HTTPS:///X/d#a"),
            ("HTTP://x/ #a", "HTTP://x/ #a"),
            ("FTP://X/#a", "FTP://X/#a"),
        ];
        for (text, wanted) in table {
            let url = SecretUrl::from(text);
            assert_eq!(url.expose(), wanted);
            assert_eq!(SecretUrl::from(wanted), url);
            assert_eq!(check(text), check(url.expose()), "{text}");
        }
    }

    #[test]
    fn records_tell_contents_apart_and_not_who_asked() {
        let record = |text: &str| SecretUrl::from(text).record();
        // As earlier versions recorded it.
        let plain = "https://example.net/a%20b";
        assert_eq!(record(plain), plain);
        assert_eq!(record("HTTPS://example.net/a%20b#c"), plain);
        assert_ne!(record("https://x/d?f=1"), record("https://x/d?f=2"));
        assert_ne!(record("https://x/d?f=1"), record("https://x/d"));
        assert_eq!(record("https://me:a@x/d"), record("https://you:b@x/d"));
        assert_eq!(record(&record(SECRET)), record(SECRET));
    }

    #[test]
    fn the_identity_has_the_query_and_not_the_credentials() {
        let identity = |text: &str| SecretUrl::from(text).identity();
        assert_eq!(identity("https://me:a@x/d?f=1"), "https://x/d?f=1");
        assert_eq!(identity("HTTPS://x/d?f=1#g"), "https://x/d?f=1");
    }

    #[test]
    fn what_cant_be_asked_for_is_refused_without_showing_secrets() {
        for good in ["http://x", "HTTPS://x/y?z", "http://[::1]:80/"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "http://",
            "https:///x",
            "http://?x",
            "ftp://x",
            "x",
            "",
            "http://a b",
            "http://[x",
            "http://x:99999/",
            "file:///etc/passwd",
            "http://x/\n",
            "http:// me:hunter2@x",
            "http://me:hunter2@[",
            "gopher://me:hunter2@x/",
        ] {
            let why = check(bad).unwrap_err();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
