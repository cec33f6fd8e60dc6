//! Keeping what the server has now the newest of its generations, which a create takes without asking the server.
//!
//! Where the publisher has withdrawn a build, or the clock of whoever pulled another one was ahead, what the server has
//! may be dated before another generation. Then its marker is dated anew.
//!
//! A date is the time of the question to the server, not of its end: of two answers the one to the later question holds,
//! however long the download or the wait for other hosts took.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::claim::{Claim, Tried, try_claim};
use super::identity::{MARKER_LIMIT, Marker, marker_volume, pin_of};
use super::ready::{BaseImage, named_generations, with_markers};
use crate::config::Image;
use crate::error::Result;
use crate::host::HostSession;
use crate::libvirt::Hypervisor;
use crate::units;

/// Makes this image, which the server had at the time it was `asked`, the newest of its URL, unless somebody has asked
/// since. A pinned one needs no date.
///
/// The image is ready whatever becomes of that: a failure is logged. Errors: an interrupt.
pub(super) fn make_newest(
    host: &HostSession,
    image: &Image,
    base: &BaseImage,
    asked: Timestamp,
) -> Result<()> {
    if pin_of(image).is_some() {
        return Ok(());
    }
    if let Err(error) = host
        .connect()
        .and_then(|hypervisor| date_anew(host, &hypervisor, image, base, asked))
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
    asked: Timestamp,
) -> Result<()> {
    let (pool, calls) = (host.pool(), &**hypervisor);
    let named = named_generations(calls, pool, image)?;
    if named.iter().all(|volume| *volume == base.volume) {
        return Ok(());
    }
    let all = with_markers(calls, pool, image, named)?;
    let (own, others): (Vec<_>, Vec<_>) = all
        .iter()
        .filter_map(|(volume, marker)| Some((volume, marker.pulled()?)))
        .partition(|(volume, _)| **volume == base.volume);
    let dates = |of: &[(&String, Timestamp)]| of.iter().map(|(_, date)| *date).max();
    let (Some(own), Some(newest)) = (dates(&own), dates(&others)) else {
        return Ok(());
    };
    // After the markers were read: what was written a moment ago isn't from the future.
    let Some(date) = new_date(own, newest, asked, Timestamp::now()) else {
        return Ok(());
    };
    match try_claim(host, hypervisor, &base.volume, || ())? {
        // Somebody removes it, or dates it anew just now.
        Tried::Held => Ok(()),
        Tried::Claimed(claim, ()) => match rewrite(host, &claim, base, date) {
            Ok(()) => claim.release(),
            Err(error) => Err(claim.give_up(host, error)),
        },
    }
}

/// The date with which what the server had when it was `asked` is the newest; none where its `own` does, or where the
/// `newest` of the others is of a later answer.
///
/// That is one between the question and `now`. Where it is later than that, a clock was ahead, and it says nothing.
fn new_date(
    own: Timestamp,
    newest: Timestamp,
    asked: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    let is_of_a_later_answer = asked < newest && newest <= now;
    if own > newest || is_of_a_later_answer {
        return None;
    }
    let after = newest.checked_add(SignedDuration::from_millis(1)).ok()?;
    Some(after.max(asked))
}

/// In place, and in one piece: whoever reads it sees one date or the other.
fn rewrite(host: &HostSession, claim: &Claim, base: &BaseImage, date: Timestamp) -> Result<()> {
    let (pool, hypervisor) = (host.pool(), &**claim.hypervisor());
    let name = marker_volume(&base.volume);
    let Some(stored) = hypervisor.download_volume(pool, &name, MARKER_LIMIT)? else {
        return Ok(());
    };
    let Some(text) = dated(&stored, date) else {
        return Ok(());
    };
    claim.ensure_sure()?;
    log::info!(
        "host={} dating {name} anew: it is what the server has",
        host.name()
    );
    hypervisor.write_volume(pool, &name, text.as_bytes())
}

/// The marker with this date; none where it has a later one by now, or the text can't take the place of the old one.
fn dated(stored: &[u8], date: Timestamp) -> Option<String> {
    let marker = Marker::parse(stored)?;
    if marker.pulled()? >= date {
        return None;
    }
    let text = Marker {
        pulled_at: Some(units::to_the_millisecond(date)),
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

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn only_what_was_answered_before_gives_way() {
        let (asked, now) = (at("2026-03-01T00:00:00.5Z"), at("2026-03-01T00:10:00Z"));
        let own = at("2026-01-02T03:04:05.678Z");
        for (newest, expected) in [
            // Older than the question.
            ("2026-02-01T00:00:00.123Z", Some("2026-03-01T00:00:00.500Z")),
            ("2026-03-01T00:00:00.5Z", Some("2026-03-01T00:00:00.501Z")),
            // Somebody asked later, and heard of another one.
            ("2026-03-01T00:00:00.501Z", None),
            ("2026-03-01T00:10:00Z", None),
            // A clock was ahead.
            ("2026-03-01T00:10:00.001Z", Some("2026-03-01T00:10:00.002Z")),
            ("2027-01-01T00:00:00.999Z", Some("2027-01-01T00:00:01.000Z")),
            // It is the newest already.
            ("2026-01-02T03:04:05.677Z", None),
            // Within the same millisecond neither is.
            ("2026-01-02T03:04:05.678Z", Some("2026-03-01T00:00:00.500Z")),
        ] {
            let date = new_date(own, at(newest), asked, now);
            assert_eq!(date, expected.map(at), "{newest}");
            assert!(date.is_none_or(|date| date > at(newest)), "{newest}");
        }
        // Also where the own one's clock was ahead.
        let ahead = at("2026-06-01T00:00:00Z");
        assert_eq!(new_date(ahead, own, asked, now), None);
        let further = at("2026-07-01T00:00:00Z");
        let date = new_date(ahead, further, asked, now);
        assert_eq!(date, Some(at("2026-07-01T00:00:00.001Z")));
        assert_eq!(new_date(own, Timestamp::MAX, asked, now), None);
    }

    #[test]
    fn of_two_answers_the_later_question_wins_whoever_writes_first() {
        let of = |millis| Timestamp::from_millisecond(millis).unwrap();
        let now = of(1_000);
        // Both were there before, and both are dated anew by who asked at 500 and at 600.
        let (first, second) = (of(100), of(200));
        let earlier = new_date(first, second, of(500), now).unwrap();
        let later = new_date(second, earlier, of(600), now).unwrap();
        assert_eq!((earlier, later), (of(500), of(600)));
        let later = new_date(second, first.max(of(300)), of(600), now).unwrap();
        assert_eq!(new_date(first, later, of(500), now), None);
    }

    #[test]
    fn a_later_date_takes_the_place_of_the_old_one() {
        let stored = marker("2026-01-02T03:04:05.678Z").to_text();
        let text = dated(stored.as_bytes(), at("2026-03-01T00:00:00.5Z")).unwrap();
        assert_eq!(text, marker("2026-03-01T00:00:00.500Z").to_text());
        assert_eq!(text.len(), stored.len());
        // Another was faster, with a date as late.
        for date in ["2026-01-02T03:04:05.678Z", "2026-01-01T00:00:00Z"] {
            assert_eq!(dated(stored.as_bytes(), at(date)), None, "{date}");
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
            assert_eq!(dated(stored.as_bytes(), now), None, "{stored}");
        }
    }
}
