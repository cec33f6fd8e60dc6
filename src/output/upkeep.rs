//! The items of gc and of the image commands. Renaming anything in here changes the interface.

use serde::Serialize;

use super::document::Row;
use crate::gc::Item;
use crate::gc::plan::{Base, BaseState, Kind};
use crate::units;

/// One thing that gc deletes, or kept.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SweptRecord {
    kind: Kind,
    host: String,
    name: Option<String>,
    volume: Option<String>,
    action: &'static str,
    reason: String,
    deleted: bool,
}

impl SweptRecord {
    /// The record of an item.
    pub fn new(item: &Item) -> Self {
        SweptRecord {
            kind: item.kind,
            host: item.host.clone(),
            name: item.instance.clone(),
            volume: item.volume.clone(),
            action: if item.goes { "delete" } else { "keep" },
            reason: item.reason.clone(),
            deleted: item.deleted,
        }
    }

    /// The thing itself: `instance web1` or `volume web1.qcow2`.
    fn thing(&self) -> String {
        match (&self.volume, &self.name) {
            (Some(volume), _) => format!("volume {volume}"),
            (None, Some(name)) => format!("instance {name}"),
            (None, None) => String::new(),
        }
    }

    /// One line: what, where, why.
    pub fn line(&self) -> String {
        let kept = if self.action == "keep" { "kept: " } else { "" };
        let shown: String = self
            .reason
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        format!("{}: {}: {kept}{shown}\n", self.host, self.thing())
    }
}

impl Row for SweptRecord {
    const KIND: &'static str = "SweptList";

    fn name(&self) -> String {
        self.volume
            .clone()
            .or(self.name.clone())
            .unwrap_or_default()
    }

    fn columns(&self) -> Vec<(&'static str, String)> {
        vec![
            ("HOST", self.host.clone()),
            ("KIND", self.kind.as_str().to_owned()),
            ("WHAT", self.thing()),
            ("ACTION", self.action.to_owned()),
            ("DELETED", self.deleted.to_string()),
            ("WHY", self.reason.clone()),
        ]
    }

    fn more_columns(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// One base image on one host.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageRecord {
    host: String,
    image: String,
    id: Option<String>,
    volume: String,
    state: &'static str,
    size_bytes: u64,
    virtual_size_bytes: Option<u64>,
    pulled_at: Option<String>,
    verified_against: Option<String>,
    sha256: Option<String>,
    url: Option<String>,
    wanted: bool,
    used_by: Vec<String>,
    instances: Vec<String>,
}

impl ImageRecord {
    /// The record of a base image; `instances` are those that run on it.
    pub fn new(host: &str, base: &Base<'_>, instances: Vec<String>) -> Self {
        let marker = base.marker;
        let probed =
            (base.volume.format.as_deref() == Some("qcow2")).then_some(base.volume.capacity);
        ImageRecord {
            host: host.to_owned(),
            image: base.key.clone(),
            id: base.id.clone(),
            volume: base.volume.name.clone(),
            state: base.state.as_str(),
            size_bytes: marker
                .and_then(|marker| marker.size)
                .or(base.volume.physical)
                .unwrap_or(base.volume.allocation),
            virtual_size_bytes: marker.and_then(|marker| marker.virtual_size).or(probed),
            pulled_at: marker.and_then(|marker| marker.pulled_at.clone()),
            verified_against: marker.and_then(|marker| marker.verified.clone()),
            sha256: marker.map(|marker| marker.sha256.clone()),
            url: marker.and_then(|marker| marker.url.clone()),
            wanted: base.wanted && base.state != BaseState::Unfinished,
            used_by: base.users.clone(),
            instances,
        }
    }
}

impl Row for ImageRecord {
    const KIND: &'static str = "ImageList";

    fn name(&self) -> String {
        self.volume.clone()
    }

    fn columns(&self) -> Vec<(&'static str, String)> {
        let yes_no = |yes| if yes { "yes" } else { "no" }.to_owned();
        vec![
            ("HOST", self.host.clone()),
            ("IMAGE", self.image.clone()),
            ("ID", self.id.clone().unwrap_or_default()),
            ("STATE", self.state.to_owned()),
            ("SIZE", units::bytes(self.size_bytes)),
            (
                "VIRTUAL",
                self.virtual_size_bytes
                    .map(units::bytes)
                    .unwrap_or_default(),
            ),
            ("PULLED", self.pulled_at.clone().unwrap_or_default()),
            (
                "VERIFIED",
                self.verified_against.clone().unwrap_or_default(),
            ),
            ("INSTANCES", self.instances.len().to_string()),
            ("WANTED", yes_no(self.wanted)),
        ]
    }

    fn more_columns(&self) -> Vec<(&'static str, String)> {
        vec![
            ("VOLUME", self.volume.clone()),
            ("SHA256", self.sha256.clone().unwrap_or_default()),
            ("USED BY", self.used_by.join(",")),
        ]
    }
}
