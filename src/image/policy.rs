//! When an image's server is asked, and what is used without asking it.

use super::identity::{URL_KEY, pin_of};
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
    let named = if image.key == URL_KEY {
        image.url.to_string()
    } else {
        image.key.clone()
    };
    Error::permanent(
        Reason::ImageNotReady,
        format!("image {named} is not on the host, and may not be pulled"),
    )
    .hint(format!("egressctl image pull {}", shell::quote(&named)))
    .hint("leave --pull never out")
}
