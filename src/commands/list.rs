//! `egressctl list`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::Context;
use crate::cli::{ListArgs, is_label_key};
use crate::error::{Error, Reason, Result};
use crate::find;
use crate::instance::Instance;
use crate::output::{Document, InstanceRecord};
use crate::placement;

/// How often a list that is watched is looked at for its reader.
const LOOK_FOR_READER: Duration = Duration::from_secs(1);

pub(super) fn run(args: &ListArgs, context: &Context<'_>) -> Result<Vec<Error>> {
    context.ui.ensure_columns::<InstanceRecord>()?;
    let hosts = context.sessions(&placement::zones(&context.provider, &args.zone)?);
    let selectors = args
        .selector
        .iter()
        .map(|s| Selector::parse(s))
        .collect::<Result<Vec<_>>>()?;
    let wanted = |instance: &Instance| selectors.iter().all(|selector| selector.matches(instance));
    let mut told = BTreeSet::new();
    loop {
        let found = find::list(&hosts, args.manager.into(), &wanted);
        context.cancels.work.check()?;
        for instance in &found.in_doubt {
            // Once, however often --watch looks.
            if told.insert(instance.id()) {
                let name = &instance.domain.name;
                context.ui.warn(&find::unreadable(&instance.host, name));
            }
        }
        let now = Timestamp::now();
        let items = found
            .instances
            .iter()
            .map(|instance| InstanceRecord::new(instance, now))
            .collect();
        let document = Document {
            items,
            errors: found.errors,
        };
        let is_read = match context.ui.document(&document) {
            Ok(is_read) => is_read,
            Err(error) => return Ok([document.errors, vec![error]].concat()),
        };
        let errors = document.errors;
        // A person at a terminal may wonder whether anything was looked at.
        if args.watch.is_none() && found.instances.is_empty() && errors.is_empty() {
            context.ui.note_instead_of_rows("no instances");
        }
        // Nobody reads it any more: looking on would only keep the hosts busy.
        let Some(every) = args.watch.filter(|_| is_read) else {
            return Ok(errors);
        };
        for error in &errors {
            context.ui.error(error);
        }
        if !wait(context, every)? {
            return Ok(errors);
        }
    }
}

/// Waits that long; false once nobody reads any more, which a list without rows, or an hour's wait, wouldn't notice.
fn wait(context: &Context<'_>, every: Duration) -> Result<bool> {
    let cancel = &context.cancels.work;
    let began = Instant::now();
    loop {
        if context.ui.has_lost_reader() {
            return Ok(false);
        }
        let left = every.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Ok(true);
        }
        cancel.wait(left.min(LOOK_FOR_READER));
        cancel.check()?;
    }
}

/// A label that an instance must have.
struct Selector {
    key: String,
    value: Option<String>,
}

impl Selector {
    fn parse(text: &str) -> Result<Self> {
        let (key, value) = match text.split_once('=') {
            // `==` is the same, as kubectl has it.
            Some((key, value)) => (key, Some(value.strip_prefix('=').unwrap_or(value))),
            None => (text, None),
        };
        // `team!=search`, which other tools know, would be a key that nothing has, and so an empty list.
        if !is_label_key(key) {
            return Err(Error::usage(
                Reason::BadArgument,
                format!("selector {text:?} is neither KEY nor KEY=VALUE"),
            )
            .hint("a key has 1 to 63 letters, digits or ._-/"));
        }
        Ok(Selector {
            key: key.to_owned(),
            value: value.map(str::to_owned),
        })
    }

    fn matches(&self, instance: &Instance) -> bool {
        let label = instance
            .metadata()
            .and_then(|metadata| metadata.labels.get(&self.key));
        label.is_some_and(|label| self.value.as_ref().is_none_or(|value| value == label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_may_be_written_as_for_kubectl() {
        let table = [
            ("a", "a", None),
            ("a=1", "a", Some("1")),
            ("a==1", "a", Some("1")),
            ("a=", "a", Some("")),
            ("a==", "a", Some("")),
            ("a=b=c", "a", Some("b=c")),
            // A value that begins with `=`.
            ("a===1", "a", Some("=1")),
        ];
        for (text, key, value) in table {
            let selector = Selector::parse(text).unwrap();
            let found = (selector.key.as_str(), selector.value.as_deref());
            assert_eq!(found, (key, value), "{text}");
        }
        for bad in ["a!=1", "=1", "", "a in (b)"] {
            assert!(Selector::parse(bad).is_err(), "{bad}");
        }
    }
}
