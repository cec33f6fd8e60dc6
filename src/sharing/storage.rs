//! What a host says of the storage under a pool's directory: its file system, and whether the host exports it by NFS.

use super::Sharing;
use crate::shell;

/// What each line of the answer begins with, to tell it from a login shell's own output.
const MARK: &str = "egressctl-storage: ";

/// File systems of the host's own, by the names that `stat -f` of coreutils has for them.
const LOCAL: [&str; 10] = [
    "ext2/ext3",
    "xfs",
    "btrfs",
    "zfs",
    "tmpfs",
    "overlayfs",
    "f2fs",
    "jfs",
    "reiserfs",
    "bcachefs",
];

/// The question, for a host's shell: the type of the file system (stat(1)), the directories that the pool's one is in, and those
/// that the kernel's NFS server exports, which exportfs(8) keeps in a file. Directories are told by device and inode, as
/// exported ones are often mounts of others. Redirections stand inside the script: the user's shell may be a csh.
pub(super) fn question(directory: &str) -> String {
    format!(
        "sh -c 'exec 2>/dev/null; d=$(readlink -f -- \"$1\"); echo; stat -f -c \"{MARK}type %T\" -- \"$d\"; \
         while test -n \"$d\"; do stat -c \"{MARK}in %d:%i\" -- \"$d\"; d=${{d%/*}}; done; \
         stat -c \"{MARK}in %d:%i\" /; \
         if test -s /var/lib/nfs/etab; then \
         while read -r e rest; do stat -c \"{MARK}exports %d:%i\" -- \"$e\" || echo \"{MARK}exports unknown\"; \
         done </var/lib/nfs/etab || echo \"{MARK}exports unknown\"; fi; \
         echo \"{MARK}end\"' sh {}",
        shell::quote(directory)
    )
}

/// By the answer: a local file system, of which nothing is exported that the directory is in. Pure.
pub(super) fn sharing_of(answer: &str) -> Sharing {
    let lines: Vec<&str> = answer
        .lines()
        .filter_map(|line| line.strip_prefix(MARK))
        .collect();
    let of = |key: &'static str| lines.iter().filter_map(move |line| line.strip_prefix(key));
    let around: Vec<&str> = of("in ").collect();
    let mut types = of("type ");
    let is_local = types.next().is_some_and(|name| LOCAL.contains(&name)) && types.next().is_none();
    let is_exported = of("exports ").any(|id| !id.contains(':') || around.contains(&id));
    if is_local && !around.is_empty() && !is_exported && lines.last() == Some(&"end") {
        Sharing::Own
    } else {
        Sharing::Perhaps
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::process::Command;

    use super::*;

    fn answer(lines: &[&str]) -> String {
        let marked = lines.iter().map(|line| format!("{MARK}{line}\n"));
        let greeting = ["Welcome to nas1\n\n".to_owned()];
        greeting.into_iter().chain(marked).collect()
    }

    #[test]
    fn only_a_known_local_file_system_is_the_hosts_own() {
        let with = |name: &str| answer(&[&format!("type {name}"), "in 1:2", "in 1:1", "end"]);
        for name in LOCAL {
            assert_eq!(sharing_of(&with(name)), Sharing::Own, "{name}");
        }
        for name in [
            "nfs",
            "smb2",
            "fuseblk",
            "ceph",
            "gfs/gfs2",
            "",
            "UNKNOWN (0x1)",
        ] {
            assert_eq!(sharing_of(&with(name)), Sharing::Perhaps, "{name}");
        }
    }

    #[test]
    fn what_is_exported_counts_where_the_pool_is_in_it() {
        let with = |exports: &[&str]| {
            let exports = exports.iter().map(|id| format!("exports {id}"));
            let lines: Vec<String> = ["type xfs", "in 1:3", "in 1:2", "in 1:1"]
                .map(str::to_owned)
                .into_iter()
                .chain(exports)
                .chain(["end".to_owned()])
                .collect();
            sharing_of(&answer(
                &lines.iter().map(String::as_str).collect::<Vec<_>>(),
            ))
        };
        assert_eq!(with(&[]), Sharing::Own);
        assert_eq!(with(&["1:9", "2:3"]), Sharing::Own, "others");
        assert_eq!(with(&["1:9", "1:3"]), Sharing::Perhaps, "the very one");
        assert_eq!(with(&["1:1"]), Sharing::Perhaps, "what it is in");
        assert_eq!(with(&["unknown"]), Sharing::Perhaps);
    }

    #[test]
    fn half_an_answer_or_none_tells_nothing() {
        for lines in [
            &[][..],
            &["type xfs", "in 1:1"],
            &["type xfs", "end"],
            &["in 1:1", "end"],
        ] {
            assert_eq!(sharing_of(&answer(lines)), Sharing::Perhaps, "{lines:?}");
        }
        assert_eq!(sharing_of("xfs\n"), Sharing::Perhaps);
    }

    #[test]
    fn a_shell_answers_the_question() {
        let directory = tempfile::tempdir().unwrap();
        let odd = directory.path().join("it's a $pool");
        std::fs::create_dir(&odd).unwrap();
        let asked = question(odd.to_str().unwrap());
        let output = Command::new("sh").args(["-c", &asked]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for path in [odd.as_path(), directory.path(), "/".as_ref()] {
            let seen = std::fs::metadata(path).unwrap();
            let line = format!("{MARK}in {}:{}\n", seen.dev(), seen.ino());
            assert!(text.contains(&line), "{path:?}\n{text}");
        }
        assert!(text.contains(&format!("{MARK}type ")), "{text}");
        assert!(text.ends_with(&format!("{MARK}end\n")), "{text}");
        let (_, outside) = asked.rsplit_once("' sh ").unwrap();
        assert_eq!(outside, crate::shell::quote(odd.to_str().unwrap()));
    }
}
