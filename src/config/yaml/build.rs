//! The tree's builder: parser events in, nodes out, aliases copied and merge keys applied, within limits.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{Entry, Flaw, Mapping, Node, Offset, Scalar, SyntaxError, Value};

/// Deepest nesting accepted; a providers file needs eight levels.
const MAX_DEPTH: usize = 64;
/// What aliases may expand to, in bytes; against "billion laughs".
const MAX_EXPANSION: usize = 16 << 20;
/// What one node counts for in [`MAX_EXPANSION`], beside its text.
const NODE_COST: usize = 64;

impl Node {
    fn cost(&self) -> usize {
        NODE_COST
            + match &self.value {
                Value::Scalar(scalar) => scalar.text.len(),
                Value::Sequence(items) => items.iter().map(Node::cost).sum(),
                Value::Mapping(mapping) => mapping
                    .entries
                    .iter()
                    .map(|entry| entry.key.text.len() + entry.value.cost())
                    .sum(),
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
        let (event, span) = next.map_err(|error| SyntaxError {
            line: error.marker().line(),
            column: error.marker().col() + 1,
            what: error.info().clone(),
        })?;
        builder.event(event, span)?;
    }
    Ok(builder.documents)
}

/// A collection whose end hasn't come yet.
enum Open {
    Sequence(Vec<Node>),
    Mapping {
        mapping: Mapping,
        merges: Vec<(usize, Node)>,
        key: Option<(Scalar, usize)>,
    },
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
                self.finish(node, anchor);
            }
            Event::Alias(id) => {
                let node = self.alias(id, span)?;
                self.finish(node, 0);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.push(Open::Sequence(Vec::new()), span, anchor, tag.as_deref())?;
            }
            Event::MappingStart(_, anchor, tag) => {
                let open = Open::Mapping {
                    mapping: Mapping::default(),
                    merges: Vec::new(),
                    key: None,
                };
                self.push(open, span, anchor, tag.as_deref())?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.pop(),
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

    fn pop(&mut self) {
        let Some(frame) = self.stack.pop() else {
            return;
        };
        let value = match frame.open {
            Open::Sequence(items) => Value::Sequence(items),
            Open::Mapping {
                mut mapping,
                merges,
                ..
            } => {
                merge(&mut mapping, merges);
                Value::Mapping(mapping)
            }
        };
        let node = Node {
            line: frame.line,
            value,
            foreign_tag: frame.foreign_tag,
        };
        self.finish(node, frame.anchor);
    }

    /// A copy of what the alias stands for.
    fn alias(&mut self, id: usize, span: Span) -> Result<Node, SyntaxError> {
        let Some(node) = self.anchors.get(&id) else {
            return Err(at(span, "this alias stands inside its own anchor"));
        };
        if self.stack.len() + node.depth() > MAX_DEPTH {
            return Err(too_deep(span));
        }
        self.expanded += node.cost();
        if self.expanded > MAX_EXPANSION {
            return Err(at(span, "aliases expand to too much"));
        }
        Ok(node.clone())
    }

    /// Hands a complete node to its anchor and to what it stands in.
    fn finish(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.stack.last_mut().map(|frame| &mut frame.open) {
            None => self.documents.push(node),
            Some(Open::Sequence(items)) => items.push(node),
            Some(Open::Mapping {
                mapping,
                merges,
                key,
            }) => match key.take() {
                None => *key = Some(as_key(node, mapping)),
                Some((name, line)) if name.plain && name.text == "<<" => {
                    if !merges.is_empty() {
                        mapping.flaws.push(flaw(
                            line,
                            "<<",
                            "duplicate key; merge several mappings as `<<: [*a, *b]`",
                        ));
                    }
                    merges.push((line, node));
                }
                Some((name, line)) => add(mapping, name, line, node),
            },
        }
    }
}

fn as_key(node: Node, mapping: &mut Mapping) -> (Scalar, usize) {
    if let Value::Scalar(scalar) = node.value {
        return (scalar, node.line);
    }
    mapping
        .flaws
        .push(flaw(node.line, "?", "a list or mapping can't be a key"));
    (
        Scalar {
            text: "?".to_string(),
            plain: false,
            literal: None,
        },
        node.line,
    )
}

fn add(mapping: &mut Mapping, key: Scalar, line: usize, value: Node) {
    if let Some(first) = mapping.get(&key.text).map(|entry| entry.line) {
        let duplicate = flaw(line, &key.text, "duplicate key");
        mapping.flaws.push(Flaw {
            first: Some(first),
            ..duplicate
        });
        return;
    }
    mapping.entries.push(Entry { key, line, value });
}

/// Applies `<<`: what the mapping says itself wins, then the earlier of several merged mappings.
fn merge(mapping: &mut Mapping, merges: Vec<(usize, Node)>) {
    for (line, node) in merges {
        let sources = match node.value {
            Value::Sequence(items) => items,
            _ => vec![node],
        };
        for source in sources {
            let Value::Mapping(source) = source.value else {
                let what = format!(
                    "merges a mapping or a list of mappings, found {}",
                    source.describe()
                );
                mapping.flaws.push(flaw(line, "<<", &what));
                continue;
            };
            mapping.flaws.extend(source.flaws);
            for entry in source.entries {
                if mapping.get(&entry.key.text).is_none() {
                    mapping.entries.push(entry);
                }
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
