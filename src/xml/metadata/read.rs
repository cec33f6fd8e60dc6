//! Reading marks: whose an element is, and what it says.

use jiff::Timestamp;

use super::{
    Element, Extra, Manager, Mark, Metadata, NAMESPACE, Namespace, Node, OperatorRecord, PREFIX,
    SpecRecord, VERSION, VolumeRef, VolumeRole,
};

/// The children that make an unbound `instance` ours; the operator's records have no `specHash`.
const REQUIRED: [&str; 4] = ["managed", "uid", "createdAt", "specHash"];

/// The children that version 1 has once, or at most once.
const SINGLE: [&str; 9] = [
    "managed",
    "uid",
    "createdAt",
    "image",
    "digest",
    "specHash",
    "spec",
    "diskBytes",
    "expiresAt",
];

/// Whose element of a domain's `<metadata>` this is, if it is anybody's we know.
pub(super) fn owner(element: &Element) -> Option<Manager> {
    let is_named = |manager: &Manager| match &element.namespace {
        Namespace::Bound(uri) => uri == manager.namespace(),
        Namespace::Undeclared => element.prefix == manager.as_str(),
        Namespace::None => false,
    };
    Manager::ALL.into_iter().find(is_named).or_else(|| {
        let unbound = !matches!(element.namespace, Namespace::Bound(_));
        let complete = REQUIRED.iter().all(|name| child(element, name).is_some());
        (unbound && element.local == "instance" && complete).then_some(Manager::Egressctl)
    })
}

/// What an element says that is this manager's.
pub(super) fn mark_of(manager: Manager, element: &Element) -> Mark {
    if manager != Manager::Egressctl {
        return Mark::Operator(operator_record(manager, element));
    }
    match metadata(element) {
        Ok(metadata) => Mark::Egressctl(Box::new(metadata)),
        Err(why) => Mark::Unreadable {
            why,
            uid: child(element, "uid").map(Element::content),
        },
    }
}

/// The operator's fields, wherever it keeps them: child elements or attributes.
fn operator_record(manager: Manager, element: &Element) -> OperatorRecord {
    let field = |name: &str| {
        let inside = element.elements().find(|child| child.local == name);
        let text = inside
            .map(Element::content)
            .or_else(|| element.attribute(name).map(str::to_owned))?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    OperatorRecord {
        manager,
        managed: field("managed").and_then(|word| word.parse().ok()),
        uid: field("uid"),
        created_at: field("createdAt"),
    }
}

/// Our record; the error says why it can't be read.
fn metadata(element: &Element) -> Result<Metadata, String> {
    if element.local != "instance" {
        return Err(format!("its element is called {:?}", element.local));
    }
    match element.attribute("version") {
        Some(VERSION) => {}
        Some(other) => {
            return Err(format!(
                "it has version {other:?}, made by another egressctl"
            ));
        }
        None => return Err("it has no version".to_owned()),
    }
    if let Some(twice) = SINGLE
        .iter()
        .find(|name| children(element, name).count() > 1)
    {
        return Err(format!("it has more than one {twice}"));
    }
    let text = |name: &str| {
        let found = child(element, name).map(Element::content);
        found
            .filter(|text| !text.trim().is_empty())
            .ok_or_else(|| format!("it has no {name}"))
    };
    let spec = child(element, "spec").ok_or("it has no spec")?;
    let expires_at = match child(element, "expiresAt") {
        Some(_) => Some(timestamp("expiresAt", &text("expiresAt")?)?),
        None => None,
    };
    let disk_bytes = match child(element, "diskBytes") {
        Some(_) => Some(number("diskBytes", &text("diskBytes")?)?),
        None => None,
    };
    Ok(Metadata {
        managed: boolean("managed", &text("managed")?)?,
        uid: text("uid")?,
        created_at: timestamp("createdAt", &text("createdAt")?)?,
        digest: text("digest")?.trim().to_owned(),
        spec: SpecRecord::from_element(text("image")?, spec)
            .map_err(|attribute| format!("its spec has no readable {attribute}"))?,
        spec_hash: text("specHash")?.trim().to_owned(),
        disk_bytes,
        volumes: children(element, "volume")
            .map(volume)
            .collect::<Result<_, _>>()?,
        expires_at,
        labels: children(element, "label")
            .map(label)
            .collect::<Result<_, _>>()?,
        extra: extra(element),
    })
}

fn boolean(name: &str, text: &str) -> Result<bool, String> {
    let text = text.trim();
    text.parse().map_err(|_| format!("its {name} is {text:?}"))
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    let text = text.trim();
    text.parse()
        .map_err(|_| format!("its {name} is {text:?}, not a number"))
}

fn timestamp(name: &str, text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    text.parse()
        .map_err(|_| format!("its {name} is {text:?}, not an RFC 3339 time"))
}

fn volume(element: &Element) -> Result<VolumeRef, String> {
    let attribute = |name: &str| {
        let value = element.attribute(name);
        value.ok_or_else(|| format!("one of its volumes has no {name}"))
    };
    let word = attribute("role")?;
    let role = [VolumeRole::Overlay, VolumeRole::Seed]
        .into_iter()
        .find(|role| role.as_str() == word)
        .ok_or_else(|| format!("one of its volumes has the role {word:?}"))?;
    Ok(VolumeRef {
        pool: attribute("pool")?.to_owned(),
        name: attribute("name")?.to_owned(),
        role,
    })
}

fn label(element: &Element) -> Result<(String, String), String> {
    match (element.attribute("key"), element.attribute("value")) {
        (Some(key), Some(value)) => Ok((key.to_owned(), value.to_owned())),
        _ => Err("one of its labels has no key or no value".to_owned()),
    }
}

/// The child of that name which isn't in a foreign namespace.
fn child<'a>(element: &'a Element, local: &'a str) -> Option<&'a Element> {
    children(element, local).next()
}

fn children<'a>(element: &'a Element, local: &'a str) -> impl Iterator<Item = &'a Element> {
    element
        .elements()
        .filter(move |child| child.local == local && !is_foreign(child))
}

/// Children lose their declaration with their parent, so an unbound one counts as ours.
fn is_foreign(child: &Element) -> bool {
    matches!(&child.namespace, Namespace::Bound(uri) if uri != NAMESPACE)
}

/// What this version doesn't know, ready to be written again under our own element.
fn extra(element: &Element) -> Extra {
    let known = |child: &&Element| {
        !is_foreign(child)
            && (SINGLE.contains(&child.local.as_str())
                || ["volume", "label"].contains(&child.local.as_str()))
    };
    Extra {
        attributes: element
            .attributes
            .iter()
            .filter(|(key, value)| key != "version" && !is_own_declaration(key, value))
            // A prefix declared further out would be undeclared where this is written.
            .filter(|(key, _)| match key.split_once(':') {
                None | Some(("xmlns", _)) => true,
                Some((prefix, _)) => element.attribute(&format!("xmlns:{prefix}")).is_some(),
            })
            .cloned()
            .collect(),
        elements: element
            .elements()
            .filter(|child| !known(child))
            .map(portable)
            .collect(),
    }
}

/// A declaration that writing makes anew, or (a default namespace) that would capture bare children.
fn is_own_declaration(key: &str, value: &str) -> bool {
    key == "xmlns" || (key.starts_with("xmlns:") && value == NAMESPACE)
}

/// A copy that means the same wherever it is put: ours with our prefix, others with their declaration.
fn portable(element: &Element) -> Element {
    let mut copy = element.clone();
    copy.attributes
        .retain(|(key, value)| !is_own_declaration(key, value));
    match &element.namespace {
        Namespace::Bound(uri) if uri != NAMESPACE => {
            let declaration = match element.prefix.as_str() {
                "" => "xmlns".to_owned(),
                prefix => format!("xmlns:{prefix}"),
            };
            if copy.attribute(&declaration).is_none() {
                copy.attributes.insert(0, (declaration, uri.clone()));
            }
        }
        Namespace::Bound(_) => PREFIX.clone_into(&mut copy.prefix),
        Namespace::Undeclared if element.prefix == PREFIX => {
            copy.namespace = Namespace::Bound(NAMESPACE.to_owned());
        }
        Namespace::Undeclared | Namespace::None => {
            copy.prefix.clear();
            copy.namespace = Namespace::None;
        }
    }
    let mixed = element.elements().next().is_some();
    copy.nodes = element
        .nodes
        .iter()
        .filter_map(|node| match node {
            Node::Element(child) => Some(Node::Element(portable(child))),
            // White space between elements is only indentation, and would grow with every writing.
            Node::Text(text) if mixed && text.trim().is_empty() => None,
            Node::Text(text) => Some(Node::Text(text.clone())),
        })
        .collect();
    copy
}
