//! Tests of first bytes: which pass, and what the others are called.

use super::*;
use crate::error::Class;
use crate::image::qcow2::tests::header;

/// Zeros with some bytes in them.
fn with(parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    for (at, bytes) in parts {
        head[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    head
}

const BOOT: (usize, &[u8]) = (510, b"\x55\xaa");

#[test]
fn good_images_pass() {
    let raw = |head: &[u8]| sniff(ImageFormat::Raw, head).unwrap();
    let expected = ImageHead {
        format: ImageFormat::Raw,
        virtual_size: None,
        bootable: true,
    };
    assert_eq!(raw(&with(&[BOOT])), expected);
    assert_eq!(raw(&with(&[BOOT])[..512]), expected);
    assert_eq!(raw(&with(&[(512, b"EFI PART")])), expected);
    assert_eq!(raw(&with(&[(4096, b"EFI PART")])), expected);
    for head in [with(&[]), with(&[(512, b"EFI part")]), vec![0xff, 1, 2]] {
        assert!(!raw(&head).bootable);
    }
    let qcow2 = sniff(ImageFormat::Qcow2, &header()).unwrap();
    assert_eq!(
        qcow2,
        ImageHead {
            format: ImageFormat::Qcow2,
            virtual_size: Some(2 << 30),
            bootable: true
        }
    );
}

#[test]
fn pages_are_refused_whatever_was_declared() {
    let table: [(&[u8], &str); 11] = [
        (b"<!DOCTYPE html>\n<html>", "a web page"),
        (b"\n  <HTML><body>x\0y", "a web page"),
        (b"\xEF\xBB\xBF<html>", "a web page"),
        (
            b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
            "an XML or web page",
        ),
        (b"<!-- x --><html>", "an XML or web page"),
        (b"{\"error\": \"not found\"}", "a JSON document"),
        (b"[1]", "a JSON document"),
        (b"Not Found", "plain text"),
        (
            "Nenalezeno: žádný takový soubor\r\n".as_bytes(),
            "plain text",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "plain text",
        ),
        (b"", "the image is empty"),
    ];
    for (head, what) in table {
        for declared in [ImageFormat::Qcow2, ImageFormat::Raw] {
            let error = sniff(declared, head).unwrap_err();
            assert!(error.message().contains(what), "{what}: {error}");
            assert_eq!(
                (error.reason(), error.class()),
                (Reason::NotAnImage, Class::Permanent)
            );
        }
    }
    // A character cut at the sample's end is still text.
    let cut = "ž".repeat(300);
    assert!(sniff(ImageFormat::Raw, &cut.as_bytes()[1..]).is_ok());
    let error = sniff(ImageFormat::Raw, format!("x{cut}").as_bytes()).unwrap_err();
    assert!(error.message().contains("plain text"), "{error}");
}

#[test]
fn other_formats_are_refused_by_name() {
    let table: [(Vec<u8>, &str); 19] = [
        (with(&[(0, b"KDMV")]), "VMDK"),
        (
            with(&[(0, b"# Disk DescriptorFile\nversion=1")]),
            "VMDK descriptor",
        ),
        (
            b"# Disk DescriptorFile\nversion=1\n".to_vec(),
            "VMDK descriptor",
        ),
        (with(&[(0, b"COWD")]), "VMDK"),
        (with(&[(0, b"vhdxfile")]), "VHDX"),
        (with(&[(0, b"conectix")]), "VHD"),
        (
            with(&[(0, b"<<< Oracle VM VirtualBox Disk Image >>>\n")]),
            "VDI",
        ),
        (with(&[(0, b"QED\0")]), "QED"),
        (with(&[(0, b"PK\x03\x04")]), "a zip archive"),
        (with(&[(0, b"7z\xbc\xaf\x27\x1c")]), "a 7z archive"),
        (with(&[(0, b"disk.raw"), (257, b"ustar")]), "a tar archive"),
        (with(&[(0, b"\x1f\x8b\x08")]), "gzip data"),
        (with(&[(0, b"\xfd7zXZ\0")]), "xz data"),
        (with(&[(0, b"\x28\xb5\x2f\xfd")]), "zstd data"),
        (with(&[(0, b"BZh91AY&SY")]), "bzip2 data"),
        (with(&[BOOT, (32769, b"CD001")]), "an ISO 9660 image"),
        (with(&[(0, b"\x7fELF")]), "an ELF program"),
        (with(&[(0, b"LUKS\xba\xbe")]), "a LUKS container"),
        (with(&[(0, b"%PDF-1.7")]), "a PDF document"),
    ];
    for (head, what) in table {
        for declared in [ImageFormat::Qcow2, ImageFormat::Raw] {
            let error = sniff(declared, &head).unwrap_err();
            let expected = format!("should be {}, but looks like", declared.as_str());
            assert!(error.message().contains(&expected), "{error}");
            assert!(error.message().contains(what), "{what}: {error}");
            assert_eq!(error.reason(), Reason::NotAnImage);
            let packed = ["archive", "data"].iter().any(|word| what.ends_with(word));
            let hint = if packed {
                "unpack it"
            } else {
                "qemu-img convert"
            };
            assert!(error.hints()[0].contains(hint), "{what}: {error}");
        }
    }
    let table = [
        (
            ImageFormat::Raw,
            header(),
            "looks like qcow2",
            "format: qcow2",
        ),
        (
            ImageFormat::Qcow2,
            with(&[BOOT]),
            "looks like a raw disk",
            "format: raw",
        ),
        (
            ImageFormat::Qcow2,
            with(&[]),
            "no format known here",
            "qemu-img convert",
        ),
        (
            ImageFormat::Qcow2,
            b"QFI\0".to_vec(),
            "no format",
            "qemu-img",
        ),
    ];
    for (declared, head, what, hint) in table {
        let error = sniff(declared, &head).unwrap_err();
        assert!(error.message().contains(what), "{error}");
        assert!(error.hints()[0].contains(hint), "{error:?}");
    }
}

#[test]
fn qcow2_that_is_not_whole_or_not_usable_is_refused() {
    let changed = |at: usize, byte: u8| {
        let mut head = header();
        head[at] = byte;
        head
    };
    let table = [
        (
            changed(15, 1),
            Reason::ImageNotSelfContained,
            "a backing file",
        ),
        (
            changed(79, 4),
            Reason::ImageNotSelfContained,
            "an external data file",
        ),
        (changed(7, 1), Reason::NotAnImage, "version 1"),
        (changed(7, 9), Reason::NotAnImage, "version 9"),
        (changed(79, 0x40), Reason::NotAnImage, "bits 0x40"),
        (changed(35, 1), Reason::NotAnImage, "encrypted"),
        (changed(23, 60), Reason::NotAnImage, "damaged"),
        (header()[..80].to_vec(), Reason::NotAnImage, "ends inside"),
        (header()[..4].to_vec(), Reason::NotAnImage, "ends inside"),
    ];
    for (head, reason, what) in table {
        let error = sniff(ImageFormat::Qcow2, &head).unwrap_err();
        assert_eq!(
            (error.reason(), error.class()),
            (reason, Class::Permanent),
            "{what}"
        );
        assert!(error.message().contains(what), "{what}: {error}");
    }
}

#[test]
fn compression_is_told_by_magic_numbers() {
    let table: [(&[u8], Option<Compression>); 13] = [
        (b"\x1f\x8b\x08\x00", Some(Compression::Gz)),
        (b"\xfd7zXZ\0\0", Some(Compression::Xz)),
        (b"\x28\xb5\x2f\xfd", Some(Compression::Zst)),
        (b"\x50\x2a\x4d\x18\0", Some(Compression::Zst)),
        (b"\x5f\x2a\x4d\x18\0", Some(Compression::Zst)),
        (b"BZh91AY&SY", Some(Compression::Bz2)),
        (b"BZh1\x17\x72\x45\x38\x50\x90", Some(Compression::Bz2)),
        (b"BZh0", None),
        (b"BZhello", None),
        (b"\x1f\x8b", None),
        (b"\x60\x2a\x4d\x18", None),
        (b"QFI\xfb", None),
        (b"", None),
    ];
    for (head, expected) in table {
        assert_eq!(Compression::detect(head), expected, "{head:?}");
    }
}
