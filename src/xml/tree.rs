//! A small XML tree: the one place where XML is escaped, checked, resolved and read.

use std::borrow::Cow;

use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use quick_xml::name::{QName, ResolveResult};
use quick_xml::{NsReader, Writer, XmlVersion};

use crate::error::{Error, Reason, Result};

/// The deepest nesting read; libvirt's own documents stay below 12.
const MAX_DEPTH: usize = 64;

/// What an element's name is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// No prefix, and no default namespace in scope.
    None,
    /// This URI.
    Bound(String),
    /// A prefix that nothing in scope declares: libvirt may drop a declaration.
    Undeclared,
}

/// An element with its attributes, child elements and text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    /// The prefix as written, empty if none.
    pub(crate) prefix: String,
    /// The name without its prefix.
    pub(crate) local: String,
    /// What the name is bound to.
    pub(crate) namespace: Namespace,
    /// The attributes in order, `xmlns` declarations among them, values unescaped.
    pub(crate) attributes: Vec<(String, String)>,
    /// Child elements and text, in order; comments are left out.
    pub(crate) nodes: Vec<Node>,
}

/// What an element contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    /// A child element.
    Element(Element),
    /// Character data, unescaped.
    Text(String),
}

impl Element {
    /// An empty element; `name` may have a prefix (whose declaration is the caller's to write).
    pub(crate) fn new(name: &str) -> Self {
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        Element {
            prefix: prefix.to_owned(),
            local: local.to_owned(),
            namespace: Namespace::None,
            attributes: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Adds an attribute.
    #[allow(clippy::needless_pass_by_value)] // Numbers, names and texts alike, none of them long.
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.attributes.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a child element.
    pub(crate) fn child(mut self, child: Element) -> Self {
        self.nodes.push(Node::Element(child));
        self
    }

    /// Adds child elements.
    pub(crate) fn children_from(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.nodes.extend(children.into_iter().map(Node::Element));
        self
    }

    /// Adds text.
    #[allow(clippy::needless_pass_by_value)] // As above.
    pub(crate) fn text(mut self, text: impl ToString) -> Self {
        self.nodes.push(Node::Text(text.to_string()));
        self
    }

    /// An attribute's value.
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The child elements.
    pub(crate) fn elements(&self) -> impl Iterator<Item = &Element> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The first child of libvirt's own (no namespace) of that name.
    pub(crate) fn find(&self, local: &str) -> Option<&Element> {
        self.elements()
            .find(|child| child.local == local && child.namespace == Namespace::None)
    }

    /// All children of libvirt's own (no namespace) of that name.
    pub(crate) fn all<'a>(&'a self, local: &'a str) -> impl Iterator<Item = &'a Element> {
        self.elements()
            .filter(move |child| child.local == local && child.namespace == Namespace::None)
    }

    /// The element at the end of a path of names below this one.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Element> {
        path.iter()
            .try_fold(self, |element, local| element.find(local))
    }

    /// The text directly inside, as it is.
    pub(crate) fn content(&self) -> String {
        let texts = self.nodes.iter().filter_map(|node| match node {
            Node::Text(text) => Some(text.as_str()),
            Node::Element(_) => None,
        });
        texts.collect()
    }

    /// The text at the end of a path, without the white space around it; none if it is empty.
    pub(crate) fn text_at(&self, path: &[&str]) -> Option<String> {
        let text = self.at(path)?.content();
        let trimmed = text.trim();
        (!trimmed.is_empty()).then(|| trimmed.to_owned())
    }

    /// An attribute of the element at the end of a path.
    pub(crate) fn attribute_at(&self, path: &[&str], name: &str) -> Option<&str> {
        self.at(path)?.attribute(name)
    }

    /// The element as a document, indented; refuses text that XML can't hold.
    pub(crate) fn to_xml(&self) -> Result<String> {
        let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
        self.write(&mut writer)?;
        String::from_utf8(writer.into_inner()).map_err(|_| refused(&self.local, "it isn't UTF-8"))
    }

    fn write(&self, writer: &mut Writer<Vec<u8>>) -> Result<()> {
        let name = self.qualified_name();
        let mut start = BytesStart::new(name.as_str());
        for (key, value) in &self.attributes {
            let value = escaped(key, value)?;
            start.push_attribute(Attribute {
                key: QName(key.as_bytes()),
                value: Cow::Owned(value.into_bytes()),
            });
        }
        let emit = |writer: &mut Writer<Vec<u8>>, event: Event<'_>| {
            let done = writer.write_event(event);
            done.map_err(|e| refused(&self.local, &e.to_string()))
        };
        if self.nodes.is_empty() {
            return emit(writer, Event::Empty(start));
        }
        emit(writer, Event::Start(start))?;
        for node in &self.nodes {
            match node {
                Node::Element(child) => child.write(writer)?,
                Node::Text(text) => {
                    let text = escaped(&self.local, text)?;
                    emit(writer, Event::Text(BytesText::from_escaped(text)))?;
                }
            }
        }
        emit(writer, Event::End(BytesEnd::new(name.as_str())))
    }

    fn qualified_name(&self) -> String {
        if self.prefix.is_empty() {
            self.local.clone()
        } else {
            format!("{}:{}", self.prefix, self.local)
        }
    }
}

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

/// Escaped text, safe as content and in attributes: line ends and tabs as references, so that neither
/// attribute-value normalisation (XML 1.0 section 3.3.3) nor line-end handling (2.11) changes them.
fn escaped(place: &str, text: &str) -> Result<String> {
    if let Some(bad) = text.chars().find(|&c| !is_xml_char(c)) {
        let code = u32::from(bad);
        return Err(refused(
            place,
            &format!("it has the character U+{code:04X}"),
        ));
    }
    let escaped = escape(text);
    Ok(escaped
        .replace('\t', "&#9;")
        .replace('\n', "&#10;")
        .replace('\r', "&#13;"))
}

/// XML 1.0 section 2.2, production `Char`.
fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// A value that can't be written into XML.
fn refused(place: &str, why: &str) -> Error {
    Error::permanent(
        Reason::BadArgument,
        format!("the value for {place} can't be sent to libvirt: {why}"),
    )
}

/// A document that can't be read. Transient, as a host that can't be fully read is in doubt, not wrong.
pub(crate) fn unreadable(what: &str, why: &str) -> Error {
    Error::transient(
        Reason::LibvirtError,
        format!("libvirt's XML of {what} can't be read"),
    )
    .because(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_survives_writing_and_reading() {
        for text in [
            "& < > \" '",
            "]]>",
            "line\nline\r\nline\rtab\t.",
            "emoji 🦀, combining e\u{301}",
            " leading and trailing ",
            "<!-- no --> &amp; &#10;",
            "",
        ] {
            let xml = Element::new("a")
                .with("v", text)
                .child(Element::new("b").text(text))
                .to_xml()
                .unwrap();
            let read = parse("test", &xml).unwrap();
            assert_eq!(read.attribute("v"), Some(text), "{xml}");
            assert_eq!(read.find("b").unwrap().content(), text, "{xml}");
        }
    }

    #[test]
    fn what_xml_cannot_hold_is_refused_and_not_repeated() {
        for bad in ["a\u{0}", "a\u{1}", "a\u{1b}[0m", "a\u{7}", "a\u{FFFE}"] {
            let attribute = Element::new("a").with("v", bad).to_xml().unwrap_err();
            let content = Element::new("a").text(bad).to_xml().unwrap_err();
            for error in [attribute, content] {
                assert!(error.message().contains("the character U+"), "{error}");
                assert!(!error.message().contains(bad), "{error}");
            }
        }
    }

    #[test]
    fn namespaces_are_resolved_or_named_undeclared() {
        let xml = "<a xmlns='u:default'><p:b xmlns:p='u:p'/><q:c/><d xmlns=''/></a>";
        let root = parse("test", xml).unwrap();
        let found: Vec<_> = root
            .elements()
            .map(|e| (e.prefix.as_str(), e.local.as_str(), e.namespace.clone()))
            .collect();
        assert_eq!(root.namespace, Namespace::Bound("u:default".into()));
        assert_eq!(
            found,
            [
                ("p", "b", Namespace::Bound("u:p".into())),
                ("q", "c", Namespace::Undeclared),
                ("", "d", Namespace::None),
            ]
        );
    }

    #[test]
    fn text_in_pieces_is_one_text() {
        let xml = "<?xml version='1.0'?><a>x&amp;<![CDATA[<y>]]>&#x41;<!-- c -->z<b/>t</a>";
        let root = parse("test", xml).unwrap();
        assert_eq!(root.content(), "x&<y>Azt");
    }

    #[test]
    fn broken_documents_are_errors() {
        let deep = "<a>".repeat(100) + &"</a>".repeat(100);
        for xml in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "<a x=1/>",
            "<a x='1' x='2'/>",
            "<a>&nope;</a>",
            "<a/><b/>",
            &deep,
        ] {
            let error = parse("domain web-1", xml).unwrap_err();
            assert!(error.message().contains("domain web-1"), "{xml}: {error}");
        }
    }
}
