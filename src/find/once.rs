//! Showing each instance once where the configuration has one machine under several names. Pure.

use std::collections::HashMap;

use crate::instance::Instance;

/// Each instance once where one machine is in the configuration under several names, and so shows each of its domains
/// under each: by the host whose pool its metadata records, else by the first. `machine` is a host's own UUID, asked
/// for only where two hosts show a domain of the same UUID; an unknown one is no other's.
pub(super) fn once_each(
    instances: Vec<Instance>,
    is_own: &dyn Fn(&Instance) -> bool,
    machine: &dyn Fn(&str) -> Option<String>,
) -> Vec<Instance> {
    let mut place_of: HashMap<String, Vec<usize>> = HashMap::new();
    let mut hidden = vec![false; instances.len()];
    for (place, instance) in instances.iter().enumerate() {
        let places = place_of.entry(instance.domain.uuid.clone()).or_default();
        let same = places.iter_mut().find(|shown| {
            let other = machine(&instances[**shown].host);
            other.is_some() && other == machine(&instance.host)
        });
        match same {
            None => places.push(place),
            Some(shown) if is_own(instance) && !is_own(&instances[*shown]) => {
                hidden[*shown] = true;
                *shown = place;
            }
            Some(_) => hidden[place] = true,
        }
    }
    let shown = instances.into_iter().zip(hidden);
    shown
        .filter_map(|(instance, hidden)| (!hidden).then_some(instance))
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::inventory::tests::domain;
    use crate::xml::metadata::{VolumeRef, VolumeRole, tests::plain};

    /// The domain of that name as that host shows it; its UUID is made of its name.
    pub(in crate::find) fn seen(host: &str, name: &str, pool: &str) -> Instance {
        let mut metadata = plain();
        metadata.volumes = vec![VolumeRef {
            pool: pool.to_owned(),
            name: format!("{name}.qcow2"),
            role: VolumeRole::Overlay,
        }];
        let mut instance = domain(name, &metadata.to_xml().unwrap(), "").instance;
        host.clone_into(&mut instance.host);
        name.clone_into(&mut instance.domain.uuid);
        instance
    }

    /// Host, name and recorded pool of what is seen, and the hosts that it is shown by.
    type Case = (&'static [[&'static str; 3]], &'static [&'static str]);

    #[test]
    fn a_machine_under_two_names_shows_each_instance_once() {
        // The hosts a and b are one machine, with pools pa and pb; c is another, d can't be asked.
        let is_own = |instance: &Instance| {
            instance.is_recorded_in(match &*instance.host {
                "a" => "pa",
                "b" => "pb",
                _ => "default",
            })
        };
        let machine = |host: &str| match host {
            "a" | "b" => Some("m1".to_owned()),
            "c" => Some("m2".to_owned()),
            _ => None,
        };
        let table: [Case; 5] = [
            (&[["a", "x", "pa"], ["b", "x", "pa"]], &["a"]),
            (&[["a", "x", "pb"], ["b", "x", "pb"]], &["b"]),
            (&[["a", "x", "p"], ["b", "x", "p"]], &["a"]),
            (
                &[["a", "x", "pa"], ["c", "x", "pa"], ["d", "x", "pa"]],
                &["a", "c", "d"],
            ),
            (&[["a", "x", "pa"], ["b", "y", "pa"]], &["a", "b"]),
        ];
        for (instances, hosts) in table {
            let all = instances
                .iter()
                .map(|[host, name, pool]| seen(host, name, pool));
            let shown = once_each(all.collect(), &is_own, &machine);
            let shown: Vec<&str> = shown.iter().map(|i| i.host.as_str()).collect();
            assert_eq!(shown, hosts, "{instances:?}");
        }
    }
}
