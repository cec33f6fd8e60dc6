//! Whether a domain that has the name already is the one wanted. Pure.

use jiff::Timestamp;

use super::spec::CreateSpec;
use crate::error::{Error, Reason};
use crate::instance::Instance;
use crate::units;
use crate::xml::metadata::Metadata;

/// What to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is the one: make sure that it runs.
    Adopt,
    /// It isn't: leave it alone and say why.
    Refuse(Error),
}

/// Ours with the uid asked for, or (without one) with the same spec, is the one wanted, unless its time is over by `now`:
/// then any gc may delete it.
pub(super) fn decide(instance: &Instance, spec: &CreateSpec, now: Timestamp) -> Decision {
    let name = &instance.domain.name;
    if instance.is_in_doubt() {
        return Decision::Refuse(
            Error::permanent(
                Reason::InDoubt,
                format!("domain {name} exists with a mark of egressctl that can't be read"),
            )
            .hint("choose another --name"),
        );
    }
    let Some(metadata) = instance.metadata() else {
        let whose = instance.manager().map_or_else(
            || "was not made by egressctl".to_owned(),
            |manager| format!("is the operator's ({})", manager.as_str()),
        );
        return Decision::Refuse(
            Error::permanent(
                Reason::ForeignDomain,
                format!("domain {name} exists and {whose}: it was left alone"),
            )
            .hint("choose another --name"),
        );
    };
    if let Err(error) = instance.ensure_own_mark() {
        return Decision::Refuse(error);
    }
    let differences = differences(metadata, spec);
    if !differences.is_empty() {
        return Decision::Refuse(differs(instance, &differences));
    }
    match metadata.expires_at {
        Some(at) if at <= now && metadata.managed => Decision::Refuse(expired(instance, at, spec)),
        _ => Decision::Adopt,
    }
}

/// What makes an instance of ours another one than what is wanted.
fn differences(metadata: &Metadata, spec: &CreateSpec) -> Vec<String> {
    if spec.uid_is_given {
        let differs = metadata.uid != spec.uid;
        let told = differs.then(|| format!("its uid is {}, not {}", metadata.uid, spec.uid));
        return told.into_iter().collect();
    }
    let wanted = spec.record();
    // A URL with secrets in it was recorded, and hashed, as it was by earlier versions.
    if metadata.spec_hash == wanted.hash() {
        return Vec::new();
    }
    metadata.spec.differences(&wanted)
}

/// Extending it silently would be another's decision: who let it expire may count on its end.
fn expired(instance: &Instance, at: Timestamp, spec: &CreateSpec) -> Error {
    let (name, id) = (&instance.domain.name, instance.id());
    let ttl = spec.ttl.map_or_else(
        || "8h".to_owned(),
        |ttl| humantime::format_duration(ttl).to_string().replace(' ', ""),
    );
    Error::permanent(
        Reason::InstanceExpired,
        format!(
            "instance {name} exists, but expired at {}: the next gc deletes it",
            units::timestamp(at)
        ),
    )
    .hint(format!("egressctl extend {id} {ttl}"))
    .hint("that keeps it; then the same command again")
    .hint(format!(
        "or have the same command make it anew, after: egressctl delete {id}"
    ))
}

fn differs(instance: &Instance, differences: &[String]) -> Error {
    let (name, id) = (&instance.domain.name, instance.id());
    let error = Error::permanent(
        Reason::InstanceDiffers,
        format!("instance {name} exists, but isn't what was asked for: it was left alone"),
    );
    differences
        .iter()
        .fold(error, Error::because)
        .hint(format!("egressctl delete {id}"))
        .hint("or choose another --name")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::create::spec::tests::spec;
    use crate::inventory::tests::domain;
    use crate::xml::metadata::tests::plain;

    #[test]
    fn one_whose_time_is_over_is_not_taken() {
        let now = units::now();
        let hour = Duration::from_secs(3600);
        let past = now.checked_sub(hour).unwrap();
        let table = [
            ("without a time", None, true, "0f5e8a9c", None),
            ("in time", units::later(now, hour), true, "0f5e8a9c", None),
            (
                "over",
                Some(past),
                true,
                "0f5e8a9c",
                Some(Reason::InstanceExpired),
            ),
            (
                "over right now",
                Some(now),
                true,
                "0f5e8a9c",
                Some(Reason::InstanceExpired),
            ),
            (
                "over, but never collected",
                Some(past),
                false,
                "0f5e8a9c",
                None,
            ),
            (
                "over, and another",
                Some(past),
                true,
                "other",
                Some(Reason::InstanceDiffers),
            ),
        ];
        for (about, expires_at, managed, uid, refused) in table {
            let mut metadata = plain();
            metadata.expires_at = expires_at;
            metadata.managed = managed;
            let instance = domain("web", &metadata.to_xml().unwrap(), "").instance;
            let reason = match decide(&instance, &spec(uid), now) {
                Decision::Adopt => None,
                Decision::Refuse(error) => Some(error.reason()),
            };
            assert_eq!(reason, refused, "{about}");
        }
        let mut wanted = spec("0f5e8a9c");
        wanted.ttl = Some(Duration::from_secs(5400));
        let mut metadata = plain();
        metadata.expires_at = Some(past);
        let instance = domain("web", &metadata.to_xml().unwrap(), "").instance;
        let Decision::Refuse(error) = decide(&instance, &wanted, now) else {
            panic!("it was taken");
        };
        assert_eq!(
            error.hints()[0],
            "egressctl extend hosts/nas1/domains/web 1h30m"
        );
    }
}
