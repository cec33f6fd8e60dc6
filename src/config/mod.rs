//! The providers configuration: found, parsed, validated and printed.

mod model;

pub use model::{
    Address, Firmware, Host, HostKeyPolicy, Image, ImageFormat, KeySource, MachineType, Nic,
    Provider, ProviderKind, Reach, SshAuth, SshTarget, VirtType,
};
