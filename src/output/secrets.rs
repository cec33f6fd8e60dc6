//! Secrets in the URLs of the command line, which messages must not repeat.

use std::ffi::OsString;

use crate::url::shown_text;

/// What to replace in messages, and by what.
#[derive(Debug, Clone, Default)]
pub(super) struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// The secrets in these words: a password or a query in whatever may be a URL.
    pub(super) fn of(line: impl Iterator<Item = OsString>) -> Self {
        let mut found = Vec::new();
        for word in line.filter_map(|word| word.into_string().ok()) {
            let Some((before, rest)) = word.split_once("://") else {
                // One that is mistyped, maybe.
                let option = word.split_once('=').filter(|_| word.starts_with('-'));
                let value = option.map_or(word.as_str(), |(_, value)| value);
                let shown = shown_text(value);
                if shown != value {
                    found.push((value.to_owned(), shown));
                }
                continue;
            };
            if !rest.contains(['@', '?', '#']) {
                continue;
            }
            let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
            let url = &word[before.trim_end_matches(is_scheme).len()..];
            found.push((url.to_owned(), shown_text(url)));
            // Where only a part of it is repeated.
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            if let Some((user, _)) = authority.rsplit_once('@') {
                found.push((format!("//{user}@"), "//".to_owned()));
            }
            if let Some((_, query)) = rest.split_once('?').filter(|(_, q)| !q.is_empty()) {
                found.push((format!("?{query}"), "?…".to_owned()));
            }
        }
        Secrets(found)
    }

    /// The text without them.
    pub(super) fn out_of(&self, text: &str) -> String {
        let replace =
            |text: String, (secret, shown): &(String, String)| text.replace(secret, shown);
        self.0.iter().fold(text.to_owned(), replace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_repeated_without_secrets_and_other_words_as_they_are() {
        let line = [
            "list",
            "--x=https://me:pw@h/a?t=1",
            "k=v",
            "--x=https:/me:pw@h/a",
            "me:pw@h",
        ];
        let line = line.map(OsString::from);
        let secrets = Secrets::of(line.into_iter());
        let table = [
            ("no https://me:pw@h/a?t=1!", "no https://h/a?…!"),
            ("\"--x=https://me:pw@h\"…", "\"--x=https://h\"…"),
            ("t=1 k=v list", "t=1 k=v list"),
            ("h/a?t=1", "h/a?…"),
            ("no https:/me:pw@h/a!", "no https:/…!"),
            ("no 'me:pw@h'", "no '…'"),
        ];
        for (said, wanted) in table {
            assert_eq!(secrets.out_of(said), wanted);
        }
    }
}
