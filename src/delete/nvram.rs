//! Whether a domain's NVRAM file goes with it.

use crate::error::Result;
use crate::libvirt::{Hypervisor, NvramPolicy};
use crate::xml::domain_info::DomainInfo;

/// Where libvirt keeps the UEFI variables of its domains; a file elsewhere isn't a domain's own.
const NVRAM_DIRECTORY: &str = "/qemu/nvram/";

/// Whether the NVRAM file may go: only one in libvirt's own directory that no other domain uses.
pub(super) fn nvram_policy(hypervisor: &dyn Hypervisor, info: &DomainInfo) -> Result<NvramPolicy> {
    let Some(path) = &info.nvram else {
        return Ok(NvramPolicy::Remove);
    };
    // libvirt names the file after the domain: then there is nobody to ask.
    if path.contains(NVRAM_DIRECTORY) && path.ends_with(&format!("/{}_VARS.fd", info.name)) {
        return Ok(NvramPolicy::Remove);
    }
    if !path.contains(NVRAM_DIRECTORY) {
        return Ok(NvramPolicy::Keep);
    }
    let running = hypervisor.list_domains()?.into_iter().map(|one| one.xml);
    let defined = hypervisor
        .list_definitions()?
        .into_iter()
        .map(|one| one.xml);
    for xml in running.chain(defined) {
        let other = DomainInfo::parse(&xml)?;
        if other.uuid != info.uuid && other.nvram.as_ref() == Some(path) {
            return Ok(NvramPolicy::Keep);
        }
    }
    Ok(NvramPolicy::Remove)
}
