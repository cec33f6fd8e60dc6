//! Private directories that runs left behind which were killed (SIGKILL, a lack of memory): whoever makes one of its own
//! removes them. Any doubt means that one stays.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};

use super::private_dir::{PREFIX, RANDOM_LETTERS, SOCKET_NAME};

/// Younger ones are left alone, whatever they look like: their run may be about to listen.
const OLD: Duration = Duration::from_secs(60 * 60);

/// The most entries of the place that are looked at: it may be full of others' files, and a command is waiting.
const MOST_ENTRIES: usize = 10_000;

/// The most directories that are removed at once.
const MOST_REMOVED: usize = 100;

/// File systems that only this machine can have (statfs(2)): on another one, a socket whose process runs elsewhere looks
/// just like a dead one.
const LOCAL: [i64; 7] = [
    0x0102_1994, // tmpfs
    0xEF53,      // ext
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0x794C_7630, // overlayfs
    0xF2F5_2010, // F2FS
    0x2FC1_2FC1, // ZFS
];

/// Removes what dead runs of this user have left in `place`, within bounds. What fails is tried by the next run.
pub(super) fn sweep(place: &Path) {
    let swept = sweep_at(place, MOST_ENTRIES, MOST_REMOVED, SystemTime::now());
    match swept {
        Ok(0) => {}
        Ok(removed) => log::debug!(
            target: super::LOG_TARGET,
            "{}: removed {removed} directories of runs that were killed",
            place.display()
        ),
        Err(error) => log::debug!(target: super::LOG_TARGET, "{}: {error}", place.display()),
    }
}

/// How many were removed.
fn sweep_at(
    place: &Path,
    most_entries: usize,
    most_removed: usize,
    now: SystemTime,
) -> io::Result<usize> {
    let parent = open_dir(fs::CWD, place.as_os_str())?;
    if !is_local(fs::fstatfs(&parent)?.f_type) {
        return Ok(0);
    }
    let mut removed = 0;
    for entry in std::fs::read_dir(place)?.take(most_entries) {
        if removed == most_removed {
            break;
        }
        let name = entry?.file_name();
        if !is_ours_by_name(&name) {
            continue;
        }
        match remove_if_dead(&parent, &name, now) {
            Ok(None) => removed += 1,
            Ok(Some(why)) => {
                log::debug!(target: super::LOG_TARGET, "{} stays: {why}", name.display());
            }
            Err(error) => {
                log::debug!(target: super::LOG_TARGET, "{} stays: {error}", name.display());
            }
        }
    }
    Ok(removed)
}

fn is_local(file_system: i64) -> bool {
    LOCAL.contains(&file_system)
}

fn is_ours_by_name(name: &OsStr) -> bool {
    let letters = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    letters.is_some_and(|letters| {
        letters.len() == RANDOM_LETTERS && letters.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

/// Removes the directory, or says why it stays. All looks and changes go by its descriptor, so that nobody can put
/// another one, or a link, in its place meanwhile.
fn remove_if_dead(
    parent: &OwnedFd,
    name: &OsStr,
    now: SystemTime,
) -> io::Result<Option<&'static str>> {
    // Fails for a link and for a file.
    let dir = open_dir(parent.as_fd(), name)?;
    let stat = fs::fstat(&dir)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Ok(Some("another user's"));
    }
    if stat.st_mode & 0o7777 != 0o700 {
        return Ok(Some("others may enter it"));
    }
    let changed = u64::try_from(stat.st_mtime).unwrap_or(u64::MAX);
    let changed = UNIX_EPOCH.checked_add(Duration::from_secs(changed));
    // One from the future is young.
    let age = changed.and_then(|changed| now.duration_since(changed).ok());
    if age.is_none_or(|age| age <= OLD) {
        return Ok(Some("young"));
    }
    if !holds_the_socket_alone(&dir)? {
        return Ok(Some("it holds something else than a socket"));
    }
    if somebody_listens(&dir)? {
        return Ok(Some("somebody listens"));
    }
    fs::unlinkat(&dir, SOCKET_NAME, AtFlags::empty())?;
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?;
    Ok(None)
}

fn open_dir(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    // The place itself may be reached through a link (/tmp of some systems), what is in it may not.
    let follow = if at.as_raw_fd() == fs::CWD.as_raw_fd() {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
    Ok(fs::openat(at, name, flags, Mode::empty())?)
}

fn holds_the_socket_alone(dir: &OwnedFd) -> io::Result<bool> {
    let mut is_there = false;
    for entry in Dir::read_from(dir)? {
        match entry?.file_name().to_bytes() {
            b"." | b".." => {}
            name if name == SOCKET_NAME.as_bytes() => is_there = true,
            _ => return Ok(false),
        }
    }
    if !is_there {
        return Ok(false);
    }
    let stat = fs::statat(dir, SOCKET_NAME, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

/// Whether a process has the socket. Asked by a socket of another type, which is never connected to one that listens, but
/// told that it is there (unix(7): EPROTOTYPE): a live run isn't bothered, and nothing can block.
fn somebody_listens(dir: &OwnedFd) -> io::Result<bool> {
    let socket = format!("/proc/self/fd/{}/{SOCKET_NAME}", dir.as_raw_fd());
    match UnixDatagram::unbound()?.connect(socket) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PROTOTYPE.raw_os_error()) => {
            Ok(true)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{DirBuilder, File, Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;

    /// A place with one directory of that name as a killed run leaves it, and the directory.
    fn place_with(name: &str) -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join(name);
        DirBuilder::new().mode(0o700).create(&dir).unwrap();
        drop(UnixListener::bind(dir.join(SOCKET_NAME)).unwrap());
        (place, dir)
    }

    fn in_two_hours() -> SystemTime {
        SystemTime::now() + 2 * OLD
    }

    fn swept(place: &tempfile::TempDir, now: SystemTime) -> usize {
        sweep_at(place.path(), MOST_ENTRIES, MOST_REMOVED, now).unwrap()
    }

    const NAME: &str = "egressctl-a1B2c3";

    #[test]
    fn what_a_killed_run_left_goes_once_it_is_old() {
        let (place, dir) = place_with(NAME);
        assert_eq!(swept(&place, SystemTime::now()), 0);
        assert_eq!(
            swept(&place, SystemTime::now() + OLD - Duration::from_secs(9)),
            0
        );
        assert_eq!(swept(&place, UNIX_EPOCH), 0);
        assert!(dir.join(SOCKET_NAME).exists());
        assert_eq!(swept(&place, in_two_hours()), 1);
        assert!(!dir.exists());
        assert_eq!(swept(&place, in_two_hours()), 0);
    }

    #[test]
    fn the_names_that_are_looked_at_are_those_that_are_given() {
        let place = tempfile::tempdir().unwrap();
        let own = super::super::private_dir::PrivateDir::within(place.path()).unwrap();
        let name = own.socket_path().parent().unwrap().file_name().unwrap();
        assert!(is_ours_by_name(name), "{name:?}");
    }

    #[test]
    fn what_another_machine_may_use_stays() {
        let here = tempfile::tempdir().unwrap();
        assert!(is_local(fs::statfs(here.path()).unwrap().f_type));
        // NFS, SMB, FUSE, 9P, Ceph (statfs(2)).
        for elsewhere in [0x6969, 0xFE53_4D42, 0x6573_5546, 0x0102_1997, 0x00C3_6400] {
            assert!(!is_local(elsewhere), "{elsewhere:x}");
        }
    }

    #[test]
    fn another_name_stays() {
        for name in [
            "egressctl-",
            "egressctl-a1B2c",
            "egressctl-a1B2c3d",
            "egressctl-a1B2c.",
            "egressctl-lab",
            "xegressctl-a1B2c3",
            ".egressctl-a1B2c3",
            "egressctl_a1B2c3",
        ] {
            let (place, dir) = place_with(name);
            assert_eq!(swept(&place, in_two_hours()), 0, "{name}");
            assert!(dir.join(SOCKET_NAME).exists());
        }
    }

    #[test]
    fn whatever_isnt_just_so_stays() {
        type Spoil = fn(&Path);
        let table: [(&str, Spoil); 9] = [
            ("others may enter", |dir| {
                set_permissions(dir, Permissions::from_mode(0o750)).unwrap();
            }),
            ("a sticky bit", |dir| {
                set_permissions(dir, Permissions::from_mode(0o1700)).unwrap();
            }),
            ("a file beside it", |dir| write(dir.join("x"), "").unwrap()),
            ("a directory beside it", |dir| {
                create_dir(dir.join("d")).unwrap();
            }),
            ("no socket", |dir| {
                std::fs::remove_file(dir.join(SOCKET_NAME)).unwrap();
            }),
            ("a file of its name", |dir| {
                std::fs::remove_file(dir.join(SOCKET_NAME)).unwrap();
                File::create(dir.join(SOCKET_NAME)).unwrap();
            }),
            ("a link of its name", |dir| {
                let away = dir.with_file_name("away");
                std::fs::rename(dir.join(SOCKET_NAME), &away).unwrap();
                symlink(&away, dir.join(SOCKET_NAME)).unwrap();
            }),
            ("a link to it", |dir| {
                let away = dir.with_file_name("away");
                std::fs::rename(dir, &away).unwrap();
                symlink(&away, dir).unwrap();
            }),
            ("a file", |dir| {
                std::fs::remove_dir_all(dir).unwrap();
                write(dir, "").unwrap();
            }),
        ];
        for (about, spoil) in table {
            let (place, dir) = place_with(NAME);
            spoil(&dir);
            assert_eq!(swept(&place, in_two_hours()), 0, "{about}");
            assert!(dir.symlink_metadata().is_ok(), "{about}");
            let is_there = dir.join(SOCKET_NAME).symlink_metadata().is_ok();
            assert_eq!(
                is_there,
                !["no socket", "a file"].contains(&about),
                "{about}"
            );
        }
    }

    #[test]
    fn one_whose_run_lives_stays_and_isnt_bothered() {
        let (place, dir) = place_with(NAME);
        std::fs::remove_file(dir.join(SOCKET_NAME)).unwrap();
        let listener = UnixListener::bind(dir.join(SOCKET_NAME)).unwrap();
        assert_eq!(swept(&place, in_two_hours()), 0);
        listener.set_nonblocking(true).unwrap();
        let accepted = listener.accept();
        assert_eq!(accepted.unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(listener);
        assert_eq!(swept(&place, in_two_hours()), 1);
    }

    #[test]
    fn another_users_stays() {
        let (place, dir) = place_with(NAME);
        // Only root can give one away; for others there is none that they could touch.
        if std::os::unix::fs::chown(&dir, Some(1), None).is_err() {
            return;
        }
        assert_eq!(swept(&place, in_two_hours()), 0);
        assert!(dir.join(SOCKET_NAME).exists());
    }

    #[test]
    fn a_run_does_no_more_than_its_share() {
        let place = tempfile::tempdir().unwrap();
        for n in 0..9 {
            let dir = place.path().join(format!("egressctl-a1B2c{n}"));
            DirBuilder::new().mode(0o700).create(&dir).unwrap();
            drop(UnixListener::bind(dir.join(SOCKET_NAME)).unwrap());
        }
        let sweep =
            |entries, removed| sweep_at(place.path(), entries, removed, in_two_hours()).unwrap();
        assert_eq!(sweep(2, 9), 2);
        assert_eq!(sweep(9, 3), 3);
        assert_eq!(sweep(9, 9), 4);
    }
}
