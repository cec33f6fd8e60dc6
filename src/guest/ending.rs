//! The end of a program in a guest that nobody waits for any more.

use std::time::Duration;

use serde_json::json;

use super::Agent;
use crate::cancel::Cancel;
use crate::error::Result;

/// Gets the directory of the program's output and its process. What belongs to it is whatever has that output open,
/// the process itself as long as it is the agent's child (its number may be another's by now), and all their children.
/// Asked to end, given 3 s, and killed; what it left in the directory goes, too. Exit status 1: something goes on.
const SCRIPT: &str = r#"d=$1 main=$2 agent=$PPID
find() {
  pids=" $(ls -l /proc/[0-9]*/fd/[12] 2>/dev/null |
    sed -n "s|^.* /proc/\([0-9]*\)/fd/[12] -> $d/.*|\1|p" | tr '\n' ' ')"
  more=1
  while [ "$more" ]; do
    more=
    for stat in /proc/[0-9]*/stat; do
      { read -r line <"$stat"; } 2>/dev/null || continue
      pid=${line%% *} rest=${line##*) }
      state=${rest%% *} rest=${rest#* }
      parent=${rest%% *}
      case $state:$pids in Z:* | *" $pid "*) continue ;; esac
      case $pids in
        *" $parent "*) ;;
        *) [ "$pid" = "$main" ] && [ "$parent" = "$agent" ] || continue ;;
      esac
      pids="$pids$pid " more=1
    done
  done
  [ "$pids" != " " ]
}
if find; then
  kill -TERM $pids 2>/dev/null
  for try in 1 2 3 4 5 6; do
    sleep 0.5 2>/dev/null || sleep 1
    find || break
  done
fi
if find; then
  for try in 1 2 3 4 5 6; do
    kill -KILL $pids 2>/dev/null
    sleep 0.5 2>/dev/null || sleep 1
    find || break
  done
  find && exit 1
fi
rm -rf -- "$d""#;

/// How long the agent may take for one command here: somebody waits who wanted to be gone by now.
const CALL: Duration = Duration::from_secs(5);
/// How often its end is looked for.
const POLL: Duration = Duration::from_millis(200);

/// What came of ending a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nothing of it goes on.
    Gone,
    /// Something goes on, although it was killed.
    GoesOn,
    /// It is being ended; the guest hasn't said more yet.
    Unknown,
}

/// Ends a program with all that it started, and takes its output away.
///
/// Errors: the agent's; [`Reason::Interrupted`](crate::error::Reason::Interrupted).
pub(super) fn end(agent: Agent<'_>, directory: &str, pid: i64, cancel: &Cancel) -> Result<Ending> {
    let agent = agent.within(CALL);
    let words = ["-c", SCRIPT, "sh", directory, &pid.to_string()];
    let Some(ended_well) = agent.run_short("/bin/sh", &words, POLL, cancel)? else {
        return Ok(Ending::Unknown);
    };
    // The agent remembers a program until somebody has asked for its end. It fails where that was done.
    let _ = agent.call("guest-exec-status", &json!({ "pid": pid }));
    Ok(if ended_well {
        Ending::Gone
    } else {
        Ending::GoesOn
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    use super::*;

    /// Runs a script as a program whose output goes into the directory.
    fn start(directory: &std::path::Path, script: &str) -> Child {
        let file = |name| std::fs::File::create(directory.join(name)).unwrap();
        Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn()
            .unwrap()
    }

    /// The script's exit status; this process is its parent, as the agent would be.
    fn end(directory: &std::path::Path, pid: u32) -> Option<i32> {
        let status = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(directory)
            .arg(pid.to_string())
            .status();
        status.unwrap().code()
    }

    fn runs(pattern: &str) -> bool {
        let found = Command::new("pgrep").args(["-fx", pattern]).output();
        found.unwrap().status.success()
    }

    #[test]
    fn a_program_ends_with_all_that_it_started_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let [directory, other] = ["egressctl-x", "egressctl-y"].map(|name| {
            let directory = scratch.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            directory
        });
        // Sleeps that no other process on this machine has.
        let sleep = |number: u8| format!("sleep 9{}.{number}", std::process::id());
        let mut bystander = start(&other, &format!("exec {}", sleep(1)));
        // A child without our output, one that was left to itself with it, and one that takes no notice of SIGTERM.
        let mut program = start(
            &directory,
            &format!(
                "{} >/dev/null 2>&1 & ({} &); trap '' TERM; echo ready; while :; do {}; done",
                sleep(2),
                sleep(3),
                sleep(4)
            ),
        );
        let since = Instant::now();
        while std::fs::read(directory.join("out")).unwrap().is_empty() || !runs(&sleep(4)) {
            assert!(since.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(end(&directory, program.id()), Some(0));
        program.wait().unwrap();
        for child in 2..=4 {
            assert!(!runs(&sleep(child)), "{child}");
        }
        assert!(!directory.exists());
        // Its number is no child of the agent's any more, and nobody has its output.
        assert_eq!(end(&directory, std::process::id()), Some(0));
        assert!(bystander.try_wait().unwrap().is_none());
        bystander.kill().unwrap();
        bystander.wait().unwrap();
        // One that has its output elsewhere is known by its number.
        let mut quiet = Command::new("sleep")
            .arg("600")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert_eq!(end(&directory, quiet.id()), Some(0));
        assert!(!quiet.wait().unwrap().success());
    }
}
