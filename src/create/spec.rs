//! What one create shall make, resolved from configuration and command line. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::config::{Image, MachineType, Nic, VirtType};
use crate::image::digest::sha256_hex;
use crate::image::policy::PullPolicy;
use crate::image::ready::BaseImage;
use crate::name::InstanceName;
use crate::owner::Owner;
use crate::seed::{self, SeedMark, SeedSpec};
use crate::units;
use crate::xml::domain::{Accelerator, BackingFile, DomainSpec, mac_from_uid};
use crate::xml::metadata::{Metadata, SpecRecord, VolumeRef, VolumeRole};

/// Bytes that a new overlay and seed take in the pool at first. The overlay's capacity is only its bound.
pub const OVERLAY_ROOM: u64 = 8 << 20;

/// What to create.
#[derive(Debug, Clone)]
pub struct CreateSpec {
    /// The instance's name, which is also the guest's host name.
    pub name: InstanceName,
    /// Whether the caller chose name or uid: a repeated run then means the same instance.
    pub is_named: bool,
    /// Its identity over repeated runs.
    pub uid: String,
    /// Whether the caller chose the uid; a random one identifies nothing.
    pub uid_is_given: bool,
    /// The image.
    pub image: Image,
    /// When the image's server is asked.
    pub pull: PullPolicy,
    /// The image as this run has made it ready on the host already: what the server has now, whatever else is there.
    pub pulled: Option<BaseImage>,
    /// CPUs and memory.
    pub machine: MachineType,
    /// The disk's size in bytes.
    pub disk_bytes: u64,
    /// Whether the caller chose the size; the default is raised to the image's.
    pub disk_is_given: bool,
    /// cloud-init's parts.
    pub cloud_init: CloudInit,
    /// What the NIC is plugged into.
    pub nic: Nic,
    /// KVM or software emulation.
    pub virt_type: VirtType,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// How long it shall live.
    pub ttl: Option<Duration>,
}

/// What goes into the seed. Its `Debug` shows lengths only.
#[derive(Clone, PartialEq, Eq)]
pub struct CloudInit {
    /// user-data, byte for byte.
    pub user_data: Vec<u8>,
    /// vendor-data.
    pub vendor_data: Option<Vec<u8>>,
    /// network-config.
    pub network_config: Option<Vec<u8>>,
}

impl std::fmt::Debug for CloudInit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CloudInit({} bytes of user-data)", self.user_data.len())
    }
}

impl CloudInit {
    /// One digest over all three, lengths included.
    fn digest(&self) -> String {
        let mut text = Vec::new();
        for part in [
            Some(&self.user_data),
            self.vendor_data.as_ref(),
            self.network_config.as_ref(),
        ] {
            match part {
                Some(part) => {
                    text.extend_from_slice(format!("{}\n", part.len()).as_bytes());
                    text.extend_from_slice(part);
                }
                None => text.extend_from_slice(b"none\n"),
            }
        }
        sha256_hex(&text)
    }
}

/// The overlay that was made, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// Its path on the host.
    pub path: String,
    /// Its capacity in bytes, raised to the image's where that is more than the default.
    pub capacity: u64,
}

/// What is new with every create, even of the same spec.
#[derive(Debug, Clone)]
pub struct InstanceIdentity {
    /// The domain's UUID.
    pub uuid: Uuid,
    /// When it is made.
    pub created_at: Timestamp,
}

impl CreateSpec {
    /// A new identity.
    pub fn identify(&self) -> InstanceIdentity {
        InstanceIdentity {
            uuid: Uuid::new_v4(),
            created_at: units::now(),
        }
    }

    /// What makes two instances the same.
    pub fn record(&self) -> SpecRecord {
        SpecRecord {
            image: if self.image.key == crate::image::identity::URL_KEY {
                self.image.url.record()
            } else {
                self.image.key.clone()
            },
            machine_type: self.machine.key.clone(),
            vcpus: self.machine.vcpus,
            memory_mib: self.machine.memory_mib,
            disk_bytes: self.disk_bytes,
            firmware: self.image.firmware,
            nic: self.nic.clone(),
            cloud_init: self.cloud_init.digest(),
        }
    }

    /// The seed.
    pub fn seed(&self, identity: &InstanceIdentity) -> SeedSpec {
        SeedSpec {
            instance_id: seed::instance_id(self.name.as_str(), &identity.uuid.to_string()),
            local_hostname: self.name.to_string(),
            user_data: self.cloud_init.user_data.clone(),
            vendor_data: self.cloud_init.vendor_data.clone(),
            network_config: self.cloud_init.network_config.clone(),
            mark: SeedMark {
                uid: self.uid.clone(),
                name: self.name.to_string(),
                created_at: identity.created_at,
                owner: Some(Owner::this_process().to_word()),
            },
        }
    }

    /// The domain, with the paths that libvirt reported.
    pub fn domain(
        &self,
        identity: &InstanceIdentity,
        accelerator: Accelerator,
        base: &BaseImage,
        pool: &str,
        overlay: Overlay,
        seed: String,
    ) -> DomainSpec {
        let metadata = self.metadata(identity, base, pool, overlay.capacity);
        DomainSpec {
            name: self.name.clone(),
            uuid: identity.uuid,
            accelerator,
            vcpus: self.machine.vcpus,
            memory_mib: self.machine.memory_mib,
            firmware: self.image.firmware,
            overlay: overlay.path,
            backing: vec![BackingFile {
                path: base.path.clone(),
                format: base.format,
            }],
            seed,
            nic: self.nic.clone(),
            mac: mac_from_uid(&self.uid),
            metadata,
        }
    }

    fn metadata(
        &self,
        identity: &InstanceIdentity,
        base: &BaseImage,
        pool: &str,
        disk: u64,
    ) -> Metadata {
        let volume = |name, role| VolumeRef {
            pool: pool.to_owned(),
            name,
            role,
        };
        let record = self.record();
        Metadata {
            managed: true,
            uid: self.uid.clone(),
            created_at: identity.created_at,
            digest: base.sha256.clone(),
            spec_hash: record.hash(),
            spec: record,
            disk_bytes: Some(disk),
            volumes: vec![
                volume(self.name.overlay_volume(), VolumeRole::Overlay),
                volume(self.name.seed_volume(), VolumeRole::Seed),
            ],
            expires_at: self
                .ttl
                .and_then(|ttl| units::later(identity.created_at, ttl)),
            labels: self.labels.clone(),
            extra: crate::xml::metadata::Extra::default(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::ImageFormat;
    use crate::image::identity::tests::image;

    /// Of an instance `web` with that uid.
    pub(in crate::create) fn spec(uid: &str) -> CreateSpec {
        CreateSpec {
            name: InstanceName::new("web").unwrap(),
            is_named: true,
            uid: uid.to_owned(),
            uid_is_given: true,
            image: image(),
            pull: PullPolicy::Missing,
            pulled: None,
            machine: MachineType {
                key: "small".to_owned(),
                vcpus: 1,
                memory_mib: 1024,
            },
            disk_bytes: 1 << 30,
            disk_is_given: false,
            cloud_init: CloudInit {
                user_data: Vec::new(),
                vendor_data: None,
                network_config: None,
            },
            nic: Nic::Bridge("br0".to_owned()),
            virt_type: VirtType::Auto,
            labels: BTreeMap::new(),
            ttl: None,
        }
    }

    #[test]
    fn the_disk_that_was_made_is_recorded_beside_the_one_asked_for() {
        let spec = spec("u");
        let base = BaseImage {
            volume: "base".to_owned(),
            path: "/p/base".to_owned(),
            format: ImageFormat::Qcow2,
            sha256: String::new(),
            size: 1,
            virtual_size: Some(3 << 30),
            verified: String::new(),
        };
        let overlay = Overlay {
            path: "/p/web.qcow2".to_owned(),
            capacity: 3 << 30,
        };
        let identity = spec.identify();
        let seed = "/p/web-seed.iso".to_owned();
        let domain = spec.domain(&identity, Accelerator::Qemu, &base, "p", overlay, seed);
        assert_eq!(domain.metadata.disk_bytes(), 3 << 30);
        // The next create of the name asks for the same as this one did.
        assert_eq!(domain.metadata.spec, spec.record());
        assert_eq!(domain.metadata.spec_hash, spec.record().hash());
    }
}
