//! The beginning of a volume's content: seeds, markers and claims say there whose they are.

use crate::error::{Reason, Result};
use crate::libvirt::Hypervisor;

/// A volume's first bytes.
pub enum Start {
    /// They are these, as many as were asked for or as there are.
    Bytes(Vec<u8>),
    /// It vanished since it was listed.
    Gone,
    /// libvirt can't read it (a symbolic link to nowhere, say), and hence nobody knows whose it is. That is a doubt
    /// about this one thing, and nothing is wrong with the view of the host.
    Unreadable,
}

/// Reads up to `limit` bytes of a volume.
///
/// Errors: a connection's, and those of one that may read nothing.
pub fn read_start(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    volume: &str,
    limit: usize,
) -> Result<Start> {
    match hypervisor.download_volume(pool, volume, limit) {
        Ok(Some(bytes)) => Ok(Start::Bytes(bytes)),
        Ok(None) => Ok(Start::Gone),
        // A connection that may read nothing (a read-only socket) says nothing about the volume.
        Err(error)
            if error.stage().is_none()
                && matches!(
                    error.reason(),
                    Reason::LibvirtError | Reason::PermissionDenied
                ) =>
        {
            log::info!("volume {volume} of pool {pool} can't be read: {error}");
            Ok(Start::Unreadable)
        }
        Err(error) => Err(error),
    }
}
