//! What `PyYAML` makes of a text, and whether it can: YAML 1.1's types (yaml.org/type), and the errors of making them.

use base64::alphabet;
use jiff::civil::Date;

/// A type of YAML 1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Null,
    Bool,
    Int,
    Float,
    Timestamp,
    /// `<<`.
    Merge,
    /// `=`.
    Value,
    Text,
}

/// The type of a plain text without a tag.
pub(super) fn of_plain(text: &str) -> Type {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Type::Null,
        "<<" => Type::Merge,
        "=" => Type::Value,
        _ if is_bool_word(text) => Type::Bool,
        _ if is_int(text) => Type::Int,
        _ if is_float(text) => Type::Float,
        _ if Timestamp::of(text).is_some_and(|time| time.is_implicit) => Type::Timestamp,
        _ => Type::Text,
    }
}

fn is_bool_word(text: &str) -> bool {
    let forms = |word: &str| {
        let (first, rest) = word.split_at(1);
        let capital = first.to_ascii_uppercase() + rest;
        text == word || text == capital || text == word.to_ascii_uppercase()
    };
    ["yes", "no", "true", "false", "on", "off"]
        .into_iter()
        .any(forms)
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

/// Whether it is of these characters, and one at least.
fn is_of(text: &str, allowed: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| allowed.contains(c))
}

fn is_int(text: &str) -> bool {
    const DECIMAL: &str = "0123456789_";
    let text = unsigned(text);
    if let Some(digits) = text.strip_prefix("0b") {
        return is_of(digits, "01_");
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return is_of(digits, "0123456789abcdefABCDEF_");
    }
    if let Some(digits) = text.strip_prefix('0') {
        return digits.is_empty() || is_of(digits, "01234567_");
    }
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default();
    first.starts_with(|c: char| c.is_ascii_digit())
        && is_of(first, DECIMAL)
        && parts.all(is_sixtieth)
}

/// A digit of a number to base 60.
fn is_sixtieth(text: &str) -> bool {
    let tens = text.len() == 1 || text.starts_with(|c| ('0'..='5').contains(&c));
    text.len() <= 2 && tens && is_of(text, "0123456789")
}

fn is_float(text: &str) -> bool {
    const DIGITS: &str = "0123456789_";
    let number = unsigned(text);
    if matches!(number, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let Some((whole, fraction)) = number.split_once('.') else {
        return false;
    };
    let (fraction, exponent) = match fraction.split_once(['e', 'E']) {
        Some((fraction, exponent)) => (fraction, Some(exponent)),
        None => (fraction, None),
    };
    let good_exponent = exponent.is_none_or(|exponent| {
        exponent.starts_with(['+', '-']) && is_of(&exponent[1..], "0123456789")
    });
    let good_fraction = fraction.is_empty() || is_of(fraction, DIGITS);
    let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if whole.is_empty() {
        // Without a sign.
        return number == text && good_exponent && begins(fraction) && good_fraction;
    }
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let in_sixties = whole.contains(':');
    begins(first)
        && is_of(first, DIGITS)
        && parts.all(is_sixtieth)
        && good_fraction
        && good_exponent
        && !(in_sixties && exponent.is_some())
}

/// Whether a text can be made into an integer, as the one with a tag must: `PyYAML`'s `construct_yaml_int`.
pub(super) fn makes_int(text: &str) -> bool {
    let text = text.replace('_', "");
    let number = unsigned(&text);
    let radix =
        |digits: &str, radix| !digits.is_empty() && digits.chars().all(|c: char| c.is_digit(radix));
    if let Some(digits) = number.strip_prefix("0b") {
        radix(digits, 2)
    } else if let Some(digits) = number.strip_prefix("0x") {
        radix(digits, 16)
    } else if number == "0" {
        true
    } else if number.starts_with('0') {
        radix(number.strip_prefix("0o").unwrap_or(number), 8)
    } else {
        number.split(':').all(|digits| radix(digits.trim(), 10))
    }
}

/// The same for a number with a fraction.
pub(super) fn makes_float(text: &str) -> bool {
    let text = text.replace('_', "").to_ascii_lowercase();
    let number = unsigned(&text);
    let is_one = |text: &str| text.trim().parse::<f64>().is_ok();
    matches!(number, ".inf" | ".nan") || !number.is_empty() && number.split(':').all(is_one)
}

/// The same for a boolean.
pub(super) fn makes_bool(text: &str) -> bool {
    is_bool_word(&text.to_lowercase())
}

/// The same for bytes in base64: other letters are skipped, and what stands behind the padding (Python's `a2b_base64`).
pub(super) fn makes_binary(text: &str) -> bool {
    let letters = alphabet::STANDARD.as_str();
    let (mut in_group, mut padding) = (0, 0);
    for c in text.chars() {
        if c == '=' {
            if in_group >= 2 {
                padding += 1;
                if in_group + padding >= 4 {
                    return text.is_ascii();
                }
            }
        } else if letters.contains(c) {
            padding = 0;
            in_group = (in_group + 1) % 4;
        }
    }
    in_group == 0 && text.is_ascii()
}

/// The same for a point in time.
pub(super) fn makes_timestamp(text: &str) -> bool {
    Timestamp::of(text).is_some_and(|time| time.exists)
}

/// A text with the form of a date, or of a date and a time.
struct Timestamp {
    /// Whether it is one without a tag, too.
    is_implicit: bool,
    /// Whether there is such a day and time.
    exists: bool,
}

impl Timestamp {
    fn of(text: &str) -> Option<Self> {
        let end = text.find(['T', 't', ' ', '\t']).unwrap_or(text.len());
        let (date, rest) = text.split_at(end);
        let date: Vec<&str> = date.split('-').collect();
        let [year, month, day] = date[..] else {
            return None;
        };
        let (y, m, d) = (
            number(year, &[4])?,
            number(month, &[1, 2])?,
            number(day, &[1, 2])?,
        );
        let small = |n: i16| i8::try_from(n).unwrap_or(i8::MAX);
        let day_exists = y >= 1 && Date::new(y, small(m), small(d)).is_ok();
        if rest.is_empty() {
            return Some(Timestamp {
                is_implicit: month.len() == 2 && day.len() == 2,
                exists: day_exists,
            });
        }
        let time = match rest.strip_prefix(['T', 't']) {
            Some(time) => time,
            None => rest.trim_start_matches([' ', '\t']),
        };
        let end = time
            .find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'))
            .unwrap_or(time.len());
        let (clock, zone) = time.split_at(end);
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let clock: Vec<&str> = clock.split(':').collect();
        let [hour, minute, second] = clock[..] else {
            return None;
        };
        let (hour, minute, second) = (
            number(hour, &[1, 2])?,
            number(minute, &[2])?,
            number(second, &[2])?,
        );
        if !fraction.chars().all(|c| c.is_ascii_digit()) {
            return None;
        }
        let zone_exists = zone_exists(zone)?;
        Some(Timestamp {
            is_implicit: true,
            exists: day_exists && hour < 24 && minute < 60 && second < 60 && zone_exists,
        })
    }
}

/// A number of so many digits.
fn number(text: &str, lengths: &[usize]) -> Option<i16> {
    let good = lengths.contains(&text.len()) && is_of(text, "0123456789");
    good.then(|| text.parse().ok()).flatten()
}

/// Whether there is such an offset from UTC; none if the text isn't one.
fn zone_exists(text: &str) -> Option<bool> {
    if text.is_empty() {
        return Some(true);
    }
    let offset = match text.trim_start_matches([' ', '\t']) {
        "Z" => return Some(true),
        offset => offset.strip_prefix(['+', '-'])?,
    };
    let (hours, minutes) = offset.split_once(':').unwrap_or((offset, "00"));
    Some(number(hours, &[1, 2])? * 60 + number(minutes, &[2])? < 24 * 60)
}
