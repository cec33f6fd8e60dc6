//! Tests of metadata: writing, reading it back in every form, and telling whose it is.

use super::*;

/// A record with nothing optional.
pub(crate) fn plain() -> Metadata {
    let spec = SpecRecord {
        image: "debian-13".into(),
        machine_type: "small".into(),
        vcpus: 1,
        memory_mib: 1024,
        disk_bytes: 10 << 30,
        firmware: Firmware::Uefi,
        nic: Nic::Bridge("br0".into()),
        cloud_init: "c".repeat(64),
    };
    Metadata {
        managed: true,
        uid: "0f5e8a9c".into(),
        created_at: "2026-11-29T19:38:00Z".parse().unwrap(),
        digest: "d".repeat(64),
        spec_hash: spec.hash(),
        spec,
        disk_bytes: None,
        volumes: Vec::new(),
        expires_at: None,
        labels: BTreeMap::new(),
        extra: Extra::default(),
    }
}

fn full() -> Metadata {
    let nasty = "& < > \" ' \n\r\n\t ]]> 🦀 ";
    let mut metadata = plain();
    metadata.uid = nasty.into();
    metadata.spec.image = format!("image {nasty}");
    metadata.spec.nic = Nic::Network("default".into());
    metadata.spec.firmware = Firmware::Bios;
    metadata.managed = false;
    metadata.disk_bytes = Some(12 << 30);
    metadata.expires_at = Some("2026-11-30T00:00:00Z".parse().unwrap());
    metadata.labels = [("role", nasty), (nasty, "x"), ("empty", "")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    metadata.volumes = vec![
        VolumeRef {
            pool: "default".into(),
            name: "a.qcow2".into(),
            role: VolumeRole::Overlay,
        },
        VolumeRef {
            pool: nasty.into(),
            name: "a-seed.iso".into(),
            role: VolumeRole::Seed,
        },
    ];
    metadata
}

/// The mark in a domain whose `<metadata>` holds this.
fn in_domain(inside: &str) -> Mark {
    let xml = format!("<domain><metadata>{inside}</metadata></domain>");
    let root = parse("test", &xml).unwrap();
    Mark::in_metadata(root.find("metadata").unwrap())
}

#[test]
fn a_url_that_was_recorded_with_its_secrets_is_read_without_them() {
    let mut old = plain();
    old.spec.image = "https://me:hunter2@example.org/a?token=t0ps3cret".into();
    let read = in_domain(&old.to_xml().unwrap());
    let image = &read.metadata().unwrap().spec.image;
    assert!(
        image.starts_with("https://example.org/a?sha256:"),
        "{image}"
    );
    let again = in_domain(&read.metadata().unwrap().to_xml().unwrap());
    assert_eq!(again, read);
}

#[test]
fn what_is_written_is_read_back() {
    for metadata in [plain(), full()] {
        let xml = metadata.to_xml().unwrap();
        let expected = Mark::Egressctl(Box::new(metadata));
        assert_eq!(
            Mark::from_fragment(Manager::Egressctl, &xml).unwrap(),
            expected
        );
        assert_eq!(in_domain(&xml), expected);
    }
}

#[test]
fn the_element_is_one_prefixed_element_of_version_1() {
    let xml = plain().to_xml().unwrap();
    let start = format!("<egressctl:instance xmlns:egressctl=\"{NAMESPACE}\" version=\"1\">");
    assert!(xml.starts_with(&start), "{xml}");
    assert!(
        xml.contains("<egressctl:createdAt>2026-11-29T19:38:00Z</egressctl:createdAt>"),
        "{xml}"
    );
    assert_eq!(xml.matches("xmlns").count(), 1, "{xml}");
}

#[test]
fn a_disk_that_the_image_raised_is_told_and_hashed_as_it_was_asked_for() {
    let mut metadata = plain();
    assert_eq!(metadata.disk_bytes(), 10 << 30);
    metadata.disk_bytes = Some(12 << 30);
    let read = in_domain(&metadata.to_xml().unwrap());
    let read = read.metadata().unwrap();
    assert_eq!(read.disk_bytes(), 12 << 30);
    assert_eq!(read.spec.disk_bytes, 10 << 30);
    assert_eq!(read.spec.hash(), plain().spec_hash);
    let xml = metadata.to_xml().unwrap();
    let bad = xml.replace(">12884901888<", ">much<");
    assert!(matches!(in_domain(&bad), Mark::Unreadable { .. }), "{bad}");
}

#[test]
fn control_characters_are_refused_when_written() {
    let mut metadata = plain();
    metadata.labels.insert("a".into(), "\u{1}".into());
    assert!(metadata.to_xml().unwrap_err().message().contains("U+0001"));
}

/// The forms that libvirt and other tools make of our element.
fn forms(xml: &str) -> [(&'static str, String); 5] {
    let declaration = format!(" xmlns:egressctl=\"{NAMESPACE}\"");
    let bare = xml.replace(&declaration, "").replace("egressctl:", "");
    let default = format!("<instance xmlns=\"{NAMESPACE}\"");
    [
        ("as written", xml.to_owned()),
        ("undeclared", xml.replace(&declaration, "")),
        (
            "other prefix",
            xml.replace("egressctl:", "n1:")
                .replace(":egressctl=", ":n1="),
        ),
        ("default namespace", bare.replacen("<instance", &default, 1)),
        ("bare", bare),
    ]
}

#[test]
fn every_form_is_read_alike() {
    let mut metadata = full();
    // The forms are made by replacing text, which must not meet the URI itself.
    metadata.labels.remove("role");
    let xml = metadata.to_xml().unwrap();
    let expected = Mark::Egressctl(Box::new(metadata));
    for (form, xml) in forms(&xml) {
        assert_eq!(
            Mark::from_fragment(Manager::Egressctl, &xml).unwrap(),
            expected,
            "{form}"
        );
        assert_eq!(in_domain(&xml), expected, "{form}");
        assert_eq!(
            in_domain(&format!("<x:y xmlns:x='u'/>\n{xml}\n<z/>")),
            expected,
            "{form}"
        );
    }
}

#[test]
fn a_foreign_element_is_never_ours() {
    let ours = plain().to_xml().unwrap();
    let bare = &forms(&ours)[4].1;
    let missing = |name: &str| {
        let from = bare.find(&format!("<{name}>")).unwrap();
        let end = format!("</{name}>");
        let to = bare.find(&end).unwrap() + end.len();
        format!("{}{}", &bare[..from], &bare[to..])
    };
    for inside in [
        String::new(),
        "text".into(),
        ours.replace("/egressctl\"", "/egressctl2\""),
        ours.replace("/egressctl\"", "/EGRESSCTL\""),
        bare.replacen("<instance", "<instance xmlns='urn:other'", 1),
        bare.replace("<instance", "<vm")
            .replace("</instance", "</vm"),
        missing("managed"),
        missing("uid"),
        missing("createdAt"),
        missing("specHash"),
        // An undeclared prefix of somebody else's, without our children.
        "<nova:instance><nova:name>x</nova:name></nova:instance>".into(),
        // Ours, but only deeper inside something else.
        format!("<other>{ours}</other>"),
    ] {
        assert_eq!(in_domain(&inside), Mark::None, "{inside}");
    }
    let foreign = ours.replace("/egressctl\"", "/kvm\"");
    assert_eq!(
        Mark::from_fragment(Manager::Egressctl, &foreign).unwrap(),
        Mark::None
    );
}

#[test]
fn what_is_ours_but_unreadable_is_in_doubt() {
    let ours = plain().to_xml().unwrap();
    let uid = "<egressctl:uid>0f5e8a9c</egressctl:uid>";
    let table = [
        (
            ours.replace("version=\"1\"", "version=\"2\""),
            "version \"2\"",
        ),
        (ours.replace(" version=\"1\"", ""), "no version"),
        (ours.replace(uid, ""), "no uid"),
        (
            ours.replace(uid, "<egressctl:uid> </egressctl:uid>"),
            "no uid",
        ),
        (
            ours.replace(uid, &format!("{uid}{uid}")),
            "more than one uid",
        ),
        (ours.replace(">true<", ">maybe<"), "managed is \"maybe\""),
        (ours.replace("2026-11-29T", "yesterday "), "createdAt"),
        (
            ours.replace("vcpus=\"1\"", "vcpus=\"one\""),
            "no readable vcpus",
        ),
        (
            ours.replace("firmware=\"uefi\"", "firmware=\"coreboot\""),
            "no readable firmware",
        ),
        (ours.replace(":instance", ":machine"), "called \"machine\""),
        (format!("{ours}{ours}"), "two marks"),
        (
            format!("{ours}<k:vm xmlns:k='{}'/>", Manager::Kvm.namespace()),
            "two marks",
        ),
        (
            format!("<egressctl:instance xmlns:egressctl=\"{NAMESPACE}\"/>"),
            "no version",
        ),
        ("<egressctl:instance version='1'/>".into(), "no spec"),
    ];
    for (xml, expected) in table {
        let Mark::Unreadable { why, .. } = in_domain(&xml) else {
            panic!("{expected}: {xml}");
        };
        assert!(why.contains(expected), "{why}: {expected}");
    }
    let Mark::Unreadable { uid, .. } = in_domain(&ours.replace("version=\"1\"", "version=\"9\""))
    else {
        panic!();
    };
    assert_eq!(uid.as_deref(), Some("0f5e8a9c"));
}

#[test]
fn the_operators_marks_are_read_for_display() {
    for manager in [Manager::Kvm, Manager::Kvm2] {
        let inside = "<p:managed>true</p:managed><p:uid>u-1</p:uid>\
                      <p:createdAt>2026-01-02T03:04:05Z</p:createdAt>";
        let declared = format!(
            "<p:instance xmlns:p='{}'>{inside}</p:instance>",
            manager.namespace()
        );
        let expected = Mark::Operator(OperatorRecord {
            manager,
            managed: Some(true),
            uid: Some("u-1".into()),
            created_at: Some("2026-01-02T03:04:05Z".into()),
        });
        assert_eq!(in_domain(&declared), expected);
        assert_eq!(Mark::from_fragment(manager, &declared).unwrap(), expected);
        let bare = format!("<instance>{}</instance>", inside.replace("p:", ""));
        assert_eq!(Mark::from_fragment(manager, &bare).unwrap(), expected);
        // Without a declaration nothing tells the two apart in a whole domain: nobody's.
        assert_eq!(in_domain(&bare), Mark::None);
        let prefixed = format!("<p:instance>{inside}</p:instance>")
            .replace("p:", &format!("{}:", manager.as_str()));
        assert_eq!(in_domain(&prefixed), expected);
        let attributes = format!(
            "<vm xmlns='{}' managed='true' uid='u-1' createdAt='2026-01-02T03:04:05Z'/>",
            manager.namespace()
        );
        assert_eq!(in_domain(&attributes), expected);
        assert_eq!(in_domain(&attributes).manager(), Some(manager));
    }
}

#[test]
fn what_this_version_does_not_know_is_kept() {
    let xml = plain().to_xml().unwrap();
    let unknown = "<egressctl:later a=\"&amp;\">\n   <egressctl:deep>x</egressctl:deep>\n </egressctl:later>\
                   <o:note xmlns:o=\"urn:o\"><o:b/>t</o:note><bare k=\"v\"/><d xmlns=\"urn:d\"/>";
    let end = "</egressctl:instance>";
    let xml = xml.replace(end, &format!("{unknown}{end}")).replace(
        "version=\"1\"",
        "version=\"1\" colour=\"red\" o:x=\"y\" xmlns:o=\"urn:o\"",
    );
    let first = Mark::from_fragment(Manager::Egressctl, &xml).unwrap();
    let written = first.metadata().unwrap().to_xml().unwrap();
    for part in [
        "colour=\"red\"",
        "o:x=\"y\"",
        "<egressctl:later a=\"&amp;\">",
        "<egressctl:deep>x</egressctl:deep>",
        "<o:b xmlns:o=\"urn:o\"/>",
        "<bare k=\"v\"/>",
        "<d xmlns=\"urn:d\"/>",
    ] {
        assert!(written.contains(part), "{part} in {written}");
    }
    assert_eq!(
        Mark::from_fragment(Manager::Egressctl, &written).unwrap(),
        first
    );
    // A namespace declared outside the element travels with what needs it.
    let outside = xml.replace(" xmlns:o=\"urn:o\"", "");
    let root = parse("t", &format!("<m xmlns:o=\"urn:o\">{outside}</m>")).unwrap();
    let mark = Mark::in_metadata(&root);
    let written = mark.metadata().unwrap().to_xml().unwrap();
    assert!(written.contains("<o:note xmlns:o=\"urn:o\">"), "{written}");
}

/// A change of one field.
type Change = fn(&mut SpecRecord);

#[test]
fn the_hash_covers_every_field_and_differences_name_it() {
    let base = plain().spec;
    let changes: [(Change, &str); 8] = [
        (
            |s| s.image = "debian-12".into(),
            "image is debian-13, not debian-12",
        ),
        (
            |s| s.machine_type = "big".into(),
            "machine type is small, not big",
        ),
        (|s| s.vcpus = 2, "vcpus is 1, not 2"),
        (|s| s.memory_mib = 2048, "memory is 1024 MiB, not 2048 MiB"),
        (
            |s| s.disk_bytes += 1,
            "disk is 10737418240 bytes, not 10737418241 bytes",
        ),
        (
            |s| s.firmware = Firmware::Bios,
            "firmware is uefi, not bios",
        ),
        (
            |s| s.nic = Nic::Network("br0".into()),
            "NIC is bridge br0, not network br0",
        ),
        (
            |s| s.cloud_init = String::new(),
            "its user-data, vendor-data or network-config is another",
        ),
    ];
    assert_eq!(base.differences(&base), Vec::<String>::new());
    for (change, sentence) in changes {
        let mut other = base.clone();
        change(&mut other);
        assert_ne!(base.hash(), other.hash(), "{sentence}");
        assert_eq!(base.differences(&other), [sentence]);
    }
    // Fields can't be shifted into each other.
    let mut left = base.clone();
    let mut right = base.clone();
    left.image = "a\nmachine type 1\nb".into();
    left.machine_type = "c".into();
    right.image = "a".into();
    right.machine_type = "b\nc".into();
    assert_ne!(left.hash(), right.hash());
    assert_eq!(base.hash().len(), 64);
}

#[test]
fn the_fragment_for_libvirt_leaves_our_namespace_to_it() {
    let mut metadata = full();
    let with_more = plain().to_xml().unwrap().replace(
        "</egressctl:instance>",
        "<egressctl:later>1</egressctl:later><x:note xmlns:x=\"urn:x\"><x:a/></x:note></egressctl:instance>",
    );
    metadata.extra = in_domain(&with_more).metadata().unwrap().extra.clone();
    let fragment = metadata.to_fragment().unwrap();
    assert!(
        fragment.starts_with("<instance version=\"1\">"),
        "{fragment}"
    );
    assert!(!fragment.contains("egressctl"), "{fragment}");
    assert!(fragment.contains("<later>1</later>"), "{fragment}");
    assert!(
        fragment.contains("<x:note xmlns:x=\"urn:x\">"),
        "{fragment}"
    );
    // What libvirt makes of it: every bare name gets our namespace.
    let bound = fragment.replacen("<instance", &format!("<instance xmlns=\"{NAMESPACE}\""), 1);
    assert_eq!(in_domain(&bound).metadata(), Some(&metadata));
}

#[test]
fn what_somebody_wrote_into_the_definition_counts_beside_what_runs() {
    let ours = |change: &dyn Fn(&mut Metadata)| {
        let mut metadata = full();
        change(&mut metadata);
        Mark::Egressctl(Box::new(metadata))
    };
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let (early, late) = (
        ours(&|m| m.expires_at = at(1)),
        ours(&|m| m.expires_at = at(2)),
    );
    let never = ours(&|m| m.expires_at = None);
    let kept = ours(&|m| m.managed = false);
    let unreadable = || Mark::Unreadable {
        why: "version 99".to_owned(),
        uid: None,
    };
    let table = [
        (early.clone(), late.clone(), late.clone()),
        (late.clone(), early.clone(), late.clone()),
        (early.clone(), never.clone(), never.clone()),
        (never.clone(), early.clone(), never),
        (ours(&|_| {}), kept.clone(), kept.clone()),
        (kept.clone(), ours(&|_| {}), kept),
        (early.clone(), Mark::None, Mark::None),
        (Mark::None, early.clone(), Mark::None),
        (early.clone(), unreadable(), unreadable()),
        (unreadable(), early, unreadable()),
    ];
    for (runs, defined, expected) in table {
        assert_eq!(
            runs.clone().with_definition(defined.clone()),
            expected,
            "{runs:?} {defined:?}"
        );
    }
}
