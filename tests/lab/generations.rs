//! An image's life on a host: a new generation beside the old, the operator's own cache, and what is too much for a pool.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::cli::Cli;
use crate::crash::revive;
use crate::lab;
use crate::pull::{add_image, assert_absent, assert_ready, is_base, with_image};
use crate::pull_faults::{in_pool, small_pool};
use crate::support::{Cleanup, Lab, POOL_DIR, wait_until};

/// A file of the image server's that this test may change.
pub(crate) struct Served<'a> {
    path: PathBuf,
    _removed: Cleanup<'a>,
}

impl<'a> Served<'a> {
    pub(crate) fn new(lab: &'a Lab, name: &str, content: &[u8]) -> Self {
        let path = lab.path(&format!("www/{name}"));
        let removed = path.clone();
        let served = Served {
            path,
            _removed: Cleanup::later(move || drop(std::fs::remove_file(&removed))),
        };
        served.replace(content);
        served
    }

    /// In one step, as a mirror does it.
    pub(crate) fn replace(&self, content: &[u8]) {
        let beside = self.path.with_extension("new");
        std::fs::write(&beside, content).unwrap();
        std::fs::rename(beside, &self.path).unwrap();
    }

    /// When its content is from, which is a part of what the server says of it.
    fn modified(&self) -> SystemTime {
        std::fs::metadata(&self.path).unwrap().modified().unwrap()
    }

    /// Has this content again, as it was at that time.
    fn restore(&self, content: &[u8], modified: SystemTime) {
        self.replace(content);
        let file = std::fs::File::options().append(true).open(&self.path);
        file.unwrap().set_modified(modified).unwrap();
    }
}

pub(crate) fn tiny_bytes(lab: &Lab) -> Vec<u8> {
    std::fs::read(lab.path("www/tiny.qcow2")).unwrap()
}

/// egressctl with an image that nothing pins.
pub(crate) fn with_moving_image(lab: &Lab, key: &str, path: &str) -> Cli {
    lab.cli_with(|kvm| {
        add_image(lab, kvm, key, path);
        kvm["images"][key].as_object_mut().unwrap().remove("sha256");
    })
}

/// Pulls to the first host; the base volume, and whether it was brought.
#[track_caller]
fn pull(cli: &Cli, key: &str, when: &str) -> (String, bool) {
    let args = [
        "image", "pull", key, "--zone", "nas1", "--pull", when, "-o", "json",
    ];
    let item = cli.run(&args).exits(0).item();
    let volume = item["volume"].as_str().unwrap().to_owned();
    (volume, item["pulled"].as_bool().unwrap())
}

/// What `image list` says of a base volume of the first host.
#[track_caller]
fn listed(cli: &Cli, volume: &str) -> Value {
    let run = cli
        .run(&["image", "list", "--zone", "nas1", "-o", "json"])
        .exits(0);
    let items = run.items();
    let found = items.iter().find(|item| item["volume"] == volume);
    found
        .unwrap_or_else(|| panic!("{volume} isn't listed\n{run}"))
        .clone()
}

fn backing(lab: &Lab, name: &str) -> String {
    lab.on(
        "nas1",
        &format!("qemu-img info -U {POOL_DIR}/{name}.qcow2 | sed -n 's/^backing file: //p'"),
    )
    .trim()
    .to_owned()
}

#[test]
fn a_moved_image_is_a_new_generation_and_instances_keep_theirs() {
    let lab = lab!();
    let key = "lt-moving";
    let (_image, _old, _new) = (
        lab.image(key),
        lab.instance("lt-moving-old"),
        lab.instance("lt-moving-new"),
    );
    let mut content = tiny_bytes(&lab);
    let served = Served::new(&lab, "lt-moving.qcow2", &content);
    let cli = with_moving_image(&lab, key, "/lt-moving.qcow2");
    let create = |name: &str, when: &str| {
        let args = [
            "create", "--zone", "nas1", "--image", key, "--name", name, "--pull", when,
        ];
        cli.run(&args)
    };
    // What isn't there isn't used, if nobody may be asked.
    let _ = create("lt-moving-old", "never").exits(1).says("--pull");
    assert_absent(&lab, key);
    let _ = create("lt-moving-old", "missing").exits(0);
    let first = pull(&cli, key, "never").0;

    content.resize(content.len() + 65536, 0);
    served.replace(&content);
    // Only who asks the server hears of it.
    assert_eq!(pull(&cli, key, "missing"), (first.clone(), false));
    assert_eq!(pull(&cli, key, "never"), (first.clone(), false));
    let (second, brought) = pull(&cli, key, "always");
    assert!(brought && second != first, "{first} {second}");
    let _ = create("lt-moving-new", "never").exits(0);
    for (name, base) in [("lt-moving-old", &first), ("lt-moving-new", &second)] {
        assert_eq!(backing(&lab, name), format!("{POOL_DIR}/{base}"), "{name}");
        let state = lab.virsh("nas1", &["domstate", name]);
        assert_eq!(state.trim(), "running", "{name}");
    }

    let (old, new) = (listed(&cli, &first), listed(&cli, &second));
    assert_eq!(old["instances"], json!(["lt-moving-old"]), "{old}");
    assert_eq!(new["instances"], json!(["lt-moving-new"]), "{new}");
    assert_eq!(
        (&old["wanted"], &new["wanted"]),
        (&json!(false), &json!(true))
    );
    let prune = ["image", "prune", "--older-than", "0s", "--zone", "nas1"];
    let _ = cli.run(&prune).exits(0).prints_only("");
    let explained = cli.run(&[&prune[..], &["--explain"]].concat()).exits(0);
    let _ = explained.prints(&format!("volume {first}: kept: used by"));
    let _ = cli.run(&["delete", "lt-moving-old"]).exits(0);
    let swept = cli.run(&prune).exits(0);
    assert_eq!(swept.stdout.lines().count(), 1, "{swept}");
    let _ = swept.prints(&first);
    let left = [second.clone(), format!("{second}.sha256")];
    assert_eq!(lab.volumes("nas1", "base-lt-moving-"), left);
}

#[test]
fn a_build_that_was_withdrawn_is_not_used_any_more() {
    let lab = lab!();
    let key = "lt-withdrawn";
    let names = ["lt-withdrawn-1", "lt-withdrawn-2"];
    let (_image, _instances) = (lab.image(key), names.map(|name| lab.instance(name)));
    let content = tiny_bytes(&lab);
    let mut bad = content.clone();
    bad.resize(bad.len() + 65536, 0);
    let served = Served::new(&lab, "lt-withdrawn.qcow2", &content);
    let from = served.modified();
    let cli = with_moving_image(&lab, key, "/lt-withdrawn.qcow2");
    let good = pull(&cli, key, "always").0;
    served.replace(&bad);
    let withdrawn = pull(&cli, key, "always").0;
    assert_ne!(good, withdrawn);
    served.restore(&content, from);

    // Several at once: each on what the server has now, which is on the host already.
    let create = [
        "create",
        "--zone",
        "nas1",
        "--image",
        key,
        "--name",
        "lt-withdrawn",
        "--count",
        "2",
        "--pull",
        "always",
    ];
    cli.run(&create).exits(0);
    for name in names {
        assert_eq!(backing(&lab, name), format!("{POOL_DIR}/{good}"), "{name}");
    }
    // And from now on for who doesn't ask.
    assert_eq!(pull(&cli, key, "never"), (good.clone(), false));
    let wanted = |volume: &str| listed(&cli, volume)["wanted"] == true;
    assert!(wanted(&good) && !wanted(&withdrawn));
    assert_eq!(pull(&cli, key, "always"), (good, false));
}

#[test]
fn what_a_later_question_brought_is_the_newest_however_long_the_pull_before_takes() {
    let lab = lab!();
    let key = "lt-overtaken";
    let _image = lab.image(key);
    let mut content = tiny_bytes(&lab);
    content.resize(12 << 20, 0);
    // The server counts as long as the lab lives.
    let file = format!("{key}-{}.qcow2", std::process::id());
    let served = Served::new(&lab, &file, &content);
    let cli = with_moving_image(&lab, key, &format!("/first/2/slow/900000/{file}"));
    let old = pull(&cli, key, "always").0;

    // nas1 has what the server answers; nas2 has to wait for it.
    let args = ["image", "pull", key, "-o", "json"];
    let slow = cli.start(&args);
    let bases = || {
        let mut bases = lab.volumes("nas2", &format!("base-{key}-"));
        bases.retain(|volume| is_base(volume));
        bases
    };
    wait_until("nas2 is fed", Duration::from_secs(20), || {
        bases() == [old.as_str()]
    });
    content.resize(content.len() + 65536, 0);
    served.replace(&content);
    let fast = cli.run(&args).exits(0);
    let new = fast.items()[0]["volume"].as_str().unwrap().to_owned();
    assert_ne!(new, old);
    assert_eq!(bases().len(), 2);
    let marker = format!("{old}.sha256");
    let before = lab.volumes("nas2", &marker);
    assert!(before.is_empty(), "the first one still pulls: {before:?}");
    slow.wait().exits(0);
    assert_eq!(lab.volumes("nas2", &marker), [marker.as_str()]);

    let kept = cli.run(&[&args[..], &["--pull", "never"]].concat());
    for item in kept.exits(0).items() {
        assert_eq!(item["volume"], new, "{item}");
    }
    assert_eq!(listed(&cli, &old)["wanted"], false);
}

#[test]
fn the_server_is_asked_for_those_that_are_not_there() {
    let lab = lab!();
    let key = "lt-partly";
    let names = ["lt-partly-1", "lt-partly-2", "lt-partly-3"];
    let (_image, _instances) = (lab.image(key), names.map(|name| lab.instance(name)));
    let mut content = tiny_bytes(&lab);
    let served = Served::new(&lab, "lt-partly.qcow2", &content);
    let cli = with_moving_image(&lab, key, "/lt-partly.qcow2");
    let create = |more: &[&str]| {
        let args = [
            "create", "--zone", "nas1", "--image", key, "--pull", "always",
        ];
        cli.run(&[&args[..], more].concat())
    };
    create(&["--name", names[0]]).exits(0);
    let old = backing(&lab, names[0]);
    content.resize(content.len() + 65536, 0);
    served.replace(&content);
    create(&["--name", "lt-partly", "--count", "3"]).exits(0);
    let new = backing(&lab, names[1]);
    assert_ne!(new, old);
    assert_eq!(backing(&lab, names[2]), new);
    assert_eq!(backing(&lab, names[0]), old);
    // Where the server is gone, what is there is taken all the same, and what isn't costs one error.
    drop(served);
    cli.run(&["delete", names[2]]).exits(0);
    let run = create(&["--name", "lt-partly", "--count", "3", "-o", "json"]).exits(1);
    assert_eq!(run.items().len(), 2, "{run}");
    run.fails_with("HttpStatus", "");
}

#[test]
fn the_operators_cache_is_used_where_its_digest_is_right_and_never_changed() {
    let lab = lab!();
    let (key, name) = ("lt-cached", "lt-cached");
    let (_image, _instance) = (lab.image(key), lab.instance(name));
    let _theirs = lab.change(
        "nas1",
        "true",
        "rm -f /var/lib/libvirt/images/base-lt-cached.*; virsh -q pool-refresh default",
    );
    let theirs = format!("base-{key}.qcow2");
    lab.virsh(
        "nas1",
        &["vol-create-as", "default", &theirs, "8M", "--format", "raw"],
    );
    let digest = lab.tiny()["sha256"].as_str().unwrap().to_owned();
    std::fs::copy(
        lab.path("www/tiny.qcow2"),
        lab.path(&format!("nas1/lib/images/{theirs}")),
    )
    .unwrap();
    let marker = |hex: &str| {
        lab.on(
            "nas1",
            &format!(
                "cd {POOL_DIR} && printf %s {hex} > {theirs}.sha256 && touch -d '2 days ago' {theirs}* \
                 && virsh -q pool-refresh default"
            ),
        );
    };
    let state = || {
        let look =
            format!("cd {POOL_DIR} && stat -c '%n %i %s %Y %a' {theirs}* && sha256sum {theirs}*");
        lab.on("nas1", &look)
    };
    let cli = with_image(&lab, key, "/tiny.qcow2?lt-cached");

    marker(&digest);
    let before = state();
    assert_eq!(pull(&cli, key, "always"), (theirs.clone(), false));
    assert_eq!(lab.served("/tiny.qcow2?lt-cached"), None);
    let args = ["create", "--zone", "nas1", "--image", key, "--name", name];
    let _ = cli.run(&args).exits(0);
    assert_eq!(backing(&lab, name), format!("{POOL_DIR}/{theirs}"));
    assert_eq!(listed(&cli, &theirs)["state"], "operator");
    let _ = cli.run(&["delete", name]).exits(0);
    for sweep in [
        &["gc", "--images", "--min-age", "0s", "--zone", "nas1"][..],
        &["image", "prune", "--older-than", "0s", "--zone", "nas1"],
    ] {
        // Also where the configuration doesn't know the image any more.
        let _ = lab.run(sweep).exits(0).prints_only("");
        let _ = cli.run(sweep).exits(0).prints_only("");
    }
    for what in [&theirs, key] {
        let rm = ["image", "rm", what, "--zone", "nas1"];
        let run = cli.run(&rm).exits(1).prints_only("");
        run.says(&format!("{theirs} is the operator's cache"));
    }
    assert_eq!(state(), before);

    // Another content: ours comes beside it.
    marker(&"0".repeat(64));
    let before = state();
    let (ours, brought) = pull(&cli, key, "always");
    assert!(brought && ours != theirs, "{ours}");
    assert_ready(&lab, "nas1", key);
    // Which goes alone.
    let rm = ["image", "rm", key, "--zone", "nas1"];
    let run = cli.run(&rm).exits(0).prints(&ours);
    run.says(&format!("{theirs} is the operator's cache"));
    assert_eq!(state(), before);
}

#[test]
fn what_unpacks_to_more_than_the_pool_holds_is_stopped_in_time() {
    let lab = lab!();
    let key = "lt-bomb";
    let _image = lab.image(key);
    // A disk of 256 MiB that is 256 KiB on the way.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut first = [0; 512];
    first[510..].copy_from_slice(&[0x55, 0xaa]);
    packed.write_all(&first).unwrap();
    for _ in 0..256 {
        packed.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let _served = Served::new(&lab, "lt-bomb.raw.gz", &packed.finish().unwrap());
    let _pool = small_pool(&lab, "40m");
    lab.virsh("nas1", &["pool-start", "lt-pool"]);
    let cli = lab.cli_with(|kvm| {
        add_image(&lab, kvm, key, "/lt-bomb.raw.gz");
        let image = kvm["images"][key].as_object_mut().unwrap();
        image.remove("sha256");
        image.insert("format".into(), json!("raw"));
        in_pool(kvm, "lt-pool");
    });
    let pull = ["image", "pull", key, "--zone", "nas1", "-o", "json"];
    let run = cli.run(&pull).exits(5).fails_with("PoolFull", "");
    let message = run.errors()[0]["message"].to_string();
    assert!(message.contains("larger than"), "{run}");
    assert_eq!(
        lab.on("nas1", "ls -A /var/lib/libvirt/lt-pool"),
        "",
        "{run}"
    );
    let pool = lab.virsh("nas1", &["pool-info", "lt-pool"]);
    assert!(pool.contains("running"), "libvirtd lives: {pool}");
}

#[test]
fn a_host_that_dies_in_the_middle_fails_alone() {
    let lab = lab!();
    let (key, path) = ("lt-dies", "/slow/1000000/tiny.qcow2?lt-dies");
    let _image = lab.image(key);
    let cli = with_image(&lab, key, path);
    let pulling = cli.start(&["image", "pull", key, "-o", "json"]);
    wait_until("both hosts are fed", Duration::from_secs(20), || {
        let begun = |host| {
            let first = format!("cat {POOL_DIR}/base-{key}-*.qcow2 2>/dev/null | head -c 3");
            lab.on(host, &first) == "QFI"
        };
        begun("nas1") && begun("nas2")
    });
    // Every session of its sshd (sshd-session, since OpenSSH 9.8), and not the listener: the host comes back at once.
    lab.on("nas2", "pkill -f '^sshd[-a-z]*: virt'");
    let run = pulling.wait().exits(4);
    revive(&lab, "nas2");
    assert_eq!(run.items().len(), 1, "{run}");
    assert_eq!(run.items()[0]["host"], "nas1", "{run}");
    assert_eq!(run.errors()[0]["host"], "nas2", "{run}");
    assert_ready(&lab, "nas1", key);
    // The next pull is for the one that lacks it.
    let again = cli.run(&["image", "pull", key, "-o", "json"]).exits(0);
    let brought: Vec<Value> = again
        .items()
        .iter()
        .map(|item| item["pulled"].clone())
        .collect();
    assert_eq!(brought, [json!(false), json!(true)], "{again}");
    assert_ready(&lab, "nas2", key);
}
