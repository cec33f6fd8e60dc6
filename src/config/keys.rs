//! Every key of the configuration, once: the validator, the JSON schema and the documentation's test read this table.

use super::rules;
use super::table::{Kind, Need, Table, key};

use Kind::{Block, Body, Bool, Choice, Duration, File, Integer, List, Named, Text};
use Need::{Depends, Optional, Required};

/// The provider types that are egressctl's, and names of their blocks.
pub(crate) const OUR_TYPES: &[&str] = &["kvm", "kvm2"];
/// The provider types that are the operator's alone.
pub(crate) const SKIPPED_TYPES: &[&str] = &["gcp", "kubernetes"];
const ALL_TYPES: &[&str] = &["kvm", "kvm2", "gcp", "kubernetes"];

/// The document, when it is a mapping.
pub(crate) static ROOT: Table = Table {
    what: "the document",
    id: "document",
    keys: &[key(
        "providers",
        List(&ENTRY),
        Required,
        "The provider entries, in the operator's own format.",
    )],
    mistakes: &[],
};

/// One provider entry.
pub(crate) static ENTRY: Table = Table {
    what: "a provider entry",
    id: "entry",
    keys: &[
        key(
            "name",
            Text(&rules::NAME),
            Required,
            "The entry's name, what `--provider` picks.",
        ),
        key(
            "type",
            Choice(ALL_TYPES),
            Required,
            "`kvm` or `kvm2`; entries of type `gcp` and `kubernetes` are skipped.",
        ),
        key(
            "kvm",
            Block(&BLOCK),
            Depends("type is kvm"),
            "The settings of an entry of type `kvm`.",
        ),
        key(
            "kvm2",
            Block(&BLOCK),
            Depends("type is kvm2"),
            "The settings of an entry of type `kvm2`; the same keys.",
        ),
    ],
    mistakes: &[
        ("gcp", "this block doesn't match the entry's `type`", None),
        (
            "kubernetes",
            "this block doesn't match the entry's `type`",
            None,
        ),
    ],
};

/// The `kvm` or `kvm2` block.
pub(crate) static BLOCK: Table = Table {
    what: "the kvm block",
    id: "block",
    keys: &[
        key(
            "sshKeyFile",
            File,
            Depends("`sshAgent: true` is not given and a host is not local"),
            "The private key, read at every dial.",
        ),
        key(
            "sshAgent",
            Bool,
            Optional,
            "Use the SSH agent's keys instead of a key file.",
        )
        .or("false")
        .ours(),
        key(
            "knownHostsFile",
            File,
            Depends("`insecureIgnoreHostKey: true` is not given and a host is not local"),
            "OpenSSH's known_hosts file with the hosts' keys, read at every dial.",
        ),
        key(
            "insecureIgnoreHostKey",
            Bool,
            Optional,
            "Accept any host key. Only for throw-away hosts.",
        )
        .or("false"),
        key(
            "diskSizeGb",
            Integer { min: 1, max: 65536 },
            Optional,
            "Capacity of an instance's disk (overlay), in GiB.",
        )
        .or("10"),
        key(
            "installGuestAgent",
            Bool,
            Optional,
            "Whether vendor-data installs and starts qemu-guest-agent.",
        )
        .or("true"),
        key(
            "vendorData",
            Body,
            Optional,
            "More cloud-init vendor-data, beside that script.",
        ),
        key(
            "defaultTtl",
            Duration,
            Optional,
            "How long an instance lives when `--ttl` is not given; without it, for ever.",
        )
        .ours(),
        key(
            "images",
            Named(&IMAGE),
            Optional,
            "The images that `--image` can name.",
        ),
        key(
            "machineTypes",
            Named(&MACHINE_TYPE),
            Required,
            "The sizes that `--machine-type` can name; at least one, the first is the default.",
        ),
        key(
            "hosts",
            List(&HOST),
            Required,
            "The hypervisors that `--zone` can name; at least one.",
        ),
    ],
    mistakes: &[],
};

/// One image.
pub(crate) static IMAGE: Table = Table {
    what: "an image (`images.*`)",
    id: "image",
    keys: &[
        key(
            "url",
            Text(&rules::URL),
            Required,
            "Where it is downloaded from, http or https.",
        ),
        key(
            "sha256",
            Text(&rules::SHA256),
            Optional,
            "SHA-256 of the published bytes, 64 hex digits.",
        ),
        key(
            "sha512",
            Text(&rules::SHA512),
            Optional,
            "SHA-512 of the published bytes, 128 hex digits.",
        )
        .ours(),
        key(
            "checksumUrl",
            Text(&rules::URL),
            Optional,
            "A SHA256SUMS or SHA512SUMS file that lists the image's digest.",
        )
        .ours(),
        key(
            "format",
            Choice(&["qcow2", "raw"]),
            Optional,
            "The disk format.",
        )
        .or("qcow2"),
        key(
            "firmware",
            Choice(&["uefi", "bios"]),
            Optional,
            "What its instances boot with.",
        )
        .or("uefi"),
    ],
    mistakes: &[],
};

/// One machine type.
pub(crate) static MACHINE_TYPE: Table = Table {
    what: "a machine type (`machineTypes.*`)",
    id: "machineType",
    keys: &[
        key(
            "vcpus",
            Integer { min: 1, max: 1024 },
            Required,
            "Virtual CPUs.",
        ),
        key(
            "memoryMiB",
            Integer {
                min: 64,
                max: 16 << 20,
            },
            Required,
            "Memory in MiB.",
        ),
    ],
    mistakes: &[],
};

/// One host.
pub(crate) static HOST: Table = Table {
    what: "a host (`hosts[]`)",
    id: "host",
    keys: &[
        key(
            "name",
            Text(&rules::HOST),
            Required,
            "The host's name, what `--zone` names.",
        ),
        key(
            "address",
            Text(&rules::ADDRESS),
            Depends("the host is not `local: true`"),
            "Where its sshd listens: `host`, `host:port`, IPv4, IPv6, `[IPv6]:port`.",
        ),
        key(
            "user",
            Text(&rules::USER),
            Depends("the host is not `local: true`"),
            "The user to log in as, in the host's libvirt group.",
        ),
        key(
            "local",
            Bool,
            Optional,
            "This very machine's libvirt, without SSH.",
        )
        .or("false")
        .ours(),
        key(
            "proxyJump",
            Text(&rules::PROXY_JUMP),
            Optional,
            "SSH servers to go through: `[user@]host[:port]`, several separated by commas.",
        )
        .ours(),
        key(
            "socket",
            Text(&rules::SOCKET),
            Optional,
            "libvirt's unix socket on the host.",
        )
        .or(super::DEFAULT_SOCKET),
        key(
            "pool",
            Text(&rules::LIBVIRT_NAME),
            Optional,
            "The storage pool for images and disks.",
        )
        .or("default"),
        key(
            "bridge",
            Text(&rules::BRIDGE),
            Depends("`network` is not given"),
            "The bridge the instances are plugged into.",
        ),
        key(
            "network",
            Text(&rules::LIBVIRT_NAME),
            Optional,
            "A libvirt network to plug them into, instead of a bridge.",
        )
        .ours(),
        key(
            "virtType",
            Choice(&["auto", "kvm", "qemu"]),
            Optional,
            "KVM, QEMU's software emulation, or KVM where the host has it.",
        )
        .or("auto")
        .ours(),
    ],
    mistakes: &[
        (
            "port",
            "unknown key; the port goes into `address`, as host:port",
            None,
        ),
        (
            "host",
            "unknown key (did you mean `address`?)",
            Some("address"),
        ),
        (
            "hostname",
            "unknown key (did you mean `address`?)",
            Some("address"),
        ),
        ("zone", "unknown key (did you mean `name`?)", Some("name")),
    ],
};

/// Every table, outermost first.
pub(crate) static TABLES: &[&Table] = &[&ROOT, &ENTRY, &BLOCK, &IMAGE, &MACHINE_TYPE, &HOST];
