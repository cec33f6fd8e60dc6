//! The tree's builder: parser events in, nodes out, aliases copied and merge keys applied, within limits.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use super::{Entry, Flaw, Mapping, Node, Offset, Scalar, SyntaxError, Value};
use crate::tab;

/// Deepest nesting accepted; a providers file needs eight levels.
const MAX_DEPTH: usize = 64;
/// What anchors and aliases may copy, in bytes; against "billion laughs".
const MAX_EXPANSION: usize = 16 << 20;
/// What one node counts for in [`MAX_EXPANSION`], beside its text.
const NODE_COST: usize = 64;

impl Node {
    fn cost(&self) -> usize {
        NODE_COST
            + match &self.value {
                Value::Scalar(scalar) => scalar.text.len(),
                Value::Sequence(items) => items.iter().map(Node::cost).sum(),
                Value::Mapping(mapping) => {
                    let entry = |entry: &Entry| entry.key.text.len() + entry.value.cost();
                    let flaw = |flaw: &Flaw| NODE_COST + flaw.key.len();
                    mapping.entries.iter().map(entry).sum::<usize>()
                        + mapping.flaws.iter().map(flaw).sum::<usize>()
                }
            }
    }

    fn depth(&self) -> usize {
        let inner = match &self.value {
            Value::Scalar(_) => None,
            Value::Sequence(items) => items.iter().map(Node::depth).max(),
            Value::Mapping(mapping) => mapping
                .entries
                .iter()
                .map(|entry| entry.value.depth())
                .max(),
        };
        1 + inner.unwrap_or(0)
    }
}

/// Reads every document of a YAML stream.
pub(crate) fn parse(text: &str) -> Result<Vec<Node>, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = granit_parser::options! { emit_comments: false };
    let mut builder = Builder::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| syntax_error(text, &error))?;
        builder.event(event, span)?;
    }
    Ok(builder.documents)
}

/// A collection whose end hasn't come yet.
enum Open {
    Sequence(Vec<Node>),
    Mapping(OpenMapping),
}

#[derive(Default)]
struct OpenMapping {
    mapping: Mapping,
    /// The keys so far, with their lines: looking through the entries would take quadratic time.
    seen: HashMap<String, usize>,
    /// What `<<` stands before, with the line.
    merges: Vec<(usize, Node)>,
    /// A key whose value hasn't come yet, with its line.
    key: Option<(Scalar, usize)>,
}

struct Frame {
    open: Open,
    line: usize,
    anchor: usize,
    foreign_tag: Option<String>,
}

#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    stack: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    expanded: usize,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag = tag
                    .as_deref()
                    .is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                // The mark is on the block's first line that isn't empty.
                let empty = text.bytes().take_while(|byte| *byte == b'\n').count();
                let literal = (style == ScalarStyle::Literal).then(|| Offset {
                    lines: line.saturating_sub(1 + empty),
                    columns: span.start.col(),
                });
                let node = Node {
                    line,
                    value: Value::Scalar(Scalar {
                        text: text.into_owned(),
                        plain: style == ScalarStyle::Plain && !text_tag,
                        literal,
                    }),
                    foreign_tag: foreign(tag.as_deref()),
                };
                self.finish(node, anchor, span)?;
            }
            Event::Alias(id) => {
                let node = self.alias(id, span)?;
                self.finish(node, 0, span)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.push(Open::Sequence(Vec::new()), span, anchor, tag.as_deref())?;
            }
            Event::MappingStart(_, anchor, tag) => {
                let open = Open::Mapping(OpenMapping::default());
                self.push(open, span, anchor, tag.as_deref())?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.pop(span)?,
            // Anchors end with their document.
            Event::DocumentEnd => self.anchors.clear(),
            _ => {}
        }
        Ok(())
    }

    fn push(
        &mut self,
        open: Open,
        span: Span,
        anchor: usize,
        tag: Option<&Tag>,
    ) -> Result<(), SyntaxError> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(too_deep(span));
        }
        self.stack.push(Frame {
            open,
            line: span.start.line(),
            anchor,
            foreign_tag: foreign(tag),
        });
        Ok(())
    }

    fn pop(&mut self, span: Span) -> Result<(), SyntaxError> {
        let Some(frame) = self.stack.pop() else {
            return Ok(());
        };
        let value = match frame.open {
            Open::Sequence(items) => Value::Sequence(items),
            Open::Mapping(open) => Value::Mapping(open.close()),
        };
        let node = Node {
            line: frame.line,
            value,
            foreign_tag: frame.foreign_tag,
        };
        self.finish(node, frame.anchor, span)
    }

    /// A copy of what the alias stands for.
    fn alias(&mut self, id: usize, span: Span) -> Result<Node, SyntaxError> {
        let Some(node) = self.anchors.get(&id) else {
            return Err(at(span, "this alias stands inside its own anchor"));
        };
        if self.stack.len() + node.depth() > MAX_DEPTH {
            return Err(too_deep(span));
        }
        let node = node.clone();
        self.spend(&node, span)?;
        Ok(node)
    }

    /// Counts a copy of the node.
    fn spend(&mut self, node: &Node, span: Span) -> Result<(), SyntaxError> {
        self.expanded += node.cost();
        if self.expanded > MAX_EXPANSION {
            return Err(at(span, "anchors and aliases expand to too much"));
        }
        Ok(())
    }

    /// Hands a complete node to its anchor and to what it stands in.
    fn finish(&mut self, node: Node, anchor: usize, span: Span) -> Result<(), SyntaxError> {
        if anchor != 0 {
            self.spend(&node, span)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.stack.last_mut().map(|frame| &mut frame.open) {
            None => self.documents.push(node),
            Some(Open::Sequence(items)) => items.push(node),
            Some(Open::Mapping(open)) => open.take(node),
        }
        Ok(())
    }
}

impl OpenMapping {
    /// Takes the next node: a key, or the value of the key before.
    fn take(&mut self, node: Node) {
        match self.key.take() {
            None => self.key = Some(self.as_key(node)),
            Some((name, line)) if name.plain && name.text == "<<" => {
                if !self.merges.is_empty() {
                    let what = "duplicate key; merge several mappings as `<<: [*a, *b]`";
                    self.mapping.flaws.push(flaw(line, "<<", what));
                }
                self.merges.push((line, node));
            }
            Some((key, line)) => self.add(Entry {
                key,
                line,
                value: node,
            }),
        }
    }

    fn as_key(&mut self, node: Node) -> (Scalar, usize) {
        if let Value::Scalar(scalar) = node.value {
            return (scalar, node.line);
        }
        let what = "a list or mapping can't be a key";
        self.mapping.flaws.push(flaw(node.line, "?", what));
        let key = Scalar {
            text: "?".to_string(),
            plain: false,
            literal: None,
        };
        (key, node.line)
    }

    fn add(&mut self, entry: Entry) {
        if let Some(first) = self.seen.get(&entry.key.text) {
            let duplicate = flaw(entry.line, &entry.key.text, "duplicate key");
            self.mapping.flaws.push(Flaw {
                first: Some(*first),
                ..duplicate
            });
            return;
        }
        self.seen.insert(entry.key.text.clone(), entry.line);
        self.mapping.entries.push(entry);
    }

    /// Applies `<<`: what the mapping says itself wins, then the earlier of several merged mappings.
    fn close(mut self) -> Mapping {
        for (line, node) in std::mem::take(&mut self.merges) {
            let sources = match node.value {
                Value::Sequence(items) => items,
                _ => vec![node],
            };
            for source in sources {
                self.merge(line, source);
            }
        }
        self.mapping
    }

    fn merge(&mut self, line: usize, source: Node) {
        let found = source.describe();
        let Value::Mapping(source) = source.value else {
            let what = format!("merges a mapping or a list of mappings, found {found}");
            self.mapping.flaws.push(flaw(line, "<<", &what));
            return;
        };
        self.mapping.flaws.extend(source.flaws);
        for entry in source.entries {
            if !self.seen.contains_key(&entry.key.text) {
                self.add(entry);
            }
        }
    }
}

fn foreign(tag: Option<&Tag>) -> Option<String> {
    let known = |tag: &Tag| {
        ["str", "int", "bool", "float", "null", "map", "seq"]
            .iter()
            .any(|name| tag.is_yaml_core_schema_tag(name))
    };
    tag.filter(|tag| !known(tag)).map(Tag::original)
}

fn flaw(line: usize, key: &str, what: &str) -> Flaw {
    Flaw {
        line,
        key: key.to_string(),
        what: what.to_string(),
        first: None,
    }
}

fn syntax_error(text: &str, error: &ScanError) -> SyntaxError {
    let line = error.marker().line();
    match tab::indent_near(text, line) {
        Some(line) => SyntaxError {
            line,
            column: 1,
            what: tab::WHAT.to_owned(),
        },
        None => SyntaxError {
            line,
            column: error.marker().col() + 1,
            what: error.info().clone(),
        },
    }
}

fn at(span: Span, what: &str) -> SyntaxError {
    SyntaxError {
        line: span.start.line(),
        column: span.start.col() + 1,
        what: what.to_string(),
    }
}

fn too_deep(span: Span) -> SyntaxError {
    at(span, "nested too deeply")
}
