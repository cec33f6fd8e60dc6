//! What an image's volumes are called, and what its marker says. Pure.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::digest::sha256_hex;
use super::sums::{Algorithm, Checksum};
use crate::config::{Image, ImageFormat};
use crate::name::BASE_IMAGE_PREFIX;
use crate::url::SecretUrl;

/// Hex digits of the content's id in a volume's name.
pub(super) const ID_DIGITS: usize = 16;

/// The key that images given by URL on the command line go under.
pub const URL_KEY: &str = "url";

/// What an image is called in messages: its key, or the URL that it was given by, without its secrets.
pub fn called(image: &Image) -> String {
    if image.key == URL_KEY {
        image.url.to_string()
    } else {
        image.key.clone()
    }
}

/// What the configuration pins the image's published bytes to.
pub fn pin_of(image: &Image) -> Option<Checksum> {
    [&image.sha256, &image.sha512]
        .into_iter()
        .flatten()
        .find_map(|hex| Checksum::from_hex(hex))
}

/// What tells one published content from the next where no digest is pinned (RFC 9110, section 8.8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// `Content-Length`, in bytes.
    pub length: Option<u64>,
}

/// An image's content, as far as it is known before it is downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The configuration's key.
    pub key: String,
    /// The content's id.
    pub id: String,
    /// The URL's id.
    pub source: String,
    /// The disk format.
    pub format: ImageFormat,
    /// The digest the published bytes must have.
    pub pin: Option<Checksum>,
    /// Whether that was read beside the image (`checksumUrl`), and so may change with it.
    pub pin_is_published: bool,
}

impl Identity {
    /// Of a pinned image: by its digest.
    pub fn pinned(image: &Image, pin: Checksum) -> Self {
        let id = pin.hex[..ID_DIGITS].to_owned();
        Identity {
            key: image.key.clone(),
            id,
            source: source_of(image),
            format: image.format,
            pin: Some(pin),
            pin_is_published: false,
        }
    }

    /// Of an image whose digest is published beside it.
    pub fn published(image: &Image, pin: Checksum) -> Self {
        Identity {
            pin_is_published: true,
            ..Self::pinned(image, pin)
        }
    }

    /// Of an image without a pin: by its URL and what the server says of the content.
    pub fn moving(image: &Image, validators: &Validators) -> Self {
        let text = format!(
            "{}\n{}\n{}\n{}",
            image.url.identity(),
            validators.etag.as_deref().unwrap_or_default(),
            validators.last_modified.as_deref().unwrap_or_default(),
            validators.length.map(|n| n.to_string()).unwrap_or_default()
        );
        let id = sha256_hex(text.as_bytes())[..ID_DIGITS].to_owned();
        Identity {
            key: image.key.clone(),
            id,
            source: source_of(image),
            format: image.format,
            pin: None,
            pin_is_published: false,
        }
    }

    /// The base volume's name.
    pub fn base_volume(&self) -> String {
        base_volume(&self.key, &self.id, self.format)
    }

    /// The name the operator's own cache has for this image; read, never changed.
    pub fn operator_volume(&self) -> String {
        format!("{BASE_IMAGE_PREFIX}{}.{}", self.key, self.format.as_str())
    }

    /// Whether a marker vouches for the content wanted.
    pub fn is_vouched_by(&self, marker: &Marker) -> bool {
        let Some(pin) = &self.pin else { return true };
        let published = match pin.algorithm {
            Algorithm::Sha256 => &marker.published_sha256,
            Algorithm::Sha512 => &marker.published_sha512,
        };
        published.as_ref() == Some(&pin.hex)
    }
}

/// The id of an image's URL: tells the generations of one image from other images' of the same key, without writing
/// down what may be a secret. Other credentials are the same URL.
pub fn source_of(image: &Image) -> String {
    source_of_url(&image.url)
}

/// The same for a URL alone.
pub fn source_of_url(url: &SecretUrl) -> String {
    sha256_hex(url.identity().as_bytes())[..ID_DIGITS].to_owned()
}

/// The name of a base volume with this content.
pub fn base_volume(key: &str, id: &str, format: ImageFormat) -> String {
    format!("{BASE_IMAGE_PREFIX}{key}-{id}.{}", format.as_str())
}

/// The marker's name for a base volume.
pub fn marker_volume(base: &str) -> String {
    format!("{base}.sha256")
}

/// The claim's name for a base volume: who is pulling it right now.
pub fn claim_volume(base: &str) -> String {
    format!("{base}.claim")
}

/// The most that is read of a marker, in bytes.
pub const MARKER_LIMIT: usize = 16 * 1024;

/// The record written last beside a base volume: without it, there is no image.
///
/// The operator's markers hold just the 64 hex digits; the other lines are ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marker {
    /// SHA-256 of the volume's bytes.
    pub sha256: String,
    /// SHA-256 of the published bytes; the same unless the image was published compressed.
    pub published_sha256: Option<String>,
    /// SHA-512 of the published bytes, where it was computed.
    pub published_sha512: Option<String>,
    /// The volume's bytes.
    pub size: Option<u64>,
    /// The disk's size as a guest sees it, in bytes.
    pub virtual_size: Option<u64>,
    /// Where it came from, after redirects.
    pub url: Option<String>,
    /// The id of the URL that was asked for.
    pub source: Option<String>,
    /// When its server, asked then, had it last (RFC 3339, UTC, with milliseconds: generations may come within one second).
    pub pulled_at: Option<String>,
    /// What it was verified against: `sha256`, `sha512` or `nothing`.
    pub verified: Option<String>,
}

impl Marker {
    /// The marker volume's content.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.sha256);
        let size = self.size.map(|n| n.to_string());
        let virtual_size = self.virtual_size.map(|n| n.to_string());
        let fields = [
            ("published-sha256", &self.published_sha256),
            ("published-sha512", &self.published_sha512),
            ("size", &size),
            ("virtual-size", &virtual_size),
            ("url", &self.url),
            ("source", &self.source),
            ("pulled-at", &self.pulled_at),
            ("verified", &self.verified),
        ];
        for (key, value) in fields {
            if let Some(value) = value {
                let one_line: String = value.chars().filter(|c| !c.is_control()).collect();
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{key}: {one_line}");
            }
        }
        text
    }

    /// When it was pulled, where the marker is ours: the operator's holds the digest alone.
    pub fn pulled(&self) -> Option<Timestamp> {
        self.pulled_at.as_deref()?.parse().ok()
    }

    /// Reads a marker; `None` where it doesn't start with 64 hex digits, as after a crash while it was written.
    pub fn parse(bytes: &[u8]) -> Option<Marker> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.trim_end_matches('\0').lines();
        let sha256 = lines.next()?.get(..64)?.to_ascii_lowercase();
        if !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let mut marker = Marker {
            published_sha256: Some(sha256.clone()),
            sha256,
            ..Marker::default()
        };
        for (key, value) in lines.filter_map(|line| line.split_once(": ")) {
            let value = value.trim().to_owned();
            match key {
                "published-sha256" => marker.published_sha256 = Some(value),
                "published-sha512" => marker.published_sha512 = Some(value),
                "size" => marker.size = value.parse().ok(),
                "virtual-size" => marker.virtual_size = value.parse().ok(),
                "url" => marker.url = Some(value),
                "source" => marker.source = Some(value),
                "pulled-at" => marker.pulled_at = Some(value),
                "verified" => marker.verified = Some(value),
                _ => {}
            }
        }
        Some(marker)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::Firmware;

    /// An image without a pin, for the tests of its neighbours too.
    pub(crate) fn image() -> Image {
        Image {
            key: "debian-13".into(),
            url: "https://example.net/debian-13.qcow2".into(),
            sha256: None,
            sha512: None,
            checksum_url: None,
            format: ImageFormat::Qcow2,
            firmware: Firmware::Uefi,
        }
    }

    #[test]
    fn a_pinned_image_is_named_by_its_digest() {
        let pin = Checksum::from_hex(&"ab".repeat(32)).unwrap();
        let identity = Identity::pinned(&image(), pin);
        assert_eq!(
            identity.base_volume(),
            "base-debian-13-abababababababab.qcow2"
        );
        assert_eq!(identity.operator_volume(), "base-debian-13.qcow2");
    }

    #[test]
    fn a_moving_image_gets_a_new_name_when_the_server_says_so() {
        let at = |etag: &str, length| {
            let validators = Validators {
                etag: Some(etag.to_owned()),
                last_modified: None,
                length: Some(length),
            };
            Identity::moving(&image(), &validators).base_volume()
        };
        assert_eq!(at("a", 1), at("a", 1));
        assert_ne!(at("a", 1), at("b", 1));
        assert_ne!(at("a", 1), at("a", 2));
    }

    #[test]
    fn markers_round_trip_and_bad_ones_are_no_markers() {
        let marker = Marker {
            sha256: "0f".repeat(32),
            published_sha256: Some("1e".repeat(32)),
            published_sha512: Some("2d".repeat(64)),
            size: Some(7),
            virtual_size: Some(1 << 31),
            url: Some("https://example.net/a".into()),
            source: Some("0123456789abcdef".into()),
            pulled_at: Some("2026-01-02T03:04:05Z".into()),
            verified: Some("sha512".into()),
        };
        assert_eq!(Marker::parse(marker.to_text().as_bytes()), Some(marker));
        let operators = Marker::parse("AB".repeat(32).as_bytes()).unwrap();
        assert_eq!(operators.sha256, "ab".repeat(32));
        assert_eq!(operators.published_sha256, Some("ab".repeat(32)));
        for bad in [&b""[..], b"\0\0\0", b"abc", "zz".repeat(32).as_bytes()] {
            assert_eq!(Marker::parse(bad), None);
        }
    }

    #[test]
    fn a_marker_vouches_only_for_the_digest_wanted() {
        let marker = Marker::parse("ab".repeat(32).as_bytes()).unwrap();
        let wanted = |pin| Identity {
            pin,
            ..Identity::pinned(&image(), Checksum::from_hex(&"ab".repeat(32)).unwrap())
        };
        assert!(wanted(Some(Checksum::from_hex(&"ab".repeat(32)).unwrap())).is_vouched_by(&marker));
        assert!(
            !wanted(Some(Checksum::from_hex(&"cd".repeat(32)).unwrap())).is_vouched_by(&marker)
        );
        assert!(
            !wanted(Some(Checksum::from_hex(&"ab".repeat(64)).unwrap())).is_vouched_by(&marker)
        );
        assert!(wanted(None).is_vouched_by(&marker));
    }
}
