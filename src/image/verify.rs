//! Whether what was downloaded is what was pinned.

use super::identity::Identity;
use super::stream::Ended;
use super::sums::Algorithm;
use crate::error::{Error, Reason, Result};

/// Where published bytes came from.
pub(super) struct Origin<'a> {
    /// The URL after redirects, as it may be shown.
    pub(super) url: &'a str,
    /// `Last-Modified`.
    pub(super) last_modified: Option<&'a str>,
    /// Whether a connection that was cut would have been noticed.
    pub(super) end_is_certain: bool,
}

/// Refuses published bytes that haven't the pinned digest.
pub(super) fn verify(identity: &Identity, ended: &Ended, origin: &Origin<'_>) -> Result<()> {
    let Some(pin) = &identity.pin else {
        return Ok(());
    };
    let digests = &ended.published;
    let got = match pin.algorithm {
        Algorithm::Sha256 => digests.sha256.as_str(),
        Algorithm::Sha512 => digests.sha512.as_deref().unwrap_or_default(),
    };
    if got == pin.hex {
        return Ok(());
    }
    let changed = origin
        .last_modified
        .map(|date| format!(", last modified {date}"));
    let error = Error::permanent(
        Reason::ChecksumMismatch,
        format!(
            "image {} is not what its checksum says: nothing of it was kept",
            identity.key
        ),
    )
    .because(format!("{} expected {}", pin.algorithm.as_str(), pin.hex))
    .because(format!("{} received {got}", pin.algorithm.as_str()))
    .because(format!(
        "{} bytes from {}{}",
        digests.bytes,
        origin.url,
        changed.unwrap_or_default()
    ))
    .hint(if identity.pin_is_published {
        "the server may be in the midst of publishing a new one: run the command again in some minutes"
    } else {
        "a rolling URL (…/latest/…) changes under its checksum: use a dated URL, or checksumUrl"
    });
    if origin.end_is_certain {
        return Err(error);
    }
    Err(error.hint("the server doesn't tell the length: if the connection was cut, running the command again helps"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::digest::Hasher;
    use crate::image::identity::tests::image;
    use crate::image::sums::Checksum;

    fn ended(published: &[u8], volume: &[u8]) -> Ended {
        let digests = |bytes| {
            let mut hasher = Hasher::new(true);
            hasher.update(bytes);
            hasher.finish()
        };
        Ended {
            published: digests(published),
            volume: digests(volume),
        }
    }

    #[test]
    fn the_pinned_digest_is_of_the_published_bytes() {
        let ended = ended(b"abc", b"unpacked");
        let origin = Origin {
            url: "https://example.net/a",
            last_modified: Some("yesterday"),
            end_is_certain: false,
        };
        for hex in [
            &ended.published.sha256,
            ended.published.sha512.as_ref().unwrap(),
        ] {
            let pin = Checksum::from_hex(hex).unwrap();
            verify(&Identity::pinned(&image(), pin), &ended, &origin).unwrap();
        }
        let pin = Checksum::from_hex(&ended.volume.sha256).unwrap();
        let error = verify(&Identity::pinned(&image(), pin), &ended, &origin).unwrap_err();
        assert_eq!(error.reason(), Reason::ChecksumMismatch);
        let text = error.to_string();
        for part in [&ended.volume.sha256, &ended.published.sha256] {
            assert!(text.contains(part.as_str()), "{text}");
        }
        assert!(text.contains("3 bytes from https://example.net/a, last modified yesterday"));
        assert_eq!(error.hints().len(), 2);
    }

    #[test]
    fn who_has_a_published_checksum_is_not_told_to_take_one() {
        let ended = ended(b"abc", b"abc");
        let origin = Origin {
            url: "https://example.net/a",
            last_modified: None,
            end_is_certain: true,
        };
        let pin = || Checksum::from_hex(&"ab".repeat(32)).unwrap();
        let hint = |identity: &Identity| {
            let error = verify(identity, &ended, &origin).unwrap_err();
            error.hints().concat()
        };
        assert!(hint(&Identity::pinned(&image(), pin())).contains("checksumUrl"));
        let published = hint(&Identity::published(&image(), pin()));
        assert!(!published.contains("checksumUrl"), "{published}");
        assert!(published.contains("in some minutes"), "{published}");
    }
}
