//! The cloud-init seed: a `NoCloud` image made of what the user gave and what egressctl adds.

use std::fmt;

use crate::error::{Error, Reason, Result};

mod finding;
mod iso9660;
mod mark;
#[cfg(test)]
mod tests;
mod user_data;
mod vendor_data;
mod yaml;

pub use finding::Finding;
pub use mark::{MARK_BYTES, SeedMark, may_be_unwritten, read_mark};
pub use user_data::{
    Checked, UserDataKind, check_network_config, check_user_data, check_vendor_data,
};
pub use vendor_data::vendor_data;

/// The label by which cloud-init's `NoCloud` finds the image.
const LABEL: &str = "cidata";

/// The application identifier of our images.
const APPLICATION_ID: &str = "EGRESSCTL";

/// The user-data of an instance for which none was given: valid, and asking for nothing.
pub const DEFAULT_USER_DATA: &[u8] = b"#cloud-config\n{}\n";

/// cloud-init's instance-id of the instance of this name whose domain has this UUID: new for every create and stable for
/// the instance's life, else cloud-init takes an old disk for this one.
pub fn instance_id(name: &str, uuid: &str) -> String {
    format!("{name}-{uuid}")
}

/// What a seed is made of. Its `Debug` shows lengths, never contents.
#[derive(Clone, PartialEq, Eq)]
pub struct SeedSpec {
    /// cloud-init's instance-id: new for every create, stable for the instance's life.
    pub instance_id: String,
    /// The guest's host name.
    pub local_hostname: String,
    /// The user-data, byte for byte; [`DEFAULT_USER_DATA`] if none was given.
    pub user_data: Vec<u8>,
    /// The vendor-data, as [`vendor_data`] makes it.
    pub vendor_data: Option<Vec<u8>>,
    /// The network-config, byte for byte.
    pub network_config: Option<Vec<u8>>,
    /// Whose the seed is.
    pub mark: SeedMark,
}

impl fmt::Debug for SeedSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |data: &Option<Vec<u8>>| data.as_ref().map(Vec::len);
        f.debug_struct("SeedSpec")
            .field("instance_id", &self.instance_id)
            .field("local_hostname", &self.local_hostname)
            .field("user_data_bytes", &self.user_data.len())
            .field("vendor_data_bytes", &length(&self.vendor_data))
            .field("network_config_bytes", &length(&self.network_config))
            .field("mark", &self.mark)
            .finish()
    }
}

impl SeedSpec {
    /// The image's bytes; the same for the same spec.
    pub fn to_image(&self) -> Result<Vec<u8>> {
        let meta_data = self.meta_data()?;
        let contents = [
            ("meta-data", Some(meta_data.as_bytes())),
            ("user-data", Some(self.user_data.as_slice())),
            ("vendor-data", self.vendor_data.as_deref()),
            ("network-config", self.network_config.as_deref()),
        ];
        let files: Vec<_> = contents
            .into_iter()
            .filter_map(|(name, data)| Some(iso9660::File { name, data: data? }))
            .collect();
        let volume = iso9660::Volume {
            label: LABEL,
            application: APPLICATION_ID,
            application_use: &self.mark.to_bytes()?,
        };
        iso9660::write(&volume, &files)
    }

    /// The names of the files in the image, for `--dry-run`.
    pub fn file_names(&self) -> Vec<&'static str> {
        let optional = [
            ("vendor-data", self.vendor_data.is_some()),
            ("network-config", self.network_config.is_some()),
        ];
        let there = optional.into_iter().filter(|(_, there)| *there);
        ["meta-data", "user-data"]
            .into_iter()
            .chain(there.map(|(name, _)| name))
            .collect()
    }

    /// meta-data in YAML. Both values are double-quoted: cloud-init reads YAML 1.1, in which a bare `1e3`, `no` or
    /// `12:30:45` is no string. JSON's quoting is YAML's too.
    fn meta_data(&self) -> Result<String> {
        let quoted = |text: &str| {
            let printable =
                !text.is_empty() && text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
            let json = serde_json::to_string(text).ok().filter(|_| printable);
            json.ok_or_else(|| {
                Error::usage(
                    Reason::BadArgument,
                    "instance-id and host name must be printable ASCII",
                )
            })
        };
        Ok(format!(
            "instance-id: {}\nlocal-hostname: {}\n",
            quoted(&self.instance_id)?,
            quoted(&self.local_hostname)?
        ))
    }
}
