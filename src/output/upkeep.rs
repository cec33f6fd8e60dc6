//! The items of gc and of the image commands. Renaming anything in here changes the interface.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::column::{Cell, Column, column, wide};
use super::document::Row;
use super::plain::one_line;
use crate::gc::Item;
use crate::gc::plan::{Base, BaseState, Kind};
use crate::image::identity::Marker;
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

    /// Whether it is gone.
    pub fn is_deleted(&self) -> bool {
        self.deleted
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
        let line = format!("{}: {}: {kept}{}", self.host, self.thing(), self.reason);
        one_line(&line) + "\n"
    }
}

impl Row for SweptRecord {
    const KIND: &'static str = "SweptList";
    const COLUMNS: &'static [Column<Self>] = &[
        column("HOST", |row| Cell::text_of(&row.host)),
        column("KIND", |row| Cell::text_of(row.kind.as_str())),
        column("WHAT", |row| Cell::text_of(row.thing())),
        column("ACTION", |row| Cell::text_of(row.action)),
        column("DELETED", |row| Cell::Text(row.deleted.to_string())),
        column("WHY", |row| Cell::text_of(&row.reason)),
    ];

    fn name(&self) -> String {
        self.volume
            .clone()
            .or(self.name.clone())
            .unwrap_or_default()
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
    #[serde(skip)]
    age: Option<Duration>,
}

impl ImageRecord {
    /// The record of a base image; `instances` are those that run on it.
    pub fn new(host: &str, base: &Base<'_>, instances: Vec<String>, now: Timestamp) -> Self {
        let marker = base.marker;
        let pulled = marker.and_then(Marker::pulled);
        ImageRecord {
            host: host.to_owned(),
            image: base.key.clone(),
            id: base.id.clone(),
            volume: base.volume.name.clone(),
            state: base.state.as_str(),
            size_bytes: base.sizes.stored,
            virtual_size_bytes: base.sizes.virtual_size,
            pulled_at: pulled.map(units::timestamp),
            verified_against: marker.and_then(|marker| marker.verified.clone()),
            sha256: marker.map(|marker| marker.sha256.clone()),
            url: marker.and_then(|marker| marker.url.clone()),
            wanted: base.wanted && base.state != BaseState::Unfinished,
            used_by: base.users.clone(),
            instances,
            age: pulled.and_then(|at| Duration::try_from(now.duration_since(at)).ok()),
        }
    }
}

impl Row for ImageRecord {
    const KIND: &'static str = "ImageList";
    const COLUMNS: &'static [Column<Self>] = &[
        column("HOST", |row| Cell::text_of(&row.host)),
        column("IMAGE", |row| Cell::text_of(&row.image)),
        column("ID", |row| Cell::maybe(row.id.as_deref())),
        column("STATE", |row| Cell::text_of(row.state)),
        column("SIZE", |row| Cell::Bytes(row.size_bytes)),
        column("VIRTUAL", |row| Cell::size(row.virtual_size_bytes)),
        column("PULLED", |row| row.age.map_or(Cell::Empty, Cell::Age)),
        column("VERIFIED", |row| {
            Cell::maybe(row.verified_against.as_deref())
        }),
        column("INSTANCES", |row| {
            Cell::Number(i64::try_from(row.instances.len()).unwrap_or(i64::MAX))
        }),
        column("WANTED", |row| Cell::yes_no(row.wanted)),
        wide("VOLUME", |row| Cell::text_of(&row.volume)),
        wide("URL", |row| Cell::maybe(row.url.as_deref())),
        wide("SHA256", |row| Cell::maybe(row.sha256.as_deref())),
        wide("USED BY", |row| Cell::text_of(row.used_by.join(","))),
    ];

    fn name(&self) -> String {
        self.volume.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ImageFormat;
    use crate::gc::plan::Claimed;
    use crate::image::ready::Sizes;

    #[test]
    fn a_pull_is_told_to_the_second_as_all_times_are() {
        let volume = crate::inventory::tests::volume("base-a-0123456789abcdef.qcow2");
        let marker = Marker {
            pulled_at: Some("2026-01-02T03:04:05.678Z".into()),
            ..Marker::default()
        };
        let base = Base {
            volume: &volume,
            key: "a".into(),
            id: None,
            marker: Some(&marker),
            sizes: Sizes::of(Some(&marker), &volume, ImageFormat::Qcow2),
            state: BaseState::Ready,
            claim: Claimed::Free,
            wanted: true,
            users: Vec::new(),
        };
        let record = ImageRecord::new("nas1", &base, Vec::new(), Timestamp::now());
        assert_eq!(record.pulled_at.as_deref(), Some("2026-01-02T03:04:05Z"));
    }

    #[test]
    fn one_thing_is_one_line_whatever_it_is_called() {
        let line = |volume: Option<&str>, name: Option<&str>| {
            let record = SweptRecord {
                kind: Kind::Image,
                host: "nas1".into(),
                name: name.map(str::to_owned),
                volume: volume.map(str::to_owned),
                action: "keep",
                reason: "r\u{9b}".into(),
                deleted: false,
            };
            record.line()
        };
        let volume = line(Some("v\x1b[2J\n"), None);
        assert_eq!(volume, "nas1: volume v\\u{1b}[2J\\n: kept: r\\u{9b}\n");
        let name = line(None, Some("i\x07"));
        assert_eq!(name, "nas1: instance i\\u{7}: kept: r\\u{9b}\n");
    }
}
