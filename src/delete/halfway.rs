//! What a deletion that failed in its midst says: what is gone already, and what isn't. Pure.

use crate::error::Error;
use crate::shell::quote;

/// The error with what is gone and what isn't in front, where anything is gone. `volumes` are all that were to go;
/// `by_hand` is their pool, where a repeated delete doesn't find them or can't know them.
pub(super) fn tell(
    error: Error,
    gone: &[String],
    volumes: &[&str],
    by_hand: Option<&str>,
) -> Error {
    if gone.is_empty() {
        return error;
    }
    let is_gone = |volume: &&str| gone.iter().any(|one| *one == format!("volume {volume}"));
    let left: Vec<&str> = volumes.iter().copied().filter(|v| !is_gone(v)).collect();
    let are = if gone.len() == 1 { "is" } else { "are" };
    let named: Vec<String> = left
        .iter()
        .map(|volume| format!("volume {volume}"))
        .collect();
    let told = error.while_doing(format!(
        "{} {are} deleted; still there: {}",
        gone.join(", "),
        named.join(", ")
    ));
    match by_hand {
        None => told.hint("run it again: it deletes the rest"),
        Some(pool) => left.iter().fold(told, |told, volume| {
            told.hint(format!(
                "on the host: virsh vol-delete --pool {} {volume}",
                quote(pool)
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    #[test]
    fn what_is_gone_and_what_is_not_stands_in_front() {
        let error = || Error::transient(Reason::ConnectionLost, "the connection was lost");
        let volumes = ["w.qcow2", "w-seed.iso"];
        let gone =
            |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
        assert_eq!(tell(error(), &[], &volumes, None), error());
        let first = tell(error(), &gone(&["domain w"]), &volumes, None);
        assert_eq!(
            first.to_string(),
            "domain w is deleted; still there: volume w.qcow2, volume w-seed.iso: the connection was lost"
        );
        assert_eq!(first.hints(), ["run it again: it deletes the rest"]);
        let later = tell(
            error(),
            &gone(&["domain w", "volume w.qcow2"]),
            &volumes,
            Some("old"),
        );
        assert_eq!(
            later.message(),
            "domain w, volume w.qcow2 are deleted; still there: volume w-seed.iso"
        );
        assert_eq!(
            later.hints(),
            ["on the host: virsh vol-delete --pool old w-seed.iso"]
        );
    }
}
