//! Downloading over HTTP as one steady stream: dropped connections are resumed where they broke off.
//!
//! Nothing is spliced from two contents: the rest of a file is taken only where a strong validator says that the file
//! is the same (RFC 9110, section 13.1.5); where the server gives none, the file is read again from its start and
//! compared with what was handed out before.

mod client;
mod pending;
mod proxy;
mod range;
mod resume;
#[cfg(test)]
pub(super) mod server;
#[cfg(test)]
pub(super) mod tests;

use std::io::Read;

use reqwest::blocking::Response;
use reqwest::header::{HeaderMap, TRANSFER_ENCODING};
use reqwest::{StatusCode, Url};
use sha2::{Digest as _, Sha256};

use self::client::{Failure, Http, Tried, chain};
pub(super) use self::pending::Pending;
use self::range::{is_strong, validators};
use self::resume::{pause, too_long};
use super::identity::Validators;
use crate::apart::apart;
use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::url::shown;

/// How often opening is tried again, where that may help.
const REOPENINGS: u32 = 3;
/// The most that is read of a checksum file, in bytes.
const TEXT_LIMIT: usize = 4 << 20;

/// A download under way.
pub(super) struct Download {
    http: Http,
    url: Url,
    /// Where a redirect led: asked first when the download broke off, as another mirror may name the same file
    /// differently.
    mirror: Option<Url>,
    response: Response,
    cancel: Cancel,
    position: u64,
    total: Option<u64>,
    resumes: u32,
    /// The server proved unable to send a part.
    whole_only: bool,
    /// The digest of what was handed out, where no strong validator vouches for the rest.
    handed_out: Option<Sha256>,
    ended: bool,
    /// What tells this content from the next.
    pub(super) validators: Validators,
    /// The URL after redirects, as it may be shown.
    pub(super) final_url: String,
    /// Whether the end of the content differs from a connection that was cut: it has a length, or is chunked.
    pub(super) end_is_certain: bool,
}

impl Download {
    /// Asks for the image; returns when the headers are there, or at once when the run is cancelled.
    ///
    /// Errors: HTTP 4xx, refused redirects and untrusted certificates are Permanent; everything else is Transient,
    /// and was tried a few times.
    pub(super) fn open(url: &str, cancel: &Cancel) -> Result<Self> {
        let (url, own) = (url.to_owned(), cancel.clone());
        apart(cancel, "HTTP", move || {
            Self::open_with(&url, &own, Http::from_env()?)
        })?
    }

    fn open_with(url: &str, cancel: &Cancel, http: Http) -> Result<Self> {
        let url = Url::parse(url).map_err(|error| {
            Error::permanent(Reason::DownloadFailed, "the image's URL can't be used")
                .because(error)
                .hint("check the URL")
        })?;
        let mut tries = 0;
        let response = loop {
            cancel.check()?;
            let Failure {
                error,
                again,
                after,
            } = match open_once(&http, &url) {
                Ok(response) => break response,
                Err(failure) => failure,
            };
            if !again || tries >= REOPENINGS {
                return Err(error);
            }
            let pause =
                pause(http.limits, tries, after).ok_or_else(|| too_long(error.clone(), after))?;
            log::info!("{error}; trying again in {pause:?}");
            tries += 1;
            cancel.wait(pause);
        };
        Ok(Self::of(http, url, response, cancel))
    }

    fn of(http: Http, url: Url, response: Response, cancel: &Cancel) -> Self {
        let validators = validators(&response);
        let mut plain = url.clone();
        // As the client does: they go into a header.
        let _ = plain.set_username("");
        let _ = plain.set_password(None);
        plain.set_fragment(None);
        let landed = response.url().clone();
        Download {
            end_is_certain: validators.length.is_some()
                || response.headers().contains_key(TRANSFER_ENCODING),
            total: validators.length,
            handed_out: (!is_strong(&validators)).then(Sha256::new),
            validators,
            final_url: shown(&landed),
            mirror: (landed != plain).then_some(landed),
            http,
            url,
            response,
            cancel: cancel.clone(),
            position: 0,
            resumes: 0,
            whole_only: false,
            ended: false,
        }
    }

    /// Bytes in all, where the server says.
    pub(super) fn length(&self) -> Option<u64> {
        self.total
    }

    /// Fills `buffer` as far as the content goes; less than its length only at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() && !self.ended {
            let cause = match self.response.read(&mut buffer[filled..]) {
                Ok(0) if self.total.is_none_or(|total| self.position >= total) => {
                    self.ended = true;
                    break;
                }
                Ok(0) => "the connection was closed too early".to_owned(),
                Ok(count) => {
                    if let Some(digest) = &mut self.handed_out {
                        digest.update(&buffer[filled..filled + count]);
                    }
                    filled += count;
                    self.position += count as u64;
                    continue;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => self.cause(&error),
            };
            self.resume(cause)?;
        }
        Ok(filled)
    }

    fn cause(&self, error: &std::io::Error) -> String {
        let text = chain(error);
        if text.contains("operation timed out") {
            let limit = humantime::format_duration(self.http.limits.stall);
            return format!("no byte came for {limit}");
        }
        text
    }
}

/// Fetches a small text, such as a checksum file.
pub(super) fn fetch_text(url: &str, cancel: &Cancel) -> Result<String> {
    let mut download = Download::open(url, cancel)?;
    apart(cancel, "HTTP", move || {
        let mut bytes = vec![0; TEXT_LIMIT + 1];
        let count = download.read(&mut bytes)?;
        if count > TEXT_LIMIT {
            return Err(Error::permanent(
                Reason::DownloadFailed,
                "the file is larger than 4 MiB, so it is no checksum file",
            )
            .because(format!("URL {}", download.final_url))
            .hint("checksumUrl is that of a SHA256SUMS or SHA512SUMS file"));
        }
        Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
    })?
}

fn open_once(http: &Http, url: &Url) -> Tried<Response> {
    let response = http.get(url, HeaderMap::new())?;
    if response.status() == StatusCode::OK {
        Ok(response)
    } else {
        Err(http.refusal(&response))
    }
}

/// Everything that reads a header's text, for the fuzzing of it.
#[cfg(test)]
pub(crate) fn fuzz_headers(text: &str) {
    if let Some(range) = range::ContentRange::parse(text) {
        assert!(range.start.is_none() || range.total.is_none_or(|total| range.start < Some(total)));
    }
    let _ = client::wait_of(text);
    let _ = range::is_strong_etag(text);
}
