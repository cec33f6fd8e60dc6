//! What `create --dry-run` shows: the same look at the host as a create, and nothing made.

use serde_json::{Value, json};

use super::preflight::preflight;
use super::spec::CreateSpec;
use crate::error::Result;
use crate::host::HostSession;
use crate::image::identity::{Identity, pin_of};
use crate::image::ready::BaseImage;
use crate::units;

/// What a create would make.
#[derive(Debug, Clone)]
pub struct Plan {
    host: String,
    name: String,
    existing: Option<String>,
    pool: String,
    base: String,
    base_is_ready: bool,
    disk_bytes: u64,
    volumes: [String; 2],
    seed_files: Vec<&'static str>,
    xml: String,
}

/// Looks at the host and says what a create would make. Reads only.
pub fn plan(host: &HostSession, spec: &CreateSpec) -> Result<Plan> {
    let hypervisor = host.connect()?;
    let found = preflight(host, &*hypervisor, spec)?;
    let existing = found.existing.map(|instance| instance.id());
    let judged = found.judged?;
    let directory = judged.pool.path.clone().unwrap_or_default();
    let path = |volume: &str| format!("{}/{volume}", directory.trim_end_matches('/'));
    let base_is_ready = judged.ready.is_some();
    let base = judged.ready.unwrap_or_else(|| to_be_pulled(spec, &path));
    let identity = spec.identify();
    let volumes = [spec.name.overlay_volume(), spec.name.seed_volume()];
    let [overlay, seed] = [path(&volumes[0]), path(&volumes[1])];
    let accelerator = judged.emulator.accelerator;
    let domain = spec.domain(&identity, accelerator, &base, host.pool(), overlay, seed);
    Ok(Plan {
        host: host.name().to_owned(),
        name: spec.name.to_string(),
        existing,
        pool: host.pool().to_owned(),
        base: base.volume,
        base_is_ready,
        disk_bytes: spec.disk_bytes.max(base.virtual_size.unwrap_or(0)),
        volumes,
        seed_files: spec.seed(&identity).file_names(),
        xml: domain.to_xml()?,
    })
}

/// The base image as it would be called; one without a pinned digest is named only when its server was asked.
fn to_be_pulled(spec: &CreateSpec, path: &dyn Fn(&str) -> String) -> BaseImage {
    let volume = match pin_of(&spec.image) {
        Some(pin) => Identity::pinned(&spec.image, pin).base_volume(),
        None => format!("base-{}-?.{}", spec.image.key, spec.image.format.as_str()),
    };
    BaseImage {
        path: path(&volume),
        volume,
        format: spec.image.format,
        sha256: String::new(),
        size: 0,
        virtual_size: None,
        verified: String::new(),
    }
}

impl Plan {
    /// For people.
    pub fn to_text(&self) -> String {
        let base = if self.base_is_ready {
            "is ready"
        } else {
            "would be pulled"
        };
        let existing = self.existing.as_ref().map_or(String::new(), |id| {
            format!("# {id} exists: create would take it if it is the same, and refuse otherwise\n")
        });
        format!(
            "{existing}# instance {} on host {}, pool {}\n# base image {}: {base}\n# overlay {} ({})\n# seed {} with {}\n{}\n",
            self.name,
            self.host,
            self.pool,
            self.base,
            self.volumes[0],
            units::bytes(self.disk_bytes),
            self.volumes[1],
            self.seed_files.join(", "),
            self.xml.trim_end()
        )
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "apiVersion": "egressctl/v1",
            "kind": "CreatePlan",
            "host": self.host,
            "name": self.name,
            "existing": self.existing,
            "pool": self.pool,
            "baseVolume": self.base,
            "baseIsReady": self.base_is_ready,
            "diskBytes": self.disk_bytes,
            "overlayVolume": self.volumes[0],
            "seedVolume": self.volumes[1],
            "seedFiles": self.seed_files,
            "domainXml": self.xml,
        })
    }
}
