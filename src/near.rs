//! "Did you mean …?": which of the names there are a word was meant for. Pure.

/// How alike two words must be, from 0 (nothing in common) to 1 (the same).
const ENOUGH: f64 = 0.6;
/// One letter more, less, another, or two that changed places: always near, unless nothing else is in a word.
const SLIP: usize = 1;
/// So many letters of a name's start mean it.
const PREFIX: usize = 4;

/// The candidate that was probably meant, whatever its case, dashes and dots; the first among equals.
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = plain(given);
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        let score = likeness(&wanted, &plain(candidate));
        if score >= ENOUGH && best.is_none_or(|(before, _)| score > before) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

fn plain(text: &str) -> String {
    text.to_lowercase().replace(['_', '-', '.', ' '], "")
}

fn likeness(wanted: &str, candidate: &str) -> f64 {
    let likeness = strsim::normalized_damerau_levenshtein(wanted, candidate);
    let starts_it = wanted.len() >= PREFIX && candidate.starts_with(wanted);
    let slipped = candidate.chars().count() > SLIP + 1
        && strsim::damerau_levenshtein(wanted, candidate) <= SLIP;
    if starts_it || slipped {
        likeness.max(ENOUGH)
    } else {
        likeness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_seen_and_another_word_is_none() {
        let names = [
            "debian-12",
            "debian-13",
            "IP",
            "NAME",
            "USED-BY",
            "nas1",
            "big",
        ];
        let table = [
            ("debian-31", Some("debian-13")),
            ("Debian_13", Some("debian-13")),
            ("debi", Some("debian-12")),
            ("ipp", Some("IP")),
            ("nam", Some("NAME")),
            ("usedby", Some("USED-BY")),
            ("nas3", Some("nas1")),
            ("bug", Some("big")),
            ("gigantic", None),
            ("", None),
        ];
        for (given, meant) in table {
            assert_eq!(nearest(given, names), meant, "{given}");
        }
    }
}
