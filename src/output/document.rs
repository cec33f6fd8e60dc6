//! The document a command prints: `items` and `errors`, versioned, the same in JSON and YAML.

use serde::Serialize;
use serde_json::{Value, json};

use super::column::Column;
use super::plain::{one_line, plain_json};

use crate::error::{Error, Reason, Result};
use crate::yaml11::Quoting;

/// The version of all documents' shape.
const API_VERSION: &str = "egressctl/v1";

/// One item of a document, and one line of a table.
pub trait Row: Serialize + Sized + 'static {
    /// The document's `kind`.
    const KIND: &'static str;

    /// The table's columns, those of `-o wide` among them.
    const COLUMNS: &'static [Column<Self>];

    /// What `-o name` prints.
    fn name(&self) -> String;
}

/// What a command found or did, and what failed on which host.
#[derive(Debug, Clone, Default)]
pub struct Document<R> {
    /// The results.
    pub items: Vec<R>,
    /// The failures.
    pub errors: Vec<Error>,
}

impl<R: Row> Document<R> {
    /// The items of a command without failures.
    pub fn of(items: Vec<R>) -> Self {
        Document {
            items,
            errors: Vec::new(),
        }
    }
}

fn value<R: Row>(items: &[&R], errors: &[Error]) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": R::KIND,
        "items": items,
        "errors": errors.iter().map(error_json).collect::<Vec<_>>(),
    })
}

pub(super) fn to_json<R: Row>(items: &[&R], errors: &[Error]) -> String {
    plain_json(&format!("{:#}\n", value(items, errors)))
}

pub(super) fn to_yaml<R: Row>(items: &[&R], errors: &[Error]) -> Result<String> {
    serde_saphyr::to_string(&Quoting(&value(items, errors))).map_err(|error| {
        Error::permanent(Reason::OutputFailed, "the result can't be written as YAML").because(error)
    })
}

pub(super) fn to_names<R: Row>(items: &[&R]) -> String {
    let mut names: Vec<String> = items.iter().map(|row| one_line(&row.name())).collect();
    names.push(String::new());
    names.join("\n")
}

/// An error as a JSON object.
pub(super) fn error_json(error: &Error) -> Value {
    json!({
        "class": error.class().as_str(),
        "reason": error.reason(),
        "host": error.host(),
        "message": error.message(),
        "causes": error.causes(),
        "hint": error.hints().first(),
        "hints": error.hints(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Item {
        n: u32,
    }

    impl Row for Item {
        const KIND: &'static str = "Things";
        const COLUMNS: &'static [Column<Self>] = &[];
        fn name(&self) -> String {
            self.n.to_string()
        }
    }

    #[derive(Serialize)]
    struct Named(&'static str);

    impl Row for Named {
        const KIND: &'static str = "Names";
        const COLUMNS: &'static [Column<Self>] = &[];
        fn name(&self) -> String {
            self.0.to_owned()
        }
    }

    #[test]
    fn results_and_failures_stand_side_by_side() {
        let items = [&Item { n: 1 }];
        let errors = [Error::transient(Reason::ConnectFailed, "no route").on_host("nas2")];
        let value: Value = serde_json::from_str(&to_json(&items, &errors)).unwrap();
        assert_eq!(value["apiVersion"], "egressctl/v1");
        assert_eq!(value["kind"], "Things");
        assert_eq!(value["items"][0]["n"], 1);
        assert_eq!(value["errors"][0]["class"], "Transient");
        assert_eq!(value["errors"][0]["reason"], "ConnectFailed");
        assert_eq!(value["errors"][0]["host"], "nas2");
        assert!(to_yaml(&items, &errors).unwrap().contains("kind: Things"));
        assert_eq!(to_names(&items), "1\n");
    }

    #[test]
    fn no_document_has_what_a_terminal_acts_on() {
        let items = [&Named("a\x1b[2J\u{9b}b\nc\x7f")];
        let errors = [Error::transient(Reason::LibvirtError, "x").because("y\u{9b}\x1b\nz")];
        let texts = [
            to_names(&items),
            to_json(&items, &errors),
            to_yaml(&items, &errors).unwrap(),
        ];
        for text in texts {
            let acted_on = |c: char| c.is_control() && c != '\n';
            assert!(!text.contains(acted_on), "{text:?}");
        }
        assert_eq!(to_names(&items), "a\\u{1b}[2J\\u{9b}b\\nc\\u{7f}\n");
    }
}
