//! The configuration printed back: every default resolved, in the file's own spelling.

use serde_json::{Map, Value, json};

use super::build::UNUSED_KNOWN_HOSTS;
use super::expand::file_text;
use super::model::{
    Host, HostKeyPolicy, Image, KeySource, Nic, Provider, ProviderKind, Reach, SshAuth, SshTarget,
};
use crate::error::{Error, Reason, Result};
use crate::url::SecretUrl;
use crate::yaml11::Quoting;

/// The document that means exactly these providers, with nothing left to a default; URLs without what may be secret
/// in them (see [`hides`]).
pub fn view<'a>(providers: impl IntoIterator<Item = &'a Provider>) -> Value {
    json!({ "providers": providers.into_iter().map(provider).collect::<Vec<_>>() })
}

/// The images whose URLs [`view`] shows otherwise than they are.
pub fn hides(provider: &Provider) -> Vec<&str> {
    let hidden = |url: &SecretUrl| url.record() != url.expose();
    let images = provider.images.iter();
    images
        .filter(|image| hidden(&image.url) || image.checksum_url.as_ref().is_some_and(hidden))
        .map(|image| image.key.as_str())
        .collect()
}

/// The same as YAML text.
pub fn view_yaml<'a>(providers: impl IntoIterator<Item = &'a Provider>) -> Result<String> {
    let options = serde_saphyr::ser_options! {
        // Long lines stay long; text of several lines is a literal block.
        folded_wrap_chars: usize::MAX,
    };
    serde_saphyr::to_string_with_options(&Quoting(&view(providers)), options)
        .map_err(|error| Error::permanent(Reason::OutputFailed, "writing YAML").because(error))
}

fn provider(provider: &Provider) -> Value {
    let kind = match provider.kind {
        ProviderKind::Kvm => "kvm",
        ProviderKind::Kvm2 => "kvm2",
    };
    json!({ "name": provider.name, "type": kind, kind: block(provider) })
}

fn block(provider: &Provider) -> Value {
    let mut block = auth(provider);
    block.insert("diskSizeGb".into(), provider.disk_size_gib.into());
    block.insert(
        "installGuestAgent".into(),
        provider.install_guest_agent.into(),
    );
    if let Some(text) = &provider.vendor_data {
        block.insert("vendorData".into(), text.as_str().into());
    }
    if let Some(ttl) = provider.default_ttl {
        block.insert(
            "defaultTtl".into(),
            humantime::format_duration(ttl).to_string().into(),
        );
    }
    let images: Map<String, Value> = provider
        .images
        .iter()
        .map(|entry| (entry.key.clone(), image(entry)))
        .collect();
    block.insert("images".into(), images.into());
    let types: Map<String, Value> = provider
        .machine_types
        .iter()
        .map(|entry| {
            let size = json!({ "vcpus": entry.vcpus, "memoryMiB": entry.memory_mib });
            (entry.key.clone(), size)
        })
        .collect();
    block.insert("machineTypes".into(), types.into());
    block.insert("hosts".into(), provider.hosts.iter().map(host).collect());
    block.into()
}

fn auth(provider: &Provider) -> Map<String, Value> {
    let mut block = Map::new();
    let SshAuth { key, host_keys } = &provider.auth;
    let local = provider.hosts.iter().all(|host| host.reach == Reach::Local);
    match key {
        KeySource::File(path) => {
            block.insert("sshKeyFile".into(), file_text(path).into());
        }
        // With local hosts only, no key was asked for, and none is used.
        KeySource::Agent if local => {}
        KeySource::Agent => {
            block.insert("sshAgent".into(), true.into());
        }
    }
    match host_keys {
        HostKeyPolicy::Ignore => {
            block.insert("insecureIgnoreHostKey".into(), true.into());
        }
        HostKeyPolicy::KnownHosts(path) if local && path.as_os_str() == UNUSED_KNOWN_HOSTS => {}
        HostKeyPolicy::KnownHosts(path) => {
            block.insert("knownHostsFile".into(), file_text(path).into());
            block.insert("insecureIgnoreHostKey".into(), false.into());
        }
    }
    block
}

fn image(image: &Image) -> Value {
    let mut value = Map::new();
    value.insert("url".into(), image.url.record().into());
    let checksum_url = image.checksum_url.as_ref().map(SecretUrl::record);
    let rest = [
        ("sha256", &image.sha256),
        ("sha512", &image.sha512),
        ("checksumUrl", &checksum_url),
    ];
    for (key, text) in rest {
        if let Some(text) = text {
            value.insert(key.into(), text.as_str().into());
        }
    }
    value.insert("format".into(), image.format.as_str().into());
    value.insert("firmware".into(), image.firmware.as_str().into());
    value.into()
}

fn host(host: &Host) -> Value {
    let mut value = Map::new();
    value.insert("name".into(), host.name.as_str().into());
    match &host.reach {
        Reach::Local => {
            value.insert("local".into(), true.into());
        }
        Reach::Ssh(target) => {
            value.insert("address".into(), target.address.to_string().into());
            value.insert("user".into(), target.user.as_str().into());
            if let Some(jump) = &target.jump {
                value.insert("proxyJump".into(), jumps(jump).into());
            }
        }
    }
    value.insert("socket".into(), host.socket.as_str().into());
    value.insert("pool".into(), host.pool.as_str().into());
    let (key, name) = match &host.nic {
        Nic::Bridge(name) => ("bridge", name),
        Nic::Network(name) => ("network", name),
    };
    value.insert(key.into(), name.as_str().into());
    value.insert("virtType".into(), host.virt_type.as_str().into());
    value.into()
}

/// The chain as `proxyJump` has it: the first to dial first.
fn jumps(last: &SshTarget) -> String {
    let hop = format!("{}@{}", last.user, last.address);
    match &last.jump {
        Some(earlier) => format!("{},{hop}", jumps(earlier)),
        None => hop,
    }
}
