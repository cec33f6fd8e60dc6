//! Downloads against a server that misbehaves in every way known.
#![allow(clippy::single_match_else)] // Answers by the request's number read best as a list.

mod resume;
mod tls;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::client::Limits;
use super::proxy::Proxies;
use super::server::{Server, chunk, head, reply};
use super::*;
use crate::error::Class;

const ETAG_A: (&str, &str) = ("ETag", "\"a\"");

fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(2),
        stall: Duration::from_secs(1),
        back_off: Duration::from_millis(5),
        retry_after: Duration::from_secs(2),
    }
}

fn content() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| {
        (0..300_000_u32)
            .flat_map(|n| (n * 7).to_le_bytes())
            .collect()
    })
}

fn http() -> Http {
    Http::new(limits(), Proxies::default()).unwrap()
}

/// Opens with limits that a test can wait for.
pub(in crate::image) fn open(url: &str) -> Result<Download> {
    Download::open_with(url, &Cancel::new(), http())
}

fn read_all(mut download: Download) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut block = vec![0; 100_000];
    loop {
        let count = download.read(&mut block)?;
        all.extend_from_slice(&block[..count]);
        if count < block.len() {
            return Ok(all);
        }
    }
}

fn get(url: &str) -> Result<Vec<u8>> {
    read_all(open(url)?)
}

#[test]
fn a_whole_answer_is_read_whatever_its_framing() {
    for framing in ["length", "chunked", "close"] {
        let server = Server::start(move |request, stream| {
            use std::io::Write as _;
            assert_eq!(request.header("accept-encoding"), "identity");
            match framing {
                "length" => reply(stream, "200 OK", &[ETAG_A], content()),
                "chunked" => {
                    head(stream, "200 OK", &[("Transfer-Encoding", "chunked")]);
                    content()
                        .chunks(70_000)
                        .for_each(|data| chunk(stream, data));
                    chunk(stream, b"");
                }
                _ => {
                    head(stream, "200 OK", &[]);
                    let _ = stream.write_all(content());
                }
            }
        });
        let download = open(&server.url("/a")).unwrap();
        let length = (framing == "length").then(|| content().len() as u64);
        assert_eq!(download.length(), length, "{framing}");
        assert_eq!(download.end_is_certain, framing != "close");
        assert!(read_all(download).unwrap() == content(), "{framing}");
    }
}

#[test]
fn refusals_are_classed_and_only_passing_ones_are_tried_again() {
    let table = [
        ("404 Not Found", Class::Permanent, 1),
        ("204 No Content", Class::Permanent, 1),
        ("403 Forbidden", Class::Permanent, 1),
        ("401 Unauthorized", Class::Permanent, 1),
        ("304 Not Modified", Class::Permanent, 1),
        ("302 Found", Class::Permanent, 1),
        ("408 Request Timeout", Class::Transient, 4),
        ("429 Too Many Requests", Class::Transient, 4),
        ("500 Internal Server Error", Class::Transient, 4),
        ("503 Service Unavailable", Class::Transient, 4),
    ];
    for (status, class, tries) in table {
        let server = Server::start(move |_, stream| reply(stream, status, &[], b""));
        let error = get(&server.url("/a?key=secret")).unwrap_err();
        assert_eq!(
            (error.class(), error.reason()),
            (class, Reason::HttpStatus),
            "{status}"
        );
        assert!(error.message().contains(status), "{error}");
        assert_eq!(error.hints().len(), 1, "{status}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(server.requests().len(), tries, "{status}");
    }
}

#[test]
fn retry_after_is_obeyed_within_bounds() {
    let server = Server::start(|request, stream| match request.nth {
        0 => reply(
            stream,
            "503 Service Unavailable",
            &[("Retry-After", "1")],
            b"",
        ),
        _ => reply(stream, "200 OK", &[], b"x"),
    });
    let began = Instant::now();
    assert_eq!(get(&server.url("/a")).unwrap(), b"x");
    assert!(began.elapsed() >= Duration::from_secs(1));

    let server = Server::start(|_, stream| {
        reply(
            stream,
            "429 Too Many Requests",
            &[("Retry-After", "3600")],
            b"",
        );
    });
    let error = get(&server.url("/a")).unwrap_err();
    assert_eq!(server.requests().len(), 1);
    let hints = error.hints().join("; ");
    assert!(hints.contains("wait 1h"), "{hints}");
}

#[test]
fn redirects_are_followed_up_to_a_bound() {
    let server = Server::start(|request, stream| {
        let left: u32 = request.target[1..].parse().unwrap();
        if left == 0 {
            reply(stream, "200 OK", &[], b"there");
        } else {
            let next = format!("/{}", left - 1);
            reply(stream, "302 Found", &[("Location", &next)], b"");
        }
    });
    assert_eq!(get(&server.url("/10")).unwrap(), b"there");
    let error = get(&server.url("/11")).unwrap_err();
    assert_eq!(error.class(), Class::Permanent);
    let circle = Server::start(|_, stream| reply(stream, "302 Found", &[("Location", "/a")], b""));
    for error in [error, get(&circle.url("/a")).unwrap_err()] {
        assert_eq!(error.class(), Class::Permanent);
        assert!(
            error.to_string().contains("more than 10 redirects"),
            "{error}"
        );
        assert!(error.hints()[0].contains("in the end"), "{error}");
    }
    assert_eq!(circle.requests().len(), 11);
    let ftp =
        Server::start(|_, stream| reply(stream, "302 Found", &[("Location", "ftp://a/")], b""));
    let error = get(&ftp.url("/a")).unwrap_err();
    assert_eq!(error.class(), Class::Permanent);
}

#[test]
fn content_encoding_is_refused() {
    let server = Server::start(|_, stream| {
        reply(
            stream,
            "200 OK",
            &[("Content-Encoding", "gzip")],
            b"\x1f\x8b",
        );
    });
    let error = get(&server.url("/a")).unwrap_err();
    assert_eq!(error.class(), Class::Permanent);
    assert!(error.message().contains("gzip"), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_slow_server_may_take_its_time_but_not_stall() {
    use std::io::Write as _;
    let server = Server::start(|_, stream| {
        head(stream, "200 OK", &[("Content-Length", "8")]);
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(200));
            let _ = stream.write_all(b"x");
        }
    });
    // 1.6 s in all, with a limit of 1 s without a byte.
    assert_eq!(get(&server.url("/a")).unwrap(), b"xxxxxxxx");
    assert_eq!(server.requests().len(), 1);

    let stalls = Server::start(|_, stream| {
        head(stream, "200 OK", &[ETAG_A, ("Content-Length", "5")]);
        std::thread::sleep(Duration::from_secs(3));
    });
    let error = get(&stalls.url("/a")).unwrap_err();
    assert!(error.to_string().contains("no byte came for 1s"), "{error}");
    let silent = Server::start(|_, _| std::thread::sleep(Duration::from_secs(3)));
    let error = get(&silent.url("/a")).unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    assert!(error.message().contains("doesn't answer"), "{error}");
}

#[test]
fn a_server_that_cant_be_reached_is_tried_a_few_times() {
    // A port that was just free.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let error = get(&format!(
        "http://me:secret@127.0.0.1:{port}/certificate.img"
    ))
    .unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    assert!(error.to_string().contains("Connection refused"), "{error}");
    assert!(error.to_string().contains("/certificate.img"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(error.hints()[0].contains("https_proxy"), "{error}");
}

#[test]
fn a_name_with_addresses_of_both_families_is_reached_over_ipv4() {
    let server = Server::start(|_, stream| reply(stream, "200 OK", &[], b"x"));
    assert_eq!(
        get(&format!("http://localhost:{}/", server.port())).unwrap(),
        b"x"
    );
}

#[test]
fn a_proxy_is_used_and_named() {
    let proxied = |port: u16| {
        let value = format!("http://me:secret@127.0.0.1:{port}");
        let proxies = Proxies::from_env(&|name| (name == "http_proxy").then(|| value.clone()));
        let http = Http::new(limits(), proxies).unwrap();
        Download::open_with("http://images.invalid/a", &Cancel::new(), http)
    };
    let proxy = Server::start(|request, stream| match request.nth {
        0 => reply(stream, "200 OK", &[], b"x"),
        _ => reply(stream, "407 Proxy Authentication Required", &[], b""),
    });
    assert_eq!(read_all(proxied(proxy.port()).unwrap()).unwrap(), b"x");
    let request = &proxy.requests()[0];
    assert_eq!(request.target, "http://images.invalid/a");
    assert_eq!(request.header("proxy-authorization"), "Basic bWU6c2VjcmV0");
    let error = proxied(proxy.port()).err().unwrap();
    let text = error.to_string();
    assert_eq!(error.class(), Class::Permanent);
    assert!(text.contains(&format!(
        "proxy http://127.0.0.1:{}/ (from http_proxy)",
        proxy.port()
    )));
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_proxy_of_another_kind_is_refused_and_never_bypassed() {
    let proxies = Proxies::from_env(&|name| (name == "ALL_PROXY").then(|| "socks5://p:1".into()));
    let http = Http::new(limits(), proxies).unwrap();
    let error = Download::open_with("http://127.0.0.1:9/a", &Cancel::new(), http)
        .err()
        .unwrap();
    assert_eq!(error.class(), Class::Permanent);
    assert!(error.message().contains("ALL_PROXY"), "{error}");
}

#[test]
fn every_wait_ends_when_the_run_is_cancelled() {
    let silent = Server::start(|_, _| std::thread::sleep(Duration::from_secs(20)));
    let busy = Server::start(|_, stream| {
        reply(
            stream,
            "503 Service Unavailable",
            &[("Retry-After", "20")],
            b"",
        );
    });
    for url in [silent.url("/a"), busy.url("/a")] {
        let cancel = Cancel::new();
        let other = cancel.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            other.set(2);
        });
        let began = Instant::now();
        let error = Download::open(&url, &cancel).err().unwrap();
        assert_eq!(error.class(), Class::Interrupted(2));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_checksum_file_has_a_bound() {
    let server = Server::start(|request, stream| match request.target.as_str() {
        "/small" => reply(stream, "200 OK", &[], b"abc  a\n"),
        _ => reply(stream, "200 OK", &[], &vec![b'a'; TEXT_LIMIT + 1]),
    });
    let cancel = Cancel::new();
    assert_eq!(
        fetch_text(&server.url("/small"), &cancel).unwrap(),
        "abc  a\n"
    );
    let error = fetch_text(&server.url("/large"), &cancel).unwrap_err();
    assert_eq!(error.class(), Class::Permanent);
}
