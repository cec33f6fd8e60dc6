//! From the tree to the model: provider entries with their defaults, and the rules that span several keys.

use std::path::{Path, PathBuf};

use super::address::{parse_address, parse_jumps};
use super::expand::{Env, file_path};
use super::fields::{self, Fields};
use super::keys::{self, OUR_TYPES, SKIPPED_TYPES};
use super::model::{
    Firmware, Host, HostKeyPolicy, Image, ImageFormat, KeySource, MachineType, Nic, Provider,
    ProviderKind, Reach, SshAuth, SshTarget, VirtType,
};
use super::problems::Problems;
use super::rules;
use super::yaml::{Node, ScalarKind, Value};
use crate::seed;

/// The `known_hosts` file of a provider that has none because all its hosts are local: OpenSSH's global one.
pub(crate) const UNUSED_KNOWN_HOSTS: &str = "/etc/ssh/ssh_known_hosts";

/// An entry that belongs to the operator alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its name, empty if it has none.
    pub name: String,
    /// Its type: `gcp` or `kubernetes`.
    pub kind: String,
}

/// `vendorData`, as it stands there, and what there is to say about it.
#[derive(Default)]
struct VendorData {
    text: Option<String>,
    warnings: Vec<String>,
    /// Why cloud-init would ignore it.
    unmet: Vec<String>,
}

/// Builds the model, and collects what is wrong on the way.
pub(crate) struct Builder<'a> {
    /// The directory that relative paths are relative to.
    pub(crate) base: &'a Path,
    pub(crate) env: Env<'a>,
    pub(crate) problems: &'a mut Problems,
}

impl Builder<'_> {
    /// The entries of the list at `path`: ours and the operator's. What is wrong is left out, and reported.
    pub(crate) fn entries(&mut self, node: &Node, path: &str) -> (Vec<Provider>, Vec<Skipped>) {
        let (mut providers, mut skipped) = (Vec::<Provider>::new(), Vec::new());
        let mut names: Vec<(String, usize)> = Vec::new();
        for (index, node) in fields::list(node, path, self.problems)
            .unwrap_or_default()
            .iter()
            .enumerate()
        {
            let path = format!("{path}[{index}]");
            if let Some(entry) = skipped_entry(node) {
                skipped.push(entry);
                continue;
            }
            let Some(fields) = Fields::open(&keys::ENTRY, node, &path, self.problems) else {
                continue;
            };
            let name = fields.text("name", self.problems);
            self.unique(&fields, name.as_deref(), &mut names);
            providers.extend(self.entry(&fields, name));
        }
        (providers, skipped)
    }

    /// Complains if an earlier one has the same name.
    fn unique(&mut self, fields: &Fields<'_>, name: Option<&str>, seen: &mut Vec<(String, usize)>) {
        let Some(name) = name else { return };
        match seen.iter().find(|(earlier, _)| earlier == name) {
            Some((_, line)) => {
                let what = format!(
                    "the name {name:?} is taken by the one on {}",
                    self.problems.place(*line)
                );
                fields.refuse("name", &what, self.problems);
            }
            None => seen.push((name.to_string(), fields.line_of("name"))),
        }
    }

    fn entry(&mut self, fields: &Fields<'_>, name: Option<String>) -> Option<Provider> {
        let kind = fields.text("type", self.problems);
        let wanted = OUR_TYPES.iter().find(|ours| kind.as_deref() == Some(ours));
        let present: Vec<&str> = OUR_TYPES
            .iter()
            .copied()
            .filter(|name| fields.has(name))
            .collect();
        if let (Some(wanted), []) = (wanted, present.as_slice()) {
            fields.require(wanted, &format!(" with `type: {wanted}`"), self.problems);
        }
        for block in present
            .iter()
            .filter(|block| wanted.is_some_and(|wanted| wanted != *block))
        {
            let place = self.problems.place(fields.line_of("type"));
            let what = format!("this block doesn't match the entry's `type` on {place}");
            fields.refuse(block, &what, self.problems);
        }
        // Without the block that `type` asks for, the one that is there is what was meant.
        let block = wanted
            .filter(|wanted| present.contains(wanted))
            .or(present.first())?;
        let (node, path) = fields.inner(block)?;
        let built = self.block(node, &path);
        let kind = if kind?.as_str() == "kvm2" {
            ProviderKind::Kvm2
        } else {
            ProviderKind::Kvm
        };
        Some(Provider {
            name: name?,
            kind,
            ..built?
        })
    }

    /// A block as a provider that lacks its name and kind.
    fn block(&mut self, node: &Node, path: &str) -> Option<Provider> {
        let fields = Fields::open(&keys::BLOCK, node, path, self.problems)?;
        let hosts = self.hosts(&fields);
        let ssh = needs_ssh(node.get("hosts"));
        let auth = self.auth(&fields, ssh);
        let disk_size_gib = fields.integer("diskSizeGb", self.problems);
        let install_guest_agent = fields.boolean("installGuestAgent", self.problems);
        let vendor_data = self.vendor_data(&fields, install_guest_agent);
        let default_ttl = fields.duration("defaultTtl", self.problems);
        let images = self.images(&fields);
        let machine_types = self.machine_types(&fields);
        Some(Provider {
            name: String::new(),
            kind: ProviderKind::Kvm,
            auth: auth?,
            disk_size_gib: disk_size_gib?,
            install_guest_agent: install_guest_agent?,
            vendor_data: vendor_data.text,
            images,
            machine_types,
            hosts: hosts?,
            default_ttl,
            warnings: vendor_data.warnings,
            unmet: vendor_data.unmet,
        })
    }

    /// The vendor-data if there is some, and what there is to say about it.
    fn vendor_data(&mut self, fields: &Fields<'_>, with_script: Option<bool>) -> VendorData {
        const KEY: &str = "vendorData";
        let text = fields.text(KEY, self.problems);
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return VendorData::default();
        };
        let literal = fields
            .inner(KEY)
            .and_then(|(node, _)| node.scalar()?.literal);
        let path = fields.path_of(KEY);
        // A line of a literal block is one of the file's.
        let place = |finding: &seed::Finding| match (literal, finding.line) {
            (Some(offset), Some(line)) => (offset.lines + line, finding.what.clone()),
            _ => (fields.line_of(KEY), finding.to_string()),
        };
        let (mut warnings, mut unmet) = (Vec::new(), Vec::new());
        match seed::check_vendor_data(&text, with_script.unwrap_or(true)) {
            Ok(checked) => {
                warnings.extend(checked.warnings.iter().map(|finding| {
                    let (line, what) = place(finding);
                    let hint = finding.hint.map(|hint| format!("; {hint}"));
                    let what = what + &hint.unwrap_or_default();
                    self.problems.warning(line, &path, &what)
                }));
            }
            Err(finding) => {
                let (line, what) = place(&finding);
                let what = format!("can't be used: {what}");
                unmet.push(self.problems.add_unmet(line, &path, &what));
            }
        }
        VendorData {
            text: Some(text),
            warnings,
            unmet,
        }
    }

    fn auth(&mut self, fields: &Fields<'_>, ssh: bool) -> Option<SshAuth> {
        let key_file = self.file(fields, "sshKeyFile");
        let known_hosts = self.file(fields, "knownHostsFile");
        let agent = fields.boolean("sshAgent", self.problems);
        let ignore = fields.boolean("insecureIgnoreHostKey", self.problems);
        let (agent, ignore) = (agent?, ignore?);
        if agent && fields.has("sshKeyFile") {
            fields.refuse(
                "sshAgent",
                "`sshAgent: true` and `sshKeyFile` exclude each other",
                self.problems,
            );
        }
        if ssh && !agent {
            fields.require("sshKeyFile", " (or `sshAgent: true`)", self.problems);
        }
        if ssh && !ignore {
            fields.require(
                "knownHostsFile",
                " (or `insecureIgnoreHostKey: true`)",
                self.problems,
            );
        }
        let key = match key_file {
            Some(path) => KeySource::File(path),
            None => KeySource::Agent,
        };
        let host_keys = match known_hosts {
            _ if ignore => HostKeyPolicy::Ignore,
            Some(path) => HostKeyPolicy::KnownHosts(path),
            None => HostKeyPolicy::KnownHosts(PathBuf::from(UNUSED_KNOWN_HOSTS)),
        };
        Some(SshAuth { key, host_keys })
    }

    fn file(&mut self, fields: &Fields<'_>, name: &str) -> Option<PathBuf> {
        let text = fields.text(name, self.problems)?;
        file_path(&text, self.base, self.env)
            .map_err(|what| fields.refuse(name, &what, self.problems))
            .ok()
    }

    fn images(&mut self, fields: &Fields<'_>) -> Vec<Image> {
        let Some((node, path)) = fields.inner("images") else {
            return Vec::new();
        };
        let mut images = Vec::new();
        for (key, path, node) in fields::named(node, &path, rules::image_key, self.problems) {
            let fields = Fields::open(&keys::IMAGE, node, &path, self.problems);
            images.extend(fields.and_then(|fields| self.image(&fields, key)));
        }
        images
    }

    fn image(&mut self, fields: &Fields<'_>, key: &str) -> Option<Image> {
        let url = fields.text("url", self.problems);
        let sha256 = fields.text("sha256", self.problems);
        let sha512 = fields.text("sha512", self.problems);
        let checksum_url = fields.text("checksumUrl", self.problems);
        let format = fields.text("format", self.problems);
        let firmware = fields.text("firmware", self.problems);
        Some(Image {
            key: key.to_string(),
            url: url?.as_str().into(),
            sha256,
            sha512,
            checksum_url: checksum_url.map(|url| url.as_str().into()),
            format: if format? == "raw" {
                ImageFormat::Raw
            } else {
                ImageFormat::Qcow2
            },
            firmware: if firmware? == "bios" {
                Firmware::Bios
            } else {
                Firmware::Uefi
            },
        })
    }

    fn machine_types(&mut self, fields: &Fields<'_>) -> Vec<MachineType> {
        let Some((node, path)) = fields.inner("machineTypes") else {
            return Vec::new();
        };
        let named = fields::named(node, &path, rules::identifier, self.problems);
        if matches!(&node.value, Value::Mapping(mapping) if mapping.entries.is_empty()) {
            self.problems
                .add(node.line, &path, "is empty; at least one is needed");
        }
        let mut types = Vec::new();
        for (key, path, node) in named {
            let Some(fields) = Fields::open(&keys::MACHINE_TYPE, node, &path, self.problems) else {
                continue;
            };
            let vcpus = fields.integer("vcpus", self.problems);
            let memory = fields.integer("memoryMiB", self.problems);
            if let (Some(vcpus), Some(memory_mib)) =
                (vcpus.and_then(|n| u32::try_from(n).ok()), memory)
            {
                types.push(MachineType {
                    key: key.to_string(),
                    vcpus,
                    memory_mib,
                });
            }
        }
        types
    }

    /// The hosts; none if one of them is wrong.
    fn hosts(&mut self, fields: &Fields<'_>) -> Option<Vec<Host>> {
        let (node, path) = fields.inner("hosts")?;
        let mut names = Vec::new();
        let mut hosts = Vec::new();
        for (index, node) in fields::list(node, &path, self.problems)?.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let fields = Fields::open(&keys::HOST, node, &path, self.problems);
            hosts.push(fields.and_then(|fields| self.host(&fields, &mut names)));
        }
        hosts.into_iter().collect()
    }

    fn host(&mut self, fields: &Fields<'_>, names: &mut Vec<(String, usize)>) -> Option<Host> {
        let name = fields.text("name", self.problems);
        self.unique(fields, name.as_deref(), names);
        let reach = self.reach(fields);
        let socket = fields.text("socket", self.problems);
        let pool = fields.text("pool", self.problems);
        let nic = self.nic(fields);
        let virt_type = fields.text("virtType", self.problems);
        Some(Host {
            name: name?,
            reach: reach?,
            socket: socket?,
            pool: pool?,
            nic: nic?,
            virt_type: match virt_type?.as_str() {
                "kvm" => VirtType::Kvm,
                "qemu" => VirtType::Qemu,
                _ => VirtType::Auto,
            },
        })
    }

    fn nic(&mut self, fields: &Fields<'_>) -> Option<Nic> {
        let bridge = fields.text("bridge", self.problems);
        let network = fields.text("network", self.problems);
        match (fields.has("bridge"), fields.has("network")) {
            (true, true) => {
                fields.refuse(
                    "network",
                    "`bridge` and `network` exclude each other",
                    self.problems,
                );
                None
            }
            (_, true) => network.map(Nic::Network),
            _ => {
                fields.require("bridge", " (or `network`)", self.problems);
                bridge.map(Nic::Bridge)
            }
        }
    }

    fn reach(&mut self, fields: &Fields<'_>) -> Option<Reach> {
        let local = fields.boolean("local", self.problems);
        let address = fields.text("address", self.problems);
        let user = fields.text("user", self.problems);
        let jump = fields.text("proxyJump", self.problems);
        if local? {
            if fields.has("proxyJump") {
                fields.refuse(
                    "proxyJump",
                    "makes no sense with `local: true`, which goes without SSH",
                    self.problems,
                );
            }
            return Some(Reach::Local);
        }
        fields.require("address", " (or `local: true`)", self.problems);
        fields.require("user", " (or `local: true`)", self.problems);
        let user = user?;
        let jump = jump.and_then(|jump| parse_jumps(&jump, &user).ok());
        let address = parse_address(&address?).ok()?;
        Some(Reach::Ssh(SshTarget {
            address,
            user,
            jump: jump.map(Box::new),
        }))
    }
}

/// Whether a host in the list, right or wrong otherwise, is to be reached over SSH.
fn needs_ssh(hosts: Option<&Node>) -> bool {
    let local = |host: &Node| {
        let scalar = host.get("local").and_then(Node::scalar);
        scalar.is_some_and(|scalar| scalar.kind() == ScalarKind::Bool(true))
    };
    match hosts.map(|hosts| &hosts.value) {
        Some(Value::Sequence(hosts)) => !hosts.iter().all(local),
        _ => true,
    }
}

/// What an entry of the operator's is called, if it is one; whatever else is in it.
fn skipped_entry(node: &Node) -> Option<Skipped> {
    let text = |key: &str| {
        node.get(key)
            .and_then(Node::scalar)
            .map(|scalar| scalar.text.clone())
    };
    let kind = text("type").filter(|kind| SKIPPED_TYPES.contains(&kind.as_str()))?;
    Some(Skipped {
        name: text("name").unwrap_or_default(),
        kind,
    })
}
