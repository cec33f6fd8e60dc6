//! Sizes and times for people.

use std::time::Duration;

use jiff::Timestamp;

/// Bytes in binary units, such as `1.5 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    // Tenths, in integers: no rounding surprises.
    let mut tenths = u128::from(count) * 10;
    let mut unit = "B";
    for next in UNITS {
        if tenths < 10 * 1024 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    if tenths % 10 == 0 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// A version as libvirt numbers them: `11003000` as `11.3.0`.
pub fn version(number: u64) -> String {
    format!(
        "{}.{}.{}",
        number / 1_000_000,
        number / 1000 % 1000,
        number % 1000
    )
}

/// A duration in its two largest units, such as `3d4h` or `12m`.
pub fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, m) if m < 10 && !seconds.is_multiple_of(60) => format!("{m}m{}s", seconds % 60),
        (0, 0, m) => format!("{m}m"),
        (0, h, 0) => format!("{h}h"),
        (0, h, m) => format!("{h}h{m}m"),
        (d, 0, _) => format!("{d}d"),
        (d, h, _) => format!("{d}d{h}h"),
    }
}

/// A span of time as people write it, such as `90s` or `1h 30m`.
///
/// `M` is refused: it would be months, and whoever writes it may mean minutes.
pub fn span(text: &str) -> Result<Duration, String> {
    let mut units = text.split(|c: char| !c.is_alphabetic());
    if units.any(|unit| unit == "M") {
        return Err("`M` could mean minutes (m) or months".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// A point in time as RFC 3339 in UTC, in whole seconds: `2026-11-29T19:38:00Z`.
pub fn timestamp(at: Timestamp) -> String {
    whole(at).to_string()
}

/// The same with milliseconds: `2026-11-29T19:38:00.042Z`.
pub fn to_the_millisecond(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// This moment, in whole seconds: what is recorded is compared and shown without fractions.
pub fn now() -> Timestamp {
    whole(Timestamp::now())
}

/// So much later, in whole seconds; none beyond the end of time.
pub fn later(at: Timestamp, by: Duration) -> Option<Timestamp> {
    at.checked_add(by).ok().map(whole)
}

/// The last full second, also before 1970.
fn whole(at: Timestamp) -> Timestamp {
    let seconds = at.as_second() - i64::from(at.subsec_nanosecond() < 0);
    Timestamp::from_second(seconds).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_split() {
        assert_eq!(version(11_003_000), "11.3.0");
        assert_eq!(version(9_000_002), "9.0.2");
    }

    #[test]
    fn sizes_have_one_decimal_at_most() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (10 << 30, "10 GiB"),
            (u64::MAX, "15.9 EiB"),
        ];
        for (count, text) in table {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn minutes_and_months_are_told_apart() {
        for (text, seconds) in [
            ("1m", 60),
            ("1min", 60),
            ("1month", 2_630_016),
            ("2h 3m", 7380),
            ("0", 0),
        ] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["1M", "2h3M", "1M 5s", "3 M"] {
            assert!(span(text).unwrap_err().contains("months"), "{text}");
        }
        assert!(span("1x").is_err() && span("").is_err());
    }

    #[test]
    fn times_have_whole_seconds() {
        for (text, wanted) in [
            ("2026-11-29T19:38:00Z", "2026-11-29T19:38:00Z"),
            ("2026-11-29T19:38:59.999999999Z", "2026-11-29T19:38:59Z"),
            ("1969-12-31T23:59:58.5Z", "1969-12-31T23:59:58Z"),
        ] {
            let at: Timestamp = text.parse().unwrap();
            assert_eq!(timestamp(at), wanted);
        }
        assert_eq!(now().subsec_nanosecond(), 0);
        let at: Timestamp = "2026-11-29T19:38:00Z".parse().unwrap();
        let sum = later(at, Duration::from_millis(1900)).unwrap();
        assert_eq!(sum.to_string(), "2026-11-29T19:38:01Z");
        assert_eq!(later(at, Duration::from_secs(u64::MAX)), None);
    }

    #[test]
    fn ages_have_two_units_at_most() {
        let table = [
            (0, "0s"),
            (59, "59s"),
            (61, "1m1s"),
            (3600, "1h"),
            (3660, "1h1m"),
            (90000, "1d1h"),
            (86400, "1d"),
        ];
        for (seconds, text) in table {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
