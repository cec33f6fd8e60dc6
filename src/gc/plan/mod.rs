//! What goes and what stays, decided from snapshots of the hosts. Pure: no clock, no I/O.

mod images;
mod instances;
mod leftovers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::clock::Clock;
use super::inventory::HostView;
use super::keep::KeepList;
use super::{Item, Scope};
use crate::config::Image;
use crate::inventory::Files;
use crate::name::InstanceName;
use crate::seed::SeedMark;
use crate::sharing::Sharing;

pub use images::{Base, BaseState, Claimed, bases};
pub use instances::MARK_UNREADABLE;
pub(super) use instances::judge as judge_instance;
pub(super) use leftovers::shared_by;

/// However small `--min-age` is: how long a thing whose maker can't be asked must have been quiet. A claim is touched
/// every 5 s, and from its seed to its domain a create takes seconds.
pub const QUIET: Duration = Duration::from_secs(60);

/// Why a thing is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An instance whose time is over.
    Expired,
    /// An instance that isn't on the keep list.
    Unlisted,
    /// A volume of an instance that has no domain.
    Orphan,
    /// What is left of a pull that never ended.
    Unfinished,
    /// A base image that nobody uses, and the configuration doesn't want.
    Image,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Kind; 5] = [
        Kind::Expired,
        Kind::Unlisted,
        Kind::Orphan,
        Kind::Unfinished,
        Kind::Image,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Expired => "expired",
            Kind::Unlisted => "unlisted",
            Kind::Orphan => "orphan",
            Kind::Unfinished => "unfinished",
            Kind::Image => "image",
        }
    }
}

/// What the decisions go by.
#[derive(Debug, Clone)]
pub struct Rules<'a> {
    /// Which kinds of things.
    pub scope: Scope,
    /// The desired state, if there is one.
    pub keep: Option<&'a KeepList>,
    /// Nothing younger goes.
    pub min_age: Duration,
    /// What the configuration wants.
    pub images: &'a [Image],
    /// The provider's hosts that weren't read: they may use shared storage unseen, or be one that was read under
    /// another name.
    pub unread: Vec<String>,
    /// The UUIDs of the domains that the keep list names, by whichever host's ID of them: one machine may be in the
    /// configuration as two hosts, and then each of its domains is seen twice.
    pub kept: BTreeSet<String>,
}

/// The domains that the keep list names, by UUID.
pub fn kept(views: &[HostView], keep: Option<&KeepList>) -> BTreeSet<String> {
    let domains = views.iter().flat_map(|view| &view.files.domains);
    let named = domains.filter(|domain| keep.is_some_and(|keep| keep.lists(&domain.instance)));
    named
        .map(|domain| domain.instance.domain.uuid.clone())
        .collect()
}

/// Which host judges each domain, by UUID: of several that see it (one machine under several names), the one whose
/// pool its metadata records, else the first.
fn judges(views: &[HostView]) -> BTreeMap<&str, &str> {
    let mut judges: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
    for view in views {
        for domain in &view.files.domains {
            let instance = &domain.instance;
            let own = instance.is_recorded_in(&view.files.pool);
            let judge = judges
                .entry(&instance.domain.uuid)
                .or_insert((&view.host, own));
            if own && !judge.1 {
                *judge = (&view.host, true);
            }
        }
    }
    judges
        .into_iter()
        .map(|(uuid, (host, _))| (uuid, host))
        .collect()
}

/// A thing that could go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An instance, with its volumes.
    Instance {
        /// Its domain's name.
        name: String,
        /// Its domain's UUID.
        uuid: String,
    },
    /// What is left of an instance without a domain.
    Leftover {
        /// The instance's name.
        name: InstanceName,
        /// Its volumes, in the order in which they go: the seed, which is the proof, last.
        volumes: Vec<String>,
        /// The mark in the seed; none in one that was never written.
        mark: Option<SeedMark>,
    },
    /// A base image: its volume, its marker, and the claim of a pull that died; not all need be there.
    Base {
        /// The base volume's name.
        base: String,
        /// The volume that shows: base, marker or claim.
        shown: String,
        /// The dead claim's content, if there is one.
        claim: Option<Vec<u8>>,
        /// Whether a valid marker makes it an image: one that isn't wanted, instead of an unfinished one.
        ready: bool,
    },
    /// The dead claim on a base image that is ready.
    Claim {
        /// The base volume's name.
        base: String,
        /// The claim volume's name.
        shown: String,
        /// Its content.
        content: Vec<u8>,
    },
}

/// Whether a thing goes, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The host.
    pub host: String,
    /// Why it was looked at.
    pub kind: Kind,
    /// What it is.
    pub target: Target,
    /// `Ok`: it goes, for this reason. `Err`: it stays, for that one.
    pub verdict: Result<String, String>,
}

impl Decision {
    /// Whether a base image's volume goes by it.
    pub fn takes_a_base(&self) -> bool {
        let base = matches!(&self.target, Target::Base { base, shown, .. } if base == shown);
        base && self.verdict.is_ok()
    }

    /// One item for each thing that is shown.
    pub fn items(&self) -> Vec<Item> {
        let (goes, reason) = match &self.verdict {
            Ok(why) => (true, why),
            Err(why) => (false, why),
        };
        let item = |instance: Option<&str>, volume: Option<&str>| Item {
            host: self.host.clone(),
            kind: self.kind,
            instance: instance.map(str::to_owned),
            volume: volume.map(str::to_owned),
            reason: reason.clone(),
            goes,
            deleted: false,
            busy: false,
            notes: Vec::new(),
        };
        match &self.target {
            Target::Instance { name, .. } => vec![item(Some(name), None)],
            Target::Leftover { name, volumes, .. } => volumes
                .iter()
                .map(|volume| item(Some(name.as_str()), Some(volume)))
                .collect(),
            Target::Base { shown, .. } | Target::Claim { shown, .. } => {
                vec![item(None, Some(shown))]
            }
        }
    }
}

/// Decides for all hosts at once, in their order.
pub fn plan(views: &[HostView], rules: &Rules<'_>, now: Timestamp) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let judges = judges(views);
    for view in views {
        let judge = Judge::new(view, rules, now);
        if rules.scope.instances {
            let all = view.files.domains.iter().map(|domain| &domain.instance);
            let own = all.filter(|instance| {
                judges.get(instance.domain.uuid.as_str()) == Some(&view.host.as_str())
            });
            let others: Vec<(&str, &Files)> = views
                .iter()
                .filter(|other| other.host != view.host && !other.is_same_machine(view))
                .map(|other| (other.host.as_str(), &other.files))
                .collect();
            let decide = |instance| instances::decide(&judge, &others, instance);
            decisions.extend(own.filter_map(decide));
            decisions.extend(leftovers::decide(&judge, views));
        }
        if rules.scope.unfinished || rules.scope.images {
            decisions.extend(images::decide(&judge));
        }
    }
    decisions
}

/// One host's view and the rules, for the judging functions.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) view: &'a HostView,
    pub(super) rules: &'a Rules<'a>,
    pub(super) clock: Clock,
}

impl<'a> Judge<'a> {
    pub(super) fn new(view: &'a HostView, rules: &'a Rules<'a>, now: Timestamp) -> Self {
        Judge {
            view,
            rules,
            clock: Clock::new(now, view.clock_offset),
        }
    }

    /// Keeps what lies on storage that a host may use which wasn't read.
    fn ensure_unshared(&self) -> Result<(), String> {
        if self.view.shared == Sharing::Own || self.rules.unread.is_empty() {
            return Ok(());
        }
        Err("the pool may be on shared storage, and not every host was read".to_owned())
    }

    /// The age that a thing must have whose maker can't be asked.
    fn quiet_age(&self) -> Duration {
        self.rules.min_age.max(QUIET)
    }

    fn decision(&self, kind: Kind, target: Target, verdict: Result<String, String>) -> Decision {
        Decision {
            host: self.view.host.clone(),
            kind,
            target,
            verdict,
        }
    }
}

/// Names in a list, for a reason.
fn used_by(users: &[String]) -> String {
    format!("used by {}", users.join(", "))
}
