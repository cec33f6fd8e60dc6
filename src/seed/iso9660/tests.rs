//! Tests of the ISO 9660 writer: its fields, and three readers that aren't ours.

use std::io::Write as _;
use std::process::Command;

use gpt_disk_io::BlockIo;
use gpt_disk_io::gpt_disk_types::{BlockSize, Lba};

use super::*;

fn volume() -> Volume<'static> {
    Volume {
        label: "cidata",
        application: "EGRESSCTL",
        application_use: b"mark",
    }
}

/// Lengths around the sector's, and none.
fn files() -> Vec<(String, Vec<u8>)> {
    [
        ("user-data", 2048),
        ("meta-data", 37),
        ("vendor-data", 0),
        ("network-config", 2049),
        ("a.b", 10_000),
    ]
    .into_iter()
    .enumerate()
    .map(|(seed, (name, length))| {
        let bytes = (0..length).map(|at| u8::try_from((at * 7 + seed) % 251).unwrap());
        (name.to_owned(), bytes.collect())
    })
    .collect()
}

fn image(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let files: Vec<_> = files
        .iter()
        .map(|(name, data)| File { name, data })
        .collect();
    write(&volume(), &files).unwrap()
}

#[test]
fn the_same_input_makes_the_same_bytes() {
    let one = image(&files());
    assert_eq!(one, image(&files()));
    assert_eq!(one.len() % SECTOR, 0);
    let mut other = files();
    other[0].1[0] ^= 1;
    assert_ne!(one, image(&other));
}

#[test]
fn the_descriptors_say_what_ecma_119_wants() {
    let image = image(&files());
    let primary = &image[DESCRIPTOR..DESCRIPTOR + SECTOR];
    let joliet = &image[DESCRIPTOR + SECTOR..DESCRIPTOR + 2 * SECTOR];
    let sectors = u32::try_from(image.len() / SECTOR).unwrap();
    for (descriptor, kind) in [(primary, 1), (joliet, 2)] {
        assert_eq!(descriptor[..7], [kind, b'C', b'D', b'0', b'0', b'1', 1]);
        assert_eq!(descriptor[80..84], sectors.to_le_bytes());
        assert_eq!(descriptor[84..88], sectors.to_be_bytes());
        assert_eq!(descriptor[128..132], [0, 8, 8, 0]);
    }
    assert_eq!(&primary[40..72], b"cidata                          ");
    assert_eq!(&primary[574..586], b"EGRESSCTL   ");
    assert_eq!(&primary[883..888], b"mark\0");
    assert_eq!(&joliet[88..91], b"%/E");
    assert_eq!(&joliet[40..54], b"\0c\0i\0d\0a\0t\0a\0 ");
    assert_eq!(&image[DESCRIPTOR + 2 * SECTOR..][..7], b"\xffCD001\x01");
    assert!(image[..DESCRIPTOR].iter().all(|&byte| byte == 0));
}

#[test]
fn what_the_format_cannot_hold_is_refused() {
    let long = "x".repeat(31);
    for names in [
        vec![""],
        vec!["a/b"],
        vec!["a b"],
        vec!["žába"],
        vec!["a.b.c"],
        vec![long.as_str()],
        vec!["a", "a"],
        vec!["a-b", "A_B"],
    ] {
        let files: Vec<_> = names.iter().map(|name| File { name, data: b"x" }).collect();
        assert!(write(&volume(), &files).is_err(), "{names:?}");
    }
    let big = [0; 513];
    let volume = Volume {
        application_use: &big,
        ..volume()
    };
    assert!(write(&volume, &[]).is_err());
}

/// An image in memory, for iso9660-rs.
struct Memory(Vec<u8>);

impl BlockIo for Memory {
    type Error = std::io::Error;

    fn block_size(&self) -> BlockSize {
        BlockSize::new(2048).unwrap()
    }

    fn num_blocks(&mut self) -> std::io::Result<u64> {
        Ok((self.0.len() / SECTOR) as u64)
    }

    fn read_blocks(&mut self, start: Lba, into: &mut [u8]) -> std::io::Result<()> {
        let at = usize::try_from(start.0).unwrap() * SECTOR;
        into.copy_from_slice(&self.0[at..at + into.len()]);
        Ok(())
    }

    fn write_blocks(&mut self, _: Lba, _: &[u8]) -> std::io::Result<()> {
        unreachable!("read-only")
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn iso9660_rs_reads_it() {
    // More files than one directory sector holds.
    let mut files = files();
    files.extend((0..40).map(|n| (format!("more-{n:02}"), vec![n; 5])));
    let mut device = Memory(image(&files));
    let volume = iso9660::mount(&mut device, 0).unwrap();
    assert_eq!(volume.volume_id[..7], *b"cidata ");
    for (name, data) in &files {
        let mangled = String::from_utf8(record::mangled(name)).unwrap();
        let plain = mangled.strip_suffix(";1").unwrap().trim_end_matches('.');
        let file = iso9660::find_file(&mut device, &volume, plain).unwrap();
        let read = iso9660::read_file_vec(&mut device, &file).unwrap();
        assert!(&read == data, "{name}");
    }
}

/// Runs a reader on the image; none, and a line saying so, if it isn't installed.
fn run(image: &[u8], program: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(image).unwrap();
    let path = file.path().to_str().unwrap();
    let arguments = arguments
        .iter()
        .map(|&a| if a == "IMAGE" { path } else { a });
    let Ok(output) = Command::new(program).args(arguments).output() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {program} isn't installed");
        return None;
    };
    assert!(output.status.success(), "{program}: {output:?}");
    Some(output.stdout)
}

#[test]
fn isoinfo_reads_both_trees() {
    let files = files();
    let image = image(&files);
    for tree in ["-R", "-J"] {
        for (name, data) in &files {
            let path = format!("/{name}");
            if let Some(read) = run(&image, "isoinfo", &[tree, "-i", "IMAGE", "-x", &path]) {
                assert!(&read == data, "{tree} {name}");
            }
        }
    }
    if let Some(listing) = run(&image, "isoinfo", &["-R", "-l", "-i", "IMAGE"]) {
        let listing = String::from_utf8(listing).unwrap();
        assert_eq!(
            listing.matches("-rw-------   1    0    0").count(),
            files.len(),
            "{listing}"
        );
    }
    if let Some(header) = run(&image, "isoinfo", &["-d", "-i", "IMAGE"]) {
        let header = String::from_utf8(header).unwrap();
        for line in [
            "Volume id: cidata",
            "Application id: EGRESSCTL",
            "Rock Ridge signatures version 1 found",
            "UCS level 3",
        ] {
            assert!(header.contains(line), "{line}: {header}");
        }
    }
}

#[test]
fn bsdtar_reads_it() {
    let mut files = files();
    files.extend((0..40).map(|n| (format!("more-{n:02}"), vec![n; 5])));
    let image = image(&files);
    for (name, data) in &files {
        if let Some(read) = run(&image, "bsdtar", &["-xOf", "IMAGE", name]) {
            assert!(&read == data, "{name}");
        }
    }
    for option in ["!rockridge", "!joliet"] {
        let Some(listing) = run(&image, "bsdtar", &["--options", option, "-tf", "IMAGE"]) else {
            continue;
        };
        let mut listed: Vec<_> = std::str::from_utf8(&listing)
            .unwrap()
            .lines()
            .filter(|&l| l != ".")
            .collect();
        listed.sort_unstable();
        let mut names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(listed, names, "{option}");
    }
}
