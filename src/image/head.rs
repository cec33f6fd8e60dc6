//! An image's first bytes: what they are, and whether that is what was declared.

use super::qcow2::{Fault, Header, MAGIC};
use crate::config::ImageFormat;
use crate::error::{Error, Reason, Result};

#[cfg(test)]
mod tests;

/// How many of an image's first bytes [`sniff`] looks at; give it fewer only if the image has no more.
/// An ISO 9660 image shows itself at 32 KiB.
pub const HEAD_BYTES: usize = 36 * 1024;

/// A disk's sector in bytes; the first is the boot sector.
const SECTOR: usize = 512;

/// What the first bytes of a good image say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageHead {
    /// The format.
    pub format: ImageFormat,
    /// The disk's size in bytes; for a raw image that is the image's own size, which the head doesn't tell.
    pub virtual_size: Option<u64>,
    /// Whether a raw image has a boot sector or partition table. Raw has no magic number, so that it has neither
    /// is worth a warning, and no proof; always true for qcow2, whose disk isn't seen here.
    pub bootable: bool,
}

/// How a download is compressed, by its first bytes, never by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip (RFC 1952).
    Gz,
    /// xz.
    Xz,
    /// Zstandard (RFC 8878).
    Zst,
    /// bzip2.
    Bz2,
}

impl Compression {
    /// The compression that some first bytes show, if any.
    pub fn detect(head: &[u8]) -> Option<Self> {
        // RFC 8878 section 3.1.2: a frame may be preceded by skippable ones, 0x184D2A50 to 5F.
        let skippable = matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]);
        let bzip2 = matches!(head, [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..]
            if rest.starts_with(b"\x31\x41\x59\x26\x53\x59") || rest.starts_with(b"\x17\x72\x45\x38\x50\x90"));
        if head.starts_with(b"\x1f\x8b\x08") {
            Some(Compression::Gz)
        } else if head.starts_with(b"\xfd7zXZ\0") {
            Some(Compression::Xz)
        } else if head.starts_with(b"\x28\xb5\x2f\xfd") || skippable {
            Some(Compression::Zst)
        } else if bzip2 {
            Some(Compression::Bz2)
        } else {
            None
        }
    }

    /// Its name, as in file names.
    pub fn as_str(self) -> &'static str {
        match self {
            Compression::Gz => "gz",
            Compression::Xz => "xz",
            Compression::Zst => "zst",
            Compression::Bz2 => "bz2",
        }
    }
}

/// Checks that an image's (decompressed) first bytes are of the format that is declared (of one given by URL, qcow2) and need no other file.
pub fn sniff(declared: ImageFormat, head: &[u8]) -> Result<ImageHead> {
    if head.is_empty() {
        return Err(not_an_image("the image is empty"));
    }
    if let Some(page) = text_page(head) {
        return Err(not_an_image(&format!("the server sent {page}, not a disk image"))
            .hint("open the URL in a browser: it may be a login or an error page, or need another path"));
    }
    let other = foreign_format(head);
    match declared {
        ImageFormat::Qcow2 if head.starts_with(MAGIC) => qcow2_head(head),
        ImageFormat::Raw if other.is_none() => Ok(ImageHead {
            format: ImageFormat::Raw,
            virtual_size: None,
            bootable: disk(head),
        }),
        _ => {
            let looks = other.or_else(|| disk(head).then_some("a raw disk"));
            Err(wrong_format(
                declared,
                looks.unwrap_or("no format known here"),
            ))
        }
    }
}

fn qcow2_head(head: &[u8]) -> Result<ImageHead> {
    let header = Header::parse(head).map_err(|fault| match fault {
        Fault::NoMagic | Fault::Invalid => not_an_image("the image's qcow2 header is damaged"),
        Fault::Truncated => not_an_image("the image ends inside its qcow2 header"),
        Fault::Version(version) => not_an_image(&format!(
            "the image is qcow2 of version {version}; 2 and 3 are supported"
        )),
        Fault::Features(bits) => not_an_image(&format!(
            "the image has qcow2 features that are unknown here (incompatible bits {bits:#x})"
        ))
        .hint("convert it: qemu-img convert -O qcow2 OLD NEW"),
    })?;
    let needs = match (header.has_backing_file, header.has_data_file) {
        (true, _) => Some("a backing file"),
        (_, true) => Some("an external data file"),
        _ => None,
    };
    if let Some(other) = needs {
        return Err(Error::permanent(
            Reason::ImageNotSelfContained,
            format!("the image's qcow2 header names {other}, so it isn't whole without it"),
        )
        .hint("flatten it where it was made: qemu-img convert -O qcow2 OLD NEW"));
    }
    if header.encrypted {
        return Err(not_an_image(
            "the image is encrypted, so no instance could boot from it",
        ));
    }
    Ok(ImageHead {
        format: ImageFormat::Qcow2,
        virtual_size: Some(header.virtual_size),
        bootable: true,
    })
}

/// A boot sector or MBR ends with 55 AA; a GPT's header is in the second sector, of 512 or 4096 bytes (UEFI
/// specification 5.3.2).
fn disk(head: &[u8]) -> bool {
    let at = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    at(SECTOR - 2, b"\x55\xaa") || at(SECTOR, b"EFI PART") || at(4096, b"EFI PART")
}

/// The formats besides qcow2 in which a disk may have a parent: how it begins, and the format in words for a message.
const WITH_PARENTS: [(&[u8], &str); 6] = [
    (b"KDMV", "VMDK (VMware)"),
    (b"# Disk DescriptorFile", "a VMDK descriptor (VMware)"),
    (b"COWD", "VMDK (VMware ESX)"),
    (b"vhdxfile", "VHDX (Hyper-V)"),
    (b"conectix", "VHD (Hyper-V)"),
    (b"QED\0", "QED"),
];

/// Whether a disk that begins like this, and isn't qcow2, may be backed by another; nobody here reads which.
pub fn may_have_parent(head: &[u8]) -> bool {
    WITH_PARENTS
        .iter()
        .any(|(magic, _)| head.starts_with(magic))
}

/// A format with a magic number of its own, in words for a message.
fn foreign_format(head: &[u8]) -> Option<&'static str> {
    let magics: [(usize, &[u8], &str); 9] = [
        (0, MAGIC, "qcow2"),
        (0, b"<<< ", "VDI (VirtualBox)"),
        (0, b"PK\x03\x04", "a zip archive"),
        (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (0, b"Rar!\x1a\x07", "a rar archive"),
        (257, b"ustar", "a tar archive"),
        (0, b"\x7fELF", "an ELF program"),
        (0, b"LUKS\xba\xbe", "a LUKS container"),
        (0, b"%PDF-", "a PDF document"),
    ];
    let disks = WITH_PARENTS.map(|(magic, name)| (0, magic, name));
    let found = magics.iter().chain(&disks).find(|(at, magic, _)| {
        let rest = head.get(*at..);
        rest.is_some_and(|rest| rest.starts_with(magic))
    });
    if let Some((_, _, name)) = found {
        return Some(name);
    }
    match Compression::detect(head) {
        Some(Compression::Gz) => return Some("gzip data"),
        Some(Compression::Xz) => return Some("xz data"),
        Some(Compression::Zst) => return Some("zstd data"),
        Some(Compression::Bz2) => return Some("bzip2 data"),
        None => {}
    }
    // A hybrid ISO has a boot sector too, and is still no installed disk.
    let iso = head
        .get(32 * 1024..)
        .is_some_and(|rest| rest[1.min(rest.len())..].starts_with(b"CD001"));
    iso.then_some("an ISO 9660 image (an installer?)")
}

/// Text instead of an image, in words for a message.
fn text_page(head: &[u8]) -> Option<&'static str> {
    let text = head
        .strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(head)
        .trim_ascii_start();
    let start: Vec<u8> = text.iter().take(64).map(u8::to_ascii_lowercase).collect();
    let begins = |words: &[&str]| words.iter().any(|word| start.starts_with(word.as_bytes()));
    if begins(&["<!doctype html", "<html", "<head", "<body"]) {
        return Some("a web page");
    }
    // A VMDK descriptor and a VDI begin with text, too: they are told by their magic.
    if foreign_format(head).is_some() || head[..head.len().min(SECTOR)].contains(&0) {
        return None;
    }
    let sample = &head[..head.len().min(SECTOR)];
    let printable =
        |&byte: &u8| byte >= 0x20 && byte != 0x7f || matches!(byte, b'\t' | b'\n' | b'\r');
    if !sample.iter().all(printable) || !is_utf8_start(sample) {
        return None;
    }
    if begins(&["<?xml", "<!", "<"]) {
        Some("an XML or web page")
    } else if begins(&["{", "["]) {
        Some("a JSON document")
    } else {
        Some("plain text")
    }
}

/// Whether it is UTF-8, but for a last character that was cut.
fn is_utf8_start(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

fn not_an_image(message: &str) -> Error {
    Error::permanent(Reason::NotAnImage, message)
}

/// Whether what looks like this only holds an image.
fn is_packed(looks: &str) -> bool {
    looks.ends_with(" archive") || looks.ends_with(" data")
}

fn wrong_format(declared: ImageFormat, looks: &str) -> Error {
    let declared = declared.as_str();
    let error = not_an_image(&format!(
        "the image should be {declared}, but looks like {looks}"
    ));
    match looks {
        "qcow2" => error.hint("set its `format: qcow2` in the configuration"),
        "a raw disk" => error.hint(
            "set `format: raw` in its entry of the configuration's images; one that was given by its URL is taken for qcow2, and needs an entry",
        ),
        packed if is_packed(packed) => error.hint(
            "unpack it, and give the URL of the disk image that is inside: it may be compressed by gzip, xz, zstd or bzip2, once",
        ),
        _ => error.hint(format!(
            "convert it where it was made: qemu-img convert -O {declared} OLD NEW"
        )),
    }
}
