//! What a host offers that an instance needs: an accelerator, firmware, memory, a bridge. Read, then judged.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::config::{self, Firmware, MachineType, Nic, VirtType};
use crate::error::{Class, Error, Reason, Result};
use crate::libvirt::Hypervisor;
use crate::shell;
use crate::units;
use crate::xml::capabilities::{DomainCapabilities, HostCapabilities};
use crate::xml::domain::Accelerator;

/// The oldest libvirt that all instances can be made with: it chooses firmware by its features (`<firmware>` in a domain's
/// `<os>`), and knows the CPU model `maximum` (7.1). Older ones pass over both without a word.
const OLDEST_LIBVIRT: u64 = 7_002_000;

/// How instances run on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emulator {
    /// KVM or software emulation.
    pub accelerator: Accelerator,
    /// What QEMU offers with it on q35.
    pub capabilities: DomainCapabilities,
    /// Whether the configuration left the choice open and KVM isn't there.
    pub fell_back: bool,
}

/// What is known of the thing a NIC is plugged into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicState {
    /// It is there.
    Present,
    /// It isn't; for a bridge, the bridges that are.
    Missing(Vec<String>),
    /// A libvirt network that isn't active.
    Inactive,
    /// Nobody on the host could be asked.
    Unknown,
}

/// Refuses a libvirt that is too old for UEFI and for emulated CPUs, by its version's number.
///
/// Errors: [`Reason::LibvirtTooOld`].
pub fn ensure_libvirt(version: u64) -> Result<()> {
    if version >= OLDEST_LIBVIRT {
        return Ok(());
    }
    Err(Error::permanent(
        Reason::LibvirtTooOld,
        format!(
            "the host's libvirt is {}: instances that boot by UEFI or run without KVM need {} or later",
            units::version(version),
            units::version(OLDEST_LIBVIRT)
        ),
    )
    .hint("upgrade the host: Debian 12, Ubuntu 22.04 and later have one that is new enough"))
}

/// Finds out how instances run on the host.
///
/// Errors: [`Reason::NoKvm`] where the configuration wants KVM; with `auto`, software emulation is the way out.
pub fn emulator(hypervisor: &dyn Hypervisor, wanted: VirtType) -> Result<Emulator> {
    let ask = |accelerator: Accelerator| -> Result<Option<DomainCapabilities>> {
        let xml = hypervisor.find_domain_capabilities(accelerator.as_str())?;
        xml.map(|xml| DomainCapabilities::parse(&xml)).transpose()
    };
    let emulator = |accelerator, capabilities, fell_back| Emulator {
        accelerator,
        capabilities,
        fell_back,
    };
    if wanted != VirtType::Qemu
        && let Some(capabilities) = ask(Accelerator::Kvm)?
    {
        return Ok(emulator(Accelerator::Kvm, capabilities, false));
    }
    if wanted == VirtType::Kvm {
        return Err(Error::permanent(Reason::NoKvm, "the host can't run KVM guests")
            .hint("enable virtualization (VT-x or AMD-V) in its firmware, or nested virtualization where it is a VM itself; then: virt-host-validate qemu")
            .hint("or set virtType: qemu for the host: software emulation, many times slower"));
    }
    match ask(Accelerator::Qemu)? {
        Some(capabilities) => Ok(emulator(
            Accelerator::Qemu,
            capabilities,
            wanted == VirtType::Auto,
        )),
        None => Err(Error::permanent(
            Reason::LibvirtError,
            "the host's QEMU has no q35 machine for x86_64",
        )
        .hint("on Debian: apt install qemu-system-x86")),
    }
}

/// Refuses when the host has no firmware for the image.
pub fn ensure_firmware(emulator: &Emulator, wanted: Firmware) -> Result<()> {
    if wanted == Firmware::Bios || emulator.capabilities.has_plain_efi() {
        return Ok(());
    }
    Err(Error::permanent(
        Reason::NoFirmware,
        "the host has no UEFI firmware for q35 without secure boot",
    )
    .hint("on the host: apt install ovmf (Debian, Ubuntu) or dnf install edk2-ovmf"))
}

/// The machine's own UUID, the same under whichever name it is reached; none where libvirt knows none.
pub fn machine(hypervisor: &dyn Hypervisor) -> Result<Option<String>> {
    Ok(HostCapabilities::parse(&hypervisor.capabilities()?)?.uuid)
}

/// Refuses when the host has less memory than the instance needs; gives a warning where it has fewer CPUs, which works
/// and is slow.
pub fn ensure_machine_fits(
    hypervisor: &dyn Hypervisor,
    machine: &MachineType,
) -> Result<Option<String>> {
    judge_machine(
        &HostCapabilities::parse(&hypervisor.capabilities()?)?,
        machine,
    )
}

fn judge_machine(host: &HostCapabilities, machine: &MachineType) -> Result<Option<String>> {
    let needed = machine.memory_mib.saturating_mul(1 << 20);
    if host.memory_bytes != 0 && needed > host.memory_bytes {
        return Err(Error::new(
            Class::QuotaExceeded,
            Reason::NotEnoughMemory,
            format!(
                "the host has {} of memory, {} are needed",
                units::bytes(host.memory_bytes),
                units::bytes(needed)
            ),
        )
        .hint("choose a smaller --machine-type, or another --zone"));
    }
    let vcpus = usize::try_from(machine.vcpus).unwrap_or(usize::MAX);
    Ok((host.cpus != 0 && vcpus > host.cpus).then(|| {
        format!(
            "machine type {} has {vcpus} vcpus, and the host only {} CPUs: it will be slow",
            machine.key, host.cpus
        )
    }))
}

/// How many seconds the host's clock is ahead of this machine's; `None` where the host allows no command.
pub fn clock_offset(hypervisor: &dyn Hypervisor) -> Result<Option<i64>> {
    let before = Timestamp::now().as_second();
    let answer = hypervisor.host_command("date +%s")?;
    // Half the round trip is the best guess of when the host looked at its clock.
    let here = i64::midpoint(before, Timestamp::now().as_second());
    Ok(answer.and_then(|text| ahead(&text, here)))
}

/// How far `date +%s` is ahead of `here`, in seconds; `None` for what is no time.
fn ahead(answer: &str, here: i64) -> Option<i64> {
    answer.trim().parse::<i64>().ok()?.checked_sub(here)
}

/// How far apart clocks may be, in seconds, for a time to live to mean something. gc asks both, too.
const APART: u64 = 60;

/// Whether clocks that are so many seconds apart do for instances that end by themselves.
pub fn clocks_agree(offset: i64) -> bool {
    offset.unsigned_abs() <= APART
}

/// Refuses when an instance's last moment, which this machine's clock sets and gc compares with the host's, would be
/// another than was meant. A host that allows no command keeps its clock to itself: then nothing is known.
///
/// Errors: [`Reason::ClockSkew`].
pub fn ensure_clocks_agree(hypervisor: &dyn Hypervisor) -> Result<()> {
    judge_clocks(clock_offset(hypervisor)?, Timestamp::now())
}

fn judge_clocks(offset: Option<i64>, here: Timestamp) -> Result<()> {
    let Some(offset) = offset.filter(|offset| !clocks_agree(*offset)) else {
        return Ok(());
    };
    let apart = units::age(Duration::from_secs(offset.unsigned_abs()));
    let order = if offset > 0 { "behind" } else { "ahead of" };
    let there = here.checked_add(SignedDuration::from_secs(offset));
    let error = Error::permanent(
        Reason::ClockSkew,
        format!("this machine's clock is {apart} {order} the host's: a time to live would end at another time than is meant"),
    )
    .because(format!("this machine's: {}", units::timestamp(here)));
    let error = match there {
        Ok(there) => error.because(format!("the host's: {}", units::timestamp(there))),
        Err(_) => error,
    };
    Err(error.hint(
        "set the wrong one right, for example with systemd-timesyncd or chrony, and run it again",
    ))
}

/// Looks for the bridge or libvirt network that NICs are plugged into.
///
/// A bridge by libvirt's interface driver; where the daemon has none, by a look into the host's `/sys` over SSH;
/// where that isn't allowed either, nothing is known.
pub fn nic_state(hypervisor: &dyn Hypervisor, nic: &Nic) -> Result<NicState> {
    match nic {
        Nic::Network(name) => Ok(match hypervisor.find_network(name)? {
            Some(true) => NicState::Present,
            Some(false) => NicState::Inactive,
            None => NicState::Missing(Vec::new()),
        }),
        Nic::Bridge(name) => match hypervisor.interface_exists(name)? {
            Some(true) => Ok(NicState::Present),
            // libvirt's netcf backend knows configured interfaces only: ask the kernel before saying no.
            Some(false) | None => Ok(match bridges(hypervisor)? {
                Some(bridges) if bridges.iter().any(|bridge| bridge == name) => NicState::Present,
                Some(bridges) => NicState::Missing(bridges),
                None => NicState::Unknown,
            }),
        },
    }
}

/// The host's bridges: every network device with a `bridge` directory (the kernel's sysfs-class-net).
fn bridges(hypervisor: &dyn Hypervisor) -> Result<Option<Vec<String>>> {
    let output = hypervisor.host_command("ls -d /sys/class/net/*/bridge 2>/dev/null; echo end")?;
    // Without the last line it wasn't our command that ran (a forced command, say).
    let Some(output) = output.filter(|text| text.trim_end().ends_with("end")) else {
        return Ok(None);
    };
    let name = |line: &str| {
        let device = line
            .strip_prefix("/sys/class/net/")?
            .strip_suffix("/bridge")?;
        Some(device.to_owned())
    };
    Ok(Some(output.lines().filter_map(name).collect()))
}

/// Refuses when the NIC's bridge or network surely isn't there.
pub fn ensure_nic(state: &NicState, host: &config::Host) -> Result<()> {
    let (reason, message, hint) = match (&host.nic, state) {
        (_, NicState::Present | NicState::Unknown) => return Ok(()),
        (Nic::Bridge(name), NicState::Missing(bridges)) => {
            let there = if bridges.is_empty() {
                "none".to_owned()
            } else {
                bridges.join(", ")
            };
            (
                Reason::BridgeNotFound,
                format!("the host has no bridge {name} (bridges there: {there})"),
                "set hosts[].bridge to one of the host's bridges, or make it: docs/hypervisor-setup.md".to_owned(),
            )
        }
        (Nic::Network(name), NicState::Inactive) => (
            Reason::NetworkNotFound,
            format!("libvirt network {name} is not active"),
            format!(
                "on the host: virsh net-start {0} && virsh net-autostart {0}",
                shell::quote(name)
            ),
        ),
        (Nic::Bridge(name) | Nic::Network(name), _) => (
            Reason::NetworkNotFound,
            format!("the host has no libvirt network {name}"),
            "on the host: virsh net-list --all".to_owned(),
        ),
    };
    Err(Error::permanent(reason, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_needs_the_memory_and_may_have_more_cpus_than_there_are() {
        let host = HostCapabilities {
            uuid: None,
            arch: "x86_64".to_owned(),
            memory_bytes: 2 << 30,
            cpus: 4,
            domain_types: Vec::new(),
        };
        let judge = |host: &HostCapabilities, vcpus, memory_mib| {
            let key = "big".to_owned();
            judge_machine(
                host,
                &MachineType {
                    key,
                    vcpus,
                    memory_mib,
                },
            )
        };
        assert_eq!(judge(&host, 4, 2048).unwrap(), None);
        let warning = judge(&host, 5, 2048).unwrap().unwrap();
        assert!(
            warning.contains("5 vcpus") && warning.contains("4 CPUs"),
            "{warning}"
        );
        let error = judge(&host, 1, 2049).unwrap_err();
        assert_eq!(error.reason(), Reason::NotEnoughMemory);
        // What isn't known is no obstacle.
        let silent = HostCapabilities {
            memory_bytes: 0,
            cpus: 0,
            ..host
        };
        assert_eq!(judge(&silent, 64, 1 << 30).unwrap(), None);
    }

    #[test]
    fn what_is_no_time_tells_no_clock() {
        assert_eq!(ahead(" 1700000060\n", 1_700_000_000), Some(60));
        for answer in ["", "now", "-9223372036854775808", "9223372036854775808"] {
            assert_eq!(ahead(answer, 1_700_000_000), None, "{answer}");
        }
    }

    #[test]
    fn a_libvirt_that_is_too_old_is_named_with_the_one_needed() {
        for enough in [7_002_000, 7_002_001, 9_000_000, 11_003_000] {
            assert!(ensure_libvirt(enough).is_ok(), "{enough}");
        }
        for (old, named) in [(7_001_000, "7.1.0"), (6_010_000, "6.10.0")] {
            let error = ensure_libvirt(old).unwrap_err();
            assert_eq!(error.reason(), Reason::LibvirtTooOld);
            assert_eq!(
                error.message(),
                format!(
                    "the host's libvirt is {named}: instances that boot by UEFI or run without KVM need 7.2.0 or later"
                )
            );
        }
    }

    #[test]
    fn clocks_that_are_a_minute_apart_agree() {
        let here: Timestamp = "2026-11-29T19:38:00Z".parse().unwrap();
        for offset in [None, Some(0), Some(60), Some(-60)] {
            assert!(judge_clocks(offset, here).is_ok(), "{offset:?}");
        }
        let table = [
            (61, "1m1s behind the host's", "2026-11-29T19:39:01Z"),
            (-7200, "2h ahead of the host's", "2026-11-29T17:38:00Z"),
        ];
        for (offset, order, there) in table {
            let error = judge_clocks(Some(offset), here).unwrap_err();
            assert_eq!(error.reason(), Reason::ClockSkew);
            assert!(error.message().contains(order), "{error}");
            assert_eq!(
                error.causes(),
                [
                    "this machine's: 2026-11-29T19:38:00Z".to_owned(),
                    format!("the host's: {there}")
                ]
            );
        }
        // A clock that is nonsense must not break the arithmetic.
        assert!(judge_clocks(Some(i64::MAX), here).is_err());
        assert!(judge_clocks(Some(i64::MIN), here).is_err());
    }
}
