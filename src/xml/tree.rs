//! A small XML tree: the one place where XML is escaped, checked, resolved and read.

mod read;

use std::borrow::Cow;

use quick_xml::Writer;
use quick_xml::escape::escape;
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use quick_xml::name::QName;

use crate::error::{Error, Reason, Result};

pub(crate) use read::{parse, parse_without};

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
