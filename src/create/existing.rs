//! Whether a domain that has the name already is the one wanted. Pure.

use super::spec::CreateSpec;
use crate::error::{Error, Reason};
use crate::instance::Instance;

/// What to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is the one: make sure that it runs.
    Adopt,
    /// It isn't: leave it alone and say why.
    Refuse(Error),
}

/// Ours with the uid asked for, or (without one) with the same spec, is the one wanted.
pub(super) fn decide(instance: &Instance, spec: &CreateSpec) -> Decision {
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
    if spec.uid_is_given {
        if metadata.uid == spec.uid {
            return Decision::Adopt;
        }
        return Decision::Refuse(differs(
            name,
            &[format!("its uid is {}, not {}", metadata.uid, spec.uid)],
        ));
    }
    let wanted = spec.record();
    let differences = metadata.spec.differences(&wanted);
    // A URL with secrets in it was recorded, and hashed, as it was by earlier versions.
    if differences.is_empty() || metadata.spec_hash == wanted.hash() {
        return Decision::Adopt;
    }
    Decision::Refuse(differs(name, &differences))
}

fn differs(name: &str, differences: &[String]) -> Error {
    let error = Error::permanent(
        Reason::InstanceDiffers,
        format!("instance {name} exists, but isn't what was asked for: it was left alone"),
    );
    differences
        .iter()
        .fold(error, Error::because)
        .hint(format!("egressctl delete {name}, or choose another --name"))
}
