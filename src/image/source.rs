//! Downloading over HTTP as one steady stream: dropped connections are resumed where they broke off.

use std::io::Read;
use std::time::Duration;

use reqwest::blocking::{Client, Response};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use reqwest::{StatusCode, redirect};

use super::identity::Validators;
use crate::cancel::Cancel;
use crate::error::{Class, Error, Reason, Result};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Without a byte for this long, the download counts as dropped. There is no limit on the whole of it.
const STALL_LIMIT: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 10;
const RESUMES: u32 = 5;
/// The first wait before a resume; doubled each time.
const BACK_OFF: Duration = Duration::from_secs(1);
/// The most that is read of a checksum file, in bytes.
const TEXT_LIMIT: u64 = 4 << 20;

/// A download under way.
pub(super) struct Download {
    client: Client,
    url: String,
    response: Response,
    cancel: Cancel,
    position: u64,
    resumes: u32,
    /// What tells this content from the next.
    pub(super) validators: Validators,
    /// The URL after redirects.
    pub(super) final_url: String,
}

impl Download {
    /// Asks for the image; returns when the headers are there.
    ///
    /// Errors: HTTP 4xx and refused redirects are Permanent, everything else is Transient.
    pub(super) fn open(url: &str, cancel: &Cancel) -> Result<Self> {
        cancel.check()?;
        let client = client(url)?;
        let response = request(&client, url, HeaderMap::new())?;
        if response.status() != StatusCode::OK {
            return Err(status_error(response.url().as_str(), response.status()));
        }
        Ok(Download {
            validators: validators(&response),
            final_url: response.url().to_string(),
            client,
            url: url.to_owned(),
            response,
            cancel: cancel.clone(),
            position: 0,
            resumes: 0,
        })
    }

    /// Bytes in all, where the server says.
    pub(super) fn length(&self) -> Option<u64> {
        self.validators.length
    }

    /// Fills `buffer` as far as the content goes; less than its length only at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let cause = match self.response.read(&mut buffer[filled..]) {
                Ok(0) if self.is_complete() => break,
                Ok(0) => "the connection was closed too early".to_owned(),
                Ok(count) => {
                    filled += count;
                    self.position += count as u64;
                    continue;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => chain(&error),
            };
            self.resume(&cause)?;
        }
        Ok(filled)
    }

    fn is_complete(&self) -> bool {
        self.validators
            .length
            .is_none_or(|length| self.position >= length)
    }

    fn resume(&mut self, cause: &str) -> Result<()> {
        let mut cause = cause.to_owned();
        loop {
            if self.resumes >= RESUMES {
                return Err(Error::transient(
                    Reason::DownloadFailed,
                    format!("the download broke off after {} bytes", self.position),
                )
                .because(cause)
                .because(format!("URL {}", self.final_url)));
            }
            self.resumes += 1;
            log::debug!("download broke off at {}: {cause}; resuming", self.position);
            self.cancel.wait(BACK_OFF * (1 << (self.resumes - 1)));
            self.cancel.check()?;
            match self.reopen() {
                Ok(()) => return Ok(()),
                Err(error) if error.class() == Class::Transient => cause = error.to_string(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks for the rest (RFC 9110, section 14.2: Range with If-Range).
    fn reopen(&mut self) -> Result<()> {
        let mut headers = HeaderMap::new();
        set(&mut headers, RANGE, &format!("bytes={}-", self.position));
        // A weak ETag can't vouch for a part (RFC 9110, section 13.1.5).
        let strong = self
            .validators
            .etag
            .as_ref()
            .filter(|etag| !etag.starts_with("W/"));
        if let Some(validator) = strong.or(self.validators.last_modified.as_ref()) {
            set(&mut headers, IF_RANGE, validator);
        }
        let response = request(&self.client, &self.url, headers)?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(&response, self.position) => {
                self.response = response;
                Ok(())
            }
            // The server doesn't know ranges: the same content is read again up to where it broke off.
            StatusCode::OK if validators(&response) == self.validators => {
                self.response = response;
                self.skip(self.position)
            }
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                Err(Error::new(
                    Class::Permanent,
                    Reason::DownloadFailed,
                    "the image was replaced on the server while it was downloaded",
                )
                .because(format!("URL {}", self.final_url))
                .hint("run the command again; pin a dated URL instead of a rolling one"))
            }
            status => Err(status_error(response.url().as_str(), status)),
        }
    }

    fn skip(&mut self, count: u64) -> Result<()> {
        let skipped = std::io::copy(&mut (&mut self.response).take(count), &mut std::io::sink());
        match skipped {
            Ok(n) if n == count => Ok(()),
            Ok(_) => Err(dropped("the connection was closed too early")),
            Err(error) => Err(dropped(&chain(&error))),
        }
    }
}

/// Fetches a small text, such as a checksum file.
pub(super) fn fetch_text(url: &str, cancel: &Cancel) -> Result<String> {
    let download = Download::open(url, cancel)?;
    let mut bytes = Vec::new();
    download
        .response
        .take(TEXT_LIMIT)
        .read_to_end(&mut bytes)
        .map_err(|error| dropped(&chain(&error)).because(format!("URL {url}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn dropped(cause: &str) -> Error {
    Error::transient(Reason::DownloadFailed, "the download broke off").because(cause)
}

/// A client for one URL's download: redirects are followed, but never from https to http.
fn client(url: &str) -> Result<Client> {
    let from_https = url.to_ascii_lowercase().starts_with("https:");
    let policy = redirect::Policy::custom(move |attempt| {
        if from_https && attempt.url().scheme() != "https" {
            let target = attempt.url().to_string();
            attempt.error(format!("redirect from https to {target} refused"))
        } else if attempt.previous().len() > REDIRECTS {
            attempt.error("too many redirects")
        } else {
            attempt.follow()
        }
    });
    Client::builder()
        .user_agent(concat!("egressctl/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_LIMIT)
        // With a blocking client this is the time to the headers, and then of each read (measured).
        .timeout(STALL_LIMIT)
        .redirect(policy)
        .build()
        .map_err(|error| {
            Error::transient(Reason::LocalIo, "no HTTP client could be made").because(chain(&error))
        })
}

fn request(client: &Client, url: &str, mut headers: HeaderMap) -> Result<Response> {
    // Sizes and digests are of the file itself, not of a transport's compression of it.
    set(&mut headers, ACCEPT_ENCODING, "identity");
    let response = client
        .get(url)
        .headers(headers)
        .send()
        .map_err(|e| request_error(url, &e))?;
    match response.headers().get(CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(Error::permanent(
            Reason::DownloadFailed,
            format!("the image server insists on Content-Encoding {encoding:?}"),
        )
        .because(format!("URL {url}"))),
        _ => Ok(response),
    }
}

fn request_error(url: &str, error: &reqwest::Error) -> Error {
    let cause = chain(error);
    let permanent = error.is_redirect() || error.is_builder() || cause.contains("certificate");
    let class = if permanent {
        Class::Permanent
    } else {
        Class::Transient
    };
    let message = if error.is_timeout() {
        "the image server doesn't answer in time"
    } else if error.is_redirect() {
        "the image server's redirect was refused"
    } else {
        "the image server can't be reached"
    };
    let error = Error::new(class, Reason::DownloadFailed, message)
        .because(&cause)
        .because(format!("URL {url}"));
    if cause.contains("certificate") {
        error.hint("add the CA to the system's store (update-ca-certificates) or set SSL_CERT_FILE")
    } else {
        error
    }
}

fn status_error(url: &str, status: StatusCode) -> Error {
    let transient = status.is_server_error()
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS;
    let class = if transient {
        Class::Transient
    } else {
        Class::Permanent
    };
    Error::new(
        class,
        Reason::HttpStatus,
        format!("the image server answered {status}"),
    )
    .because(format!("URL {url}"))
}

fn validators(response: &Response) -> Validators {
    let text = |name: HeaderName| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    Validators {
        etag: text(ETAG),
        last_modified: text(LAST_MODIFIED),
        length: response.content_length(),
    }
}

fn starts_at(response: &Response, position: u64) -> bool {
    response
        .headers()
        .get(CONTENT_RANGE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("bytes "))
        .and_then(|value| value.split('-').next())
        .is_some_and(|start| start.trim().parse() == Ok(position))
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Values come from numbers or from headers the server sent: always valid.
    if let Ok(value) = value.parse() {
        headers.insert(name, value);
    }
}

/// An error with all its sources, without repeating what a source already says.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = next.source();
    }
    text
}
