//! Any damage to any volume costs the records it hits and no others: random batches, random damage, then a
//! restart.

use std::{collections::HashMap, fs, path::Path};

use proptest::{prelude::*, sample::Index};
use quire_core::{
    paste::{BodyRef, Locator, Ttl},
    ports::{Bodies, BodiesAudit},
    testing::bodies_contract::{fresh_id, new_body, refer},
};

use super::{
    super::{VolumeAudit, VolumeOptions, VolumeStore, name::VolumeName},
    NOW, TestClock, block_on, list_all, new_folder, open,
};

/// Where in the volume damage begins, relative to one of its records.
#[derive(Clone, Copy, Debug)]
enum Spot {
    VolumeHeader(Index),
    Header(Index),
    Body(Index),
    Begin,
    BodyEnd,
    FileEnd,
}

#[derive(Clone, Debug)]
enum Damage {
    Cut,
    Flip,
    Zero(usize),
    Garbage(Vec<u8>),
    AppendZeros(usize),
    AppendGarbage(Vec<u8>),
    /// A copy of the first part of a record: a write that was cut short.
    AppendPart(Index),
}

fn spots() -> impl Strategy<Value = Spot> {
    prop_oneof![
        1 => any::<Index>().prop_map(Spot::VolumeHeader),
        3 => any::<Index>().prop_map(Spot::Header),
        3 => any::<Index>().prop_map(Spot::Body),
        2 => Just(Spot::Begin),
        2 => Just(Spot::BodyEnd),
        1 => Just(Spot::FileEnd),
    ]
}

fn damages() -> impl Strategy<Value = Damage> {
    let garbage = || proptest::collection::vec(any::<u8>(), 1..300);
    prop_oneof![
        3 => Just(Damage::Cut),
        3 => Just(Damage::Flip),
        3 => (1_usize..600).prop_map(Damage::Zero),
        2 => garbage().prop_map(Damage::Garbage),
        1 => (1_usize..5_000).prop_map(Damage::AppendZeros),
        1 => garbage().prop_map(Damage::AppendGarbage),
        2 => any::<Index>().prop_map(Damage::AppendPart),
    ]
}

/// A body that was stored, and what it said.
#[derive(Clone, Debug)]
struct Known {
    body: BodyRef,
    text: String,
    removed: bool,
}

impl Known {
    fn place(&self) -> Locator {
        self.body.locator.unwrap()
    }

    fn begin(&self) -> usize {
        usize::try_from(self.place().offset).unwrap()
    }

    fn end(&self) -> usize {
        self.begin() + 64 + self.text.len()
    }
}

fn store_batch(store: &VolumeStore, batch: &[(u8, usize)], known: &mut Vec<Known>) {
    let bodies: Vec<_> = batch
        .iter()
        .map(|(ttl, length)| {
            let text = "t".repeat(*length);
            (new_body(fresh_id(), &text, NOW.expiry(Ttl::ALL[usize::from(*ttl)])), text)
        })
        .collect();
    let stored =
        block_on(futures_util::future::join_all(bodies.iter().map(|(body, _)| store.put(body.clone()))));
    for ((body, text), put) in bodies.into_iter().zip(stored) {
        known.push(Known { body: refer(&body, put.unwrap()), text, removed: false });
    }
}

/// Damages the volume of one record and returns the volume's bytes before and after.
fn damage(
    folder: &Path,
    known: &[Known],
    victim: Index,
    spot: Spot,
    damage: &Damage,
) -> (i64, Vec<u8>, Vec<u8>) {
    let victim = victim.get(known);
    let volume = victim.place().volume;
    let path = folder.join(VolumeName::from_number(volume).unwrap().file_name());
    let before = fs::read(&path).unwrap();
    let at = match spot {
        Spot::VolumeHeader(index) => index.index(64),
        Spot::Header(index) => victim.begin() + index.index(64),
        Spot::Body(index) => victim.begin() + 64 + index.index(victim.text.len()),
        Spot::Begin => victim.begin(),
        Spot::BodyEnd => victim.end(),
        Spot::FileEnd => before.len(),
    };
    let mut after = before.clone();
    let overwrite = |after: &mut Vec<u8>, bytes: &[u8]| {
        let end = (at + bytes.len()).min(after.len());
        after[at.min(end)..end].copy_from_slice(&bytes[..end - at.min(end)]);
    };
    match damage {
        Damage::Cut => after.truncate(at),
        Damage::Flip => {
            let at = at.min(after.len() - 1);
            after[at] ^= 0x55;
        }
        Damage::Zero(length) => overwrite(&mut after, &vec![0; *length]),
        Damage::Garbage(bytes) => overwrite(&mut after, bytes),
        Damage::AppendZeros(length) => after.resize(after.len() + length, 0),
        Damage::AppendGarbage(bytes) => after.extend_from_slice(bytes),
        Damage::AppendPart(part) => {
            let part = part.index(64 + victim.text.len());
            after.extend_from_slice(&before[victim.begin()..victim.begin() + part]);
        }
    }
    fs::write(path, &after).unwrap();
    (volume, before, after)
}

fn read(audit: &dyn BodiesAudit, body: BodyRef) -> Option<String> {
    // Whatever was damaged may be gone or corrupt; it must not be anything else.
    let bytes = block_on(audit.get(body)).ok().flatten()?;
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

fn whole_listed(audit: &dyn BodiesAudit) -> HashMap<Locator, String> {
    let listed = block_on(list_all(audit, 5));
    let count = listed.len();
    let places: HashMap<Locator, BodyRef> =
        listed.iter().map(|one| (one.body.locator.unwrap(), one.body)).collect();
    assert_eq!(places.len(), count, "nothing is listed twice");
    places.into_iter().filter_map(|(place, body)| Some((place, read(audit, body)?))).collect()
}

fn expected(known: &[Known]) -> HashMap<Locator, String> {
    known.iter().filter(|one| !one.removed).map(|one| (one.place(), one.text.clone())).collect()
}

fn check_no_overlap(known: &[Known]) {
    let mut places: Vec<_> = known.iter().map(|one| (one.place().volume, one.begin(), one.end())).collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "{pair:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn damage_costs_what_it_hits_and_nothing_else(
        batches in proptest::collection::vec(proptest::collection::vec((0_u8..3, 1_usize..400), 1..8), 1..5),
        removed in proptest::collection::vec(any::<Index>(), 0..3),
        blows in proptest::collection::vec((any::<Index>(), spots(), damages()), 1..4),
        later in proptest::collection::vec((0_u8..3, 1_usize..400), 3..8),
    ) {
        let folder = new_folder();
        let options = VolumeOptions { volume_bytes_max: 1_500, ..VolumeOptions::default() };
        let mut known = Vec::new();
        let store = open(folder.path(), options);
        for batch in &batches {
            store_batch(&store, batch, &mut known);
        }
        for index in removed {
            let index = index.index(known.len());
            block_on(store.remove(known[index].body)).unwrap();
            known[index].removed = true;
        }
        prop_assert_eq!(whole_listed(&store), expected(&known));
        store.close();

        for (victim, spot, blow) in &blows {
            if known.is_empty() {
                break;
            }
            let (volume, before, after) = damage(folder.path(), &known, *victim, *spot, blow);
            known.retain(|one| {
                let place = one.begin()..one.end();
                one.place().volume != volume || after.get(place.clone()) == before.get(place)
            });
        }
        // Beside nobody, before anything is recovered.
        let audit = VolumeAudit::open_read_only(folder.path(), TestClock::new()).unwrap();
        prop_assert_eq!(whole_listed(&audit), expected(&known));

        // Twice, so that what the first recovery did is recovered from as well.
        for _ in 0..2 {
            let store = open(folder.path(), options);
            store_batch(&store, &later, &mut known);
            check_no_overlap(&known);
            for one in &known {
                let expected = (!one.removed).then(|| one.text.clone());
                prop_assert_eq!(read(&store, one.body), expected);
            }
            prop_assert_eq!(whole_listed(&store), expected(&known));
            store.close();
        }
    }
}
