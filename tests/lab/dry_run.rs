//! Plans of creates: what would be made, refused where the create would be, and nothing made.

use serde_json::json;

use crate::lab;

#[test]
fn a_dry_run_shows_the_plan_and_makes_nothing() {
    let lab = lab!();
    let name = "lt-dry";
    let (_instance, _image) = (lab.instance(name), lab.image("lt-dry"));
    let secret = lab.write("user-data", "#cloud-config\n# hunter2\n");
    let cli = crate::pull::with_image(&lab, "lt-dry", "/tiny.qcow2?lt-dry");
    let args = [
        "create",
        "--zone",
        "nas1",
        "--image",
        "lt-dry",
        "--name",
        name,
        "--dry-run",
        "--user-data",
    ];
    let args = [&args[..], &[secret.to_str().unwrap()]].concat();
    let run = cli
        .run(&args)
        .exits(0)
        .prints("would be pulled")
        .prints("<domain type=\"qemu\">");
    let run = run
        .prints("user-data")
        .prints("meta-data")
        .prints("vendor-data");
    assert!(!run.stdout.contains("hunter2"), "{run}");
    let plan = cli.run(&[&args[..], &["-o", "json"]].concat()).exits(0);
    assert_eq!(plan.json()["kind"], "CreatePlanList");
    let plan = plan.item();
    assert_eq!(plan["overlayVolume"], format!("{name}.qcow2"));
    let base = plan["baseVolume"].as_str().unwrap();
    assert!(
        base.starts_with("base-lt-dry-") && !base.contains('?'),
        "{base}"
    );
    assert!(!lab.has_domain("nas1", name));
    assert!(lab.volumes("nas1", name).is_empty());
    assert!(lab.volumes("nas1", "base-lt-dry").is_empty());
}

#[test]
fn a_dry_run_is_refused_as_the_create_would_be_and_names_the_volume_it_would_make() {
    let lab = lab!();
    let (key, name) = ("lt-dry-url", "lt-dry-url");
    let (_instance, _image) = (lab.instance(name), lab.image(key));
    let create = |path: &str, more: &[&str]| {
        let cli = lab.cli_with(|kvm| kvm["images"][key] = json!({"url": lab.url(path)}));
        let args = ["create", "--zone", "nas1", "--name", name, "--image", key];
        cli.run(&[&args[..], &["-o", "json"], more].concat())
    };
    let table: [(&str, &[&str], i32, &str); 5] = [
        ("/no-such.qcow2?lt-dry-url", &[], 1, "404"),
        ("/html/tiny.qcow2?lt-dry-url", &[], 1, "NotAnImage"),
        ("/status/503/tiny.qcow2?lt-dry-url", &[], 4, "503"),
        (
            "/tiny.qcow2?lt-dry-url",
            &["--pull", "never"],
            1,
            "ImageNotReady",
        ),
        (
            "/tiny.qcow2?lt-dry-url",
            &["--wait=ip", "--user-data", "/nowhere"],
            2,
            "/nowhere",
        ),
    ];
    for (path, more, code, said) in table {
        for dry in [&["--dry-run"][..], &[]] {
            create(path, &[more, dry].concat()).exits(code).says(said);
        }
    }
    let plan = create("/tiny.qcow2?lt-dry-url", &["--dry-run", "--count", "3"]).exits(0);
    assert_eq!(lab.volumes("nas1", "base-lt-dry-url"), [""; 0]);
    let base = plan.items()[0]["baseVolume"].clone();
    assert_eq!(plan.items()[2]["baseVolume"], base);
    // Asked once for all of them, and as much as it takes to look at its first bytes.
    create("/tiny.qcow2?lt-dry-url", &[]).exits(0);
    assert!(
        lab.volumes("nas1", "base-lt-dry-url")
            .contains(&base.as_str().unwrap().to_owned())
    );
}
