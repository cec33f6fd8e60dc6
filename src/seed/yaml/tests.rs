//! What passes as what, what is refused, and `PyYAML`'s own verdicts.

use super::*;

mod verdicts;

fn mapping(keys: &[&str]) -> Root {
    Root::Mapping(keys.iter().map(|&k| k.to_owned()).collect())
}

#[test]
fn what_cloud_init_reads_is_read() {
    let table = [
        ("", Root::Empty),
        ("# nothing\n", Root::Empty),
        ("{}\n", mapping(&[])),
        ("a: 1\nb:\n- x\n- {y: z}\n", mapping(&["a", "b"])),
        ("a: 1\r\nb: 2\r\n", mapping(&["a", "b"])),
        ("---\na: 1\n", mapping(&["a"])),
        ("1: x\ntrue: y\na: z\n", mapping(&["a"])),
        ("- a\n", Root::List),
        ("text", Root::Scalar),
        ("12", Root::Scalar),
        ("c: |\n  x\n  \ttab is content here\n", mapping(&["c"])),
        ("a: !!binary aGVsbG8=\n", mapping(&["a"])),
        (
            "write_files:\n- content: !!binary |\n    aGVsbG8=\n  path: /a\n",
            mapping(&["write_files"]),
        ),
        ("d: &a {k: v}\ne:\n  <<: *a\n  z: 1\n", mapping(&["d", "e"])),
        ("d: &a {k: v}\n<<: [*a]\n", mapping(&["d", "k"])),
        (
            "p: 010\nm: 0600\nt: 12:30:45\nu: no\n",
            mapping(&["p", "m", "t", "u"]),
        ),
        ("u: \u{17e}\u{1F980}\n", mapping(&["u"])),
    ];
    for (text, root) in table {
        let document = read(text).unwrap_or_else(|fault| panic!("{text:?}: {fault}"));
        assert_eq!(document.root, root, "{text:?}");
        assert_eq!(document.duplicate_key, None, "{text:?}");
    }
}

#[test]
fn verdicts_are_those_of_pyyaml() {
    let mut wrong = Vec::new();
    for text in verdicts::ACCEPTED {
        if let Err(fault) = read(&format!("#cloud-config\n{text}")) {
            wrong.push(format!("PyYAML accepts {text:?}: {fault}"));
        }
    }
    for text in verdicts::KNOWN {
        if read(&format!("#cloud-config\n{text}")).is_ok() {
            wrong.push(format!("is read now; docs/user-data.md: {text:?}"));
        }
    }
    for text in verdicts::REFUSED {
        if read(&format!("#cloud-config\n{text}")).is_ok() {
            wrong.push(format!("PyYAML refuses {text:?}"));
        }
    }
    for (text, is_read) in verdicts::BEGINNINGS {
        if read(text).is_ok() != *is_read {
            wrong.push(format!("PyYAML reads {text:?}: {is_read}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn faults_have_a_place_and_no_content() {
    let table = [
        ("a: [\n", "valid YAML", 1),
        ("a: b: SECRET\n", "valid YAML", 1),
        ("a:\n\tSECRET: 1\n", "indented with a tab", 2),
        ("\tSECRET: 1\n", "indented with a tab", 1),
        ("a: 1\n SECRET: 2\n", "valid YAML", 2),
        ("SECRET: \"unclosed\n", "valid YAML", 1),
        ("a: *SECRET\n", "valid YAML", 1),
        ("a: 1\nb:\tSECRET\n", "a tab stands where", 2),
        ("a:\n- x\n\t\n- SECRET\n", "indented with a tab", 3),
        ("a: 1\nb: !SECRET x\n", "a tag", 2),
        ("a: 1\nb: !!int SECRET\n", "doesn't fit its tag", 2),
        ("a: 1\nb: 2026-02-30 # SECRET\n", "a date or number", 2),
        ("a: 1\n? [SECRET]\n", "as a key", 2),
        ("a: 1\n<<: SECRET\n", "`<<` stands before", 2),
        ("a: 1\nb: [http://SECRET/?x]\n", "between brackets", 2),
        ("a: &SECRET 1\nb: &SECRET 2\n", "an anchor twice", 2),
        ("a: 1\nb: SECRET\u{7}\n", "a control character", 2),
        ("a: 1\n---\nSECRET: 2\n", "a second document", 2),
        ("a: 'x\ny'\nb: SECRET\t\n", "a tab stands where", 3),
    ];
    let mut wrong = Vec::new();
    for (text, what, line) in table {
        let fault = read(text).expect_err(text);
        let is_told = fault.what.contains(what) && fault.line == line;
        if !is_told || fault.to_string().contains("SECRET") {
            wrong.push(format!("{text:?}: {fault}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_key_that_stands_twice_is_told_but_read() {
    let document = read("runcmd: [a]\nb: 1\nruncmd: [b]\n").unwrap();
    assert_eq!(document.duplicate_key.unwrap().line, 3);
    let document = read("a:\n  b: 1\n  'b': 2\n").unwrap();
    assert_eq!(document.duplicate_key.unwrap().line, 3);
    for text in ["1: a\n'1': b\n", "a: {b: 1}\nc: {b: 1}\n"] {
        assert_eq!(read(text).unwrap().duplicate_key, None, "{text}");
    }
}

#[test]
fn a_version_is_a_number_without_quotes() {
    let table = [
        ("version: 2\n", Some(2)),
        ("a: &v {version: 1}\n<<: *v\n", Some(1)),
        ("a: &v 2\nversion: *v\n", Some(2)),
        ("\u{feff}version: 2\n", Some(2)),
        // To PyYAML, the second one belongs to the key.
        ("\u{feff}\u{feff}version: 2\n", None),
        ("version: \"2\"\n", None),
        ("version: '2'\n", None),
        ("version: !!str 2\n", None),
        ("version: [2]\n", None),
        ("a: {version: 2}\n", None),
    ];
    for (text, version) in table {
        assert_eq!(read(text).unwrap().version, version, "{text}");
    }
}

#[test]
fn much_is_read_in_little_time() {
    let aliases = |n: usize| (1..n).map(|i| format!("- &a{i} [*a{}]\n", i - 1));
    let chain: String = "- &a0 [x]\n".to_owned() + &aliases(50_000).collect::<String>();
    let quoted = format!("a: \"{}\"\n", "x\n".repeat(300));
    let comments = "# x\n".repeat(50_000) + "a: 1\n";
    let began = std::time::Instant::now();
    for text in [chain, quoted, comments] {
        assert!(read(&text).is_ok());
    }
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}
