//! Keeping what the server has now the newest of its generations, which a create takes without asking the server.
//!
//! Where the publisher has withdrawn a build, or the clock of whoever pulled another one was ahead, what the server has
//! may be dated before another generation. Then its marker is dated anew.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::claim::{Claim, Tried, try_claim};
use super::identity::{MARKER_LIMIT, Marker, marker_volume, pin_of};
use super::ready::{BaseImage, generations};
use crate::config::Image;
use crate::error::Result;
use crate::host::HostSession;
use crate::libvirt::Hypervisor;
use crate::units;

/// Makes this image, which the server has now, the newest of its URL. A pinned one needs no date.
///
/// The image is ready whatever becomes of that: a failure is logged. Errors: an interrupt.
pub(super) fn make_newest(host: &HostSession, image: &Image, base: &BaseImage) -> Result<()> {
    if pin_of(image).is_some() {
        return Ok(());
    }
    if let Err(error) = host
        .connect()
        .and_then(|hypervisor| date_anew(host, &hypervisor, image, base))
    {
        host.cancels().work.check()?;
        log::warn!(
            "{}: {} is what the server has, but could not be made the newest: {error}",
            host.name(),
            base.volume
        );
    }
    Ok(())
}

fn date_anew(
    host: &HostSession,
    hypervisor: &Arc<dyn Hypervisor>,
    image: &Image,
    base: &BaseImage,
) -> Result<()> {
    let all = generations(&**hypervisor, host.pool(), image)?;
    let newest = all.iter().filter(|(volume, _)| *volume != base.volume);
    let newest = newest.filter_map(|(_, marker)| marker.pulled()).max();
    let own = all.iter().find(|(volume, _)| *volume == base.volume);
    let (Some(newest), Some((_, own))) = (newest, own) else {
        return Ok(());
    };
    if own.pulled().is_none_or(|pulled| pulled > newest) {
        return Ok(());
    }
    match try_claim(host, hypervisor, &base.volume, || ())? {
        // Somebody removes it, or dates it anew just now.
        Tried::Held => Ok(()),
        Tried::Claimed(claim, ()) => match rewrite(host, &claim, base, newest) {
            Ok(()) => claim.release(),
            Err(error) => Err(claim.give_up(host, error)),
        },
    }
}

/// In place, and in one piece: whoever reads it sees one date or the other.
fn rewrite(host: &HostSession, claim: &Claim, base: &BaseImage, newest: Timestamp) -> Result<()> {
    let (pool, hypervisor) = (host.pool(), &**claim.hypervisor());
    let name = marker_volume(&base.volume);
    let Some(stored) = hypervisor.download_volume(pool, &name, MARKER_LIMIT)? else {
        return Ok(());
    };
    let Some(text) = later(&stored, newest, Timestamp::now()) else {
        return Ok(());
    };
    claim.ensure_sure()?;
    log::info!(
        "host={} dating {name} anew: it is what the server has",
        host.name()
    );
    hypervisor.write_volume(pool, &name, text.as_bytes())
}

/// The marker with a date after the newest one's; none where that can't be written in the place of the old one.
fn later(stored: &[u8], newest: Timestamp, now: Timestamp) -> Option<String> {
    let marker = Marker::parse(stored)?;
    let after = newest
        .checked_add(SignedDuration::from_millis(1))
        .ok()?
        .max(now);
    let text = Marker {
        pulled_at: Some(units::to_the_millisecond(after)),
        ..marker
    }
    .to_text();
    (text.len() == stored.len()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(pulled_at: &str) -> Marker {
        Marker {
            sha256: "ab".repeat(32),
            published_sha256: Some("ab".repeat(32)),
            pulled_at: Some(pulled_at.to_owned()),
            ..Marker::default()
        }
    }

    #[test]
    fn a_later_date_takes_the_place_of_the_old_one() {
        let stored = marker("2026-01-02T03:04:05.678Z").to_text();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = "2026-03-01T00:00:00.5Z";
        // The newest, and the date that comes of it: now's, but where a clock was ahead.
        for (newest, expected) in [
            ("2026-02-01T00:00:00.123Z", "2026-03-01T00:00:00.500Z"),
            ("2027-01-01T00:00:00.999Z", "2027-01-01T00:00:01.000Z"),
        ] {
            let text = later(stored.as_bytes(), at(newest), at(now)).unwrap();
            assert_eq!(text, marker(expected).to_text());
            assert_eq!(text.len(), stored.len());
        }
    }

    #[test]
    fn what_would_not_fit_stays() {
        let now = Timestamp::now();
        for stored in [
            marker("2026-01-02T03:04:05Z").to_text(),
            "ab".repeat(32),
            marker("2026-01-02T03:04:05.678Z").to_text() + "more: by a later version\n",
            String::new(),
        ] {
            assert_eq!(later(stored.as_bytes(), now, now), None, "{stored}");
        }
    }
}
