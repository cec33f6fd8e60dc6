//! Whole pipelines against a test server, up to the hosts' channels.

use super::*;
use crate::error::Class;
use crate::image::decompress::tests::compressed;
use crate::image::source::server::{Server, head, reply};
use crate::image::source::tests::open;

fn content() -> Vec<u8> {
    (0..150_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect()
}

fn digests(bytes: &[u8], with_sha512: bool) -> Digests {
    let mut hasher = Hasher::new(with_sha512);
    hasher.update(bytes);
    hasher.finish()
}

fn start(server: &Server) -> Result<Stream> {
    Stream::start(open(&server.url("/a"))?, true, &Cancel::new())
}

#[test]
fn blocks_are_full_and_digests_are_of_both_sides() {
    let kinds = [
        None,
        Some(Compression::Gz),
        Some(Compression::Xz),
        Some(Compression::Zst),
        Some(Compression::Bz2),
    ];
    for kind in kinds {
        let published = kind.map_or_else(content, |kind| compressed(kind, &content()));
        let body = published.clone();
        // The first answer breaks off; the name never tells the compression.
        let server = Server::start(move |request, stream| {
            use std::io::Write as _;
            let start = request.start().unwrap_or(0);
            let end = if request.nth == 0 {
                100_000
            } else {
                body.len()
            };
            let length = (body.len() - start).to_string();
            let range = format!("bytes {start}-{}/{}", body.len() - 1, body.len());
            let headers = [
                ("ETag", "\"a\""),
                ("Content-Length", &length),
                ("Content-Range", &range),
            ];
            let status = if start == 0 {
                "200 OK"
            } else {
                "206 Partial Content"
            };
            head(stream, status, &headers);
            let _ = stream.write_all(&body[start..end]);
        });
        let stream = start(&server).unwrap();
        assert_eq!(stream.compression, kind);
        assert_eq!(stream.published_length, Some(published.len() as u64));
        let length = kind.is_none().then(|| content().len() as u64);
        assert_eq!(stream.volume_length(), length);
        assert_eq!(stream.head().len(), BLOCK);
        let mut blocks = Vec::new();
        let ended = stream.run(|block| {
            blocks.push(block);
            Ok(())
        });
        let ended = ended.unwrap();
        assert!(blocks.concat() == content(), "{kind:?}");
        assert!(
            blocks[..blocks.len() - 1]
                .iter()
                .all(|block| block.len() == BLOCK)
        );
        assert_eq!(ended.published, digests(&published, true), "{kind:?}");
        assert_eq!(
            ended.volume,
            digests(&content(), kind.is_none()),
            "{kind:?}"
        );
        assert_eq!(server.requests().len(), 2);
    }
}

#[test]
fn the_ends_length_and_emptiness_do_not_matter() {
    for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK] {
        let server = Server::start(move |_, stream| reply(stream, "200 OK", &[], &vec![1; size]));
        let stream = start(&server).unwrap();
        let mut count = 0;
        let ended = stream.run(|block| {
            assert!(!block.is_empty());
            count += block.len();
            Ok(())
        });
        assert_eq!(ended.unwrap().volume.bytes, size as u64);
        assert_eq!(count, size);
    }
}

#[test]
fn a_failed_download_is_told_as_such_also_behind_a_decompressor() {
    let body = compressed(Compression::Gz, &content());
    let server = Server::start(move |request, stream| {
        use std::io::Write as _;
        match request.nth {
            0 => {
                head(
                    stream,
                    "200 OK",
                    &[("ETag", "\"a\""), ("Content-Length", "999999")],
                );
                let _ = stream.write_all(&body[..400_000]);
            }
            _ => reply(stream, "404 Not Found", &[], b""),
        }
    });
    let error = start(&server)
        .and_then(|stream| stream.run(|_| Ok(())))
        .unwrap_err();
    assert_eq!(error.reason(), Reason::HttpStatus, "{error}");
    assert_eq!(error.class(), Class::Permanent);
}

#[test]
fn a_cut_file_is_an_error_even_where_the_server_vouches_for_its_length() {
    for kind in [
        Compression::Gz,
        Compression::Xz,
        Compression::Zst,
        Compression::Bz2,
    ] {
        let body = compressed(kind, &content());
        let server = Server::start(move |_, stream| {
            reply(stream, "200 OK", &[], &body[..body.len() - 5]);
        });
        let error = start(&server)
            .and_then(|stream| stream.run(|_| Ok(())))
            .unwrap_err();
        assert_eq!(error.reason(), Reason::NotAnImage, "{kind:?}: {error}");
    }
}

#[test]
fn an_unknown_length_is_certain_only_with_an_end_mark() {
    for (kind, wanted) in [(None, false), (Some(Compression::Xz), true)] {
        let body = kind.map_or_else(content, |kind| compressed(kind, &content()));
        let server = Server::start(move |_, stream| {
            use std::io::Write as _;
            head(stream, "200 OK", &[]);
            let _ = stream.write_all(&body);
        });
        assert_eq!(start(&server).unwrap().end_is_certain, wanted);
    }
}

#[test]
fn a_host_that_refuses_ends_the_stream_and_so_does_a_cancel() {
    let server = Server::start(|_, stream| reply(stream, "200 OK", &[], &vec![1; 40 * BLOCK]));
    let refused = || Error::transient(Reason::PartialFailure, "every host failed");
    let error = start(&server).unwrap().run(|_| Err(refused())).unwrap_err();
    assert_eq!(error, refused());
    let cancel = Cancel::new();
    let stream = Stream::start(open(&server.url("/a")).unwrap(), false, &cancel).unwrap();
    let error = stream.run(|_| {
        cancel.set(15);
        Ok(())
    });
    assert_eq!(error.unwrap_err().class(), Class::Interrupted(15));
}
