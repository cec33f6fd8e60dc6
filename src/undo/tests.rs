//! Whose an instance's volumes are while they are taken back.

use super::*;
use crate::owner::Owner;
use crate::seed::{SeedMark, SeedSpec};

fn seed(name: &str, owner: &str) -> Vec<u8> {
    let spec = SeedSpec {
        instance_id: "i".to_owned(),
        local_hostname: name.to_owned(),
        user_data: Vec::new(),
        vendor_data: None,
        network_config: None,
        mark: SeedMark {
            uid: "u".to_owned(),
            name: name.to_owned(),
            created_at: jiff::Timestamp::UNIX_EPOCH,
            owner: Some(owner.to_owned()),
        },
    };
    spec.to_image().unwrap()
}

#[test]
fn an_instances_volumes_are_ours_by_its_seed() {
    let name = InstanceName::new("web").unwrap();
    let us = Owner::this_process().to_word();
    let another = "0123456789abcdef:1:2";
    let table = [
        ("untouched", Some(seed("web", &us)), Hold::Ours, Hold::Ours),
        (
            "made anew",
            Some(seed("web", another)),
            Hold::Lost,
            Hold::Lost,
        ),
        (
            "being made anew",
            Some(vec![0; SEED_HEAD]),
            Hold::Lost,
            Hold::Ours,
        ),
        ("somebody's", Some(seed("x", &us)), Hold::Lost, Hold::Ours),
        ("deleted", None, Hold::Ours, Hold::Ours),
    ];
    for (about, seed, filled, unfilled) in table {
        let hold = |is_filled| hold_by(&name, is_filled, seed.as_deref());
        assert_eq!((hold(true), hold(false)), (filled, unfilled), "{about}");
    }
}

#[test]
fn anothers_domain_has_the_volumes_it_names_and_perhaps_those_of_their_names() {
    use crate::inventory::tests::{DIR, disk};
    let ours = format!("{DIR}/web.qcow2");
    let table = [
        (String::new(), Hold::Ours),
        (disk(&ours), Hold::Lost),
        (disk("/elsewhere/web.qcow2"), Hold::Unknown),
        (disk("/elsewhere/web.qcow2") + &disk(&ours), Hold::Lost),
        (disk(&format!("{DIR}/web.qcow2.old")), Hold::Ours),
        // There is none of ours.
        (disk(&format!("{DIR}/web-seed.iso")), Hold::Ours),
    ];
    for (disks, expected) in table {
        let xml = format!(
            "<domain type='kvm'><name>web</name><uuid>u</uuid><memory>1</memory><devices>{disks}</devices></domain>"
        );
        let hold = hold_against(&xml, &[Some(ours.clone()), None]).unwrap();
        assert_eq!(hold, expected, "{disks}");
    }
    let mut undo = Undo::new();
    let domain = |uuid: &str| DomainRef {
        name: "web".to_owned(),
        uuid: uuid.to_owned(),
    };
    undo.made(Made::Domain(domain("ours")));
    assert!(undo.has_made(&domain("ours")) && !undo.has_made(&domain("anothers")));
}
