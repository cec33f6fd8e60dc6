//! Everything in examples/ is what it says it is: parsed by the tool it is for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use egressctl::config;
use egressctl::seed;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Every folder has a test here: a new one without is noticed.
#[test]
fn no_folder_is_forgotten() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut folders: Vec<String> = std::fs::read_dir(examples)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(
        folders,
        ["cloud-init", "cron", "make", "providers", "systemd"]
    );
}

#[test]
fn providers_files_load() {
    let env = |name: &str| match name {
        "HOME" => Some(OsString::from("/home/virt")),
        // systemd sets it for a unit with LoadCredential=.
        "CREDENTIALS_DIRECTORY" => Some(OsString::from("/run/credentials/egressctl-gc.service")),
        _ => None,
    };
    for file in files("providers") {
        let config =
            config::parse(&read(&file), &file, &env).and_then(|config| config.ensure_met());
        assert!(
            config.is_ok(),
            "{}: {}",
            file.display(),
            config.unwrap_err()
        );
    }
}

#[test]
fn cloud_init_files_pass_without_a_warning() {
    for file in files("cloud-init") {
        let name = file.display().to_string();
        let checked = seed::check_user_data(&name, read(&file).as_bytes()).unwrap();
        assert!(
            checked.warnings.is_empty(),
            "{name}: {:?}",
            checked.warnings
        );
    }
}

/// Whether `program` accepts these arguments; `None` where it isn't installed.
fn accepts(program: &str, args: &[&str]) -> Option<Result<(), String>> {
    let output = Command::new(program).args(args).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Some(if output.status.success() {
        Ok(())
    } else {
        Err(said)
    })
}

#[test]
fn shell_scripts_parse() {
    let scripts = files("")
        .into_iter()
        .filter(|file| read(file).starts_with("#!"));
    let mut count = 0;
    for script in scripts {
        let path = script.to_str().unwrap();
        accepts("bash", &["-n", path])
            .expect("bash is needed")
            .unwrap();
        accepts("shellcheck", &[path])
            .expect("shellcheck is needed: tests/lab/install")
            .unwrap();
        count += 1;
    }
    assert!(count >= 2);
}

/// A stand-in for egressctl that notes how it is called; the first create may fail, with 4 after it made the
/// instance.
const STAND_IN: &str = r#"#!/bin/sh
echo "$*" >> "$HOME/calls"
case $1 in
  create)
    [ -e "$HOME/tried" ] || { touch "$HOME/tried"; [ "$FIRST" != 4 ] || echo web1; [ "$FIRST" = 0 ] || exit "$FIRST"; }
    case $* in *columns=IP*) printf '10.0.0.1\n2001:db8::1\n' ;; *) echo web1 ;; esac ;;
  get) echo '2001:db8::1' ;;
  list) echo web9 ;;
esac
"#;

/// A home of the test's own, with these scripts as programs in its `bin`.
fn home(name: &str, programs: &[(&str, &str)]) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(home.join("bin")).unwrap();
    for (program, script) in programs {
        let program = home.join("bin").join(program);
        std::fs::write(&program, script).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
    }
    home
}

/// An example, to be run with nothing but that home.
fn example(script: &str, home: &Path) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(script);
    let mut command = Command::new(script);
    command
        .env_clear()
        .env("PATH", format!("{}/bin:/usr/bin:/bin", home.display()))
        .env("HOME", home);
    command
}

/// A home with the stand-in, whose first create ends with this exit code.
struct Home {
    path: PathBuf,
    first: &'static str,
}

impl Home {
    fn new(name: &str, first: &'static str) -> Self {
        // The pause before the next try is skipped.
        let programs = [("egressctl", STAND_IN), ("sleep", "#!/bin/sh\n")];
        let path = home(&format!("{name}-{first}"), &programs);
        Home { path, first }
    }

    fn run(&self, program: &str, args: &[&str]) -> std::process::Output {
        Command::new(program)
            .args(args)
            .env_clear()
            .env("PATH", format!("{}/bin:/usr/bin:/bin", self.path.display()))
            .env("HOME", &self.path)
            .env("FIRST", self.first)
            .env("CI_JOB_ID", "77")
            .current_dir(&self.path)
            .output()
            .unwrap()
    }

    /// The first words of the calls, each of which egressctl would understand.
    fn calls(&self) -> Vec<String> {
        let calls = read(&self.path.join("calls"));
        let call = |line: &str| {
            let words = std::iter::once("egressctl").chain(line.split_whitespace());
            let parsed = egressctl::cli::command().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            line.split(" -").next().unwrap().to_owned()
        };
        calls.lines().map(call).collect()
    }
}

/// Runs the CI job with the stand-in; its exit code, what it printed, and the first words of the calls.
fn run_pipeline(first: &'static str) -> (Option<i32>, String, Vec<String>) {
    let home = Home::new("pipeline", first);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ci-pipeline.sh");
    let command = ["sh", "-c", "echo through $https_proxy; exit 3"];
    let output = home.run(
        "bash",
        &[&[script.to_str().unwrap()], &command[..]].concat(),
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), printed, home.calls())
}

#[test]
fn the_ci_job_retries_keeps_its_commands_exit_code_and_cleans_up() {
    let (code, printed, calls) = run_pipeline("4");
    assert_eq!(printed, "through http://[2001:db8::1]:3128\n");
    assert_eq!(code, Some(3));
    let expected = ["create", "create", "get web1", "delete web1"];
    assert_eq!(calls, expected);
    // What won't get better isn't tried again; what may have been made is looked for by its label.
    let (code, printed, calls) = run_pipeline("1");
    assert_eq!((code, printed.as_str()), (Some(1), ""));
    assert_eq!(calls, ["create", "list", "delete web9"]);
}

/// kubectl, as it answers to this jsonpath, and as it fails half-way; and egressctl, which notes what it is told.
#[test]
fn the_cluster_is_the_keep_list_and_a_failed_query_is_none() {
    const EGRESSCTL: &str =
        "#!/bin/sh\necho \"$*\" > \"$HOME/call\"\ncat > \"$HOME/list\"\nexit 7\n";
    let asked =
        "get proxies --all-namespaces -o jsonpath={range .items[*]}{.metadata.uid}{\"\\n\"}{end}";
    let uids = "0a1b2c3d-1111-4222-8333-444455556666\n7e8f9a0b-5555-4666-8777-888899990000\n";
    let kubectl = |then: &str| {
        format!("#!/bin/sh\n[ \"$*\" = '{asked}' ] || exit 9\nprintf '{uids}'\n{then}\n")
    };
    let run = |name: &str, kubectl: &str| {
        let home = home(name, &[("egressctl", EGRESSCTL), ("kubectl", kubectl)]);
        let output = example("gc-from-kubernetes.sh", &home)
            .args(["--min-age", "1h"])
            .output()
            .unwrap();
        (output.status.code(), home)
    };
    let (code, home) = run("keep", &kubectl("exit 0"));
    assert_eq!(code, Some(7), "gc's exit code is the script's");
    assert_eq!(read(&home.join("list")), uids);
    let call = read(&home.join("call"));
    assert_eq!(call, "gc --quiet --keep - --min-age 1h\n");
    let (code, home) = run("keep-failed", &kubectl("exit 1"));
    assert_eq!(code, Some(1));
    assert!(!home.join("call").exists(), "half a list was used");
}

#[test]
fn the_makefile_makes_its_proxies_once_and_cleans_up() {
    let makefile = files("make").remove(0);
    let make = |home: &Home, goal: &str| {
        let args = [
            "--no-print-directory",
            "-f",
            makefile.to_str().unwrap(),
            goal,
        ];
        home.run("make", &args)
    };
    let home = Home::new("make", "0");
    for _ in 0..2 {
        let output = make(&home, "proxies.txt");
        assert!(output.status.success(), "{output:?}");
        let proxies = read(&home.path.join("proxies.txt"));
        assert_eq!(proxies, "10.0.0.1:3128\n[2001:db8::1]:3128\n");
    }
    assert_eq!(
        home.calls(),
        ["create"],
        "the second time there is nothing to do"
    );
    assert!(make(&home, "clean-proxies").status.success());
    assert_eq!(home.calls(), ["create", "list", "delete web9"]);
    assert!(!home.path.join("proxies.txt").exists());
    // A create that failed isn't taken for done.
    let home = Home::new("make", "4");
    assert!(!make(&home, "proxies.txt").status.success());
    assert!(!home.path.join("proxies.txt").exists());
    assert!(make(&home, "proxies.txt").status.success());
}

/// systemd's own check, of a copy that needs neither egressctl nor its man page to be installed.
#[test]
fn systemd_units_are_accepted() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("units");
    std::fs::create_dir_all(&directory).unwrap();
    let mut paths = vec!["verify".to_owned()];
    for unit in files("systemd") {
        let copy = directory.join(unit.file_name().unwrap());
        let text = read(&unit)
            .replace("/usr/bin/egressctl ", "/bin/true ")
            .replace("Documentation=man:", "Documentation=https://example.net/");
        std::fs::write(&copy, text).unwrap();
        paths.push(copy.to_str().unwrap().to_owned());
    }
    let args: Vec<&str> = paths.iter().map(String::as_str).collect();
    let analyze = |args: &[&str]| {
        accepts("systemd-analyze", args)
            .expect("systemd-analyze is needed: tests/lab/install")
            .unwrap();
    };
    analyze(&args);
    // No more rights than needed: 1.2 of 10 now, and what is left is the network, which is its work.
    let service = directory.join("egressctl-gc.service");
    let service = service.to_str().unwrap();
    analyze(&["security", "--offline=yes", "--threshold=20", service]);
}

#[test]
fn cron_lines_have_five_times_a_user_and_a_command() {
    for file in files("cron") {
        let text = read(&file);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.contains("=/"))
            .filter(|line| line.split_whitespace().count() > 1)
            .collect();
        assert!(!lines.is_empty());
        for line in lines {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_time = |field: &&str| {
                field
                    .chars()
                    .all(|c| c.is_ascii_digit() || "*/,-".contains(c))
            };
            assert!(fields[..5].iter().all(is_time), "{line}");
            assert_eq!(fields[5], "egressctl", "the user: {line}");
            // cron takes an unescaped % for the end of the line.
            assert!(!line.contains('%'), "{line}");
        }
        // cron ignores a last line without an end.
        assert!(text.ends_with('\n'));
    }
}

/// The session in README.md was made by real hosts (tests/lab/session); what has changed since is noticed here.
/// docs/architecture.md has every module of src/lib.rs in its table and no other, and each file that it names is there.
#[test]
fn the_architecture_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = root.join("src");
    let text = read(&root.join("docs/architecture.md"));
    let quoted = |text: &str| -> Vec<String> {
        let words = text.split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect()
    };
    let (_, table) = text.split_once("| module | what it is for |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = rows.map(|line| line.split('|').nth(1).unwrap());
    let mut told: Vec<String> = cells.flat_map(quoted).collect();
    told.sort();
    let lib = read(&sources.join("lib.rs")).replace("#[cfg(test)]\nmod fuzz;", "");
    let declared = lib.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    let mut there: Vec<&str> = declared.collect();
    there.sort_unstable();
    assert_eq!(told, there);
    for file in quoted(&text) {
        if Path::new(&file).extension().is_some_and(|ext| ext == "rs") {
            // In the table a file is called as in its module's folder.
            let is_there = |folder: &str| sources.join(folder).join(&file).exists();
            assert!(
                is_there("") || there.iter().any(|name| is_there(name)),
                "{file}"
            );
        }
    }
}

#[test]
fn the_readmes_session_is_of_this_version() {
    let readme = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"));
    let (_, rest) = readme.split_once("<!-- session: written by").unwrap();
    let (session, _) = rest.split_once("<!-- session ends -->").unwrap();
    let lines: Vec<&str> = session
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .collect();
    let mut commands = 0;
    for (place, line) in lines.iter().enumerate() {
        let Some(command) = line.strip_prefix("$ egressctl ") else {
            continue;
        };
        let words: Vec<&str> = ["egressctl"]
            .into_iter()
            .chain(command.split(' '))
            .collect();
        let parsed = egressctl::cli::command().try_get_matches_from(&words);
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        let titles = match words[1] {
            "check" => "HOST HEALTH STAGE LIBVIRT QEMU POOL NIC CPU",
            "image" => "HOST IMAGE RESULT SIZE VERIFIED VOLUME",
            "create" => "NAME HOST STATE IP IMAGE AGE",
            _ if command.ends_with("--dry-run") => "NAME HOST WOULD DELETE",
            _ => "NAME HOST DELETED",
        };
        let shown: Vec<&str> = lines[place + 1].split_whitespace().collect();
        assert_eq!(shown.join(" "), titles, "after {line}");
        commands += 1;
    }
    assert!(commands >= 5, "only {commands} commands");
}
