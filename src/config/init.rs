//! A commented starter file.

use super::address::HostSpec;
use super::rules::{self, quoted};
use crate::error::{Error, Reason, Result};

/// A starter file for those hosts, whose instances are plugged into `bridge`.
///
/// It validates as it is; whether its key, `known_hosts` file and hosts are there is for `check` to say.
pub fn init(hosts: &[HostSpec], bridge: &str) -> Result<String> {
    let bad = |message: String| Error::usage(Reason::BadArgument, message);
    if hosts.is_empty() {
        return Err(bad("no host given".to_string())
            .hint("egressctl config init --host NAME=USER@ADDRESS --bridge BRIDGE"));
    }
    rules::bridge(bridge).map_err(|what| bad(format!("the bridge {what}")))?;
    let mut list = String::new();
    for (index, host) in hosts.iter().enumerate() {
        if hosts[..index]
            .iter()
            .any(|earlier| earlier.name == host.name)
        {
            return Err(bad(format!("two hosts are called {}", quoted(&host.name))));
        }
        list.push_str(&entry(host, bridge));
    }
    Ok(format!("{HEAD}{list}{TAIL}"))
}

/// One host. Everything is quoted, as `on` or `10` would be no text to YAML otherwise.
fn entry(host: &HostSpec, bridge: &str) -> String {
    let HostSpec {
        name,
        user,
        address,
    } = host;
    let address = address.to_string();
    format!(
        "    - name: {name:?}\n      address: {address:?}\n      user: {user:?}\n      bridge: {bridge:?}\n"
    )
}

const HEAD: &str = r"# Hypervisors on which egressctl runs proxy VMs; every key is explained in docs/configuration.md.
# After each change: egressctl config validate, and then egressctl check.
providers:
- name: home                # --provider, needed only with several entries
  type: kvm
  kvm:
    # The key to log in with, and the hosts' keys. Fill the latter once, and compare what it prints
    # with the hosts' own: ssh-keyscan HOST >> ~/.ssh/known_hosts
    sshKeyFile: ~/.ssh/id_ed25519
    knownHostsFile: ~/.ssh/known_hosts

    # The disk of an instance in GiB; it grows as it is used.
    diskSizeGb: 10

    # Instances live until they are deleted, or for this long. egressctl's own key.
    # defaultTtl: 24h

    # What --image names. `checksumUrl` is egressctl's own key; `sha256` pins one build for good.
    images:
      debian-13:
        url: https://cloud.debian.org/images/cloud/trixie/latest/debian-13-genericcloud-amd64.qcow2
        checksumUrl: https://cloud.debian.org/images/cloud/trixie/latest/SHA512SUMS

    # What --machine-type names; the first is the default.
    machineTypes:
      small: {vcpus: 1, memoryMiB: 1024}
      medium: {vcpus: 2, memoryMiB: 2048}

    # What --zone names. The user must be in the host's libvirt group, the bridge must be there.
    hosts:
";

const TAIL: &str = "      # pool: default        # the storage pool for images and disks
      # socket: /var/run/libvirt/libvirt-sock
";
