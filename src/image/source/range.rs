//! What a server says of the content it sends, and of the part of it.

use reqwest::blocking::Response;
use reqwest::header::{ETAG, LAST_MODIFIED};

use super::client::header;
use crate::image::identity::Validators;

/// What tells the answer's content from others.
pub(super) fn validators(response: &Response) -> Validators {
    Validators {
        etag: header(response, ETAG),
        last_modified: header(response, LAST_MODIFIED),
        length: response.content_length(),
    }
}

/// A weak `ETag` can't vouch for a part (RFC 9110, section 8.8.1).
pub(super) fn is_strong_etag(etag: &str) -> bool {
    !etag.starts_with("W/")
}

/// Whether any of them vouches for every byte.
pub(super) fn is_strong(validators: &Validators) -> bool {
    validators.etag.as_deref().is_some_and(is_strong_etag) || validators.last_modified.is_some()
}

/// `Content-Range` (RFC 9110, section 14.4): `bytes 5-9/10`, `bytes 5-9/*`, `bytes */10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    /// None where the range can't be had.
    pub(super) start: Option<u64>,
    /// None for `*`.
    pub(super) total: Option<u64>,
}

impl ContentRange {
    /// None for what is in any other form, or contradicts itself.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let total = match total.trim() {
            "*" => None,
            digits => Some(number(digits)?),
        };
        let start = match range.trim() {
            "*" => None,
            range => {
                let (start, end) = range.split_once('-')?;
                let (start, end) = (number(start)?, number(end)?);
                if end < start || total.is_some_and(|total| end >= total) {
                    return None;
                }
                Some(start)
            }
        };
        Some(ContentRange { start, total })
    }
}
