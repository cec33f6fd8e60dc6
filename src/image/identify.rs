//! Which content an image is right now: by the digest that pins it, else by what its server says.

use super::identity::{Identity, called, pin_of};
use super::pull::{PullEvent, PullObserver};
use super::source::{Pending, fetch_text};
use super::sums::{Checksum, find_checksum};
use crate::cancel::Cancel;
use crate::config::Image;
use crate::error::{Error, Reason, Result};
use crate::url::SecretUrl;

/// Finds out which content is meant: by the pinned digest, else by asking the server.
pub(super) fn identify<'a>(
    image: &'a Image,
    observer: &dyn PullObserver,
    cancel: &'a Cancel,
) -> Result<(Identity, Pending<'a>)> {
    let url = image.url.expose();
    let pending = Pending::new(url, cancel);
    if let Some(pin) = pin_of(image) {
        // Who pulls mostly lacks the image.
        pending.prepare();
        return Ok((Identity::pinned(image, pin), pending));
    }
    if let Some(sums) = &image.checksum_url {
        pending.prepare();
        let pin = published_pin(image, sums, cancel)?;
        return Ok((Identity::published(image, pin), pending));
    }
    let plain_http = image.url.is_plain_http();
    if plain_http {
        observer.event(PullEvent::Warning(&format!(
            "image {} comes over http without a checksum: nothing vouches for its bytes (set sha256 or sha512)",
            called(image)
        )));
    }
    let download = pending.take()?;
    let known = &download.validators;
    if known.etag.is_none() && known.last_modified.is_none() {
        observer.event(PullEvent::Warning(&format!(
            "the server of image {} sends neither ETag nor Last-Modified: a newer image behind the same URL can't be noticed (set sha256, sha512 or checksumUrl)",
            called(image)
        )));
    }
    let identity = Identity::moving(image, &download.validators);
    Ok((identity, Pending::opened(download, url, cancel)))
}

/// Fails where the server has published another digest since: the claim is on what it was.
pub(super) fn ensure_still_published(
    image: &Image,
    identity: &Identity,
    cancel: &Cancel,
) -> Result<()> {
    let Some(sums) = &image.checksum_url else {
        return Ok(());
    };
    if !identity.pin_is_published || identity.pin == Some(published_pin(image, sums, cancel)?) {
        return Ok(());
    }
    Err(replaced())
}

/// The error for an image that is another on the server by now.
pub(super) fn replaced() -> Error {
    Error::transient(
        Reason::DownloadFailed,
        "the image was replaced on the server while another process pulled it",
    )
    .hint("run the command again")
}

fn published_pin(image: &Image, url: &SecretUrl, cancel: &Cancel) -> Result<Checksum> {
    let text = fetch_text(url.expose(), cancel)
        .map_err(|error| error.while_doing("fetching the checksum file"))?;
    find_checksum(&url.to_string(), &text, image.url.file_name())
}
