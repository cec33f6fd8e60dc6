//! Fetching a page through an instance as an HTTP proxy: does it work, how fast, and as whom?

use std::io::{self, Read as _, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use reqwest::blocking::{Client, Request};
use reqwest::redirect::Policy;
use serde_json::Value;

use crate::apart::apart_within;
use crate::cancel::Cancel;
use crate::error::{Class, Error, Reason, Result};
use crate::parallel::no_thread;
use crate::url::SecretUrl;

/// The most that is read of a page, in bytes: it shall only name an address.
const PAGE_LIMIT: u64 = 64 << 10;

/// What came back through the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The HTTP status.
    pub status: u16,
    /// From the request to the answer's headers, with every connection made for it.
    pub latency: Duration,
    /// The address that the page says it was asked from, if it says any.
    pub egress_ip: Option<IpAddr>,
}

/// Fetches `url` through the HTTP proxy at `proxy`, without following redirects, in at most that time for all of it.
///
/// Errors: [`Reason::ProbeFailed`] of class Unhealthy where no answer came, or not all of it in time;
/// [`Reason::Interrupted`] once the run is cancelled.
pub fn fetch(
    proxy: SocketAddr,
    url: &SecretUrl,
    timeout: Duration,
    cancel: &Cancel,
) -> Result<Fetched> {
    let usage = |error: reqwest::Error| {
        Error::usage(Reason::BadArgument, format!("{url} can't be fetched"))
            .because(error.without_url())
    };
    let client = Client::builder()
        .proxy(reqwest::Proxy::all(format!("http://{proxy}")).map_err(usage)?)
        .redirect(Policy::none())
        // It would begin anew with every read of the page.
        .timeout(None)
        .build()
        .map_err(usage)?;
    let request = client.get(url.expose()).build().map_err(usage)?;
    let fetched = apart_within(cancel, "probe", timeout, move || execute(&client, request));
    // A signal closes the connection to the host, and what goes through it fails then.
    cancel.check()?;
    let causes = match fetched? {
        Some(Ok(fetched)) => return Ok(fetched),
        Some(Err(causes)) => causes,
        None => {
            let limit = humantime::format_duration(timeout);
            vec![format!("it was not done within {limit}")]
        }
    };
    let failure = Error::new(
        Class::Unhealthy,
        Reason::ProbeFailed,
        format!("no answer from {url} through the proxy"),
    );
    Err(causes.into_iter().fold(failure, Error::because))
}

/// The request and its whole answer, or the causes of its failure, nearest first.
fn execute(client: &Client, request: Request) -> std::result::Result<Fetched, Vec<String>> {
    let began = Instant::now();
    let answer = client.execute(request).map_err(|error| causes(&error))?;
    let latency = began.elapsed();
    let status = answer.status().as_u16();
    let mut page = Vec::new();
    answer
        .take(PAGE_LIMIT)
        .read_to_end(&mut page)
        .map_err(|error| causes(&error))?;
    Ok(Fetched {
        status,
        latency,
        egress_ip: address_in(&String::from_utf8_lossy(&page)),
    })
}

/// What is behind an error, without its own words: they have the whole URL.
fn causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(error.source(), |error| error.source())
        .map(ToString::to_string)
        .collect()
}

/// The address that a page consists of, or that a JSON one has as `ip` or `origin`.
fn address_in(page: &str) -> Option<IpAddr> {
    let page = page.trim();
    page.parse().ok().or_else(|| {
        let json: Value = serde_json::from_str(page).ok()?;
        let named = ["ip", "origin"].iter().find_map(|key| json[*key].as_str());
        named?.parse().ok()
    })
}

/// Does `work` with a local address at which every connection goes on through `connect`.
///
/// Everybody on this machine can use that address meanwhile, as they could the proxy itself if they were in its LAN.
pub fn through<T>(
    connect: &(dyn Fn() -> Result<UnixStream> + Sync),
    work: impl FnOnce(SocketAddr) -> Result<T>,
) -> Result<T> {
    let failed = |error: io::Error| {
        Error::transient(Reason::LocalIo, "can't listen on this machine").because(error)
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let over = AtomicBool::new(false);
    let accept = || {
        for near in listener.incoming() {
            if over.load(Ordering::SeqCst) {
                break;
            }
            // One that fails is closed, which is what the client sees; also where the system gives no thread.
            if let (Ok(near), Ok(far)) = (near, connect()) {
                let _ = Builder::new().spawn(move || relay(&near, &far));
            }
        }
    };
    std::thread::scope(|scope| {
        Builder::new()
            .spawn_scoped(scope, accept)
            .map_err(|cause| no_thread(&cause))?;
        let result = work(address);
        over.store(true, Ordering::SeqCst);
        // Releases the listener; refused only where it has ended already.
        let _ = TcpStream::connect(address);
        result
    })
}

/// Carries bytes both ways until both have ended; none where the system gives no thread for one of them.
fn relay(near: &TcpStream, far: &UnixStream) {
    std::thread::scope(|scope| {
        let up = Builder::new().spawn_scoped(scope, || {
            copy(&mut &*near, &mut &*far);
            // It fails where the other end was faster.
            let _ = far.shutdown(Shutdown::Write);
        });
        if up.is_ok() {
            copy(&mut &*far, &mut &*near);
        }
        let _ = near.shutdown(Shutdown::Write);
    });
}

/// An error is an end like any other here.
fn copy(from: &mut dyn io::Read, to: &mut dyn Write) {
    let _ = io::copy(from, to);
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    #[test]
    fn a_page_that_names_an_address_is_understood() {
        let table = [
            ("192.0.2.7\n", Some("192.0.2.7")),
            ("2001:db8::7", Some("2001:db8::7")),
            ("{\"ip\": \"192.0.2.7\"}", Some("192.0.2.7")),
            (
                "{\"origin\": \"192.0.2.7\", \"url\": \"x\"}",
                Some("192.0.2.7"),
            ),
            ("<html>192.0.2.7</html>", None),
            ("{}", None),
            ("", None),
        ];
        for (page, address) in table {
            let expected = address.map(|address| address.parse().unwrap());
            assert_eq!(address_in(page), expected, "{page}");
        }
    }

    /// A proxy that answers one request; gives its address and the request's first line.
    fn proxy(answer: &'static str) -> (SocketAddr, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            stream.write_all(answer.as_bytes()).unwrap();
            first
        });
        (address, thread)
    }

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn the_proxy_is_asked_also_through_another_connection() {
        let answer =
            "HTTP/1.1 302 Found\r\nLocation: http://x/\r\nContent-Length: 9\r\n\r\n192.0.2.7";
        let (address, thread) = proxy(answer);
        // A unix socket in between, as the way through the host is one.
        let connect = || {
            let (near, far) = UnixStream::pair().unwrap();
            let proxy = TcpStream::connect(address).unwrap();
            std::thread::spawn(move || relay(&proxy, &far));
            Ok(near)
        };
        let fetched = through(&connect, |local| {
            fetch(local, &"http://probe.test/x".into(), LIMIT, &Cancel::new())
        });
        let fetched = fetched.unwrap();
        assert_eq!(fetched.status, 302);
        assert_eq!(fetched.egress_ip, Some("192.0.2.7".parse().unwrap()));
        assert_eq!(thread.join().unwrap(), "GET http://probe.test/x HTTP/1.1");
    }

    #[test]
    fn a_proxy_that_does_not_answer_is_unhealthy() {
        let (address, thread) = proxy("");
        let cancel = Cancel::new();
        let error = fetch(address, &"http://probe.test/".into(), LIMIT, &cancel).unwrap_err();
        assert_eq!(error.class(), Class::Unhealthy);
        assert!(!error.causes().is_empty(), "{error}");
        thread.join().unwrap();
        let error = fetch(address, &"no url".into(), LIMIT, &cancel).unwrap_err();
        assert_eq!(error.class(), Class::Usage);
    }

    #[test]
    fn a_signal_ends_the_wait_for_a_silent_proxy() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = silent.local_addr().unwrap();
        let cancel = Cancel::new();
        let other = cancel.clone();
        let thread = std::thread::spawn(move || {
            let connection = silent.accept().unwrap();
            std::thread::sleep(Duration::from_millis(200));
            other.set(15);
            (Instant::now(), connection)
        });
        let error = fetch(address, &"http://probe.test/".into(), LIMIT, &cancel).unwrap_err();
        let ended = Instant::now();
        let (signalled, _connection) = thread.join().unwrap();
        assert_eq!(error.class(), Class::Interrupted(15));
        assert!(ended - signalled < Duration::from_secs(1));
    }

    #[test]
    fn a_signal_counts_before_what_it_broke_off() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let cancel = Cancel::new();
        let other = cancel.clone();
        // As the way through a host: closed by the same signal.
        let thread = std::thread::spawn(move || {
            let (connection, _) = listener.accept().unwrap();
            let closer = move || connection.shutdown(Shutdown::Both).unwrap();
            let _guard = other.on_cancel(Box::new(closer));
            other.set(2);
        });
        let error = fetch(address, &"http://probe.test/".into(), LIMIT, &cancel).unwrap_err();
        assert_eq!(error.class(), Class::Interrupted(2));
        thread.join().unwrap();
    }

    #[test]
    fn the_limit_is_for_the_whole_page() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap()).lines();
            while request.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let headers = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
            let mut next = stream.write_all(headers);
            // Until the client is gone.
            while next.is_ok() {
                std::thread::sleep(Duration::from_millis(300));
                next = stream.write_all(b"1");
            }
        });
        let (limit, began) = (Duration::from_secs(1), Instant::now());
        let url = "http://probe.test/".into();
        let error = fetch(address, &url, limit, &Cancel::new()).unwrap_err();
        assert!(began.elapsed() < limit * 2, "{:?}", began.elapsed());
        assert_eq!(error.reason(), Reason::ProbeFailed);
        assert_eq!(error.causes(), ["it was not done within 1s"]);
    }
}
