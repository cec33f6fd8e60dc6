//! What is left of an instance whose domain is gone: which volumes are its own. Pure.

use crate::image::names::{BaseName, operator_key};
use crate::inventory::file_name;
use crate::name::InstanceName;
use crate::xml::volume::VolumeInfo;

/// The instance that a seed's name belongs to.
pub fn instance_of_seed(volume: &str) -> Option<InstanceName> {
    let name = InstanceName::new(volume.strip_suffix("-seed.iso")?).ok()?;
    (name.seed_volume() == volume).then_some(name)
}

/// The instance that an overlay's name belongs to.
pub fn instance_of_overlay(volume: &str) -> Option<InstanceName> {
    let name = InstanceName::new(volume.strip_suffix(".qcow2")?).ok()?;
    (name.overlay_volume() == volume).then_some(name)
}

/// Why an overlay can't be the one that was made after this seed, if so.
///
/// A create that finds somebody's disk under its overlay's name gives up; killed right then, it leaves its seed beside
/// that disk. The disk is older than the seed, or on no base image.
pub fn overlay_fault(seed: &VolumeInfo, overlay: &VolumeInfo) -> Option<String> {
    let name = &overlay.name;
    let on_base = overlay.format.as_deref() == Some("qcow2")
        && overlay
            .backing
            .as_ref()
            .is_some_and(|backing| is_base_image(file_name(&backing.path)));
    if !on_base {
        return Some(format!("{name} isn't an overlay on a base image"));
    }
    match (seed.modified, overlay.modified) {
        (Some(seed), Some(overlay)) if overlay < seed => {
            Some(format!("{name} is older than its seed"))
        }
        (Some(_), Some(_)) => None,
        _ => Some(format!(
            "{name} may be older than its seed: the files have no times"
        )),
    }
}

/// Our base images, and the operator's cache, which we use where its digest is right.
fn is_base_image(volume: &str) -> bool {
    BaseName::parse(volume).is_some() || operator_key(volume).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_volumes_have_exact_names() {
        assert_eq!(
            instance_of_seed("web-1-seed.iso").unwrap().as_str(),
            "web-1"
        );
        assert_eq!(
            instance_of_overlay("web-1.qcow2").unwrap().as_str(),
            "web-1"
        );
        for other in [
            "-seed.iso",
            "Web-seed.iso",
            "a_b-seed.iso",
            "web-seed.iso.bak",
            "base-x-seed.iso",
        ] {
            assert_eq!(instance_of_seed(other), None, "{other}");
        }
        for other in [
            "base-x.qcow2",
            ".qcow2",
            "web.qcow2.old",
            "web.img",
            "x y.qcow2",
        ] {
            assert_eq!(instance_of_overlay(other), None, "{other}");
        }
    }

    #[test]
    fn an_overlay_is_newer_than_its_seed_and_on_a_base() {
        use crate::inventory::tests::{overlay, volume, written};
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let seed = written(volume("web-seed.iso"), at(100));
        let on = |base: &str| written(overlay("web.qcow2", base), at(100));
        let ours = "/p/base-a-0123456789abcdef.qcow2";
        let table = [
            ("made right after", on(ours), true),
            ("on the operator's cache", on("/p/base-a.qcow2"), true),
            ("written later", written(on(ours), at(900)), true),
            ("older", written(on(ours), at(99)), false),
            ("on another disk", on("/p/golden.qcow2"), false),
            ("on nothing", written(volume("web.qcow2"), at(100)), false),
            ("of no known time", overlay("web.qcow2", ours), false),
        ];
        for (about, overlay, fits) in table {
            assert_eq!(overlay_fault(&seed, &overlay).is_none(), fits, "{about}");
        }
        assert!(overlay_fault(&volume("web-seed.iso"), &on(ours)).is_some());
    }
}
