//! Which host, image and machine type a command means. Pure.

use crate::config::{Firmware, Host, Image, ImageFormat, MachineType, Provider};
use crate::error::{Class, Error, Reason, Result};
use crate::image::identity::URL_KEY;
use crate::name::InstanceRef;
use crate::near::nearest;
use crate::units;
use crate::url;

/// The `--zone` value that leaves the choice to [`choose`].
pub const AUTO: &str = "auto";

/// What one host has for instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// The host.
    pub host: String,
    /// Whether the image is ready there.
    pub image_is_cached: bool,
    /// Memory that no running domain was given, in bytes.
    pub memory: u64,
    /// What the storage pool has available, in bytes.
    pub pool: u64,
}

/// What one instance takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Memory in bytes.
    pub memory: u64,
    /// Bytes of the pool at first.
    pub pool: u64,
    /// Bytes of the pool once its disk is full.
    pub disk: u64,
}

impl Room {
    fn holds(&self, need: &Need) -> bool {
        self.memory >= need.memory && self.pool >= need.pool
    }

    /// How many such instances there is room for, by what is scarcer.
    fn count(&self, need: &Need) -> u64 {
        (self.memory / need.memory.max(1)).min(self.pool / need.disk.max(1))
    }

    /// What is left once such an instance is there.
    fn take(&mut self, need: &Need) {
        self.memory -= need.memory.min(self.memory);
        self.pool -= need.disk.min(self.pool);
    }
}

/// The host (its place in `rooms`) for one more instance, whose room is then taken: one with the image cached before
/// those without, then the one with room for most such instances, then with most memory, then the first.
///
/// Errors: [`Reason::NotEnoughMemory`] or [`Reason::PoolFull`] (`QuotaExceeded`) where no host has room.
pub fn choose(rooms: &mut [Room], need: &Need) -> Result<usize> {
    let best = rooms
        .iter()
        .enumerate()
        .filter(|(_, room)| room.holds(need))
        // The last of equals would win: places are counted backwards.
        .max_by_key(|(place, room)| {
            let order = std::cmp::Reverse(*place);
            (room.image_is_cached, room.count(need), room.memory, order)
        })
        .map(|(place, _)| place);
    let Some(place) = best else {
        return Err(no_room(rooms, need));
    };
    rooms[place].take(need);
    Ok(place)
}

fn no_room(rooms: &[Room], need: &Need) -> Error {
    let reason = if rooms.iter().any(|room| room.memory >= need.memory) {
        Reason::PoolFull
    } else {
        Reason::NotEnoughMemory
    };
    let error = Error::new(
        Class::QuotaExceeded,
        reason,
        format!(
            "no host has room: {} of memory and {} of a pool are needed",
            units::bytes(need.memory),
            units::bytes(need.pool)
        ),
    );
    rooms
        .iter()
        .fold(error, |error, room| {
            error.because(format!(
                "{}: {} of memory not given to running domains, {} in the pool",
                room.host,
                units::bytes(room.memory),
                units::bytes(room.pool)
            ))
        })
        .hint("choose a smaller --machine-type, delete what nobody needs, or name a host with --zone to share its memory out twice")
}

/// The host that `--zone` names; left out, the only one.
pub fn zone<'a>(provider: &'a Provider, wanted: Option<&str>) -> Result<&'a Host> {
    let names = || provider.hosts.iter().map(|host| host.name.as_str());
    match wanted {
        Some(name) => provider
            .hosts
            .iter()
            .find(|host| host.name == name)
            .ok_or_else(|| unknown_zone(provider, name)),
        None => match provider.hosts.as_slice() {
            [only] => Ok(only),
            _ => Err(Error::permanent(
                Reason::UnknownZone,
                format!("there are several hosts: which one? {}", list(names())),
            )
            .hint("name one with --zone")),
        },
    }
}

/// The hosts that repeated `--zone` options name, in the configuration's order; none named means all.
pub fn zones<'a>(provider: &'a Provider, wanted: &[String]) -> Result<Vec<&'a Host>> {
    if let Some(name) = wanted
        .iter()
        .find(|name| !provider.hosts.iter().any(|h| h.name == **name))
    {
        return Err(unknown_zone(provider, name));
    }
    let named = |host: &&Host| wanted.is_empty() || wanted.contains(&host.name);
    Ok(provider.hosts.iter().filter(named).collect())
}

fn unknown_zone(provider: &Provider, name: &str) -> Error {
    unknown_host(provider, name, &format!("there is no host {name:?}"))
}

/// The error for an ID on a host that isn't configured. Whether there is such an instance, nobody can say.
pub fn unconfigured(provider: &Provider, wanted: &InstanceRef) -> Error {
    let host = wanted.host().unwrap_or_default();
    let name = wanted.name();
    let what = format!("host {host} isn't configured, so {name} can't be looked for there");
    unknown_host(provider, host, &what)
}

fn unknown_host(provider: &Provider, name: &str, what: &str) -> Error {
    let names = || provider.hosts.iter().map(|host| host.name.as_str());
    let error = Error::permanent(Reason::UnknownZone, what).because(format!(
        "hosts of provider {}: {}",
        provider.name,
        list(names())
    ));
    did_you_mean(error, name, names())
}

/// The image that `--image` names: a key, or an http(s) URL; left out, the only one.
pub fn image(provider: &Provider, wanted: Option<&str>) -> Result<Image> {
    let keys: Vec<&str> = provider
        .images
        .iter()
        .map(|image| image.key.as_str())
        .collect();
    let there = || {
        format!(
            "images of provider {}: {}",
            provider.name,
            list(keys.iter().copied())
        )
    };
    let Some(wanted) = wanted else {
        return match provider.images.as_slice() {
            [only] => Ok(only.clone()),
            _ => Err(Error::permanent(Reason::UnknownImage, "which image?")
                .because(there())
                .hint("name one with --image")),
        };
    };
    if let Some(image) = provider.images.iter().find(|image| image.key == wanted) {
        return Ok(image.clone());
    }
    if wanted.contains("://") {
        url::check(wanted).map_err(|why| {
            Error::permanent(
                Reason::UnknownImage,
                format!("no image can be downloaded from there: {why}"),
            )
            .because(there())
        })?;
        return Ok(Image {
            key: URL_KEY.to_owned(),
            url: wanted.into(),
            sha256: None,
            sha512: None,
            checksum_url: None,
            format: ImageFormat::Qcow2,
            firmware: Firmware::Uefi,
        });
    }
    let error = unknown(Reason::UnknownImage, "image", wanted, &keys).because(there());
    Err(if wanted.contains('/') {
        error.hint("an image's URL begins with http:// or https://")
    } else {
        error
    })
}

/// Refuses what can name no image: it is neither a plain name, of a key or a volume, nor an http(s) URL.
///
/// Errors: [`Reason::BadArgument`] (usage).
pub fn ensure_names_image(text: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let why = if text.contains("://") {
        url::check(text).err()
    } else {
        let plain =
            text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_plain);
        let shown = url::shown_text(text);
        (!plain).then(|| format!("{shown:?} is neither a plain name nor an http(s) URL"))
    };
    why.map_or(Ok(()), |why| {
        let error = Error::usage(Reason::BadArgument, format!("no image is called that: {why}"));
        Err(error.hint("an image has a key in the configuration, or a URL that begins with http:// or https://"))
    })
}

/// The machine type that `--machine-type` names; left out, the file's first.
pub fn machine_type<'a>(provider: &'a Provider, wanted: Option<&str>) -> Result<&'a MachineType> {
    let keys: Vec<&str> = provider
        .machine_types
        .iter()
        .map(|m| m.key.as_str())
        .collect();
    let found = match wanted {
        None => provider.machine_types.first(),
        Some(key) => provider
            .machine_types
            .iter()
            .find(|machine| machine.key == key),
    };
    found.ok_or_else(|| {
        unknown(
            Reason::UnknownMachineType,
            "machine type",
            wanted.unwrap_or_default(),
            &keys,
        )
        .because(format!(
            "machine types of provider {}: {}",
            provider.name,
            list(keys.iter().copied())
        ))
    })
}

fn unknown(reason: Reason, what: &str, wanted: &str, names: &[&str]) -> Error {
    let shown = url::shown_text(wanted);
    let error = Error::permanent(reason, format!("there is no {what} {shown:?}"));
    did_you_mean(error, wanted, names.iter().copied())
}

fn did_you_mean<'a>(error: Error, wanted: &str, names: impl Iterator<Item = &'a str>) -> Error {
    match nearest(wanted, names) {
        Some(name) => error.hint(format!("did you mean {name}?")),
        None => error,
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use std::path::Path;

    fn provider(hosts: &[&str]) -> Provider {
        let host = |name: &&str| {
            format!("    - {{name: {name}, address: {name}.lan, user: virt, bridge: br0}}")
        };
        let hosts = hosts.iter().map(host).collect::<Vec<_>>().join("\n");
        let text = format!(
            "- name: home\n  type: kvm\n  kvm:\n    sshKeyFile: /k\n    knownHostsFile: /h\n    images:\n      debian-12: {{url: 'https://example.net/12'}}\n      debian-13: {{url: 'https://example.net/13'}}\n    machineTypes:\n      small: {{vcpus: 1, memoryMiB: 512}}\n      big: {{vcpus: 2, memoryMiB: 512}}\n    hosts:\n{hosts}"
        );
        let config = config::parse(&text, Path::new("/providers.yaml"), &|_| None).unwrap();
        config.provider(None).unwrap().clone()
    }

    #[test]
    fn the_only_host_needs_no_name() {
        assert_eq!(zone(&provider(&["nas1"]), None).unwrap().name, "nas1");
        let error = zone(&provider(&["nas1", "nas2"]), None).unwrap_err();
        assert_eq!(error.reason(), Reason::UnknownZone);
        assert!(error.message().contains("nas1, nas2"), "{error}");
    }

    #[test]
    fn a_near_miss_is_named() {
        let provider = provider(&["nas1", "nas2"]);
        assert_eq!(zone(&provider, Some("nas3")).unwrap_err().hints().len(), 1);
        let error = image(&provider, Some("debian-31")).unwrap_err();
        assert_eq!(error.hints(), ["did you mean debian-13?"]);
        let error = machine_type(&provider, Some("gigantic")).unwrap_err();
        assert!(error.hints().is_empty());
        assert!(error.causes()[0].ends_with("small, big"), "{error}");
    }

    #[test]
    fn an_image_may_be_a_url_and_a_machine_type_is_the_first() {
        let provider = provider(&["nas1"]);
        assert_eq!(
            image(&provider, Some("HTTPS://x/y.qcow2")).unwrap().key,
            URL_KEY
        );
        assert!(image(&provider, Some("ftp://x/y")).is_err());
        assert!(image(&provider, None).is_err());
        assert_eq!(machine_type(&provider, None).unwrap().key, "small");
    }

    #[test]
    fn an_image_is_called_by_a_plain_name_or_a_url() {
        for good in [
            "debian-13",
            "base-debian-13-0123456789abcdef.qcow2",
            "http://x/y",
            "https://x/y?…",
        ] {
            assert!(ensure_names_image(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            " ",
            "a b",
            "a/b",
            "-a",
            ".",
            "../x",
            "é",
            "https://",
            "http:///x",
            "ftp://x/y",
            "://",
            "https:/x",
        ] {
            let error = ensure_names_image(bad).unwrap_err();
            assert_eq!(error.class(), Class::Usage, "{bad:?}");
        }
        let secret = ensure_names_image("https:/me:pw@x/y").unwrap_err();
        assert!(!secret.to_string().contains("pw"), "{secret}");
    }

    const NEED: Need = Need {
        memory: 1 << 30,
        pool: 24 << 20,
        disk: 10 << 30,
    };

    fn room(host: &str, image_is_cached: bool, memory_gib: u64, pool_gib: u64) -> Room {
        Room {
            host: host.to_owned(),
            image_is_cached,
            memory: memory_gib << 30,
            pool: pool_gib << 30,
        }
    }

    /// The hosts that so many instances go to.
    fn chosen(rooms: &[Room], count: usize) -> Vec<String> {
        let mut rooms = rooms.to_vec();
        let mut choose = |_| {
            let place = choose(&mut rooms, &NEED).unwrap();
            rooms[place].host.clone()
        };
        (0..count).map(&mut choose).collect()
    }

    #[test]
    fn a_cached_image_goes_before_room_and_the_scarcer_thing_is_the_room() {
        let table: &[(&[Room], &str)] = &[
            // The image first, as long as there is room at all.
            (&[room("a", false, 64, 900), room("b", true, 2, 20)], "b"),
            (&[room("a", false, 64, 900), room("b", true, 0, 900)], "a"),
            (&[room("a", false, 64, 900), room("b", true, 64, 0)], "a"),
            // Much memory is worth nothing beside a small pool.
            (&[room("a", true, 64, 20), room("b", true, 8, 900)], "b"),
            // As many of them fit: memory, then the file's order.
            (&[room("a", true, 8, 20), room("b", true, 9, 20)], "b"),
            (&[room("a", true, 8, 20), room("b", true, 8, 20)], "a"),
        ];
        for (rooms, host) in table {
            assert_eq!(chosen(rooms, 1), [*host], "{rooms:?}");
        }
    }

    #[test]
    fn several_instances_are_spread_and_take_room() {
        let rooms = [room("a", true, 4, 900), room("b", true, 3, 900)];
        assert_eq!(chosen(&rooms, 6), ["a", "a", "b", "a", "b", "a"]);
        let mut small = vec![room("a", true, 1, 900)];
        choose(&mut small, &NEED).unwrap();
        let error = choose(&mut small, &NEED).unwrap_err();
        assert_eq!(error.reason(), Reason::NotEnoughMemory);
        assert_eq!(error.class(), Class::QuotaExceeded);
        let error = choose(&mut [room("a", true, 8, 0)], &NEED).unwrap_err();
        assert_eq!(error.reason(), Reason::PoolFull);
        assert!(error.causes()[0].starts_with("a: 8 GiB"), "{error}");
        assert!(choose(&mut [], &NEED).is_err());
    }

    #[test]
    fn zones_keep_the_files_order() {
        let provider = provider(&["a1", "b1", "c1"]);
        let wanted = ["c1".to_owned(), "a1".to_owned()];
        let names: Vec<_> = zones(&provider, &wanted)
            .unwrap()
            .iter()
            .map(|h| &h.name)
            .collect();
        assert_eq!(names, ["a1", "c1"]);
        assert_eq!(zones(&provider, &[]).unwrap().len(), 3);
        assert!(zones(&provider, &["x9".to_owned()]).is_err());
    }
}
