//! What a command prints and how it talks: the values of the options that all commands have.

use clap::ValueEnum;

/// What stdout gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// A table for people.
    Table,
    /// A table with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// The same document as YAML.
    Yaml,
    /// Names only, one a line.
    Name,
    /// A table of these columns.
    Columns(Vec<String>),
}

/// The words of `--output`.
pub const FORMATS: [&str; 6] = ["table", "wide", "json", "yaml", "name", "columns="];

pub(super) fn parse_format(text: &str) -> Result<Format, String> {
    match text {
        "table" => return Ok(Format::Table),
        "wide" => return Ok(Format::Wide),
        "json" => return Ok(Format::Json),
        "yaml" => return Ok(Format::Yaml),
        "name" => return Ok(Format::Name),
        _ => {}
    }
    let Some(names) = text.strip_prefix("columns=") else {
        return Err("expected table, wide, json, yaml, name or columns=NAME,IP,...".to_owned());
    };
    let names: Vec<String> = names
        .split(',')
        .map(|name| name.trim().to_owned())
        .collect();
    if names.iter().any(String::is_empty) {
        return Err("expected names of columns, such as columns=NAME,IP".to_owned());
    }
    Ok(Format::Columns(names))
}

/// What `--sort-by` sorts by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortBy {
    /// The column's title.
    pub column: String,
    /// Largest first.
    pub descending: bool,
}

pub(super) fn parse_sort(text: &str) -> Result<SortBy, String> {
    let (column, descending) = match text.strip_prefix('-') {
        Some(column) => (column, true),
        None => (text, false),
    };
    if column.is_empty() {
        return Err("expected a column, such as AGE or -AGE".to_owned());
    }
    Ok(SortBy {
        column: column.to_owned(),
        descending,
    })
}

/// How progress is shown on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressArg {
    /// Bars on a terminal, else plain
    Auto,
    /// Lines, every 10 s or 10 %
    Plain,
    /// JSON objects, one a line; notes, warnings and errors too
    Json,
    /// None
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_listed_after_the_word() {
        let columns = parse_format("columns=NAME, ip").unwrap();
        assert_eq!(
            columns,
            Format::Columns(vec!["NAME".to_owned(), "ip".to_owned()])
        );
        for bad in ["columns", "columns=", "columns=NAME,", "xml", ""] {
            assert!(parse_format(bad).is_err(), "{bad}");
        }
        for word in &FORMATS[..5] {
            assert!(parse_format(word).is_ok(), "{word}");
        }
    }

    #[test]
    fn a_dash_turns_the_order_round() {
        assert!(parse_sort("-AGE").unwrap().descending);
        assert!(!parse_sort("AGE").unwrap().descending);
        assert!(parse_sort("-").is_err());
    }
}
