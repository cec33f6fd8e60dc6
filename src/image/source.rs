//! Downloading over HTTP as one steady stream: dropped connections are resumed where they broke off.
//!
//! Nothing is spliced from two contents: the rest of a file is taken only where a strong validator says that the file
//! is the same (RFC 9110, section 13.1.5); where the server gives none, the file is read again from its start and
//! compared with what was handed out before.

mod client;
mod proxy;
mod range;
#[cfg(test)]
pub(super) mod server;
#[cfg(test)]
pub(super) mod tests;

use std::io::Read;
use std::time::Duration;

use reqwest::blocking::Response;
use reqwest::header::{CONTENT_RANGE, HeaderMap, IF_RANGE, RANGE, TRANSFER_ENCODING};
use reqwest::{StatusCode, Url};
use sha2::{Digest as _, Sha256};

use self::client::{Failure, Http, Limits, Tried, chain, header};
use self::proxy::Proxies;
use self::range::{ContentRange, is_strong, is_strong_etag, validators};
use super::identity::Validators;
use crate::apart::apart;
use crate::cancel::Cancel;
use crate::error::{Error, Reason, Result};
use crate::url::shown;

/// How often opening is tried again, where that may help.
const REOPENINGS: u32 = 3;
/// How often a broken download is resumed, over its whole length.
const RESUMES: u32 = 5;
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
            let proxies = Proxies::from_env(&|name| std::env::var(name).ok());
            Self::open_with(&url, &own, Http::new(Limits::default(), proxies)?)
        })?
    }

    fn open_with(url: &str, cancel: &Cancel, http: Http) -> Result<Self> {
        let url = Url::parse(url).map_err(|error| {
            Error::permanent(Reason::DownloadFailed, "the image's URL can't be used").because(error)
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

    fn resume(&mut self, mut cause: String) -> Result<()> {
        let mut after = None;
        loop {
            let broken = |cause: &str| {
                Error::transient(
                    Reason::DownloadFailed,
                    format!(
                        "the download broke off after {} bytes and could not be resumed ({} tries)",
                        self.position, self.resumes
                    ),
                )
                .because(cause)
                .because(self.http.about(&self.url))
            };
            if self.resumes >= RESUMES {
                return Err(broken(&cause));
            }
            let pause = pause(self.http.limits, self.resumes, after)
                .ok_or_else(|| too_long(broken(&cause), after))?;
            self.resumes += 1;
            log::info!(
                "download broke off at {}: {cause}; resuming in {pause:?}",
                self.position
            );
            self.cancel.wait(pause);
            self.cancel.check()?;
            match self.reopen() {
                Ok(()) => return Ok(()),
                Err(failure) if failure.again => {
                    cause = failure.error.to_string();
                    after = failure.after;
                }
                Err(failure) => return Err(failure.error),
            }
        }
    }

    fn reopen(&mut self) -> Tried<()> {
        let Some(mirror) = self.mirror.take() else {
            return self.reopen_at(&self.url.clone());
        };
        // Its address may have been signed for a while only: then the server redirects anew.
        self.reopen_at(&mirror)
            .map_err(|failure| Failure::passing(failure.error))?;
        self.mirror = Some(mirror);
        Ok(())
    }

    /// Asks for the rest (RFC 9110, section 14.2: Range with If-Range), or for the whole where that can't be had.
    fn reopen_at(&mut self, url: &Url) -> Tried<()> {
        let whole = self.whole_only || self.handed_out.is_some();
        let headers = if whole {
            HeaderMap::new()
        } else {
            self.range()
        };
        let response = self.http.get(url, headers)?;
        match response.status() {
            StatusCode::OK => self.take_whole(response),
            StatusCode::PARTIAL_CONTENT if !whole => self.take_part(response),
            StatusCode::RANGE_NOT_SATISFIABLE if !whole => self.take_end(&response),
            _ => Err(self.http.refusal(&response)),
        }
    }

    fn range(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let etag = self
            .validators
            .etag
            .as_ref()
            .filter(|etag| is_strong_etag(etag));
        let validator = etag.or(self.validators.last_modified.as_ref());
        // Values come from numbers or from headers the server sent: always valid.
        if let Ok(value) = format!("bytes={}-", self.position).parse() {
            headers.insert(RANGE, value);
        }
        if let Some(Ok(value)) = validator.map(|text| text.parse()) {
            headers.insert(IF_RANGE, value);
        }
        headers
    }

    fn take_part(&mut self, response: Response) -> Tried<()> {
        let range = header(&response, CONTENT_RANGE).and_then(|text| ContentRange::parse(&text));
        // Without a total, the end of the part can't be told from the end of the content.
        let usable = range.filter(|range| {
            range.start == Some(self.position) && range.total.or(self.total).is_some()
        });
        let Some(range) = usable else {
            self.whole_only = true;
            return Err(Failure::passing(Error::transient(
                Reason::DownloadFailed,
                "the image server sent another part of the image than it was asked for",
            )));
        };
        let now = Validators {
            length: range.total,
            ..validators(&response)
        };
        // Some servers know Range and not If-Range.
        if self.contradicts(&now) {
            return Err(self.replaced());
        }
        self.total = self.total.or(range.total);
        self.response = response;
        Ok(())
    }

    /// The server has nothing from here on: the connection was lost right behind the last byte, or the file shrank.
    fn take_end(&mut self, response: &Response) -> Tried<()> {
        let range = header(response, CONTENT_RANGE).and_then(|text| ContentRange::parse(&text));
        let Some(total) = range.and_then(|range| range.total) else {
            self.whole_only = true;
            return Err(self.http.refusal(response).into_passing());
        };
        if total != self.position || self.total.is_some_and(|known| known != total) {
            return Err(self.replaced());
        }
        self.total = Some(total);
        self.ended = true;
        Ok(())
    }

    /// The server sends everything from its start: it is read again up to where it broke off.
    fn take_whole(&mut self, mut response: Response) -> Tried<()> {
        let now = validators(&response);
        if self.contradicts(&now) || (self.handed_out.is_none() && !self.is_vouched_by(&now)) {
            return Err(self.replaced());
        }
        let mut digest = self.handed_out.as_ref().map(|_| Sha256::new());
        let mut buffer = vec![0; 64 * 1024];
        let mut left = self.position;
        while left > 0 {
            self.cancel.check().map_err(Failure::lasting)?;
            let wanted = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let count = match response.read(&mut buffer[..wanted]) {
                Ok(0) => return Err(dropped("the connection was closed too early")),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(dropped(&self.cause(&error))),
            };
            if let Some(digest) = &mut digest {
                digest.update(&buffer[..count]);
            }
            left -= count as u64;
        }
        let before = self.handed_out.clone().map(sha2::Digest::finalize);
        if digest.map(sha2::Digest::finalize) != before {
            return Err(self.replaced());
        }
        self.total = self.total.or(now.length);
        self.response = response;
        Ok(())
    }

    /// Whether these can't be the same content's.
    fn contradicts(&self, now: &Validators) -> bool {
        fn differ<T: PartialEq>(a: Option<&T>, b: Option<&T>) -> bool {
            matches!((a, b), (Some(a), Some(b)) if a != b)
        }
        let known = &self.validators;
        differ(known.etag.as_ref(), now.etag.as_ref())
            || differ(known.last_modified.as_ref(), now.last_modified.as_ref())
            || differ(self.total.as_ref(), now.length.as_ref())
    }

    /// Whether a strong validator says that it is the same content.
    fn is_vouched_by(&self, now: &Validators) -> bool {
        let etag = now.etag.as_ref().filter(|etag| is_strong_etag(etag));
        (etag.is_some() && etag == self.validators.etag.as_ref())
            || (now.last_modified.is_some() && now.last_modified == self.validators.last_modified)
    }

    fn replaced(&self) -> Failure {
        Failure::lasting(
            Error::transient(
                Reason::DownloadFailed,
                "the image was replaced on the server while it was downloaded",
            )
            .because(self.http.about(&self.url))
            .hint("run the command again; a dated URL doesn't change like a rolling one"),
        )
    }
}

impl Failure {
    fn into_passing(self) -> Self {
        Failure {
            again: true,
            ..self
        }
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
            .because(format!("URL {}", download.final_url)));
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

/// How long to wait before the next try; none where the server asks for longer than anybody would wait.
fn pause(limits: Limits, tries: u32, after: Option<Duration>) -> Option<Duration> {
    let own = limits.back_off.saturating_mul(1 << tries.min(16));
    match after {
        Some(after) if after > limits.retry_after => None,
        Some(after) => Some(own.max(after)),
        None => Some(own),
    }
}

fn too_long(error: Error, after: Option<Duration>) -> Error {
    let seconds = after.unwrap_or_default().as_secs();
    let wait = humantime::format_duration(Duration::from_secs(seconds));
    error.hint(format!(
        "the server asks to wait {wait} before the next try (Retry-After)"
    ))
}

fn dropped(cause: &str) -> Failure {
    Failure::passing(
        Error::transient(Reason::DownloadFailed, "the download broke off").because(cause),
    )
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
