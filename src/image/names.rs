//! Which volumes have the names of base images. A name alone proves nothing; it says where proof is to be sought.

use super::identity::{BASE_PREFIX, claim_volume, marker_volume};
use crate::config::Image;

/// Hex digits of the content's id in a base volume's name.
const ID_DIGITS: usize = 16;

/// A volume's name that has the form of our base images': `base-<key>-<16 hex digits>.<format>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseName {
    /// The base volume's name.
    pub volume: String,
    /// The image's key.
    pub key: String,
    /// The content's id.
    pub id: String,
    /// The format, as in the name.
    pub format: String,
}

impl BaseName {
    /// Reads a base volume's name.
    pub fn parse(volume: &str) -> Option<Self> {
        let rest = volume.strip_prefix(BASE_PREFIX)?;
        let (stem, format) = rest.rsplit_once('.')?;
        let (key, id) = stem.rsplit_once('-')?;
        let lower_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let ours = matches!(format, "qcow2" | "raw")
            && id.len() == ID_DIGITS
            && id.chars().all(lower_hex)
            && key.starts_with(|c: char| c.is_ascii_alphanumeric())
            && key.chars().all(is_key);
        ours.then(|| BaseName {
            volume: volume.to_owned(),
            key: key.to_owned(),
            id: id.to_owned(),
            format: format.to_owned(),
        })
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
pub fn operator_key(volume: &str) -> Option<(&str, &str)> {
    let (key, format) = volume.strip_prefix(BASE_PREFIX)?.rsplit_once('.')?;
    matches!(format, "qcow2" | "raw").then_some((key, format))
}

/// A name of ours, unless the configuration has a key that makes the operator's own cache look like that.
pub fn our_name(volume: &str, images: &[Image]) -> Option<BaseName> {
    let name = BaseName::parse(volume)?;
    let operators = operator_key(volume).is_some_and(|(key, format)| {
        images
            .iter()
            .any(|image| image.key == key && image.format.as_str() == format)
    });
    (!operators).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_names_are_read_and_look_alikes_are_not() {
        let base = BaseName::parse("base-debian-13.1_x-0123456789abcdef.qcow2").unwrap();
        assert_eq!(
            (base.key.as_str(), base.id.as_str(), base.format.as_str()),
            ("debian-13.1_x", "0123456789abcdef", "qcow2")
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
            Some(("debian-13", "qcow2"))
        );
        assert_eq!(operator_key("base-x.iso"), None);
    }
}
