//! What was asked for when an instance was made: recorded, hashed and compared.

use sha2::{Digest, Sha256};

use super::{Element, Firmware, Nic, firmware_named, nic_words, own};
use crate::url::SecretUrl;

/// What makes two instances the same: everything a create command decides, and nothing that
/// changes by itself (a `latest` image that moved, the expiry) or never matters (labels).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecRecord {
    /// The image's key, or its URL without secrets ([`SecretUrl::record`]).
    pub image: String,
    /// The machine type's key.
    pub machine_type: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The overlay's capacity in bytes, as asked for or configured; the image may have raised it
    /// ([`Metadata::disk_bytes`](super::Metadata::disk_bytes())).
    pub disk_bytes: u64,
    /// What it boots with.
    pub firmware: Firmware,
    /// What its NIC is plugged into.
    pub nic: Nic,
    /// The sha256 of the seed's user-data, vendor-data and network-config, 64 hex digits: a change
    /// of them can be named, and they can't be read back.
    pub cloud_init: String,
}

impl SpecRecord {
    /// The record's hash: sha256 over its fields in order, each with its name and length, as 64 hex digits.
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        for (field, value) in self.fields() {
            hasher.update(format!("{field} {}\n{value}\n", value.len()));
        }
        hex(&hasher.finalize())
    }

    /// What differs, one sentence each: `memory is 1024 MiB, not 2048 MiB` (ours first, `wanted` second).
    pub fn differences(&self, wanted: &SpecRecord) -> Vec<String> {
        let pairs = self.fields().into_iter().zip(wanted.fields());
        pairs
            .filter(|(old, new)| old != new)
            .map(|((field, old), (_, new))| match field {
                "cloud-init" => {
                    "its user-data, vendor-data or network-config is another".to_owned()
                }
                _ => format!("{field} is {old}, not {new}"),
            })
            .collect()
    }

    /// The fields in the hash's order; changing names or forms here changes every hash.
    fn fields(&self) -> [(&'static str, String); 8] {
        let (kind, source) = nic_words(&self.nic);
        [
            ("image", self.image.clone()),
            ("machine type", self.machine_type.clone()),
            ("vcpus", self.vcpus.to_string()),
            ("memory", format!("{} MiB", self.memory_mib)),
            ("disk", format!("{} bytes", self.disk_bytes)),
            ("firmware", self.firmware.as_str().to_owned()),
            ("NIC", format!("{kind} {source}")),
            ("cloud-init", self.cloud_init.clone()),
        ]
    }

    pub(super) fn to_element(&self) -> Element {
        let (kind, source) = nic_words(&self.nic);
        own("spec")
            .with("machineType", &self.machine_type)
            .with("vcpus", self.vcpus)
            .with("memoryMiB", self.memory_mib)
            .with("diskBytes", self.disk_bytes)
            .with("firmware", self.firmware.as_str())
            .with(kind, source)
            .with("cloudInit", &self.cloud_init)
    }

    /// Reads the `spec` element; the error is the attribute that is missing or bad.
    pub(super) fn from_element(image: String, element: &Element) -> Result<Self, &'static str> {
        let text = |name: &'static str| element.attribute(name).ok_or(name);
        let number = |name: &'static str| text(name)?.parse::<u64>().map_err(|_| name);
        let nic = match (element.attribute("bridge"), element.attribute("network")) {
            (Some(bridge), None) => Nic::Bridge(bridge.to_owned()),
            (None, Some(network)) => Nic::Network(network.to_owned()),
            _ => return Err("bridge"),
        };
        Ok(SpecRecord {
            // Earlier versions recorded URLs as they were given.
            image: if image.contains("://") {
                SecretUrl::from(image.as_str()).record()
            } else {
                image
            },
            machine_type: text("machineType")?.to_owned(),
            vcpus: number("vcpus")?.try_into().map_err(|_| "vcpus")?,
            memory_mib: number("memoryMiB")?,
            disk_bytes: number("diskBytes")?,
            firmware: firmware_named(text("firmware")?).ok_or("firmware")?,
            nic,
            cloud_init: text("cloudInit")?.to_owned(),
        })
    }
}

/// Lower-case hex digits.
fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.collect()
}
