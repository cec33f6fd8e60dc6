//! What a repeated create asked for and an instance that was there already doesn't have. Pure.

use crate::create::CreateSpec;
use crate::instance::Instance;
use crate::units;

/// A sentence for each thing that was not applied; none for an instance that this run made.
pub(super) fn not_applied(
    spec: &CreateSpec,
    ttl_is_given: bool,
    instance: &Instance,
) -> Vec<String> {
    let Some(metadata) = instance.metadata() else {
        return Vec::new();
    };
    let name = &instance.domain.name;
    let id = instance.id();
    let anew = format!("to change that, create it anew after: egressctl delete {id}");
    let mut notes = Vec::new();
    let missing: Vec<String> = spec
        .labels
        .iter()
        .filter(|(key, value)| metadata.labels.get(*key) != Some(value))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !missing.is_empty() {
        notes.push(format!(
            "{name} was there already, and its labels stay as they are, without {}; {anew}",
            missing.join(", ")
        ));
    }
    if let Some(ttl) = spec.ttl.filter(|_| ttl_is_given)
        && metadata.expires_at.map(units::timestamp)
            != units::later(metadata.created_at, ttl).map(units::timestamp)
    {
        let expires = metadata.expires_at.map_or_else(
            || "never expires".to_owned(),
            |at| format!("expires at {}", units::timestamp(at)),
        );
        notes.push(format!(
            "{name} was there already, and {expires} as before; to change that: egressctl extend {id} {}",
            humantime::format_duration(ttl).to_string().replace(' ', "")
        ));
    }
    // Without a uid, another spec is refused.
    let differences = metadata.spec.differences(&spec.record());
    if spec.uid_is_given && !differences.is_empty() {
        notes.push(format!(
            "{name} was there already, with this uid, and stays as it is: {}; {anew}",
            differences.join(", ")
        ));
    }
    notes
}
