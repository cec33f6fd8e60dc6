//! The keep list: which instances shall stay, one uid, name or ID a line. Pure.

use std::collections::BTreeSet;

use crate::error::{Error, Reason, Result};
use crate::instance::Instance;
use crate::name::InstanceId;
use crate::near::nearest;

/// The longest line that can be meant: an ID of long names.
const LONGEST: usize = 512;

/// What jq and scripts print for a missing uid. Taken for one, it would be a list that keeps nothing; an instance that
/// is called so can be listed by its ID.
const PLACEHOLDERS: [&str; 4] = ["null", "nil", "None", "undefined"];

/// The instances that shall stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeepList {
    entries: BTreeSet<String>,
    may_keep_none: bool,
}

impl KeepList {
    /// Reads a list; `source` is what it is called in messages. Blank lines don't count, nor what follows a `#` at a
    /// line's start or after a blank.
    ///
    /// Errors: a line that is no uid, name or ID, with its number; an empty list unless `may_keep_none`. An empty
    /// list deletes every instance, and is what a failed query leaves.
    pub fn parse(source: &str, bytes: &[u8], may_keep_none: bool) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| {
            Error::usage(
                Reason::BadArgument,
                format!("the keep list {source} is no text (UTF-8)"),
            )
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut entries = BTreeSet::new();
        for (index, line) in text.lines().enumerate() {
            let line = without_comment(line);
            if line.is_empty() {
                continue;
            }
            if let Some(fault) = fault_in(line) {
                return Err(Error::usage(
                    Reason::BadArgument,
                    format!("line {} of the keep list {source} {fault}: nothing was touched", index + 1),
                )
                .hint("one uid, name or ID (hosts/<host>/domains/<name>) a line")
                .hint("one a line is what this prints: kubectl get … -o jsonpath='{range .items[*]}{.metadata.uid}{\"\\n\"}{end}'"));
            }
            entries.insert(line.to_owned());
        }
        if entries.is_empty() && !may_keep_none {
            return Err(Error::usage(
                Reason::BadArgument,
                format!("the keep list {source} is empty, which would delete every instance: taken for an accident"),
            )
            .hint("where no instance shall stay, say so: --keep-none"));
        }
        Ok(KeepList {
            entries,
            may_keep_none,
        })
    }

    /// Refuses a list that names none of our instances that there are, where some would go for not being on it: it may
    /// be another cluster's, or of something else than uids, and would delete them all.
    pub fn ensure_keeps_any<'a>(
        &self,
        mut ours: impl Iterator<Item = &'a Instance>,
        going: &[String],
    ) -> Result<()> {
        if going.is_empty() || self.may_keep_none || ours.any(|instance| self.lists(instance)) {
            return Ok(());
        }
        let (count, names) = (self.entries.len(), going.join(", "));
        Err(Error::usage(
            Reason::BadArgument,
            format!("none of the keep list's {count} entries is an instance that there is, which would delete every instance: taken for an accident"),
        )
        .because(format!("nothing was deleted; these would have been: {names}"))
        .hint("the list has uids, names or IDs; compare: egressctl list -o columns=NAME,HOST,UID")
        .hint("where no instance shall stay, say so: --keep-none"))
    }

    /// Whether the list names this instance, by whichever of its names.
    pub fn lists(&self, instance: &Instance) -> bool {
        let has = |name: &str| self.entries.contains(name);
        has(&instance.domain.name)
            || has(&instance.id())
            || instance.info.mark.uid().is_some_and(has)
    }

    /// Whether the list has the ID that an instance of this name has on that host.
    pub fn lists_id(&self, host: &str, name: &str) -> bool {
        self.entries
            .contains(&format!("hosts/{host}/domains/{name}"))
    }

    /// One line for each entry that names none of these instances, with what was perhaps meant. IDs on hosts that
    /// aren't `known` to this run are left out: nobody has looked there.
    pub fn unmatched(&self, ours: &[&Instance], known: &[&str]) -> Vec<String> {
        let ids: Vec<String> = ours.iter().map(|instance| instance.id()).collect();
        let mut names: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        for instance in ours {
            names.insert(&instance.domain.name);
            names.extend(instance.info.mark.uid());
        }
        let unasked = |entry: &str| {
            let id = entry.parse::<InstanceId>();
            id.is_ok_and(|id| !known.contains(&id.host.as_str()))
        };
        let lines = self.entries.iter().map(String::as_str);
        let lines = lines.filter(|entry| !names.contains(entry) && !unasked(entry));
        let line = |entry| {
            let meant =
                nearest(entry, names.iter().copied()).map(|near| format!("; did you mean {near}?"));
            format!(
                "{entry} on the keep list is no instance that there is{}",
                meant.unwrap_or_default()
            )
        };
        lines.map(line).collect()
    }
}

/// The line without a comment behind its entry: a `#` after a blank.
fn without_comment(line: &str) -> &str {
    let mut blank_before = true;
    for (at, c) in line.char_indices() {
        if c == '#' && blank_before {
            return line[..at].trim();
        }
        blank_before = c.is_whitespace();
    }
    line.trim()
}

/// What is wrong with a line, if anything: whatever can't be a uid, a name or an ID is an accident.
pub fn fault_in(line: &str) -> Option<String> {
    if line.len() > LONGEST {
        return Some(format!("has {} characters", line.len()));
    }
    if line.chars().any(char::is_whitespace) {
        return Some("has a blank in it".to_owned());
    }
    if let Some(odd) = line
        .chars()
        .find(|c| c.is_control() || "\"'`{}[]()<>,;|\\*?$".contains(*c))
    {
        return Some(format!("has the character {odd:?} in it"));
    }
    if PLACEHOLDERS.contains(&line) {
        return Some(format!(
            "is {line}, which a query prints for what isn't there"
        ));
    }
    if line.contains('/') && line.parse::<InstanceId>().is_err() {
        return Some("is no ID".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    #[test]
    fn comments_blank_lines_and_line_ends_dont_count() {
        let text = "\u{feff}# wanted\r\n\r\n  web-1  \r\nhosts/nas1/domains/web-2\n#x\n3f0c-uid";
        let list = KeepList::parse("-", text.as_bytes(), false).unwrap();
        let expected = ["3f0c-uid", "hosts/nas1/domains/web-2", "web-1"];
        assert!(list.entries.iter().eq(expected), "{list:?}");
    }

    #[test]
    fn a_comment_may_stand_behind_an_entry() {
        let text = "h1 # Hanna's\nh2\t#x\n  # h3\na#b\n";
        let list = KeepList::parse("-", text.as_bytes(), false).unwrap();
        assert!(list.entries.iter().eq(["a#b", "h1", "h2"]), "{list:?}");
        assert!(KeepList::parse("-", b"h1 h2 # both", false).is_err());
    }

    #[test]
    fn entries_that_name_nothing_are_told_with_what_is_near() {
        let web = crate::inventory::tests::domain("web-1", "", "").instance;
        let text = "web-1\nweb-2\nhosts/other/domains/x\nzzz";
        let list = KeepList::parse("-", text.as_bytes(), false).unwrap();
        let told = list.unmatched(&[&web], &["nas1"]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("web-2 ") && told[0].ends_with("did you mean web-1?"),
            "{told:?}"
        );
        assert!(told[1].ends_with("that there is"), "{told:?}");
        assert_eq!(list.unmatched(&[&web], &["nas1", "other"]).len(), 3);
    }

    #[test]
    fn a_line_that_is_an_accident_is_refused_with_its_number() {
        let endless = "x".repeat(513);
        let table = [
            ("a\nb c\n", "line 2", "a blank"),
            // What {.items[*].metadata.uid} prints.
            ("1-a 2-b 3-c", "line 1", "a blank"),
            ("[\"a\"]", "line 1", "'['"),
            ("\"a\",", "line 1", "'\"'"),
            ("a\n\nnas1/web", "line 3", "no ID"),
            ("hosts/nas1/domains/", "line 1", "no ID"),
            ("hosts/nas1/domains/UPPER", "line 1", "no ID"),
            ("a\0b", "line 1", "'\\0'"),
            // What jq -r .items[].metadata.id prints: the key is uid.
            ("null\nnull\n", "line 1", "is null"),
            ("a\nNone", "line 2", "is None"),
            ("error: the server could not be found", "line 1", "a blank"),
            (endless.as_str(), "line 1", "513"),
        ];
        for (text, line, fault) in table {
            let error = KeepList::parse("keep.txt", text.as_bytes(), true).unwrap_err();
            assert_eq!(error.class(), Class::Usage, "{text:?}");
            assert!(error.message().contains(line), "{text:?}: {error}");
            assert!(error.message().contains(fault), "{text:?}: {error}");
        }
        assert!(KeepList::parse("-", b"\xff\xfe", true).is_err());
    }

    #[test]
    fn an_empty_list_is_an_accident_unless_it_is_meant() {
        for text in ["", "\n\n", "# nothing\n", "\u{feff}"] {
            let error = KeepList::parse("-", text.as_bytes(), false).unwrap_err();
            assert_eq!(error.class(), Class::Usage);
            assert!(error.hints()[0].contains("--keep-none"), "{error}");
            let meant = KeepList::parse("-", text.as_bytes(), true).unwrap();
            assert!(meant.entries.is_empty());
        }
    }
}
