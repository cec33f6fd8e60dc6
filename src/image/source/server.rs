//! A small HTTP server for tests: each connection is one request, answered by a closure that may misbehave.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One request.
#[derive(Debug, Clone)]
pub(in crate::image) struct Request {
    /// What stands in the request line, such as `/a`; by way of a proxy it is the whole URL.
    pub(in crate::image) target: String,
    /// Its headers, with names in lower case.
    headers: HashMap<String, String>,
    /// How many requests came before it.
    pub(in crate::image) nth: usize,
}

impl Request {
    /// A header's value, or nothing.
    pub(in crate::image) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Where the `Range` asked for starts.
    pub(in crate::image) fn start(&self) -> Option<usize> {
        let range = self.header("range").strip_prefix("bytes=")?;
        range.strip_suffix('-')?.parse().ok()
    }
}

/// A server that lives until the test's process ends.
pub(in crate::image) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts one on 127.0.0.1.
    pub(in crate::image) fn start(
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream.unwrap(), &seen, &*answer));
            }
        });
        Server { address, requests }
    }

    /// A URL of this server.
    pub(in crate::image) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The port.
    pub(in crate::image) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The requests so far.
    pub(in crate::image) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Request>>,
    answer: &(dyn Fn(&Request, &mut TcpStream) + Send + Sync),
) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else {
        return;
    };
    let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let request = {
        let mut seen = seen.lock().unwrap();
        let nth = seen.len();
        seen.push(Request {
            target,
            headers,
            nth,
        });
        seen[nth].clone()
    };
    answer(&request, &mut stream);
}

/// Sends status line and headers; a failing client is the test's to notice.
pub(in crate::image) fn head(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)]) {
    let mut text = format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    let _ = stream.write_all(text.as_bytes());
}

/// Sends a whole answer with its length.
pub(in crate::image) fn reply(
    stream: &mut TcpStream,
    status: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) {
    let length = body.len().to_string();
    let mut all = headers.to_vec();
    all.push(("Content-Length", &length));
    head(stream, status, &all);
    let _ = stream.write_all(body);
}

/// Sends one chunk of a chunked body; the empty one ends it.
pub(in crate::image) fn chunk(stream: &mut TcpStream, data: &[u8]) {
    let _ = write!(stream, "{:x}\r\n", data.len());
    let _ = stream.write_all(data);
    let _ = stream.write_all(b"\r\n");
}

/// The connection is reset, not closed: what was sent may be lost on the way.
pub(in crate::image) fn reset(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
}
