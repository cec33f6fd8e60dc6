//! What the documents' items hold. Renaming anything in here changes the interface.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::document::Row;
use crate::check::{HostReport, Severity};
use crate::create::wait::CloudInitResult;
use crate::image::pull::Pulled;
use crate::instance::Instance;
use crate::libvirt::AddressSource;
use crate::units;
use crate::xml::metadata::Manager;

/// An instance.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceRecord {
    id: String,
    name: String,
    host: String,
    state: &'static str,
    domain_state: String,
    ip: Option<String>,
    ips: Vec<String>,
    ip_source: Option<&'static str>,
    manager: Option<&'static str>,
    uid: Option<String>,
    image: Option<String>,
    digest: Option<String>,
    machine_type: Option<String>,
    vcpus: u32,
    #[serde(rename = "memoryMiB")]
    memory_mib: u64,
    disk_bytes: Option<u64>,
    created_at: Option<String>,
    expires_at: Option<String>,
    labels: BTreeMap<String, String>,
    macs: Vec<String>,
    uuid: String,
    spec_hash: Option<String>,
    /// cloud-init's result, where somebody waited for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cloud_init: Option<&'static str>,
    #[serde(skip)]
    age: Option<Duration>,
}

impl InstanceRecord {
    /// The record of an instance, with its age at `now`.
    pub fn new(instance: &Instance, now: Timestamp) -> Self {
        let ours = instance.metadata();
        let created = ours.map(|metadata| metadata.created_at);
        InstanceRecord {
            id: instance.id(),
            name: instance.domain.name.clone(),
            host: instance.host.clone(),
            state: instance.status().as_str(),
            domain_state: instance.state.to_string(),
            ip: instance.addresses.primary().map(|ip| ip.to_string()),
            ips: instance
                .addresses
                .all
                .iter()
                .map(ToString::to_string)
                .collect(),
            ip_source: instance.addresses.source.map(AddressSource::as_str),
            manager: instance.manager().map(Manager::as_str),
            uid: instance.info.mark.uid().map(str::to_owned),
            image: ours.map(|metadata| metadata.spec.image.clone()),
            digest: ours.map(|metadata| metadata.digest.clone()),
            machine_type: ours.map(|metadata| metadata.spec.machine_type.clone()),
            vcpus: instance.info.vcpus,
            memory_mib: instance.info.memory_bytes >> 20,
            disk_bytes: ours.map(|metadata| metadata.spec.disk_bytes),
            created_at: created.map(|at| at.to_string()),
            expires_at: ours.and_then(|m| m.expires_at).map(|at| at.to_string()),
            labels: ours
                .map(|metadata| metadata.labels.clone())
                .unwrap_or_default(),
            macs: instance.macs().into_iter().map(str::to_owned).collect(),
            uuid: instance.domain.uuid.clone(),
            spec_hash: ours.map(|metadata| metadata.spec_hash.clone()),
            cloud_init: None,
            age: created.and_then(|at| Duration::try_from(now.duration_since(at)).ok()),
        }
    }

    /// The same record with what `--wait=cloud-init` found out.
    #[must_use]
    pub fn with_cloud_init(mut self, result: CloudInitResult) -> Self {
        self.cloud_init = Some(match result {
            CloudInitResult::Done => "done",
            CloudInitResult::Degraded(_) => "degraded",
        });
        self
    }

    /// The state for people: libvirt's own where it says more.
    fn shown_state(&self) -> String {
        if self.state == "Stopped" {
            format!("Stopped: {}", self.domain_state)
        } else {
            self.state.to_owned()
        }
    }
}

impl Row for InstanceRecord {
    const KIND: &'static str = "InstanceList";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn columns(&self) -> Vec<(&'static str, String)> {
        vec![
            ("NAME", self.name.clone()),
            ("HOST", self.host.clone()),
            ("STATE", self.shown_state()),
            ("IP", self.ip.clone().unwrap_or_default()),
            ("IMAGE", self.image.clone().unwrap_or_default()),
            ("AGE", self.age.map(units::age).unwrap_or_default()),
        ]
    }

    fn more_columns(&self) -> Vec<(&'static str, String)> {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        vec![
            ("SOURCE", self.ip_source.unwrap_or_default().to_owned()),
            ("TYPE", self.machine_type.clone().unwrap_or_default()),
            ("EXPIRES", self.expires_at.clone().unwrap_or_default()),
            ("MANAGER", self.manager.unwrap_or_default().to_owned()),
            ("LABELS", labels.join(",")),
            ("UID", self.uid.clone().unwrap_or_default()),
        ]
    }
}

/// One host's result of `image pull`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PulledRecord {
    host: String,
    image: String,
    volume: String,
    path: String,
    sha256: String,
    size_bytes: u64,
    virtual_size_bytes: Option<u64>,
    verified_against: String,
    pulled: bool,
}

impl PulledRecord {
    /// The record of a pull's result.
    pub fn new(host: &str, image: &str, pulled: &Pulled) -> Self {
        PulledRecord {
            host: host.to_owned(),
            image: image.to_owned(),
            volume: pulled.base.volume.clone(),
            path: pulled.base.path.clone(),
            sha256: pulled.base.sha256.clone(),
            size_bytes: pulled.base.size,
            virtual_size_bytes: pulled.base.virtual_size,
            verified_against: pulled.base.verified.clone(),
            pulled: pulled.fresh,
        }
    }
}

impl Row for PulledRecord {
    const KIND: &'static str = "PulledImageList";

    fn name(&self) -> String {
        self.volume.clone()
    }

    fn columns(&self) -> Vec<(&'static str, String)> {
        let result = if self.pulled { "pulled" } else { "present" };
        vec![
            ("HOST", self.host.clone()),
            ("IMAGE", self.image.clone()),
            ("RESULT", result.to_owned()),
            ("SIZE", units::bytes(self.size_bytes)),
            ("VERIFIED", self.verified_against.clone()),
            ("VOLUME", self.volume.clone()),
        ]
    }

    fn more_columns(&self) -> Vec<(&'static str, String)> {
        let virtual_size = self
            .virtual_size_bytes
            .map(units::bytes)
            .unwrap_or_default();
        vec![
            ("VIRTUAL SIZE", virtual_size),
            ("SHA256", self.sha256.clone()),
        ]
    }
}

/// One name's result of `delete`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletedRecord {
    /// The instance's name.
    pub name: String,
    /// Where it was; none where it was nowhere.
    pub host: Option<String>,
    /// What was deleted, in order.
    pub deleted: Vec<String>,
}

impl Row for DeletedRecord {
    const KIND: &'static str = "DeletedList";

    fn name(&self) -> String {
        self.name.clone()
    }

    fn columns(&self) -> Vec<(&'static str, String)> {
        let deleted = if self.deleted.is_empty() {
            "already absent".to_owned()
        } else {
            self.deleted.join(", ")
        };
        vec![
            ("NAME", self.name.clone()),
            ("HOST", self.host.clone().unwrap_or_default()),
            ("DELETED", deleted),
        ]
    }

    fn more_columns(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// One host's result of `check`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckRecord {
    host: String,
    healthy: bool,
    #[serde(flatten)]
    report: HostReport,
}

impl CheckRecord {
    /// The record of a host's report.
    pub fn new(host: &str, report: HostReport) -> Self {
        CheckRecord {
            host: host.to_owned(),
            healthy: report.is_healthy(),
            report,
        }
    }
}

impl Row for CheckRecord {
    const KIND: &'static str = "CheckList";

    fn name(&self) -> String {
        self.host.clone()
    }

    fn columns(&self) -> Vec<(&'static str, String)> {
        let report = &self.report;
        let problems: Vec<&str> = report
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(|problem| problem.reason.as_str())
            .collect();
        let pool = report
            .pool
            .as_ref()
            .map(|pool| format!("{} {} free", pool.name, units::bytes(pool.available_bytes)));
        vec![
            ("HOST", self.host.clone()),
            (
                "HEALTH",
                if problems.is_empty() {
                    "ok".to_owned()
                } else {
                    problems.join(",")
                },
            ),
            ("STAGE", report.stage.to_owned()),
            (
                "LIBVIRT",
                report.libvirt_version.clone().unwrap_or_default(),
            ),
            ("QEMU", report.qemu_version.clone().unwrap_or_default()),
            ("POOL", pool.unwrap_or_default()),
            ("NIC", report.nic.clone().unwrap_or_default()),
            ("CPU", report.accelerator.unwrap_or_default().to_owned()),
        ]
    }

    fn more_columns(&self) -> Vec<(&'static str, String)> {
        let report = &self.report;
        let firmware: Vec<&str> = report.firmware.clone();
        let skew = report
            .clock_skew_seconds
            .map(|s| format!("{s} s"))
            .unwrap_or_default();
        vec![
            ("HOSTNAME", report.hostname.clone().unwrap_or_default()),
            ("FIRMWARE", firmware.join(",")),
            ("CLOCK SKEW", skew),
        ]
    }
}
