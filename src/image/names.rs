//! Which volumes have the names of base images. A name alone proves nothing; it says where proof is to be sought.

use super::identity::{ID_DIGITS, claim_volume, marker_volume};
use crate::config::{Image, ImageFormat};
use crate::name::{BASE_IMAGE_PREFIX, is_identifier};

/// A volume's name that has the form of our base images': `base-<key>-<16 hex digits>.<format>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseName {
    /// The base volume's name.
    pub volume: String,
    /// The image's key.
    pub key: String,
    /// The content's id.
    pub id: String,
    /// The disk format.
    pub format: ImageFormat,
}

impl BaseName {
    /// Reads a base volume's name.
    pub fn parse(volume: &str) -> Option<Self> {
        let (stem, format) = stem_and_format(volume)?;
        let (key, id) = stem.rsplit_once('-')?;
        let lower_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let ours = id.len() == ID_DIGITS && id.chars().all(lower_hex) && is_identifier(key);
        ours.then(|| BaseName {
            volume: volume.to_owned(),
            key: key.to_owned(),
            id: id.to_owned(),
            format,
        })
    }

    /// Whether it is a generation of this image: of its key and format, whatever the content.
    pub fn is_of(&self, image: &Image) -> bool {
        self.key == image.key && self.format == image.format
    }
}

/// The base image that a marker's name belongs to.
pub fn base_of_marker(volume: &str) -> Option<BaseName> {
    let base = BaseName::parse(volume.strip_suffix(&marker_volume(""))?)?;
    Some(base)
}

/// The base image that a claim's name belongs to.
pub fn base_of_claim(volume: &str) -> Option<BaseName> {
    BaseName::parse(volume.strip_suffix(&claim_volume(""))?)
}

/// The operator's own cache: `base-<key>.<format>`, never ours.
pub fn operator_key(volume: &str) -> Option<(&str, ImageFormat)> {
    stem_and_format(volume)
}

/// The two halves of any base image's name.
fn stem_and_format(volume: &str) -> Option<(&str, ImageFormat)> {
    let (stem, format) = volume.strip_prefix(BASE_IMAGE_PREFIX)?.rsplit_once('.')?;
    Some((stem, ImageFormat::from_word(format)?))
}

/// A name of ours, unless the configuration has a key that makes the operator's own cache look like that.
pub fn our_name(volume: &str, images: &[Image]) -> Option<BaseName> {
    let name = BaseName::parse(volume)?;
    let operators = operator_key(volume).is_some_and(|(key, format)| {
        images
            .iter()
            .any(|image| image.key == key && image.format == format)
    });
    (!operators).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::identity::tests::image;

    #[test]
    fn base_names_are_read_and_look_alikes_are_not() {
        let base = BaseName::parse("base-debian-13.1_x-0123456789abcdef.qcow2").unwrap();
        assert_eq!(
            (base.key.as_str(), base.id.as_str(), base.format),
            ("debian-13.1_x", "0123456789abcdef", ImageFormat::Qcow2)
        );
        assert!(BaseName::parse("base-a-0123456789abcdef.raw").is_some());
        for other in [
            "base-debian-13.qcow2",
            "base-debian-13-0123456789ABCDEF.qcow2",
            "base-debian-13-0123456789abcde.qcow2",
            "base-debian-13-0123456789abcdef0.qcow2",
            "base-debian-13-0123456789abcdeg.qcow2",
            "base-debian-13-0123456789abcdef.img",
            "base-debian-13-0123456789abcdef",
            "base-debian-13-0123456789abcdef.qcow2.bak",
            "base-0123456789abcdef.qcow2",
            "base--0123456789abcdef.qcow2",
            "my-base-a-0123456789abcdef.qcow2",
            "Base-a-0123456789abcdef.qcow2",
            "base-a b-0123456789abcdef.qcow2",
            "",
        ] {
            assert_eq!(BaseName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn generations_are_told_by_their_names() {
        let table = [
            ("base-debian-13-0123456789abcdef.qcow2", true),
            ("base-debian-13-0123456789ABCDEF.qcow2", false),
            ("base-debian-13-0123456789abcdef.raw", false),
            ("base-debian-13-0123456789abcdef.qcow2.sha256", false),
            ("base-debian-13-0123456789abcde.qcow2", false),
            ("base-debian-13-slim-0123456789abcdef.qcow2", false),
            ("base-debian-13.qcow2", false),
            ("base-debian-1-0123456789abcdef.qcow2", false),
        ];
        for (volume, wanted) in table {
            let is_of = BaseName::parse(volume).is_some_and(|name| name.is_of(&image()));
            assert_eq!(is_of, wanted, "{volume}");
        }
    }

    #[test]
    fn markers_and_claims_belong_to_a_base() {
        let volume = "base-a-0123456789abcdef.qcow2";
        assert_eq!(
            base_of_marker(&format!("{volume}.sha256")).unwrap().volume,
            volume
        );
        assert_eq!(
            base_of_claim(&format!("{volume}.claim")).unwrap().volume,
            volume
        );
        assert_eq!(base_of_marker("base-a.qcow2.sha256"), None);
        assert_eq!(base_of_marker(volume), None);
        assert_eq!(base_of_claim("base-a.qcow2.claim"), None);
        assert_eq!(
            operator_key("base-debian-13.qcow2"),
            Some(("debian-13", ImageFormat::Qcow2))
        );
        assert_eq!(operator_key("base-x.iso"), None);
    }
}
