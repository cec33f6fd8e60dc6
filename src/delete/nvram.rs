//! Whether a domain's NVRAM file goes with it.

use crate::error::Result;
use crate::inventory::Files;
use crate::libvirt::{Hypervisor, NvramPolicy};
use crate::parallel;
use crate::xml::domain_info::DomainInfo;

/// Where libvirt keeps the UEFI variables of its domains; a file elsewhere isn't a domain's own.
const NVRAM_DIRECTORY: &str = "/qemu/nvram/";

/// Whether the NVRAM file may go: only one in libvirt's own directory that no other domain names. `files` is what was just
/// read of the host, if it was.
pub fn nvram_policy(
    hypervisor: &dyn Hypervisor,
    info: &DomainInfo,
    files: Option<&Files>,
) -> Result<NvramPolicy> {
    let Some(path) = &info.nvram else {
        return Ok(NvramPolicy::Remove);
    };
    if !path.contains(NVRAM_DIRECTORY) {
        return Ok(NvramPolicy::Keep);
    }
    // A hand-made copy of the domain names its file, whatever that is called.
    let is_named = match files {
        Some(files) => !files.others_seen_using(path, &info.name).is_empty(),
        None => is_named(hypervisor, path, &info.uuid)?,
    };
    Ok(if is_named {
        NvramPolicy::Keep
    } else {
        NvramPolicy::Remove
    })
}

/// Whether another domain names this NVRAM file.
fn is_named(hypervisor: &dyn Hypervisor, path: &str, uuid: &str) -> Result<bool> {
    let (running, defined) = parallel::both(
        || hypervisor.list_domains(),
        || hypervisor.list_definitions(),
    );
    let running = running?.into_iter().map(|one| one.xml);
    let defined = defined?.into_iter().map(|one| one.xml);
    for xml in running.chain(defined) {
        let other = DomainInfo::parse(&xml)?;
        if other.uuid != uuid && other.nvram.as_deref() == Some(path) {
            return Ok(true);
        }
    }
    Ok(false)
}
