//! The beginning of a volume's content: seeds, markers and claims say there whose they are. And whether there is any.

use crate::error::{Error, Reason, Result};
use crate::libvirt::Hypervisor;
use crate::seed::may_be_unwritten;
use crate::xml::volume::VolumeInfo;

/// How much of a volume is looked at in one piece, in bytes: on a slow link no more than a few seconds' worth.
const PIECE: usize = 4 << 20;

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
        Err(error) if is_unreadable(&error) => {
            log::info!("volume {volume} of pool {pool} can't be read: {error}");
            Ok(Start::Unreadable)
        }
        Err(error) => Err(error),
    }
}

/// Whether that is a fault of one volume. A connection that may read nothing (a read-only socket) says nothing about it.
pub fn is_unreadable(error: &Error) -> bool {
    let reasons = [Reason::LibvirtError, Reason::PermissionDenied];
    error.stage().is_none() && reasons.contains(&error.reason())
}

/// Whether these are nothing but zeros, or nothing at all: what a volume holds that was made and not written.
pub fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether a seed without a mark is one whose maker died before its upload: as long as a seed is, and blank to its end.
/// Nothing where it vanished.
pub fn is_unwritten_seed(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    volume: &VolumeInfo,
) -> Result<Option<bool>> {
    if !may_be_unwritten(volume.capacity) {
        return Ok(Some(false));
    }
    let mut offset = 0;
    while offset < volume.capacity {
        match hypervisor.read_volume(pool, &volume.name, offset, PIECE)? {
            None => return Ok(None),
            Some(piece) if piece.is_empty() => break,
            Some(piece) if is_blank(&piece) => offset += piece.len() as u64,
            Some(_) => return Ok(Some(false)),
        }
    }
    Ok(Some(true))
}
