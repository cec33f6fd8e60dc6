//! What the documents' items hold. Renaming anything in here changes the interface.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::column::{Cell, Column, column, wide};
use super::document::Row;
use super::plain::plain;
use crate::check::{HostReport, PoolReport, Severity};
use crate::create::plan::Plan;
use crate::create::wait::CloudInitResult;
use crate::image::pull::Pulled;
use crate::instance::Instance;
use crate::libvirt::AddressSource;
use crate::units;
use crate::xml::metadata::{Manager, Metadata};

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
    instance_id: Option<String>,
    spec_hash: Option<String>,
    /// cloud-init's result, where somebody waited for it.
    cloud_init: Option<&'static str>,
    /// Which of its volumes are gone, where somebody looked.
    missing_volumes: Option<Vec<String>>,
    #[serde(skip)]
    age: Option<Duration>,
}

impl InstanceRecord {
    /// The instance's ID.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The record of an instance, with its age at `now`.
    pub fn new(instance: &Instance, now: Timestamp) -> Self {
        let ours = instance.metadata();
        let created = instance.created_at();
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
            disk_bytes: ours.map(Metadata::disk_bytes),
            created_at: created.map(units::timestamp),
            expires_at: ours.and_then(|m| m.expires_at).map(units::timestamp),
            labels: ours
                .map(|metadata| metadata.labels.clone())
                .unwrap_or_default(),
            macs: instance.macs().into_iter().map(str::to_owned).collect(),
            uuid: instance.domain.uuid.clone(),
            instance_id: instance.instance_id(),
            spec_hash: ours.map(|metadata| metadata.spec_hash.clone()),
            cloud_init: None,
            missing_volumes: None,
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

    /// The same record with the names of its volumes that are gone.
    #[must_use]
    pub fn with_missing_volumes(mut self, missing: Option<Vec<String>>) -> Self {
        self.missing_volumes = missing;
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

    fn shown_labels(&self) -> String {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        labels.join(",")
    }
}

impl Row for InstanceRecord {
    const KIND: &'static str = "InstanceList";
    const COLUMNS: &'static [Column<Self>] = &[
        column("NAME", |row| Cell::text_of(&row.name)),
        column("HOST", |row| Cell::text_of(row.host.as_str())),
        column("STATE", |row| Cell::Text(row.shown_state())),
        column("IP", |row| Cell::maybe(row.ip.as_deref())),
        column("IMAGE", |row| Cell::maybe(row.image.as_deref())),
        column("AGE", |row| row.age.map_or(Cell::Empty, Cell::Age)),
        wide("SOURCE", |row| Cell::maybe(row.ip_source)),
        wide("TYPE", |row| Cell::maybe(row.machine_type.as_deref())),
        wide("EXPIRES", |row| Cell::maybe(row.expires_at.as_deref())),
        wide("MANAGER", |row| Cell::maybe(row.manager)),
        wide("LABELS", |row| Cell::text_of(row.shown_labels())),
        wide("UID", |row| Cell::maybe(row.uid.as_deref())),
        wide("ID", |row| Cell::text_of(row.id.as_str())),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// What `create --dry-run` would make.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct PlanRecord(Plan);

impl PlanRecord {
    /// The record of a plan.
    pub fn new(plan: Plan) -> Self {
        PlanRecord(plan)
    }

    /// The plan for people, with the XML.
    pub fn text(&self) -> String {
        plain(&self.0.to_text())
    }
}

impl Row for PlanRecord {
    const KIND: &'static str = "CreatePlanList";
    const COLUMNS: &'static [Column<Self>] = &[
        column("NAME", |row| Cell::text_of(&row.0.name)),
        column("HOST", |row| Cell::text_of(&row.0.host)),
        column("EXISTING", |row| Cell::maybe(row.0.existing.as_deref())),
        column("BASE", |row| Cell::text_of(&row.0.base_volume)),
        column("READY", |row| Cell::yes_no(row.0.base_is_ready)),
        column("DISK", |row| Cell::Bytes(row.0.disk_bytes)),
    ];

    fn name(&self) -> String {
        self.0.name.clone()
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
    const COLUMNS: &'static [Column<Self>] = &[
        column("HOST", |row| Cell::text_of(&row.host)),
        column("IMAGE", |row| Cell::text_of(&row.image)),
        column("RESULT", |row| {
            Cell::text_of(if row.pulled { "pulled" } else { "present" })
        }),
        column("SIZE", |row| Cell::Bytes(row.size_bytes)),
        column("VERIFIED", |row| Cell::text_of(&row.verified_against)),
        column("VOLUME", |row| Cell::text_of(&row.volume)),
        wide("VIRTUAL SIZE", |row| Cell::size(row.virtual_size_bytes)),
        wide("SHA256", |row| Cell::text_of(&row.sha256)),
    ];

    fn name(&self) -> String {
        self.volume.clone()
    }
}

/// One name's result of `delete`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletedRecord {
    /// The instance's name.
    pub name: String,
    /// Where it was, or was said to be on a host that isn't configured; none where it was nowhere.
    pub host: Option<String>,
    /// What was deleted, in order.
    pub deleted: Vec<String>,
    /// What was found and left alone.
    pub kept: Vec<String>,
    /// Whether nobody looked, as that host isn't configured.
    #[serde(skip)]
    pub not_looked_at: bool,
}

impl DeletedRecord {
    /// What it says where there is nothing to tell: `absent`, or why nobody can say.
    fn nothing(&self, absent: &str) -> String {
        match &self.host {
            Some(host) if self.not_looked_at => {
                format!("not looked at: host {host} isn't configured")
            }
            _ => absent.to_owned(),
        }
    }
}

impl Row for DeletedRecord {
    const KIND: &'static str = "DeletedList";
    const COLUMNS: &'static [Column<Self>] = &[
        column("NAME", |row| Cell::text_of(&row.name)),
        column("HOST", |row| Cell::maybe(row.host.as_deref())),
        column("DELETED", |row| {
            let absent = row.nothing("already absent");
            Cell::Text(or_absent(&row.deleted, &row.kept, &absent))
        }),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// What `delete --dry-run` found for one name.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletePlanRecord {
    name: String,
    host: Option<String>,
    would_delete: Vec<String>,
    would_keep: Vec<String>,
    #[serde(skip)]
    nothing: String,
}

impl DeletePlanRecord {
    /// The plan for what a deletion in earnest would have in its record.
    pub fn new(record: DeletedRecord) -> Self {
        DeletePlanRecord {
            nothing: record.nothing("nothing: it is absent"),
            name: record.name,
            host: record.host,
            would_delete: record.deleted,
            would_keep: record.kept,
        }
    }
}

impl Row for DeletePlanRecord {
    const KIND: &'static str = "DeletePlanList";
    const COLUMNS: &'static [Column<Self>] = &[
        column("NAME", |row| Cell::text_of(&row.name)),
        column("HOST", |row| Cell::maybe(row.host.as_deref())),
        column("WOULD DELETE", |row| {
            Cell::Text(or_absent(&row.would_delete, &row.would_keep, &row.nothing))
        }),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// What goes and what stays; `absent` where there is neither.
fn or_absent(gone: &[String], kept: &[String], absent: &str) -> String {
    let mut parts = Vec::new();
    if !gone.is_empty() {
        parts.push(gone.join(", "));
    }
    if !kept.is_empty() {
        parts.push(format!("left alone: {}", kept.join(", ")));
    }
    if parts.is_empty() {
        absent.to_owned()
    } else {
        parts.join("; ")
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

impl CheckRecord {
    fn health(&self) -> String {
        let problems: Vec<&str> = self
            .report
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(|problem| problem.reason.as_str())
            .collect();
        if problems.is_empty() {
            "ok".to_owned()
        } else {
            problems.join(",")
        }
    }

    fn pool_report(&self) -> Option<&PoolReport> {
        self.report.pool.as_ref()
    }

    /// The keys of the images that are ready.
    fn images(&self) -> String {
        let images = self.report.images.iter().flatten();
        let ready = images.filter(|image| image.ready);
        let keys: BTreeSet<&str> = ready.map(|image| image.key.as_str()).collect();
        Vec::from_iter(keys).join(",")
    }

    fn pool(&self) -> String {
        self.pool_report()
            .map_or(String::new(), |pool| match pool.available_bytes {
                Some(free) => format!("{} {} free", pool.name, units::bytes(free)),
                None => format!("{} {}", pool.name, pool.state),
            })
    }
}

impl Row for CheckRecord {
    const KIND: &'static str = "CheckList";
    const COLUMNS: &'static [Column<Self>] = &[
        column("HOST", |row| Cell::text_of(row.host.as_str())),
        column("HEALTH", |row| Cell::Text(row.health())),
        column("STAGE", |row| Cell::text_of(row.report.stage)),
        column("LIBVIRT", |row| {
            Cell::maybe(row.report.libvirt_version.as_deref())
        }),
        column("QEMU", |row| {
            Cell::maybe(row.report.qemu_version.as_deref())
        }),
        column("POOL", |row| Cell::text_of(row.pool())),
        column("NIC", |row| Cell::maybe(row.report.nic.as_deref())),
        column("CPU", |row| Cell::maybe(row.report.accelerator)),
        wide("FREE", |row| {
            Cell::size(row.pool_report().and_then(|pool| pool.available_bytes))
        }),
        wide("CAPACITY", |row| {
            Cell::size(row.pool_report().and_then(|pool| pool.capacity_bytes))
        }),
        wide("POOL TYPE", |row| {
            Cell::maybe(row.pool_report().map(|pool| pool.kind.as_str()))
        }),
        wide("POOL STATE", |row| {
            Cell::maybe(row.pool_report().map(|pool| pool.state))
        }),
        wide("IMAGES", |row| Cell::text_of(row.images())),
        wide("HOSTNAME", |row| {
            Cell::maybe(row.report.hostname.as_deref())
        }),
        wide("FIRMWARE", |row| {
            Cell::text_of(row.report.firmware.join(","))
        }),
        wide("CLOCK SKEW", |row| {
            let skew = row.report.clock_skew_seconds;
            Cell::text_of(skew.map_or(String::new(), |s| format!("{s} s")))
        }),
    ];

    fn name(&self) -> String {
        self.host.clone()
    }
}
