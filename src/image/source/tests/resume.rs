//! Downloads that break off, and what the server says when it is asked for the rest.

use std::net::TcpStream;

use super::super::range::ContentRange;
use super::super::server::{Request, reset};
use super::*;

const MODIFIED: (&str, &str) = ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");

type Headers = &'static [(&'static str, &'static str)];
type Answer = Box<dyn Fn(&Request, &mut TcpStream) + Send + Sync>;

/// Promises everything, sends so much.
fn cut(stream: &mut TcpStream, headers: &[(&str, &str)], body: &[u8], count: usize) {
    use std::io::Write as _;
    let length = body.len().to_string();
    let mut all = headers.to_vec();
    all.push(("Content-Length", &length));
    head(stream, "200 OK", &all);
    let _ = stream.write_all(&body[..count]);
}

fn part(request: &Request, stream: &mut TcpStream, headers: &[(&str, &str)], body: &[u8]) {
    let start = request.start().expect("a Range was asked for");
    let range = format!("bytes {start}-{}/{}", body.len() - 1, body.len());
    let mut all = headers.to_vec();
    all.push(("Content-Range", &range));
    reply(stream, "206 Partial Content", &all, &body[start..]);
}

#[test]
fn a_broken_download_is_resumed_with_range_and_if_range() {
    let table: [(&[(&str, &str)], &str); 3] = [
        (&[ETAG_A], "\"a\""),
        (&[ETAG_A, MODIFIED], "\"a\""),
        // A weak ETag can't vouch for a part, a date can.
        (&[("ETag", "W/\"a\""), MODIFIED], MODIFIED.1),
    ];
    for (headers, if_range) in table {
        for with_reset in [false, true] {
            let server = Server::start(move |request, stream| match request.nth {
                0 => {
                    cut(stream, headers, content(), 400_000);
                    if with_reset {
                        std::thread::sleep(Duration::from_millis(50));
                        reset(stream);
                    }
                }
                _ => {
                    assert_eq!(request.header("if-range"), if_range);
                    part(request, stream, headers, content());
                }
            });
            assert!(get(&server.url("/a")).unwrap() == content(), "{headers:?}");
            assert_eq!(server.requests().len(), 2);
        }
    }
}

#[test]
fn a_chunked_download_that_broke_off_is_resumed_to_its_total() {
    let server = Server::start(|request, stream| match request.nth {
        0 => {
            head(
                stream,
                "200 OK",
                &[ETAG_A, ("Transfer-Encoding", "chunked")],
            );
            chunk(stream, &content()[..400_000]);
        }
        // The part ends early, too, and without saying so: only Content-Range tells the total.
        1 => {
            use std::io::Write as _;
            let start = request.start().unwrap();
            let range = format!("bytes {start}-{}/{}", content().len() - 1, content().len());
            head(
                stream,
                "206 Partial Content",
                &[ETAG_A, ("Content-Range", &range)],
            );
            let _ = stream.write_all(&content()[start..800_000]);
        }
        _ => part(request, stream, &[ETAG_A], content()),
    });
    assert!(get(&server.url("/a")).unwrap() == content());
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_chunked_download_that_lost_only_its_end_mark_is_complete() {
    let server = Server::start(|request, stream| match request.nth {
        0 => {
            head(
                stream,
                "200 OK",
                &[ETAG_A, ("Transfer-Encoding", "chunked")],
            );
            chunk(stream, content());
        }
        _ => {
            let range = format!("bytes */{}", content().len());
            let headers = [("Content-Range", range.as_str())];
            reply(stream, "416 Range Not Satisfiable", &headers, b"");
        }
    });
    assert!(get(&server.url("/a")).unwrap() == content());
}

#[test]
fn servers_that_know_no_ranges_are_read_again_from_the_start() {
    // Without a strong validator the server isn't asked for a part, and what it sends is compared.
    let table: [(&[(&str, &str)], bool); 3] = [
        (&[ETAG_A], true),
        (&[("ETag", "W/\"a\"")], false),
        (&[], false),
    ];
    for (headers, asks_for_part) in table {
        let server = Server::start(move |request, stream| match request.nth {
            0 => cut(stream, headers, content(), 400_000),
            1 => cut(stream, headers, content(), 200_000),
            _ => reply(stream, "200 OK", headers, content()),
        });
        assert!(get(&server.url("/a")).unwrap() == content(), "{headers:?}");
        let requests = server.requests();
        assert_eq!(requests.len(), 3);
        assert_eq!(requests[1].start().is_some(), asks_for_part, "{headers:?}");
    }
}

#[test]
fn a_file_that_changed_meanwhile_is_never_spliced() {
    let other = || {
        let mut other = content().to_vec();
        other[10] ^= 1;
        other
    };
    let longer = || [content(), &[0; 10]].concat();
    let etag_b = ("ETag", "\"b\"");
    let table: [(&str, Headers, Answer); 6] = [
        (
            "If-Range says so",
            &[ETAG_A],
            Box::new(move |_, stream| {
                reply(stream, "200 OK", &[etag_b], &other());
            }),
        ),
        (
            "If-Range is ignored",
            &[ETAG_A],
            Box::new(move |request, stream| {
                part(request, stream, &[etag_b], &other());
            }),
        ),
        (
            "the total changed",
            &[ETAG_A],
            Box::new(move |request, stream| {
                part(request, stream, &[], &longer());
            }),
        ),
        (
            "nothing vouches",
            &[ETAG_A],
            Box::new(move |_, stream| {
                reply(stream, "200 OK", &[], content());
            }),
        ),
        (
            "no validators",
            &[],
            Box::new(move |_, stream| {
                reply(stream, "200 OK", &[], &other());
            }),
        ),
        (
            "it shrank",
            &[ETAG_A],
            Box::new(move |_, stream| {
                reply(
                    stream,
                    "416 Range Not Satisfiable",
                    &[("Content-Range", "bytes */7")],
                    b"",
                );
            }),
        ),
    ];
    for (case, headers, answer) in table {
        let server = Server::start(move |request, stream| match request.nth {
            0 => cut(stream, headers, content(), 400_000),
            _ => answer(request, stream),
        });
        let error = get(&server.url("/a")).unwrap_err();
        assert!(error.message().contains("was replaced"), "{case}: {error}");
        assert_eq!(error.class(), Class::Transient, "{case}");
        assert_eq!(server.requests().len(), 2, "{case}");
    }
}

#[test]
fn an_unusable_part_is_followed_by_the_whole() {
    for range in ["bytes 0-9/1200000", "bytes 5-2/9", "pages 1-2/3", ""] {
        let server = Server::start(move |request, stream| match request.nth {
            0 => cut(stream, &[ETAG_A], content(), 400_000),
            1 => reply(
                stream,
                "206 Partial Content",
                &[("Content-Range", range)],
                b"x",
            ),
            _ => {
                assert_eq!(request.header("range"), "");
                reply(stream, "200 OK", &[ETAG_A], content());
            }
        });
        assert!(get(&server.url("/a")).unwrap() == content(), "{range}");
    }
}

#[test]
fn a_download_is_resumed_five_times_in_all() {
    let server = Server::start(|request, stream| match request.nth {
        0 => cut(stream, &[ETAG_A], content(), 1000),
        _ => {
            use std::io::Write as _;
            let start = request.start().unwrap();
            let range = format!("bytes {start}-{}/{}", content().len() - 1, content().len());
            let length = (content().len() - start).to_string();
            head(
                stream,
                "206 Partial Content",
                &[("Content-Range", &range), ("Content-Length", &length)],
            );
            let _ = stream.write_all(&content()[start..start + 1000]);
        }
    });
    let error = get(&server.url("/a")).unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    assert_eq!(error.reason(), Reason::DownloadFailed);
    assert!(error.message().contains("after 6000 bytes"), "{error}");
    assert_eq!(server.requests().len(), 6);
}

#[test]
fn a_mirror_is_asked_again_first_and_then_its_redirector() {
    let mirror = Server::start(|request, stream| match request.nth {
        0 => cut(stream, &[ETAG_A], content(), 400_000),
        1 => {
            assert_eq!(request.start(), Some(400_000));
            reply(stream, "403 Forbidden", &[], b"expired");
        }
        _ => part(request, stream, &[ETAG_A], content()),
    });
    let target = mirror.url("/signed?x=secret");
    let server = Server::start(move |_, stream| {
        reply(stream, "302 Found", &[("Location", target.as_str())], b"");
    });
    let download = open(&server.url("/a")).unwrap();
    assert_eq!(download.final_url, format!("{}?…", mirror.url("/signed")));
    assert!(read_all(download).unwrap() == content());
    assert_eq!((server.requests().len(), mirror.requests().len()), (2, 3));
}

#[test]
fn content_ranges_are_read_strictly() {
    let range = |start, total| Some(ContentRange { start, total });
    let table = [
        ("bytes 5-9/10", range(Some(5), Some(10))),
        ("bytes 5-9/*", range(Some(5), None)),
        ("bytes */10", range(None, Some(10))),
        ("bytes 5-10/10", None),
        ("bytes 5-4/10", None),
        ("bytes 5-/10", None),
        ("bytes 5-9", None),
        ("items 5-9/10", None),
        ("", None),
    ];
    for (text, wanted) in table {
        assert_eq!(ContentRange::parse(text), wanted, "{text}");
    }
}
