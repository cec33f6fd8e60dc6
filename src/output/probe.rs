//! What `probe` found.

use std::net::SocketAddr;

use serde::Serialize;

use super::column::{Cell, Column, column, wide};
use super::document::Row;
use crate::instance::Instance;
use crate::probe::Fetched;
use crate::reach::Way;
use crate::url::SecretUrl;

/// One page fetched through one instance.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeRecord {
    id: String,
    name: String,
    host: String,
    proxy: String,
    url: String,
    via: &'static str,
    status: u16,
    egress_ip: Option<String>,
    latency_ms: u64,
}

impl ProbeRecord {
    /// The record of a page fetched through the instance.
    pub fn new(
        instance: &Instance,
        proxy: SocketAddr,
        url: &SecretUrl,
        way: Way,
        fetched: &Fetched,
    ) -> Self {
        ProbeRecord {
            id: instance.id(),
            name: instance.domain.name.clone(),
            host: instance.host.clone(),
            proxy: proxy.to_string(),
            url: url.to_string(),
            via: way.as_str(),
            status: fetched.status,
            egress_ip: fetched.egress_ip.map(|ip| ip.to_string()),
            latency_ms: u64::try_from(fetched.latency.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Row for ProbeRecord {
    const KIND: &'static str = "ProbeList";
    const COLUMNS: &'static [Column<Self>] = &[
        column("NAME", |row| Cell::text_of(&row.name)),
        column("EGRESS", |row| Cell::maybe(row.egress_ip.as_deref())),
        column("STATUS", |row| Cell::Number(row.status.into())),
        column("LATENCY", |row| {
            Cell::text_of(format!("{} ms", row.latency_ms))
        }),
        column("PROXY", |row| Cell::text_of(&row.proxy)),
        column("VIA", |row| Cell::text_of(row.via)),
        wide("HOST", |row| Cell::text_of(&row.host)),
        wide("URL", |row| Cell::text_of(&row.url)),
        wide("ID", |row| Cell::text_of(&row.id)),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }
}
