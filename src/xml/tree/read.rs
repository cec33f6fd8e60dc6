//! Reading XML text into a tree.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::ResolveResult;
use quick_xml::{NsReader, XmlVersion};

use super::{Element, Namespace, Node, unreadable};
use crate::error::Result;

/// The deepest nesting read; libvirt's own documents stay below 12.
const MAX_DEPTH: usize = 64;

/// Reads a document's root element; `what` names the document in errors.
pub(crate) fn parse(what: &str, xml: &str) -> Result<Element> {
    parse_without(what, xml, |_, _| false)
}

/// Like [`parse`], but leaves out elements, with all that is in them, for which `needless` says so by the elements around
/// them, the root first, and their name without prefix. What is left out must be well-formed all the same.
pub(crate) fn parse_without(
    what: &str,
    xml: &str,
    needless: impl Fn(&[Element], &[u8]) -> bool,
) -> Result<Element> {
    let mut reader = NsReader::from_str(xml);
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    loop {
        let (resolved, event) = reader
            .read_resolved_event()
            .map_err(|e| unreadable(what, &e.to_string()))?;
        let closed = match event {
            Event::Start(start) if needless(&open, start.local_name().as_ref()) => {
                reader
                    .read_to_end(start.name())
                    .map_err(|e| unreadable(what, &e.to_string()))?;
                continue;
            }
            Event::Empty(start) if needless(&open, start.local_name().as_ref()) => continue,
            Event::Start(start) => {
                if open.len() >= MAX_DEPTH {
                    return Err(unreadable(what, "it is nested too deeply"));
                }
                open.push(started(what, &resolved, &start)?);
                continue;
            }
            Event::Empty(start) => Some(started(what, &resolved, &start)?),
            Event::End(_) => open.pop(),
            Event::Eof => break,
            other => {
                if let Some(text) = character_data(what, &other)? {
                    append_text(open.last_mut(), &text);
                }
                None
            }
        };
        if let Some(element) = closed {
            match open.last_mut() {
                Some(parent) => parent.nodes.push(Node::Element(element)),
                None if root.is_some() => {
                    return Err(unreadable(what, "it has more than one root element"));
                }
                None => root = Some(element),
            }
        }
    }
    match root {
        Some(root) if open.is_empty() => Ok(root),
        _ => Err(unreadable(what, "it ends too early")),
    }
}

/// Neighbouring pieces of character data (text, references, CDATA) become one node.
fn append_text(parent: Option<&mut Element>, text: &str) {
    let Some(parent) = parent else { return };
    if let Some(Node::Text(before)) = parent.nodes.last_mut() {
        before.push_str(text);
    } else {
        parent.nodes.push(Node::Text(text.to_owned()));
    }
}

fn started(what: &str, resolved: &ResolveResult<'_>, start: &BytesStart<'_>) -> Result<Element> {
    let namespace = match resolved {
        ResolveResult::Unbound => Namespace::None,
        ResolveResult::Bound(uri) => Namespace::Bound(String::from_utf8_lossy(uri.0).into_owned()),
        ResolveResult::Unknown(_) => Namespace::Undeclared,
    };
    let name = start.name();
    let mut element = Element::new(&String::from_utf8_lossy(name.as_ref()));
    element.namespace = namespace;
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|e| unreadable(what, &e.to_string()))?;
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|e| unreadable(what, &e.to_string()))?;
        let key = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
        element.attributes.push((key, value.into_owned()));
    }
    Ok(element)
}

/// The characters an event stands for; none for comments, declarations and the like.
fn character_data(what: &str, event: &Event<'_>) -> Result<Option<String>> {
    let fault = |e: &dyn std::fmt::Display| unreadable(what, &e.to_string());
    let text = match event {
        Event::Text(text) => text.xml10_content().map_err(|e| fault(&e))?.into_owned(),
        Event::CData(data) => data.xml10_content().map_err(|e| fault(&e))?.into_owned(),
        Event::GeneralRef(reference) => {
            if let Some(c) = reference.resolve_char_ref().map_err(|e| fault(&e))? {
                c.to_string()
            } else {
                let name = reference.decode().map_err(|e| fault(&e))?;
                let value = resolve_predefined_entity(&name);
                value
                    .ok_or_else(|| fault(&format!("unknown entity &{name};")))?
                    .to_owned()
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(text))
}
