//! What stands on a host: instances, and who uses a file. Reads only.

use crate::error::Result;
use crate::libvirt::Hypervisor;
use crate::parallel;
use crate::xml::domain_info::DomainInfo;
use crate::xml::volume::VolumeInfo;

/// Calls of one connection under way at once, for look-ups of many objects.
const CALLS_AT_ONCE: usize = 16;

/// A volume's path on the host, if the volume is there.
pub fn find_volume_path(
    hypervisor: &dyn Hypervisor,
    pool: &str,
    name: &str,
) -> Result<Option<String>> {
    match hypervisor.find_volume_xml(pool, name)? {
        Some(xml) => Ok(Some(VolumeInfo::parse(&xml)?.path)),
        None => Ok(None),
    }
}

/// Everything that uses the file at `path`: domains with it in a disk's chain, and volumes of the pool backed by it.
///
/// Whoever made them. An object that vanishes meanwhile uses nothing; one that can't be read is an error, so that
/// doubt never looks like "unused".
pub fn users_of_path(hypervisor: &dyn Hypervisor, pool: &str, path: &str) -> Result<Vec<String>> {
    let mut users = Vec::new();
    for listed in hypervisor.list_domains()? {
        let info = DomainInfo::parse(&listed.xml)?;
        if info.paths().any(|used| used == path) {
            users.push(format!("domain {}", info.name));
        }
    }
    let names = hypervisor.list_volumes(pool)?;
    let backed = parallel::map(names, CALLS_AT_ONCE, |name| -> Result<Option<String>> {
        let Some(xml) = hypervisor.find_volume_xml(pool, &name)? else {
            return Ok(None);
        };
        let backing = VolumeInfo::parse(&xml)?.backing;
        Ok(backing
            .filter(|backing| backing.path == path)
            .map(|_| format!("volume {name}")))
    });
    for user in backed {
        users.extend(user?);
    }
    Ok(users)
}
