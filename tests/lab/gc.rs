//! gc, image upkeep and extend on real hypervisors: what goes, and above all what must stay.

mod beside;
mod doubts;
mod images;
mod leftovers;
mod shared;
mod twice;

use serde_json::Value;

use crate::cli::{Checked, Cli};
use crate::lab;
use crate::support::{Cleanup, Lab, POOL_DIR};

/// gc on the first host, with nothing too young.
const GC: [&str; 5] = ["gc", "--zone", "nas1", "--min-age", "0s"];

/// The same for images alone.
const PRUNE: [&str; 6] = ["image", "prune", "--zone", "nas1", "--older-than", "0s"];

fn gc<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&GC[..], more].concat()
}

/// The arguments that create an instance on the first host.
fn creating<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let args = [
        "create", "--zone", "nas1", "--image", "tiny", "--name", name,
    ];
    [&args[..], more].concat()
}

/// Creates an instance on the first host.
fn create(lab: &Lab, name: &str, more: &[&str]) {
    let _ = lab.run(&creating(name, more)).exits(0);
}

/// Creates an instance whose time is over.
fn create_briefly(lab: &Lab, name: &str) {
    create(lab, name, &["--ttl", "1s"]);
    std::thread::sleep(std::time::Duration::from_secs(1));
}

/// Defines a domain on the first host as others would.
fn define(lab: &Lab, name: &str, metadata: &str, devices: &str) {
    let xml = format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><metadata>{metadata}</metadata>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{devices}</devices></domain>"
    );
    std::fs::write(lab.path("nas1/lib/lt-gc.xml"), xml).unwrap();
    lab.virsh("nas1", &["define", "/var/lib/libvirt/lt-gc.xml"]);
}

/// Makes files in the first host's pool by a shell script, in which `old` dates them two hours back, and lets libvirt see
/// them. What begins with `prefix` is gone at the end.
fn files<'a>(lab: &'a Lab, prefix: &'static str, script: &str) -> Cleanup<'a> {
    lab.on(
        "nas1",
        &format!(
            "cd {POOL_DIR} && old() {{ touch -h -d '2 hours ago' -- \"$@\"; }} && {script} && virsh -q pool-refresh default"
        ),
    );
    Cleanup::later(move || {
        let clear = format!("rm -rf {POOL_DIR}/{prefix}*; virsh -q pool-refresh default");
        lab.on("nas1", &clear);
    })
}

/// What a sweep of the first host did, thing by thing.
struct Swept {
    items: Vec<Value>,
    left: Vec<String>,
}

impl Swept {
    /// Runs gc with these options.
    #[track_caller]
    fn by(cli: &Cli, lab: &Lab, more: &[&str]) -> Self {
        let run = cli.run(&gc(&[&["--explain", "-o", "json"], more].concat()));
        Self::of(lab, &run.exits(0))
    }

    #[track_caller]
    fn of(lab: &Lab, run: &Checked) -> Self {
        assert_eq!(run.json()["kind"], "SweptList", "{run}");
        Swept {
            items: run.items(),
            left: lab.volumes("nas1", ""),
        }
    }

    /// The item about this instance or volume.
    #[track_caller]
    fn about(&self, thing: &str) -> &Value {
        let is_it = |item: &&Value| {
            item["volume"] == thing || (item["volume"].is_null() && item["name"] == thing)
        };
        let found = self.items.iter().find(is_it);
        found.unwrap_or_else(|| panic!("nothing about {thing} in {:?}", self.items))
    }

    /// Fails unless these volumes, and none of those, were deleted: each looked at, and said.
    #[track_caller]
    fn took(&self, gone: &[&str], kept: &[&str]) {
        for (volumes, deleted) in [(gone, true), (kept, false)] {
            for volume in volumes {
                let item = self.about(volume);
                assert_eq!(item["deleted"], deleted, "{item}");
                assert_eq!(self.has(volume), !deleted, "{volume}: {:?}", self.left);
            }
        }
    }

    /// Fails unless these were none of gc's business, and are still there.
    #[track_caller]
    fn passed_over(&self, volumes: &[&str]) {
        for volume in volumes {
            assert!(self.has(volume), "{volume}: {:?}", self.left);
            let said = self.items.iter().find(|item| item["volume"] == *volume);
            assert_eq!(said, None);
        }
    }

    fn has(&self, volume: &str) -> bool {
        self.left.iter().any(|left| left == volume)
    }
}

#[test]
fn an_expired_instance_goes_and_cron_hears_of_it_once() {
    let lab = lab!();
    let (_a, _b) = (lab.instance("lt-gc-a"), lab.instance("lt-gc-b"));
    create_briefly(&lab, "lt-gc-a");
    create(&lab, "lt-gc-b", &["--ttl", "5h"]);
    // Young things stay, and that is silent.
    let young = lab.run(&["gc", "--zone", "nas1"]).exits(0).prints_only("");
    assert_eq!(young.stderr, "");
    let planned = lab
        .run(&gc(&["--dry-run"]))
        .exits(0)
        .prints("nas1: instance lt-gc-a: expired at 20");
    assert!(lab.has_domain("nas1", "lt-gc-a"));
    let done = lab.run(&GC).exits(0).prints_only(&planned.stdout);
    assert_eq!((done.stdout.lines().count(), done.stderr.as_str()), (1, ""));
    assert!(!lab.has_domain("nas1", "lt-gc-a"));
    assert!(lab.volumes("nas1", "lt-gc-a").is_empty());
    assert!(lab.has_domain("nas1", "lt-gc-b"));
    let again = lab.run(&GC).exits(0).prints_only("");
    assert_eq!(again.stderr, "");
}

#[test]
fn extend_moves_the_end_and_keeps_the_rest() {
    let lab = lab!();
    let _web = lab.instance("lt-gc-x");
    create(&lab, "lt-gc-x", &["--ttl", "1s", "--label", "team=search"]);
    let extend = |until: &str| {
        let args = ["extend", "lt-gc-x", until, "--zone", "nas1", "-o", "json"];
        lab.run(&args).exits(0).item()
    };
    let item = extend("2h");
    assert_eq!(item["labels"]["team"], "search");
    let until: jiff::Timestamp = item["expiresAt"].as_str().unwrap().parse().unwrap();
    let left = until.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((7100..=7200).contains(&left), "{left}");
    // In the definition as well as in the running domain.
    for option in [
        &["dumpxml", "lt-gc-x"][..],
        &["dumpxml", "--inactive", "lt-gc-x"],
    ] {
        let xml = lab.virsh("nas1", option);
        assert!(xml.contains(&format!(">{until}</")), "{xml}");
    }
    let _ = lab.run(&GC).exits(0).prints_only("");
    let item = extend("--never");
    assert_eq!(item["expiresAt"], Value::Null);
    assert_eq!(item["labels"]["team"], "search");
    let _ = lab.run(&["extend", "lt-gc-none", "2h"]).exits(3);
    let _ = lab.run(&["extend", "lt-gc-x"]).exits(2);
    let _ = lab.run(&["extend", "lt-gc-x", "2h", "--never"]).exits(2);
}

#[test]
fn the_configurations_time_to_live_is_for_those_without_their_own() {
    let lab = lab!();
    let (_a, _b) = (lab.instance("lt-gc-def"), lab.instance("lt-gc-own"));
    let cli = lab.cli_with(|kvm| kvm["defaultTtl"] = "1h".into());
    let _ = cli.run(&creating("lt-gc-def", &[])).exits(0);
    let _ = cli.run(&creating("lt-gc-own", &["--ttl", "3h"])).exits(0);
    for (name, seconds) in [("lt-gc-def", 3600), ("lt-gc-own", 10800)] {
        let get = ["get", name, "--zone", "nas1", "-o", "json"];
        let item = lab.run(&get).exits(0).item();
        let at = |key: &str| -> jiff::Timestamp { item[key].as_str().unwrap().parse().unwrap() };
        let lives = at("expiresAt").duration_since(at("createdAt")).as_secs();
        assert_eq!(lives, seconds, "{item}");
    }
}

#[test]
fn the_keep_list_is_the_desired_state_of_ours_alone() {
    let lab = lab!();
    let names = [
        "lt-gc-uid",
        "lt-gc-name",
        "lt-gc-id",
        "lt-gc-out",
        "lt-gc-theirs",
        "lt-gc-kvm",
    ];
    let _cleanups: Vec<_> = names.iter().map(|name| lab.instance(name)).collect();
    create(&lab, "lt-gc-uid", &["--uid", "11-22"]);
    for name in ["lt-gc-name", "lt-gc-id", "lt-gc-out"] {
        create(&lab, name, &[]);
    }
    define(&lab, "lt-gc-theirs", "", "");
    define(
        &lab,
        "lt-gc-kvm",
        "<kvm:instance xmlns:kvm=\"https://gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/kvm\">\
         <kvm:managed>true</kvm:managed><kvm:uid>u</kvm:uid></kvm:instance>",
        "",
    );
    let list = b"# wanted\r\n\r\n11-22\n  lt-gc-name \nhosts/nas1/domains/lt-gc-id\nnot-made-yet\n";
    let run = lab
        .cli()
        .run_with_stdin(&gc(&["--keep", "-", "-o", "json"]), list)
        .exits(0);
    let swept = Swept::of(&lab, &run);
    assert_eq!(swept.items.len(), 1, "{run}");
    let item = swept.about("lt-gc-out");
    assert_eq!(
        (item["kind"].as_str(), item["deleted"].as_bool()),
        (Some("unlisted"), Some(true))
    );
    for name in names {
        assert_eq!(lab.has_domain("nas1", name), name != "lt-gc-out", "{name}");
    }
    // Accidents are refused before anything is touched.
    for (text, why) in [
        (&b""[..], "is empty"),
        (b"# nothing\n", "is empty"),
        (b"11-22 lt-gc-name\n", "a blank"),
        (b"{\"items\": []}", "a blank"),
        (b"nas1/lt-gc-name\n", "no ID"),
    ] {
        let _ = lab
            .cli()
            .run_with_stdin(&gc(&["--keep", "-"]), text)
            .exits(2)
            .says(why);
    }
    let _ = lab
        .run(&gc(&["--keep", "/nonexistent"]))
        .exits(2)
        .says("can't be read");
    assert!(lab.has_domain("nas1", "lt-gc-name"));
    // So is a list of others' instances, also if it names a foreign one here: it would take all of ours.
    for dry in [&["--dry-run"][..], &[]] {
        let list = b"another-clusters-uid\nlt-gc-kvm\nu\n";
        let run = lab
            .cli()
            .run_with_stdin(&gc(&[&["--keep", "-"], dry].concat()), list)
            .exits(2)
            .says("none of the keep list's 3 entries")
            .says("lt-gc-name on nas1")
            .says("--keep-none");
        assert_eq!(run.stdout, "", "{run}");
    }
    for name in ["lt-gc-uid", "lt-gc-name", "lt-gc-id"] {
        assert!(lab.has_domain("nas1", name), "{name}");
    }
    // As long as nothing is old enough to go, there is nothing to refuse.
    let young = ["gc", "--zone", "nas1", "--keep", "-"];
    lab.cli().run_with_stdin(&young, b"x\n").exits(0);
    let meant = gc(&["--keep", "-", "--keep-none"]);
    let _ = lab
        .cli()
        .run_with_stdin(&meant, b"another-clusters-uid\n")
        .exits(0);
    for name in names {
        let foreign = name == "lt-gc-theirs" || name == "lt-gc-kvm";
        assert_eq!(lab.has_domain("nas1", name), foreign, "{name}");
    }
}

#[test]
fn a_host_that_cant_be_read_stops_everything_unless_partial() {
    let lab = lab!();
    let _web = lab.instance("lt-gc-part");
    create_briefly(&lab, "lt-gc-part");
    let all = ["gc", "--min-age", "0s"];
    {
        let _cut = lab.cut("nas2");
        let run = lab.run(&all).exits(4).says("nothing was deleted");
        assert_eq!(run.stdout, "");
        assert!(lab.has_domain("nas1", "lt-gc-part"));
    }
    {
        let _pool = lab.change(
            "nas2",
            "virsh -q pool-destroy default",
            "virsh -q pool-start default",
        );
        let _ = lab
            .run(&all)
            .exits(4)
            .says("not active")
            .says("nothing was deleted")
            .prints_only("");
        assert!(lab.has_domain("nas1", "lt-gc-part"));
        let _ = lab
            .run(&[&all[..], &["--partial"]].concat())
            .exits(4)
            .prints("lt-gc-part");
    }
    assert!(!lab.has_domain("nas1", "lt-gc-part"));
    let _ = lab.run(&all).exits(0).prints_only("");
}

#[test]
fn one_deletion_that_fails_doesnt_stop_the_sweep() {
    let lab = lab!();
    let (_a, _b) = (lab.instance("lt-gc-s1"), lab.instance("lt-gc-s2"));
    create_briefly(&lab, "lt-gc-s1");
    create_briefly(&lab, "lt-gc-s2");
    let metrics = lab.scratch("gc.prom");
    {
        // A mount point can't be unlinked.
        let _stuck = lab.change(
            "nas1",
            "mount --bind /etc/hostname /var/lib/libvirt/images/lt-gc-s1-seed.iso",
            "umount /var/lib/libvirt/images/lt-gc-s1-seed.iso",
        );
        let path = metrics.to_str().unwrap();
        let run = lab.run(&gc(&["--metrics", path]));
        let run = run.exits(4).says("lt-gc-s1");
        assert_eq!(run.stdout.lines().count(), 1, "{run}");
        assert!(run.stdout.contains("lt-gc-s2"), "{run}");
    }
    assert!(!lab.has_domain("nas1", "lt-gc-s2"));
    let text = std::fs::read_to_string(&metrics).unwrap();
    for line in [
        "egressctl_gc_success 0",
        "egressctl_gc_host_read{host=\"nas1\"} 1",
        "egressctl_gc_objects{host=\"nas1\",kind=\"expired\",result=\"deleted\"} 1",
        "egressctl_gc_objects{host=\"nas1\",kind=\"expired\",result=\"failed\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    // What the failure left is a leftover now.
    let _ = lab.run(&GC).exits(0).prints("lt-gc-s1-seed.iso");
    assert_eq!(lab.volumes("nas1", "lt-gc-s1"), [""; 0]);
}

#[test]
fn a_host_whose_clock_is_behind_keeps_what_it_takes_for_young() {
    let lab = lab!();
    let _web = lab.instance("lt-gc-clock");
    create_briefly(&lab, "lt-gc-clock");
    {
        let _sshd = lab.sshd("nas1", &["ForceCommand date -d '2 hours ago' +%s"]);
        let run = lab.run(&gc(&["--explain"])).exits(0);
        let run = run.prints("lt-gc-clock: kept: by the host's clock");
        assert_eq!(run.stdout.lines().count(), 1, "{run}");
    }
    assert!(lab.has_domain("nas1", "lt-gc-clock"));
    let _ = lab.run(&GC).exits(0).prints("lt-gc-clock");
}

#[test]
fn a_time_to_live_is_refused_where_the_clocks_dont_agree() {
    let lab = lab!();
    let name = "lt-gc-apart";
    let _web = lab.instance(name);
    {
        let _sshd = lab.sshd("nas1", &["ForceCommand date -d '2 hours' +%s"]);
        let run = lab.run(&creating(name, &["--ttl", "10m", "-o", "json"]));
        let run = run.exits(1).fails_with("ClockSkew", "the wrong one");
        assert!(
            run.stdout.contains("2h behind the host's") || run.stdout.contains("1h59m behind"),
            "{run}"
        );
        assert!(!lab.has_domain("nas1", name));
        assert_eq!(lab.volumes("nas1", name), [""; 0]);
        // Without an end, nobody's clock matters.
        create(&lab, name, &[]);
        let extend = ["extend", name, "1h", "--zone", "nas1"];
        let run = lab.run(&extend).exits(1);
        run.says("behind the host's").says("--never");
        lab.run(&["extend", name, "--never", "--zone", "nas1"])
            .exits(0)
            .says("lt-gc-apart never expires");
        // It is there already: nothing is set.
        create(&lab, name, &["--ttl", "10m"]);
    }
    let run = lab.run(&["extend", name, "1h", "--zone", "nas1"]).exits(0);
    run.says("lt-gc-apart expires at 20");
    let _ = lab.run(&GC).exits(0);
    assert!(lab.has_domain("nas1", name));
}
