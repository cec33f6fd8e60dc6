//! When an image's server is asked, and what is used without asking it.

use super::identity::{URL_KEY, called, pin_of};
use super::ready::{BaseImage, find_kept};
use super::store::usable_pool;
use crate::config::Image;
use crate::error::{Error, Reason, Result};
use crate::host::HostSession;
use crate::shell;

/// When the image's server is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// Always for what it has now; downloaded is only what isn't ready.
    Always,
    /// Where no ready image of that URL is on the host.
    #[default]
    Missing,
    /// Never: what isn't ready is an error.
    Never,
}

/// What the host has already and may be used without asking the server. A pinned image's look-up is a part of
/// preparing the host, but for a policy of never.
pub(super) fn look(
    host: &HostSession,
    image: &Image,
    policy: PullPolicy,
) -> Result<Option<BaseImage>> {
    let pinned = pin_of(image).is_some();
    if policy == PullPolicy::Always || (pinned && policy == PullPolicy::Missing) {
        return Ok(None);
    }
    let hypervisor = host.connect()?;
    usable_pool(host, &*hypervisor)?;
    let kept = find_kept(&*hypervisor, host.pool(), image)?;
    if kept.is_none() && policy == PullPolicy::Never {
        return Err(not_kept(image));
    }
    Ok(kept)
}

/// The error for an image that isn't ready and may not be pulled.
pub fn not_kept(image: &Image) -> Error {
    let named = called(image);
    // A URL whose secrets aren't shown can't be pasted.
    let line = if image.key == URL_KEY && named != image.url.expose() {
        "pull it from the same URL first, by egressctl image pull".to_owned()
    } else {
        format!("egressctl image pull {}", shell::quote(&named))
    };
    Error::permanent(
        Reason::ImageNotReady,
        format!("image {named} is not on the host, and may not be pulled"),
    )
    .hint(line)
    .hint("leave --pull never out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Firmware, ImageFormat};

    #[test]
    fn the_line_that_pulls_it_can_be_pasted_or_isnt_given() {
        let hint = |key: &str, url: &str| {
            let image = Image {
                key: key.to_owned(),
                url: url.into(),
                sha256: None,
                sha512: None,
                checksum_url: None,
                format: ImageFormat::Qcow2,
                firmware: Firmware::Uefi,
            };
            not_kept(&image).hints()[0].clone()
        };
        let url = "https://example.net/a.qcow2";
        let secret = format!("{url}?token=secret");
        assert_eq!(hint("debian-13", &secret), "egressctl image pull debian-13");
        assert_eq!(hint(URL_KEY, url), format!("egressctl image pull {url}"));
        let told = hint(URL_KEY, &secret);
        assert!(
            !told.starts_with("egressctl") && !told.contains("secret"),
            "{told}"
        );
    }
}
