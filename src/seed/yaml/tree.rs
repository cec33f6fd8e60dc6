//! The parser's events as a tree, and what of the text its values take up.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StructureStyle, Tag};

use super::Fault;

/// A number of a node.
pub(super) type Id = usize;

/// A document's nodes, in the order in which they begin; the first is the root.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Node {
    /// Line, from 1.
    pub(super) line: usize,
    /// Column, from 1.
    pub(super) column: usize,
    /// Its tag.
    pub(super) tag: Tagged,
    pub(super) body: Body,
}

/// A node's tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tagged {
    /// None, or `!` alone: what it is follows from its text.
    No,
    /// One of YAML's own: what stands after `tag:yaml.org,2002:`.
    Yaml(String),
    /// Any other.
    Foreign,
}

#[derive(Debug)]
pub(super) enum Body {
    /// `plain`: neither quoted nor a block of text.
    Scalar {
        text: String,
        plain: bool,
    },
    Sequence(Vec<Id>),
    Mapping(Vec<(Id, Id)>),
}

/// What a value, a comment or an alias takes up of the text, in bytes.
#[derive(Debug)]
pub(super) struct Covered {
    pub(super) range: Range<usize>,
    /// Whether it is a value neither quoted nor a block of text.
    pub(super) plain: bool,
    /// Whether it stands between brackets or braces.
    pub(super) in_flow: bool,
    /// Whether it is a mapping's key.
    pub(super) key: bool,
}

/// A text, parsed.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) tree: Tree,
    /// Sorted by where they begin.
    pub(super) covered: Vec<Covered>,
}

/// Why a text couldn't be parsed.
pub(super) enum Failure {
    /// The parser's own reason.
    Syntax(ScanError),
    /// Ours.
    Fault(Fault),
}

/// Parses a text.
pub(super) fn parse(text: &str) -> Result<Parsed, Failure> {
    // Comments are wanted for their places only, however many there are.
    let options = granit_parser::options! { max_buffered_comment_events: usize::MAX };
    let mut builder = Builder::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(Failure::Syntax)?;
        builder.event(event, span).map_err(Failure::Fault)?;
    }
    builder.covered.sort_by_key(|covered| covered.range.start);
    Ok(Parsed {
        tree: builder.tree,
        covered: builder.covered,
    })
}

/// A collection whose end hasn't come yet.
struct Open {
    id: Id,
    in_flow: bool,
    /// A key whose value hasn't come yet.
    key: Option<Id>,
}

#[derive(Default)]
struct Builder {
    tree: Tree,
    covered: Vec<Covered>,
    documents: usize,
    stack: Vec<Open>,
    /// The nodes of anchors, by the parser's numbers.
    anchors: HashMap<usize, Id>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Fault::at(
                        span,
                        "it isn't valid YAML: a second document begins",
                    ));
                }
            }
            Event::Comment(..) => {
                self.cover(span, false, false);
                // The next value's place is open still.
                if let Some(comment) = self.covered.last_mut() {
                    comment.key = false;
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let in_flow = self.stack.last().is_some_and(|open| open.in_flow);
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                // The span of a block without text has its header in it.
                if !is_block || text.chars().any(|c| c != '\n') {
                    self.cover(span, plain, in_flow);
                }
                let text = text.into_owned();
                let id = self.add(span, anchor, tag.as_deref(), Body::Scalar { text, plain });
                self.place(id);
            }
            Event::Alias(anchor) => {
                self.cover(span, false, false);
                // The parser knows no others.
                if let Some(&id) = self.anchors.get(&anchor) {
                    self.place(id);
                }
            }
            Event::SequenceStart(style, anchor, tag) => {
                let body = Body::Sequence(Vec::new());
                self.open(span, style, anchor, tag.as_deref(), body);
            }
            Event::MappingStart(style, anchor, tag) => {
                let body = Body::Mapping(Vec::new());
                self.open(span, style, anchor, tag.as_deref(), body);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.stack.pop();
            }
            _ => {}
        }
        Ok(())
    }

    fn cover(&mut self, span: Span, plain: bool, in_flow: bool) {
        let key = self.stack.last().is_some_and(|open| {
            let is_mapping = matches!(self.tree.nodes[open.id].body, Body::Mapping(_));
            is_mapping && open.key.is_none()
        });
        self.covered.extend(span.byte_range().map(|range| Covered {
            range,
            plain,
            in_flow,
            key,
        }));
    }

    fn add(&mut self, span: Span, anchor: usize, tag: Option<&Tag>, body: Body) -> Id {
        let id = self.tree.nodes.len();
        self.tree.nodes.push(Node {
            line: span.start.line(),
            column: span.start.col() + 1,
            tag: tagged(tag),
            body,
        });
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
        id
    }

    fn open(
        &mut self,
        span: Span,
        style: StructureStyle,
        anchor: usize,
        tag: Option<&Tag>,
        body: Body,
    ) {
        let id = self.add(span, anchor, tag, body);
        self.place(id);
        self.stack.push(Open {
            id,
            in_flow: style == StructureStyle::Flow,
            key: None,
        });
    }

    /// Puts a node into the collection that is open.
    fn place(&mut self, id: Id) {
        let Some(open) = self.stack.last_mut() else {
            return;
        };
        match &mut self.tree.nodes[open.id].body {
            Body::Sequence(items) => items.push(id),
            Body::Mapping(entries) => match open.key.take() {
                Some(key) => entries.push((key, id)),
                None => open.key = Some(id),
            },
            Body::Scalar { .. } => {}
        }
    }
}

fn tagged(tag: Option<&Tag>) -> Tagged {
    match tag {
        None => Tagged::No,
        Some(tag) if tag.original() == "!" => Tagged::No,
        Some(tag) => match tag.suffix_in_namespace("tag:yaml.org,2002:") {
            Some(name) => Tagged::Yaml(name.into_owned()),
            None => Tagged::Foreign,
        },
    }
}
