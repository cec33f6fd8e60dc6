//! Which images the argument of `image rm` means.

use std::collections::BTreeSet;

use crate::error::{Error, Reason, Result};
use crate::gc::plan::Base;
use crate::image::identity::{URL_KEY, source_of_url};
use crate::placement;
use crate::url::{CUT_QUERY, SecretUrl};

/// Which images `image rm` is to remove.
pub(super) enum Asked<'a> {
    /// Those that were pulled from this URL, by its id, whatever key they go under; else the one that `image list`
    /// shows with it.
    Url {
        url: SecretUrl,
        source: String,
        /// As `image list` would show it.
        listed: String,
    },
    /// The volume of this name, or all of the image of this key.
    Name(&'a str),
}

impl<'a> Asked<'a> {
    /// Errors: [`Reason::BadArgument`] (usage) for what no image can be called, and for what all are that were given by
    /// URL, each another's.
    pub(super) fn new(text: &'a str) -> Result<Self> {
        placement::ensure_names_image(text)?;
        if text == URL_KEY {
            return Err(Error::usage(
                Reason::BadArgument,
                format!("{URL_KEY:?} is what every image goes under that was given by its URL"),
            )
            .hint("name its URL or its volume, as in: egressctl image list -o wide"));
        }
        if !text.contains("://") {
            return Ok(Asked::Name(text));
        }
        let url = SecretUrl::from(text);
        let source = source_of_url(&url);
        let listed = match text.strip_suffix(CUT_QUERY) {
            Some(plain) => format!("{}{CUT_QUERY}", SecretUrl::from(plain).expose()),
            None => url.expose().to_owned(),
        };
        Ok(Asked::Url {
            url,
            source,
            listed,
        })
    }

    fn means(&self, base: &Base<'_>) -> bool {
        match self {
            Asked::Url { source, .. } => {
                let marker = base.marker.and_then(|marker| marker.source.as_ref());
                marker == Some(source)
            }
            Asked::Name(name) => base.volume.name == *name || base.key == *name,
        }
    }

    /// Those that are meant of all that were found; `all_seen` says whether that is all there are.
    ///
    /// `image list` shows where an image came from after redirects and without the query, which may be where others
    /// came from, too: that counts only where nothing was pulled from the very URL, no host is unread, and one
    /// image is shown with it.
    ///
    /// Errors: [`Reason::AmbiguousName`] (permanent) where several are.
    pub(super) fn choose<T>(
        &self,
        found: Vec<T>,
        base: impl Fn(&T) -> &Base<'_>,
        all_seen: bool,
    ) -> Result<Vec<T>> {
        let (meant, others): (Vec<T>, Vec<T>) =
            found.into_iter().partition(|one| self.means(base(one)));
        let Asked::Url { url, listed, .. } = self else {
            return Ok(meant);
        };
        if !meant.is_empty() || !all_seen {
            return Ok(meant);
        }
        let is_shown = |one: &T| {
            let marker = base(one).marker.and_then(|marker| marker.url.as_deref());
            marker == Some(listed)
        };
        let shown: Vec<T> = others.into_iter().filter(is_shown).collect();
        let volumes = shown.iter().map(|one| base(one).volume.name.as_str());
        let volumes: Vec<&str> = volumes.collect::<BTreeSet<_>>().into_iter().collect();
        if volumes.len() < 2 {
            return Ok(shown);
        }
        Err(Error::permanent(
            Reason::AmbiguousName,
            format!("{url} is shown for {} images", volumes.len()),
        )
        .because(format!("volumes: {}", volumes.join(", ")))
        .hint("name the volume that is meant: egressctl image list -o wide"))
    }

    /// It, for messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Asked::Url { url, .. } => url.to_string(),
            Asked::Name(name) => (*name).to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ImageFormat;
    use crate::gc::plan::{BaseState, Claimed};
    use crate::image::identity::Marker;
    use crate::image::names::BaseName;
    use crate::image::ready::Sizes;
    use crate::inventory::tests::volume;
    use crate::xml::volume::VolumeInfo;

    /// Volumes, each with its source and the URL that is shown.
    type Found<'a> = &'a [(&'a VolumeInfo, &'a str, &'a str)];

    #[test]
    fn a_url_as_the_list_shows_it_means_one_image_or_none() {
        let marker = |source: &str, url: &str| Marker {
            source: Some(source.to_owned()),
            url: Some(url.to_owned()),
            ..Marker::default()
        };
        let (direct, mirror) = ("https://example.net/a.qcow2", "https://m.example.net/a");
        let hidden = "https://example.net/a.qcow2?…";
        let own = source_of_url(&direct.into());
        let (one, two) = (
            volume("base-one-0123456789abcdef.qcow2"),
            volume("base-two-0123456789abcdef.qcow2"),
        );
        // What there is; what is asked for, and whether all hosts were seen; those
        // that are meant, or none where that isn't certain.
        let table: [(Found<'_>, &str, bool, Option<&[&str]>); 10] = [
            (&[(&one, "x", mirror)], mirror, true, Some(&[&one.name])),
            (&[(&one, "x", hidden)], hidden, true, Some(&[&one.name])),
            (
                &[(&one, "x", hidden)],
                "HTTPS://Example.net:443/a.qcow2?…",
                true,
                Some(&[&one.name]),
            ),
            // Another query may be another image.
            (
                &[(&one, "x", hidden)],
                "https://example.net/a.qcow2?b",
                true,
                Some(&[]),
            ),
            (&[(&one, "x", hidden)], direct, true, Some(&[])),
            // One image on two hosts.
            (
                &[(&one, "x", mirror), (&one, "y", mirror)],
                mirror,
                true,
                Some(&[&one.name, &one.name]),
            ),
            (
                &[(&one, "x", mirror), (&two, "y", mirror)],
                mirror,
                true,
                None,
            ),
            // What was pulled from there itself comes first.
            (
                &[(&one, &own, mirror), (&two, "x", direct)],
                direct,
                true,
                Some(&[&one.name]),
            ),
            (
                &[(&one, &own, mirror), (&two, "x", direct)],
                direct,
                false,
                Some(&[&one.name]),
            ),
            // It may stand on the host that wasn't seen.
            (&[(&one, "x", mirror)], mirror, false, Some(&[])),
        ];
        for (found, text, all_seen, wanted) in table {
            let markers = found.iter().map(|(_, source, url)| marker(source, url));
            let markers: Vec<Marker> = markers.collect();
            let bases = found.iter().zip(&markers);
            let bases = bases.map(|((volume, ..), marker)| base(volume, Some(marker)));
            let meant = Asked::new(text)
                .unwrap()
                .choose(bases.collect(), |base| base, all_seen);
            match (meant, wanted) {
                (Ok(meant), Some(wanted)) => {
                    let names: Vec<&str> = meant.iter().map(|b| b.volume.name.as_str()).collect();
                    assert_eq!(names, wanted, "{text} of {found:?}");
                }
                (Err(error), None) => {
                    assert_eq!(error.reason(), Reason::AmbiguousName);
                    assert!(error.causes()[0].contains(&format!("{}, {}", one.name, two.name)));
                }
                (meant, _) => panic!("{text} of {found:?}: {}", meant.is_ok()),
            }
        }
    }

    fn base<'a>(volume: &'a VolumeInfo, marker: Option<&'a Marker>) -> Base<'a> {
        Base {
            volume,
            key: BaseName::parse(&volume.name).unwrap().key,
            id: None,
            marker,
            sizes: Sizes::of(marker, volume, ImageFormat::Qcow2),
            state: BaseState::Ready,
            claim: Claimed::Free,
            wanted: false,
            users: Vec::new(),
        }
    }

    #[test]
    fn an_image_is_meant_by_its_volume_its_key_or_its_url() {
        let url = "https://example.net/a.qcow2?token=secret";
        let marker = |source: &str| Marker {
            source: Some(source.to_owned()),
            ..Marker::default()
        };
        let (ours, other) = (marker(&source_of_url(&url.into())), marker("feed"));
        let from_url = volume("base-url-0123456789abcdef.qcow2");
        let configured = volume("base-debian-0123456789abcdef.qcow2");
        // What is asked for; the volume and its marker; whether it is meant.
        let table = [
            (url, &from_url, Some(&ours), true),
            (url, &configured, Some(&ours), true),
            (url, &from_url, Some(&other), false),
            (url, &from_url, None, false),
            ("https://example.net/a.qcow2", &from_url, Some(&ours), false),
            // Who asks doesn't matter, nor does what no server sees.
            (
                "HTTPS://Example.net:443/a.qcow2?token=secret#frag",
                &from_url,
                Some(&ours),
                true,
            ),
            (
                "https://me:pw@example.net/a.qcow2?token=secret",
                &from_url,
                Some(&ours),
                true,
            ),
            ("debian", &configured, Some(&other), true),
            ("debian", &from_url, Some(&ours), false),
            ("base-url-0123456789abcdef.qcow2", &from_url, None, true),
            ("base-url-0123456789abcdef.qcow2", &configured, None, false),
        ];
        for (text, volume, marker, wanted) in table {
            let base = base(volume, marker);
            let asked = Asked::new(text).unwrap();
            assert_eq!(asked.means(&base), wanted, "{text} {}", volume.name);
            assert!(!asked.shown().contains("secret") && !asked.shown().contains("pw"));
        }
        assert_eq!(
            Asked::new("url").err().unwrap().reason(),
            Reason::BadArgument
        );
    }
}
