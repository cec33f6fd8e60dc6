//! What a domain's `<metadata>` says about whose it is and how it was made.
//!
//! One element, `<egressctl:instance version="1">`, in a namespace of our own. It is written with a prefix, and
//! read by namespace; libvirt may hand it back with another prefix, as the default namespace, or with the
//! declaration dropped. The rule in a whole domain's XML:
//!
//! - a name bound to a namespace is ours, the operator's or foreign by that namespace alone;
//! - a name that isn't bound is ours if its prefix is literally `egressctl`, or if it is an `instance` that
//!   holds `managed`, `uid`, `createdAt` and `specHash`; it is the operator's if its prefix is `kvm` or `kvm2`;
//! - an element that is ours but can't be read in full is [`Mark::Unreadable`], and so are two marks in one
//!   domain: shown, and never deleted by gc.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::tree::{Element, Namespace, Node, parse};
use crate::config::{Firmware, Nic};
use crate::error::Result;

mod read;
mod spec;
#[cfg(test)]
pub(crate) mod tests;

pub use spec::SpecRecord;

/// The namespace of egressctl's own metadata, for `virDomainGetMetadata` and `virDomainSetMetadata`.
pub const NAMESPACE: &str =
    "https://gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/egressctl";

/// The prefix egressctl's own metadata is written with, the `key` of `virDomainSetMetadata`.
pub const PREFIX: &str = "egressctl";

/// The version of the element that this code writes and reads.
const VERSION: &str = "1";

/// Who made and manages a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Manager {
    /// This tool.
    Egressctl,
    /// The operator's provider of type `kvm`.
    Kvm,
    /// The operator's provider of type `kvm2`.
    Kvm2,
}

impl Manager {
    /// Every manager there is.
    pub const ALL: [Manager; 3] = [Manager::Egressctl, Manager::Kvm, Manager::Kvm2];

    /// As `--manager` and the output have it; also the prefix its metadata is written with.
    pub fn as_str(self) -> &'static str {
        match self {
            Manager::Egressctl => PREFIX,
            Manager::Kvm => "kvm",
            Manager::Kvm2 => "kvm2",
        }
    }

    /// The namespace of its metadata.
    pub fn namespace(self) -> &'static str {
        match self {
            Manager::Egressctl => NAMESPACE,
            Manager::Kvm => "https://gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/kvm",
            Manager::Kvm2 => {
                "https://gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/kvm2"
            }
        }
    }
}

/// What a volume is to its instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumeRole {
    /// The guest's disk.
    Overlay,
    /// The cloud-init seed.
    Seed,
}

impl VolumeRole {
    /// As the metadata has it.
    pub fn as_str(self) -> &'static str {
        match self {
            VolumeRole::Overlay => "overlay",
            VolumeRole::Seed => "seed",
        }
    }
}

/// A volume that was made for an instance, and goes when it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRef {
    /// The pool's name.
    pub pool: String,
    /// The volume's name.
    pub name: String,
    /// What it is for.
    pub role: VolumeRole,
}

/// egressctl's own record in a domain's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Whether the instance is egressctl's to collect; somebody may set it to false by hand.
    pub managed: bool,
    /// The instance's uid.
    pub uid: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// The sha256 of its base image's bytes, 64 lower-case hex digits.
    pub digest: String,
    /// What was asked for.
    pub spec: SpecRecord,
    /// The hash of what was asked for, as computed by the egressctl that made it.
    pub spec_hash: String,
    /// The overlay's capacity in bytes, which is more than was asked for where the image needs more; `None` where an
    /// earlier version made it.
    pub disk_bytes: Option<u64>,
    /// The volumes made for it.
    pub volumes: Vec<VolumeRef>,
    /// When gc may delete it.
    pub expires_at: Option<Timestamp>,
    /// The `--label` pairs.
    pub labels: BTreeMap<String, String>,
    /// What a later egressctl or somebody else put in; kept when this one writes.
    pub extra: Extra,
}

/// Attributes and child elements that this version doesn't know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extra {
    attributes: Vec<(String, String)>,
    elements: Vec<Element>,
}

impl Metadata {
    /// The overlay's capacity in bytes, as far as it is known: else what was asked for.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes.unwrap_or(self.spec.disk_bytes)
    }

    /// The element on its own, its namespace declared.
    pub fn to_xml(&self) -> Result<String> {
        self.to_element().to_xml()
    }

    /// The element for `virDomainSetMetadata`, which puts namespace and prefix in by itself, and refuses an element
    /// that declares that prefix ("failed to create a new XML namespace", libvirt 11.3).
    pub fn to_fragment(&self) -> Result<String> {
        let mut element = self.to_element();
        let declaration = format!("xmlns:{PREFIX}");
        element.attributes.retain(|(key, _)| *key != declaration);
        bare(element).to_xml()
    }

    /// The element, for a domain's `<metadata>`.
    pub(crate) fn to_element(&self) -> Element {
        let mut root = own("instance")
            .with(&format!("xmlns:{PREFIX}"), NAMESPACE)
            .with("version", VERSION);
        root.attributes
            .extend(self.extra.attributes.iter().cloned());
        root.child(own("managed").text(self.managed))
            .child(own("uid").text(&self.uid))
            .child(own("createdAt").text(self.created_at))
            .child(own("image").text(&self.spec.image))
            .child(own("digest").text(&self.digest))
            .child(own("specHash").text(&self.spec_hash))
            .child(self.spec.to_element())
            .children_from(self.disk_bytes.map(|bytes| own("diskBytes").text(bytes)))
            .children_from(self.volumes.iter().map(|volume| {
                own("volume")
                    .with("role", volume.role.as_str())
                    .with("pool", &volume.pool)
                    .with("name", &volume.name)
            }))
            .children_from(self.expires_at.map(|at| own("expiresAt").text(at)))
            .children_from(
                self.labels
                    .iter()
                    .map(|(key, value)| own("label").with("key", key).with("value", value)),
            )
            .children_from(self.extra.elements.iter().cloned())
    }
}

/// An element in our namespace.
fn own(local: &str) -> Element {
    Element::new(&format!("{PREFIX}:{local}"))
}

/// The element with our prefix taken off its name and its descendants'.
fn bare(mut element: Element) -> Element {
    if element.prefix == PREFIX {
        element.prefix.clear();
    }
    for node in &mut element.nodes {
        if let Node::Element(child) = node {
            *child = bare(child.clone());
        }
    }
    element
}

/// The operator's record, as far as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorRecord {
    /// Which of the operator's providers.
    pub manager: Manager,
    /// Its `managed`, if it is `true` or `false`.
    pub managed: Option<bool>,
    /// Its `uid`.
    pub uid: Option<String>,
    /// Its `createdAt`, as it is written.
    pub created_at: Option<String>,
}

/// Whose a domain is, by its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// Nobody's that egressctl knows.
    None,
    /// egressctl's own.
    Egressctl(Box<Metadata>),
    /// The operator's.
    Operator(OperatorRecord),
    /// egressctl's by its name, but not to be read, or marked by two managers: in doubt, never collected.
    Unreadable {
        /// Why, for the person at the terminal.
        why: String,
        /// The uid, where there is one.
        uid: Option<String>,
    },
}

impl Mark {
    /// Who manages the domain. An unreadable mark counts as nobody's, as nothing may be decided by it.
    pub fn manager(&self) -> Option<Manager> {
        match self {
            Mark::None | Mark::Unreadable { .. } => None,
            Mark::Egressctl(_) => Some(Manager::Egressctl),
            Mark::Operator(record) => Some(record.manager),
        }
    }

    /// egressctl's own record, if it is one.
    pub fn metadata(&self) -> Option<&Metadata> {
        match self {
            Mark::Egressctl(metadata) => Some(metadata),
            _ => None,
        }
    }

    /// The mark of a domain that runs with this one, and is defined with another for its next start (`virsh edit` changes
    /// that alone): the later of two expiries, what somebody wrote into the definition otherwise, and in doubt nobody's.
    #[must_use]
    pub fn with_definition(self, defined: Mark) -> Mark {
        match (self, defined) {
            (unreadable @ Mark::Unreadable { .. }, _)
            | (_, unreadable @ Mark::Unreadable { .. }) => unreadable,
            (Mark::None, _) | (_, Mark::None) => Mark::None,
            (Mark::Egressctl(running), Mark::Egressctl(mut defined)) => {
                defined.managed &= running.managed;
                // None is never.
                let both = running.expires_at.zip(defined.expires_at);
                defined.expires_at = both.map(|(running, defined)| running.max(defined));
                Mark::Egressctl(defined)
            }
            (operators @ Mark::Operator(_), Mark::Operator(_)) => operators,
            (running, _) => Mark::Unreadable {
                why: "it runs as one manager's, and is defined as another's".to_owned(),
                uid: running.uid().map(str::to_owned),
            },
        }
    }

    /// The uid it names, whoever's it is.
    pub fn uid(&self) -> Option<&str> {
        match self {
            Mark::None => None,
            Mark::Egressctl(metadata) => Some(&metadata.uid),
            Mark::Operator(record) => record.uid.as_deref(),
            Mark::Unreadable { uid, .. } => uid.as_deref(),
        }
    }

    /// Reads what `virDomainGetMetadata` returned for one manager's namespace.
    ///
    /// libvirt found the element by its namespace, so an element without a declaration is that manager's;
    /// one that is bound to another namespace isn't.
    pub fn from_fragment(asked: Manager, xml: &str) -> Result<Mark> {
        let element = parse("the metadata", xml)?;
        if let Namespace::Bound(uri) = &element.namespace
            && uri != asked.namespace()
        {
            return Ok(Mark::None);
        }
        Ok(read::mark_of(asked, &element))
    }

    /// Finds the mark in a domain's `<metadata>` element.
    pub(crate) fn in_metadata(metadata: &Element) -> Mark {
        let mut found = metadata
            .elements()
            .filter_map(|element| Some((read::owner(element)?, element)));
        let Some((manager, element)) = found.next() else {
            return Mark::None;
        };
        let mark = read::mark_of(manager, element);
        match found.next() {
            None => mark,
            Some((other, _)) => Mark::Unreadable {
                why: format!(
                    "the domain has two marks, of {} and of {}",
                    manager.as_str(),
                    other.as_str()
                ),
                uid: mark.uid().map(str::to_owned),
            },
        }
    }
}

/// A NIC's source as the metadata has it: kind and name.
fn nic_words(nic: &Nic) -> (&'static str, &str) {
    match nic {
        Nic::Bridge(name) => ("bridge", name),
        Nic::Network(name) => ("network", name),
    }
}

/// A firmware by its word.
fn firmware_named(word: &str) -> Option<Firmware> {
    [Firmware::Uefi, Firmware::Bios]
        .into_iter()
        .find(|firmware| firmware.as_str() == word)
}
