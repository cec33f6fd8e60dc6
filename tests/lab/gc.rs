//! gc, image upkeep and extend on real hypervisors: what goes, and above all what must stay.

use serde_json::Value;

use crate::lab;
use crate::support::{Cleanup, Lab, POOL_DIR};

/// gc on the first host, with nothing too young.
const GC: [&str; 5] = ["gc", "--zone", "nas1", "--min-age", "0s"];

fn gc<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&GC[..], more].concat()
}

/// Creates an instance on the first host.
fn create(lab: &Lab, name: &str, more: &[&str]) {
    let args = [
        "create",
        "--zone",
        "nas1",
        "--image",
        "tiny",
        "--machine-type",
        "small",
        "--name",
        name,
    ];
    let _ = lab.run(&[&args, more].concat()).exits(0);
}

/// Takes the domain away, as somebody with virsh would, and leaves the volumes.
fn orphan(lab: &Lab, name: &str) {
    lab.virsh(
        "nas1",
        &[&format!("destroy {name}; undefine {name} --nvram")],
    );
}

/// Makes files in the host's pool, two hours old, and lets libvirt see them.
fn files(lab: &Lab, script: &str) {
    lab.on(
        "nas1",
        &format!(
            "cd {POOL_DIR} && old() {{ touch -d '2 hours ago' -- \"$@\"; }} && {script} && virsh -q pool-refresh default"
        ),
    );
}

fn items(json: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(json).unwrap();
    assert_eq!(document["kind"], "SweptList");
    document["items"].as_array().unwrap().clone()
}

/// The item about this instance or volume.
#[track_caller]
fn about<'a>(items: &'a [Value], thing: &str) -> &'a Value {
    items
        .iter()
        .find(|item| item["volume"] == thing || (item["volume"].is_null() && item["name"] == thing))
        .unwrap_or_else(|| panic!("nothing about {thing} in {items:?}"))
}

/// A base image of a key of the test's own, pulled to the first host; gives its volume's name.
fn pulled<'a>(lab: &'a Lab, key: &str) -> (Cleanup<'a>, String) {
    let cleanup = lab.image(key);
    let tiny = lab.tiny();
    let cli = lab.cli_with(|kvm| kvm["images"][key] = tiny.clone());
    let _ = cli.run(&["image", "pull", key, "--zone", "nas1"]).exits(0);
    let digest = lab.tiny()["sha256"].as_str().unwrap()[..16].to_owned();
    (cleanup, format!("base-{key}-{digest}.qcow2"))
}

#[test]
fn an_expired_instance_goes_and_cron_hears_of_it_once() {
    let lab = lab!();
    let (_a, _b) = (lab.instance("lt-gc-a"), lab.instance("lt-gc-b"));
    create(&lab, "lt-gc-a", &["--ttl", "1s"]);
    create(&lab, "lt-gc-b", &["--ttl", "5h"]);
    std::thread::sleep(std::time::Duration::from_secs(1));
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
    let run = lab
        .run(&["extend", "lt-gc-x", "2h", "--zone", "nas1", "-o", "json"])
        .exits(0);
    let shown: Value = serde_json::from_str(&run.stdout).unwrap();
    let item = &shown["items"][0];
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
    let run = lab
        .run(&[
            "extend", "lt-gc-x", "--never", "--zone", "nas1", "-o", "json",
        ])
        .exits(0);
    let shown: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(shown["items"][0]["expiresAt"], Value::Null);
    assert_eq!(shown["items"][0]["labels"]["team"], "search");
    let _ = lab.run(&["extend", "lt-gc-none", "2h"]).exits(3);
    let _ = lab.run(&["extend", "lt-gc-x"]).exits(2);
    let _ = lab.run(&["extend", "lt-gc-x", "2h", "--never"]).exits(2);
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
    let define = |name: &str, metadata: &str| {
        let xml = format!(
            "<domain type=\"qemu\"><name>{name}</name><memory>65536</memory><metadata>{metadata}</metadata>\
             <os><type arch=\"x86_64\" machine=\"q35\">hvm</type></os></domain>"
        );
        lab.on("nas1", &format!("echo '{xml}' > /tmp/{name}.xml && virsh -q define /tmp/{name}.xml && rm /tmp/{name}.xml"));
    };
    define("lt-gc-theirs", "");
    define(
        "lt-gc-kvm",
        "<kvm:instance xmlns:kvm=\"https://gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/kvm\">\
         <kvm:managed>true</kvm:managed><kvm:uid>u</kvm:uid></kvm:instance>",
    );
    let list = b"# wanted\r\n\r\n11-22\n  lt-gc-name \nhosts/nas1/domains/lt-gc-id\nnot-made-yet\n";
    let run = lab
        .cli()
        .run_with_stdin(&gc(&["--keep", "-", "-o", "json"]), list)
        .exits(0);
    let items = items(&run.stdout);
    assert_eq!(items.len(), 1, "{items:?}");
    let item = about(&items, "lt-gc-out");
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
    let meant = gc(&["--keep", "-", "--keep-none"]);
    let _ = lab.cli().run_with_stdin(&meant, b"").exits(0);
    for name in names {
        let foreign = name == "lt-gc-theirs" || name == "lt-gc-kvm";
        assert_eq!(lab.has_domain("nas1", name), foreign, "{name}");
    }
}

#[test]
fn what_a_crash_left_goes_and_look_alikes_stay() {
    let lab = lab!();
    let names = [
        "lt-gc-gone",
        "lt-gc-used",
        "lt-gc-lone",
        "lt-gc-disk",
        "lt-gc-empty",
        "lt-gc-fresh",
        "lt-gc-iso",
        "lt-gc-user",
    ];
    let _cleanups: Vec<_> = names.iter().map(|name| lab.instance(name)).collect();
    for name in ["lt-gc-gone", "lt-gc-used", "lt-gc-lone", "lt-gc-disk"] {
        create(&lab, name, &[]);
        orphan(&lab, name);
    }
    let user = format!(
        "<domain type=\"qemu\"><name>lt-gc-user</name><memory>65536</memory><os><type arch=\"x86_64\" machine=\"q35\">hvm</type></os>\
         <devices><disk type=\"volume\" device=\"disk\"><source pool=\"default\" volume=\"lt-gc-used.qcow2\"/><target dev=\"vda\" bus=\"virtio\"/></disk></devices></domain>"
    );
    lab.on(
        "nas1",
        &format!(
            "echo '{user}' > /tmp/user.xml && virsh -q define /tmp/user.xml && rm /tmp/user.xml"
        ),
    );
    files(
        &lab,
        "rm lt-gc-lone-seed.iso && \
         qemu-img create -q -f raw lt-gc-disk.qcow2 1M && \
         truncate -s 65536 lt-gc-empty-seed.iso lt-gc-fresh-seed.iso && old lt-gc-empty-seed.iso && \
         echo data > lt-gc-iso-seed.iso && truncate -s 65536 lt-gc-iso-seed.iso && old lt-gc-iso-seed.iso && \
         cp lt-gc-gone-seed.iso lt-gc-copy-seed.iso && old lt-gc-copy-seed.iso && \
         qemu-img create -q -f qcow2 lt-gc-own.qcow2 1M && old lt-gc-own.qcow2",
    );
    let _more = [lab.change("nas1", "true", "rm -f /var/lib/libvirt/images/lt-gc-copy-* /var/lib/libvirt/images/lt-gc-own*; virsh -q pool-refresh default")];
    let run = lab.run(&gc(&["--explain", "-o", "json"])).exits(0);
    let items = items(&run.stdout);
    let table = [
        ("lt-gc-gone.qcow2", true),
        ("lt-gc-gone-seed.iso", true),
        ("lt-gc-empty-seed.iso", true),
        ("lt-gc-used.qcow2", false),
        ("lt-gc-used-seed.iso", false),
        ("lt-gc-lone.qcow2", false),
        ("lt-gc-disk.qcow2", false),
        ("lt-gc-disk-seed.iso", false),
        ("lt-gc-fresh-seed.iso", false),
        ("lt-gc-copy-seed.iso", false),
    ];
    let left = lab.volumes("nas1", "lt-gc-");
    for (volume, goes) in table {
        let item = about(&items, volume);
        assert_eq!(item["deleted"], goes, "{item}");
        assert_eq!(left.contains(&volume.to_owned()), !goes, "{volume}");
    }
    // Named, too: the disk under the overlay's name isn't its overlay.
    let _ = lab
        .run(&["delete", "lt-gc-disk", "--zone", "nas1"])
        .exits(0)
        .says("left alone");
    assert_eq!(lab.volumes("nas1", "lt-gc-disk").len(), 2);
    for volume in ["lt-gc-iso-seed.iso", "lt-gc-own.qcow2"] {
        assert!(
            items.iter().all(|item| item["volume"] != volume),
            "{items:?}"
        );
        assert!(left.contains(&volume.to_owned()), "{volume}");
    }
}

#[test]
fn a_create_killed_at_any_moment_leaves_nothing_that_gc_doesnt_take() {
    let lab = lab!();
    let _web = lab.instance("lt-gc-kill");
    for millis in [60, 120, 180, 240, 300, 400] {
        let args = [
            "create",
            "--zone",
            "nas1",
            "--image",
            "tiny",
            "--name",
            "lt-gc-kill",
            "--ttl",
            "1ms",
        ];
        let running = lab.cli().start(&args);
        std::thread::sleep(std::time::Duration::from_millis(millis));
        running.signal("KILL");
        let _ = running.wait().is_killed();
        // A seed that was never written shows no maker: it needs to be a minute old.
        lab.on(
            "nas1",
            &format!(
                "cd {POOL_DIR} && if [ -e lt-gc-kill-seed.iso ] && [ -z \"$(tr -d '\\0' < lt-gc-kill-seed.iso | head -c 1)\" ]; \
                 then touch -d '-2 minutes' lt-gc-kill-seed.iso; fi"
            ),
        );
        let _ = lab.run(&GC).exits(0);
        assert!(!lab.has_domain("nas1", "lt-gc-kill"), "{millis}");
        assert_eq!(lab.volumes("nas1", "lt-gc-kill"), [""; 0], "{millis}");
    }
}

#[test]
fn unfinished_bases_go_and_what_is_being_pulled_stays() {
    let lab = lab!();
    let _image = lab.image("lt-img");
    let _operators = lab.change(
        "nas1",
        "true",
        "rm -f /var/lib/libvirt/images/base-lt-*; virsh -q pool-refresh default",
    );
    let name = |digit: &str| format!("base-lt-img-{}.qcow2", digit.repeat(16));
    let (dead, busy, used, silent) = (name("a"), name("b"), name("c"), name("d"));
    let (stray, young) = (name("e"), name("f"));
    files(
        &lab,
        &format!(
            "for f in {dead} {busy} {silent} {young} base-lt-img.qcow2 base-lt-img-0123.qcow2 {dead}.bak base-lt-img-{}.qcow2; do truncate -s 4096 $f; done && \
             qemu-img create -q -f qcow2 {used} 1M && qemu-img create -q -f qcow2 -F qcow2 -b {used} base-lt-over.img && \
             printf '0123456789abcdef:1:2 7 ' > {busy}.claim && printf '0123456789abcdef:1:2 7 ' > {silent}.claim && \
             : > {stray}.sha256 && \
             old {dead} {busy} {silent} {silent}.claim {used} {stray}.sha256 base-lt-img.qcow2 base-lt-img-0123.qcow2 {dead}.bak base-lt-img-{}.qcow2",
            "A".repeat(16),
            "A".repeat(16)
        ),
    );
    let run = lab.run(&gc(&["--explain", "-o", "json"])).exits(0);
    let items = items(&run.stdout);
    let left = lab.volumes("nas1", "base-lt-");
    let marker = format!("{stray}.sha256");
    for (volume, goes) in [
        (&dead, true),
        (&silent, true),
        (&marker, true),
        (&busy, false),
        (&used, false),
        (&young, false),
    ] {
        let item = about(&items, volume);
        assert_eq!(
            (item["kind"].as_str(), item["deleted"].as_bool()),
            (Some("unfinished"), Some(goes)),
            "{item}"
        );
        assert_eq!(left.contains(volume), !goes, "{volume}: {left:?}");
    }
    let operators = [
        "base-lt-img.qcow2".to_owned(),
        "base-lt-img-0123.qcow2".to_owned(),
        format!("{dead}.bak"),
        format!("base-lt-img-{}.qcow2", "A".repeat(16)),
    ];
    for volume in operators {
        assert!(left.contains(&volume), "{volume}: {left:?}");
        assert!(
            items.iter().all(|item| item["volume"] != *volume),
            "{items:?}"
        );
    }
    assert!(!left.contains(&format!("{silent}.claim")), "{left:?}");
}

#[test]
fn an_unwanted_image_goes_unless_anything_is_backed_by_it() {
    let lab = lab!();
    let (_image, base) = pulled(&lab, "lt-old");
    let _overlay = lab.change(
        "nas1",
        "true",
        "rm -f /var/lib/libvirt/images/lt-theirs.img; virsh -q pool-refresh default",
    );
    let listed = lab
        .run(&["image", "list", "--zone", "nas1", "-o", "json"])
        .exits(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let find = |list: &Value| {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|i| i["volume"] == base.as_str())
            .cloned()
            .unwrap()
    };
    let item = find(&listed);
    assert_eq!(
        (item["state"].as_str(), item["wanted"].as_bool()),
        (Some("ready"), Some(false)),
        "{item}"
    );
    assert_eq!(
        (item["image"].as_str(), item["verifiedAgainst"].as_str()),
        (Some("lt-old"), Some("sha256")),
        "{item}"
    );
    // Young, then wanted, then without --images: it stays.
    let _ = lab
        .run(&["image", "prune", "--zone", "nas1"])
        .exits(0)
        .prints_only("");
    let tiny = lab.tiny();
    let wanting = lab.cli_with(|kvm| kvm["images"]["lt-old"] = tiny.clone());
    let _ = wanting.run(&gc(&["--images"])).exits(0).prints_only("");
    let _ = lab.run(&GC).exits(0).prints_only("");
    // Somebody makes an overlay beside libvirt, which hasn't seen it when gc looks first.
    lab.on(
        "nas1",
        &format!("cd {POOL_DIR} && qemu-img create -q -f qcow2 -F qcow2 -b {base} lt-theirs.img"),
    );
    let run = lab
        .run(&gc(&["--images", "--explain", "-o", "json"]))
        .exits(0);
    let kept = items(&run.stdout);
    let kept = about(&kept, &base);
    assert_eq!(kept["deleted"], false, "{kept}");
    assert!(
        kept["reason"].as_str().unwrap().contains("lt-theirs.img"),
        "{kept}"
    );
    let _ = lab
        .run(&["image", "rm", "lt-old", "--zone", "nas1"])
        .exits(1)
        .says("used by volume lt-theirs.img");
    // Kept, and still an image: the marker is there.
    assert_eq!(
        lab.volumes("nas1", &base),
        [base.clone(), format!("{base}.sha256")]
    );
    lab.on("nas1", &format!("rm {POOL_DIR}/lt-theirs.img"));
    let planned = lab
        .run(&[
            "image",
            "prune",
            "--older-than",
            "0s",
            "--zone",
            "nas1",
            "--dry-run",
        ])
        .exits(0)
        .prints(&base);
    let _ = lab
        .run(&["image", "prune", "--older-than", "0s", "--zone", "nas1"])
        .exits(0)
        .prints_only(&planned.stdout);
    assert_eq!(lab.volumes("nas1", &base), [""; 0]);
    // It can be pulled again, and removed by name; then it is absent.
    let _ = wanting
        .run(&["image", "pull", "lt-old", "--zone", "nas1"])
        .exits(0);
    let _ = wanting
        .run(&["image", "rm", &base, "--zone", "nas1"])
        .exits(0)
        .prints(&base);
    assert_eq!(lab.volumes("nas1", &base), [""; 0]);
    let _ = wanting
        .run(&["image", "rm", "lt-old", "--zone", "nas1"])
        .exits(0)
        .says("already absent");
    let _ = lab.run(&["image", "rm", "no-such"]).exits(1);
}

#[test]
fn a_host_that_cant_be_read_stops_everything_unless_partial() {
    let lab = lab!();
    let _web = lab.instance("lt-gc-part");
    create(&lab, "lt-gc-part", &["--ttl", "1ms"]);
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
    create(&lab, "lt-gc-s1", &["--ttl", "1ms"]);
    create(&lab, "lt-gc-s2", &["--ttl", "1ms"]);
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
    create(&lab, "lt-gc-clock", &["--ttl", "1ms"]);
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
fn a_clone_with_our_mark_stays() {
    let lab = lab!();
    let (_a, _b) = (lab.instance("lt-gc-orig"), lab.instance("lt-gc-clone"));
    create(&lab, "lt-gc-orig", &["--ttl", "1ms"]);
    // As virt-clone does: the same XML, metadata and all, under another name.
    lab.on(
        "nas1",
        "virsh dumpxml --inactive lt-gc-orig | sed -e 's/>lt-gc-orig</>lt-gc-clone</; /<uuid>/d; /<mac /d; /<nvram/d' > /tmp/c.xml && virsh -q define /tmp/c.xml && rm /tmp/c.xml",
    );
    let run = lab.run(&gc(&["--explain"])).exits(0);
    // The original's disks are the clone's, too: neither goes.
    let run = run
        .prints("instance lt-gc-clone: kept: in doubt")
        .prints("instance lt-gc-orig: kept: in doubt");
    assert_eq!(run.stdout.lines().count(), 2, "{run}");
    lab.virsh("nas1", &["undefine", "lt-gc-clone", "--nvram"]);
    let _ = lab.run(&GC).exits(0).prints("lt-gc-orig");
}

#[test]
fn a_prune_beside_a_create_never_takes_the_base_away_under_it() {
    let lab = lab!();
    let (_image, base) = pulled(&lab, "lt-race");
    let _web = lab.instance("lt-gc-race");
    let tiny = lab.tiny();
    let wanting = lab.cli_with(|kvm| kvm["images"]["lt-race"] = tiny.clone());
    let args = [
        "create",
        "--zone",
        "nas1",
        "--image",
        "lt-race",
        "--name",
        "lt-gc-race",
    ];
    let mut created = 0;
    for millis in [0, 40, 80, 120, 160, 200, 240, 280] {
        let _ = wanting
            .run(&["image", "pull", "lt-race", "--zone", "nas1"])
            .exits(0);
        let create = wanting.start(&args);
        std::thread::sleep(std::time::Duration::from_millis(millis));
        let _ = lab
            .run(&["image", "prune", "--older-than", "0s", "--zone", "nas1"])
            .exits(0);
        let run = create.wait();
        if run.succeeded() {
            created += 1;
            let both = [base.clone(), format!("{base}.sha256")];
            assert_eq!(lab.volumes("nas1", &base), both, "{millis}");
            lab.on(
                "nas1",
                &format!("cd {POOL_DIR} && qemu-img info -U --backing-chain lt-gc-race.qcow2"),
            );
        } else {
            // The next try would pull it again; nothing is left of this one.
            let _ = run.exits(4);
            assert_eq!(lab.volumes("nas1", "lt-gc-race"), [""; 0], "{millis}");
        }
        let _ = lab
            .run(&["delete", "lt-gc-race", "--zone", "nas1"])
            .exits(0);
    }
    assert!(created > 0);
}
