//! Taking a download up where it broke off, without splicing two contents.

use std::io::Read;
use std::time::Duration;

use reqwest::blocking::Response;
use reqwest::header::{CONTENT_RANGE, HeaderMap, IF_RANGE, RANGE};
use reqwest::{StatusCode, Url};
use sha2::{Digest as _, Sha256};

use super::Download;
use super::client::{Failure, Limits, Tried, header};
use super::range::{ContentRange, is_strong_etag, validators};
use crate::error::{Error, Reason, Result};
use crate::image::identity::Validators;

/// How often a broken download is resumed, over its whole length.
pub(super) const RESUMES: u32 = 5;

impl Download {
    /// Asks for what is missing, again and again.
    ///
    /// Errors: the server's refusals; Transient where it was tried often enough.
    pub(super) fn resume(&mut self, mut cause: String) -> Result<()> {
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
                .hint("run the same command again; if it breaks off each time, look for a proxy with a limit, or use a mirror's URL")
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

/// How long to wait before the next try; none where the server asks for longer than anybody would wait.
pub(super) fn pause(limits: Limits, tries: u32, after: Option<Duration>) -> Option<Duration> {
    let own = limits.back_off.saturating_mul(1 << tries.min(16));
    match after {
        Some(after) if after > limits.retry_after => None,
        Some(after) => Some(own.max(after)),
        None => Some(own),
    }
}

pub(super) fn too_long(error: Error, after: Option<Duration>) -> Error {
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
