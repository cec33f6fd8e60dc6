//! Words of command lines for a POSIX shell, in hints and for probes on hosts. Pure.

/// Quotes a word where a shell would take it for something else; most words stay as they are.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_a_shell_needs_it() {
        for (word, quoted) in [
            ("/etc/ssh/known_hosts", "/etc/ssh/known_hosts"),
            ("default", "default"),
            ("nas1.home-lan:22", "nas1.home-lan:22"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("[h]:2222", "'[h]:2222'"),
            ("$(reboot)", "'$(reboot)'"),
            ("~/pool", "'~/pool'"),
            ("a;b&c", "'a;b&c'"),
            ("a\nb", "'a\nb'"),
            ("Bücher", "'Bücher'"),
            ("", "''"),
        ] {
            assert_eq!(quote(word), quoted);
        }
    }
}
