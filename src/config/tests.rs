//! What needs more than a sample file: finding and reading the file, picking an entry, starter files, the schema.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use super::*;
use crate::error::Class;

fn vars(pairs: &[(&str, &Path)]) -> impl Fn(&str) -> Option<OsString> + use<> {
    let map: HashMap<String, OsString> = pairs
        .iter()
        .map(|(name, value)| ((*name).to_string(), value.into()))
        .collect();
    move |name: &str| map.get(name).cloned()
}

fn provider_entry(name: &str) -> String {
    format!(
        "- name: {name}\n  type: kvm\n  kvm:\n    sshAgent: true\n    knownHostsFile: k\n    \
         machineTypes: {{s: {{vcpus: 1, memoryMiB: 64}}}}\n    \
         hosts: [{{name: a, address: a, user: u, bridge: b}}]\n"
    )
}

fn config(text: &str) -> Config {
    parse(text, Path::new("/c/p.yaml"), &|_| None).unwrap()
}

#[test]
fn a_named_file_is_taken_and_no_other_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (there, missing) = (
        dir.path().join("there.yaml"),
        dir.path().join("missing.yaml"),
    );
    let xdg = dir.path().join("egressctl");
    std::fs::create_dir(&xdg).unwrap();
    std::fs::write(&there, "").unwrap();
    std::fs::write(xdg.join("providers.yaml"), "").unwrap();
    let env = vars(&[
        ("XDG_CONFIG_HOME", dir.path()),
        ("EGRESSCTL_CONFIG", &missing),
    ]);

    assert_eq!(discover(Some(&there), &env).unwrap(), there);
    for result in [
        discover(Some(&missing), &env),
        discover(None, &env),
        discover(Some(Path::new("")), &env),
    ] {
        let error = result.unwrap_err();
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Usage, Reason::ConfigNotFound)
        );
        assert!(
            error.hints()[0].starts_with("egressctl config init"),
            "{error}"
        );
    }
    assert!(
        discover(None, &env)
            .unwrap_err()
            .message()
            .ends_with("missing.yaml, which $EGRESSCTL_CONFIG names")
    );

    let env = vars(&[
        ("XDG_CONFIG_HOME", dir.path()),
        ("EGRESSCTL_CONFIG", Path::new("")),
    ]);
    assert_eq!(discover(None, &env).unwrap(), xdg.join("providers.yaml"));
}

#[test]
fn a_link_to_nothing_is_followed_for_the_hint() {
    let dir = tempfile::tempdir().unwrap();
    let (link, next) = (dir.path().join("p.yaml"), dir.path().join("next"));
    std::os::unix::fs::symlink("next", &link).unwrap();
    std::os::unix::fs::symlink("sub/real.yaml", &next).unwrap();
    let error = discover(Some(&link), &vars(&[])).unwrap_err();
    let real = dir.path().join("sub/real.yaml").display().to_string();
    assert_eq!(
        error.causes(),
        [format!("it is a link to {real}: not there")]
    );
    assert!(
        error.hints()[0].ends_with(&format!("--write {real}")),
        "{error:?}"
    );
    // One that leads to itself has no end, and no file.
    std::os::unix::fs::symlink("round", dir.path().join("round")).unwrap();
    assert!(discover(Some(&dir.path().join("round")), &vars(&[])).is_ok());
}

#[test]
fn odd_vendor_data_is_told_with_its_line_and_bad_vendor_data_is_unmet() {
    let with = |more: &str| {
        let text = provider_entry("a").replace("    sshAgent", &format!("{more}    sshAgent"));
        parse(&text, Path::new("/c/p.yaml"), &|_| None)
    };
    let block = |lines: &str| format!("    vendorData: |\n{lines}");
    let odd = with(&block("      #cloud-config\n      a: 1\n      a: SECRET\n")).unwrap();
    assert_eq!(
        odd.providers[0].warnings,
        [
            "/c/p.yaml:7: [0].kvm.vendorData: a key stands twice; cloud-init takes the last and drops the others"
        ]
    );
    let cases = [
        (
            block("      #cloud-config\n      a:\tSECRET\n"),
            6,
            "a tab stands",
        ),
        (block("\n      #!/bin/sh\n"), 4, "blank or an empty line"),
        (
            "    vendorData: \"#cloud-config\\n- SECRET\"\n".to_owned(),
            4,
            "isn't a mapping",
        ),
        (
            "    vendorData: \"#cloud-config\\na: [SECRET\"\n".to_owned(),
            4,
            "at line ",
        ),
        (
            "    vendorData: SECRET\n".to_owned(),
            4,
            "none of cloud-init's headers",
        ),
        (
            "    vendorData: \"MIME-Version: 1.0\\n\\nSECRET\"\n".to_owned(),
            4,
            "is a MIME message",
        ),
    ];
    for (more, line, why) in cases {
        let config = with(&more).unwrap();
        let provider = &config.providers[0];
        let [cause] = provider.unmet.as_slice() else {
            panic!("{:?}", provider.unmet);
        };
        let error = config.ensure_met().unwrap_err();
        assert_eq!(error.message(), "1 error in /c/p.yaml");
        assert_eq!(error.causes(), provider.unmet);
        let error = provider.ensure_met().unwrap_err();
        assert_eq!(error.causes(), provider.unmet);
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Usage, Reason::ConfigInvalid)
        );
        assert!(provider.vendor_data.is_some());
        let place = format!("/c/p.yaml:{line}: [0].kvm.vendorData: can't be used: ");
        assert!(cause.starts_with(&place) && cause.contains(why), "{cause}");
        assert!(!cause.contains("SECRET"), "{cause}");
    }
    let alone = "    vendorData: \"MIME-Version: 1.0\\n\\nx\"\n    installGuestAgent: false\n";
    for fine in [alone, &block("\n      #cloud-config\n      a: 1\n")] {
        let config = with(fine).unwrap();
        assert_eq!(config.ensure_met(), Ok(()));
        assert_eq!(config.providers[0].ensure_met(), Ok(()));
    }
}

#[test]
fn what_is_unmet_is_told_with_the_errors_of_the_file() {
    let text = provider_entry("a").replace(
        "    sshAgent",
        "    vendorData: SECRET\n    disksize: 1\n    sshAgent",
    );
    let error = parse(&text, Path::new("/c/p.yaml"), &|_| None).unwrap_err();
    assert_eq!(error.message(), "2 errors in /c/p.yaml");
    assert!(error.causes()[0].contains("vendorData: can't be used: "));
    assert!(error.causes()[1].contains("disksize: unknown key"));
}

#[test]
fn the_users_file_is_under_home_unless_xdg_says_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".config/egressctl/providers.yaml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "").unwrap();
    let env = vars(&[
        ("HOME", dir.path()),
        ("XDG_CONFIG_HOME", Path::new("relative")),
    ]);
    assert_eq!(discover(None, &env).unwrap(), file);
}

#[test]
fn without_a_file_every_place_tried_is_named() {
    if Path::new("/etc/egressctl/providers.yaml").exists() {
        return;
    }
    let table = [
        (
            vars(&[("HOME", Path::new("/nowhere"))]),
            "/nowhere/.config/egressctl/providers.yaml: not there",
        ),
        (
            vars(&[]),
            "~/.config/egressctl/providers.yaml: neither XDG_CONFIG_HOME nor HOME is set",
        ),
    ];
    for (env, user) in table {
        let error = discover(None, &env).unwrap_err();
        let places = [
            "--config: not given",
            "$EGRESSCTL_CONFIG: not set",
            user,
            "/etc/egressctl/providers.yaml: not there",
        ];
        assert_eq!(error.causes(), places);
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Usage, Reason::ConfigNotFound)
        );
    }
}

#[test]
fn what_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let error = load(dir.path(), &|_| None, &Cancel::new()).unwrap_err();
    assert_eq!(
        (error.class(), error.reason()),
        (Class::Usage, Reason::LocalIo)
    );

    let file = dir.path().join("p.yaml");
    std::fs::write(&file, vec![b'#'; usize::try_from(MAX_FILE).unwrap() + 1]).unwrap();
    let error = load(&file, &|_| None, &Cancel::new()).unwrap_err();
    assert_eq!(
        error.causes(),
        ["it is larger than 1 MiB, so it is no providers file"]
    );

    std::fs::write(&file, b"# a\n# b\xff\n").unwrap();
    let error = load(&file, &|_| None, &Cancel::new()).unwrap_err();
    assert_eq!(
        error.causes(),
        [format!("{}:2: not UTF-8 text", file.display())]
    );

    std::fs::write(&file, provider_entry("home")).unwrap();
    let loaded = load(&file, &|_| None, &Cancel::new()).unwrap();
    assert_eq!(
        loaded.providers[0].auth.host_keys,
        HostKeyPolicy::KnownHosts(dir.path().join("k"))
    );
}

#[test]
fn an_entry_is_picked_by_name_or_by_being_the_only_one() {
    let one = config(&format!(
        "- {{name: cloud, type: gcp}}\n{}",
        provider_entry("home")
    ));
    assert_eq!(one.provider(None).unwrap().name, "home");
    assert_eq!(one.provider(Some("home")).unwrap().name, "home");
    let two = config(&(provider_entry("home") + &provider_entry("work")));
    let none = config("- {name: cloud, type: gcp}\n");
    let table = [
        (
            &one,
            Some("cloud"),
            "provider \"cloud\" is of type gcp, which only the operator drives",
        ),
        (
            &two,
            None,
            "/c/p.yaml has several provider entries: home, work",
        ),
        (
            &two,
            Some("hme"),
            "/c/p.yaml has no provider entry \"hme\" (did you mean home?)",
        ),
        (&two, Some("x"), "/c/p.yaml has no provider entry \"x\""),
        (
            &none,
            None,
            "/c/p.yaml has no provider entry of type kvm or kvm2",
        ),
    ];
    for (config, name, message) in table {
        let error = config.provider(name).unwrap_err();
        assert_eq!(error.message(), message);
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Usage, Reason::UnknownProvider)
        );
    }
}

#[test]
fn jump_hosts_nest_towards_the_first_one_dialled() {
    let target = address::parse_jumps("me@gate:2222,inner", "virt").unwrap();
    let gate = Address {
        host: "gate".to_string(),
        port: 2222,
    };
    let first = SshTarget {
        address: gate,
        user: "me".to_string(),
        jump: None,
    };
    let inner = Address {
        host: "inner".to_string(),
        port: 22,
    };
    assert_eq!(
        target,
        SshTarget {
            address: inner,
            user: "virt".to_string(),
            jump: Some(Box::new(first))
        }
    );
}

#[test]
fn starter_files_validate_whatever_the_names() {
    let env = vars(&[("HOME", Path::new("/home/virt"))]);
    let specs = [
        "nas1=virt@nas1.home.lan:22",
        "on=1000@[2001:db8::1]:2222",
        "007=a@b@192.0.2.1",
        r"x=D\u@h",
    ];
    let hosts: Vec<HostSpec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
    for bridge in ["br0", "0", "no"] {
        let text = init(&hosts, bridge).unwrap();
        let config = parse(&text, Path::new("/c/p.yaml"), &env).unwrap();
        let provider = config.provider(None).unwrap();
        for (host, spec) in provider.hosts.iter().zip(&hosts) {
            assert_eq!(host.name, spec.name);
            assert_eq!(host.nic, Nic::Bridge(bridge.to_string()));
            let target = SshTarget {
                address: spec.address.clone(),
                user: spec.user.clone(),
                jump: None,
            };
            assert_eq!(host.reach, Reach::Ssh(target));
        }
        assert_eq!(provider.hosts.len(), hosts.len());
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
}

#[test]
fn bad_starter_arguments_are_refused() {
    for spec in [
        "nas1",
        "nas1=nas1.lan",
        "a/b=u@h",
        "=u@h",
        "a=@h",
        "a=u@",
        "a=u@h:0",
        "a=-x@h",
    ] {
        let error = spec.parse::<HostSpec>().unwrap_err();
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Usage, Reason::BadArgument),
            "{spec}"
        );
    }
    let host: HostSpec = "a=u@h".parse().unwrap();
    let table = [
        (vec![], "br0", "no host given"),
        (
            vec![host.clone(), host.clone()],
            "br0",
            "two hosts are called \"a\"",
        ),
        (vec![host], "br/0", "the bridge \"br/0\" has a '/' in it"),
    ];
    for (hosts, bridge, message) in table {
        assert_eq!(init(&hosts, bridge).unwrap_err().message(), message);
    }
}

#[test]
fn a_process_without_home_has_its_passwd_entrys() {
    let home = process_env("HOME").expect("neither HOME nor a passwd entry");
    assert!(Path::new(&home).is_absolute());
    assert_eq!(process_env("EGRESSCTL_NO_SUCH_VARIABLE"), None);
}

#[test]
fn the_schema_has_every_key_and_resolves() {
    let schema = schema();
    for table in keys::TABLES.iter().filter(|table| table.id != "document") {
        let definition = &schema["$defs"][table.id];
        // An entry's keys are under `else`, as the operator's own entries may be anything.
        let definition = if table.id == "entry" {
            &definition["else"]
        } else {
            definition
        };
        let properties = definition["properties"].as_object().unwrap();
        let names: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
        assert!(properties.keys().eq(&names), "{}: {names:?}", table.id);
    }
    let text = schema.to_string();
    for reference in text.split("\"$ref\":\"#/$defs/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schema["$defs"].get(name).is_some(), "{name}");
    }
}

#[test]
fn the_documentation_has_every_key_with_its_default() {
    let document = include_str!("../../docs/configuration.md");
    let tables = keys::TABLES
        .iter()
        .flat_map(|table| table.keys)
        .filter(|key| key.name != "providers");
    for key in tables {
        let row = document
            .lines()
            .filter(|line| {
                line.starts_with(&format!("| `{}` |", key.name))
                    || line.starts_with(&format!("| **`{}`** |", key.name))
            })
            .find(|line| {
                key.default
                    .is_none_or(|default| line.contains(&format!("| `{default}` |")))
            });
        let row = row
            .unwrap_or_else(|| panic!("no row for `{}` with default {:?}", key.name, key.default));
        assert_eq!(row.contains("*own*"), key.ours, "{row}");
        let bold = row.starts_with("| **");
        match key.need {
            table::Need::Required => assert!(bold, "{row}"),
            table::Need::Optional => assert!(!bold, "{row}"),
            table::Need::Depends(_) => {}
        }
        if let table::Kind::Integer { min, max } = key.kind {
            assert!(row.contains(&format!("{min} to {max}")), "{row}");
        }
    }
}
