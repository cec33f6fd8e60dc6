//! Every format: whole, in members, cut, damaged, padded, and with windows too large.

use std::io::Write as _;

use super::*;

const KINDS: [Compression; 4] = [
    Compression::Gz,
    Compression::Xz,
    Compression::Zst,
    Compression::Bz2,
];

/// Compresses some bytes.
pub(in crate::image) fn compressed(kind: Compression, data: &[u8]) -> Vec<u8> {
    match kind {
        Compression::Gz => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Xz => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        // Of the command line tool's frames, with a checksum.
        Compression::Zst => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Bz2 => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
    }
}

fn content() -> Vec<u8> {
    (0..10_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect()
}

/// Decompresses as far as it goes; small reads of the input cross every boundary.
fn decompress(kind: Compression, data: &[u8]) -> Result<Vec<u8>> {
    let input = io::BufReader::with_capacity(1000, data);
    let mut decoder = Decoder::new(kind, input)?;
    let mut all = Vec::new();
    let mut block = vec![0; 9_000];
    loop {
        let count = decoder.read(&mut block)?;
        all.extend_from_slice(&block[..count]);
        if count < block.len() {
            assert!(decoder.into_input().fill_buf().unwrap().is_empty());
            return Ok(all);
        }
    }
}

#[test]
fn every_format_is_detected_and_read_also_in_several_members() {
    for kind in KINDS {
        let (one, other) = (content(), vec![7; 30_000]);
        let members = [compressed(kind, &one), compressed(kind, &other)];
        for member in &members {
            assert_eq!(Compression::detect(member), Some(kind));
        }
        assert!(decompress(kind, &members[0]).unwrap() == one, "{kind:?}");
        let both = decompress(kind, &members.concat()).unwrap();
        assert!(both == [one, other].concat(), "{kind:?}");
        assert_eq!(decompress(kind, &compressed(kind, b"")).unwrap(), b"");
    }
}

#[test]
fn what_is_cut_off_is_an_error() {
    for kind in KINDS {
        let whole = compressed(kind, &content());
        let mut lengths = vec![4, 11, 20, 1000, whole.len() / 2];
        lengths.extend(whole.len() - 12..whole.len());
        // Also inside a second member.
        for (before, lengths) in [(&b""[..], &lengths), (&whole[..], &lengths)] {
            for length in lengths {
                let cut = [before, &whole[..*length]].concat();
                let error = decompress(kind, &cut).unwrap_err();
                assert_eq!(error.reason(), Reason::NotAnImage, "{kind:?} {length}");
                assert_eq!(error.class(), Class::Permanent);
            }
        }
    }
}

#[test]
fn what_is_damaged_or_followed_by_something_is_an_error() {
    for kind in KINDS {
        let whole = compressed(kind, &content());
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x10;
        for bad in [damaged, [&whole[..], b"garbage, garbage"].concat()] {
            let error = decompress(kind, &bad).unwrap_err();
            assert_eq!(error.reason(), Reason::NotAnImage, "{kind:?}");
            assert!(error.message().contains(kind.as_str()), "{error}");
        }
    }
    // xz has padding of its own (section 2.2 of its format).
    let padded = [compressed(Compression::Xz, b"abc"), vec![0; 8]].concat();
    assert_eq!(decompress(Compression::Xz, &padded).unwrap(), b"abc");
}

#[test]
fn windows_of_more_than_128_mib_are_refused() {
    // RFC 8878, section 3.1.1: a frame with a window descriptor, and one last raw block of one byte.
    let zst = |descriptor: u8| {
        [
            &[0x28, 0xb5, 0x2f, 0xfd, 0x00, descriptor][..],
            &[9, 0, 0, b'x'],
        ]
        .concat()
    };
    assert_eq!(decompress(Compression::Zst, &zst(17 << 3)).unwrap(), b"x");
    // The xz file format, section 3.1: the block header ends with its CRC32; its sixth byte is the dictionary's size.
    let xz = |size: u8| {
        let mut file = compressed(Compression::Xz, b"x");
        assert_eq!(&file[14..16], [0x21, 1], "LZMA2 is the only filter");
        file[16] = size;
        let mut crc = flate2::Crc::new();
        crc.update(&file[12..20]);
        file[20..24].copy_from_slice(&crc.sum().to_le_bytes());
        file
    };
    assert_eq!(decompress(Compression::Xz, &xz(30)).unwrap(), b"x");
    for (kind, file) in [(Compression::Zst, zst(18 << 3)), (Compression::Xz, xz(32))] {
        let error = decompress(kind, &file).unwrap_err();
        assert!(error.message().contains("128 MiB"), "{error}");
        assert_eq!(error.class(), Class::Permanent);
    }
}
