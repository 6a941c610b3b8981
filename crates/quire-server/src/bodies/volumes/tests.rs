//! The adapter as a whole: the contract suite, restarts, rolling, bounds, backup. What a damaged file does is
//! in `damage`, what a failing disk does in `faults`.

use std::{
    collections::HashSet,
    fs,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use quire_core::{
    pair::PairId,
    paste::{Digest, Locator, Ttl},
    testing::bodies_contract::{self as contract, fresh_id, new_body, refer},
    time::Timestamp,
};
use tempfile::TempDir;

use super::*;

mod damage;
mod faults;

/// 2026-11-02, and what it is told to be.
pub(super) struct TestClock(AtomicI64);

pub(super) const NOW: Timestamp = Timestamp::from_unix_ms(1_793_641_440_000);
pub(super) const PAIR: PairId = PairId::from_bytes([7; 16]);

impl TestClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(NOW.unix_ms())))
    }

    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// A folder with its pair file.
pub(super) fn new_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    pair::write(folder.path(), PAIR).unwrap();
    folder
}

fn small() -> VolumeOptions {
    VolumeOptions { volume_bytes_max: 1_000, ..VolumeOptions::default() }
}

pub(super) fn open(folder: &Path, options: VolumeOptions) -> VolumeStore {
    VolumeStore::open(folder, TestClock::new(), options).unwrap()
}

pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

pub(super) async fn put(store: &VolumeStore, text: &str) -> BodyRef {
    contract::put(store, fresh_id(), text).await
}

pub(super) async fn get(store: &VolumeStore, body: BodyRef) -> Option<Bytes> {
    Bodies::get(store, body).await.unwrap()
}

/// Everything the listing shows, in pages of `limit`.
pub(super) async fn list_all(audit: &dyn BodiesAudit, limit: usize) -> Vec<ListedBody> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let page = audit.page(from, limit).await.unwrap();
        assert!(page.bodies.len() <= limit);
        all.extend(page.bodies);
        let Some(next) = page.next else { return all };
        from = Some(next);
    }
}

pub(super) fn volume_files(folder: &Path) -> Vec<String> {
    name::list(folder).unwrap().into_iter().map(VolumeName::file_name).collect()
}

fn volume_of(body: BodyRef) -> String {
    VolumeName::from_number(body.locator.unwrap().volume).unwrap().file_name()
}

use name::VolumeName;
use quire_core::ports::ListedBody;

#[test]
fn keeps_the_contract() {
    for options in [VolumeOptions::default(), small()] {
        let folder = new_folder();
        let store: Arc<dyn Bodies> = Arc::new(open(folder.path(), options));
        block_on(contract::all(|| Arc::clone(&store)));
        assert!(!volume_files(folder.path()).is_empty());
    }
}

#[test]
fn a_folder_without_a_pair_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let clock = TestClock::new();
    let refused = VolumeStore::open(folder.path(), clock.clone(), small()).err().unwrap();
    assert!(matches!(refused, OpenError::NoPair { .. }), "{refused}");
    assert!(matches!(VolumeAudit::open_read_only(folder.path(), clock), Err(OpenError::NoPair { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "and nothing is made in it");
}

#[test]
fn a_body_of_each_day_is_in_that_days_volume() {
    let folder = new_folder();
    let store = open(folder.path(), VolumeOptions::default());
    block_on(async {
        let puts: Vec<_> =
            Ttl::ALL.iter().map(|ttl| new_body(fresh_id(), ttl.as_str(), NOW.expiry(*ttl))).collect();
        let stored = futures_util::future::join_all(puts.iter().map(|body| store.put(body.clone()))).await;
        for (body, stored) in puts.iter().zip(stored) {
            let body_ref = refer(body, stored.unwrap());
            let day = &body.expires_near.to_rfc3339()[..10];
            assert_eq!(volume_of(body_ref), format!("{day}.000001.vol"));
            assert_eq!(get(&store, body_ref).await.as_ref(), Some(body.text.bytes()));
        }
    });
    assert_eq!(volume_files(folder.path()).len(), 4);
}

#[test]
fn a_full_volume_is_followed_by_the_next() {
    let folder = new_folder();
    let store = open(folder.path(), small());
    block_on(async {
        // A record of 100 bytes takes 192: four to a volume of 1,000, then a new one. All in few batches.
        let text = "x".repeat(100);
        let stored = futures_util::future::join_all((0..12).map(|_| put(&store, &text))).await;
        let mut by_volume: Vec<_> = stored.iter().map(|body| volume_of(*body)).collect();
        by_volume.sort();
        by_volume.dedup();
        assert_eq!(by_volume, volume_files(folder.path()));
        assert_eq!(by_volume.len(), 3, "{by_volume:?}");
        // What no volume has room for gets one of its own.
        let large = put(&store, &"y".repeat(5_000)).await;
        assert_eq!(volume_files(folder.path()).len(), 4);
        for body in stored {
            assert_eq!(get(&store, body).await.unwrap(), text);
        }
        assert_eq!(get(&store, large).await.unwrap().len(), 5_000);
    });
    for file in volume_files(folder.path()).iter().take(3) {
        assert!(fs::metadata(folder.path().join(file)).unwrap().len() <= 1_000);
    }
}

#[test]
fn a_restart_goes_on_in_the_last_volume_and_overwrites_nothing() {
    let folder = new_folder();
    let mut stored = Vec::new();
    for round in 0..5 {
        let store = open(folder.path(), small());
        block_on(async {
            for (index, body) in stored.iter().enumerate() {
                assert_eq!(get(&store, *body).await.unwrap(), format!("round {index}"));
            }
            stored.push(put(&store, &format!("round {round}")).await);
        });
        store.close();
    }
    assert_eq!(volume_files(folder.path()).len(), 1);
    let places: HashSet<Locator> = stored.iter().filter_map(|body| body.locator).collect();
    assert_eq!(places.len(), 5);
}

#[test]
fn another_stores_volume_is_refused_and_not_touched() {
    let folder = new_folder();
    let store = open(folder.path(), small());
    block_on(put(&store, "mine"));
    store.close();
    pair::write(folder.path(), PairId::from_bytes([8; 16])).unwrap();
    let file = folder.path().join(&volume_files(folder.path())[0]);
    let before = fs::read(&file).unwrap();

    let store = open(folder.path(), small());
    block_on(async {
        let body = new_body(fresh_id(), "theirs", NOW.expiry(Ttl::Month));
        assert_eq!(store.put(body).await.unwrap_err().fault(), Fault::Unavailable);
        assert_eq!(BodiesAudit::page(&store, None, 10).await.unwrap_err().fault(), Fault::Unavailable);
    });
    store.close();
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(volume_files(folder.path()).len(), 1);
}

#[test]
fn a_day_without_a_date_is_refused() {
    let folder = new_folder();
    let store = open(folder.path(), small());
    block_on(async {
        let body = new_body(fresh_id(), "never", Timestamp::from_unix_ms(i64::MAX));
        assert_eq!(store.put(body).await.unwrap_err().fault(), Fault::Unavailable);
        put(&store, "but the writer lives").await;
    });
}

#[test]
fn many_days_are_stored_and_few_files_stay_open() {
    let folder = new_folder();
    let store = open(folder.path(), small());
    block_on(async {
        // Each day is used, left, and used again: its volume is closed in between and found again.
        for text in ["first", "second"] {
            for day in 0..40 {
                let expires = NOW.plus(Duration::from_secs(86_400 * day));
                let body = new_body(fresh_id(), text, expires);
                let stored = store.put(body.clone()).await.unwrap();
                assert_eq!(get(&store, refer(&body, stored)).await.unwrap(), text);
            }
        }
        assert_eq!(list_all(&store, 7).await.len(), 80);
    });
    assert_eq!(volume_files(folder.path()).len(), 40);
}

#[test]
fn an_unreadable_volume_is_unavailable_and_an_absent_one_is_none() {
    let folder = new_folder();
    let store = open(folder.path(), small());
    block_on(async {
        let body = put(&store, "known").await;
        let name = |day| VolumeName::new(day, 1).unwrap();
        let at = |name: VolumeName| BodyRef {
            locator: Some(Locator { volume: name.to_number(), offset: 64 }),
            ..body
        };
        assert_eq!(get(&store, at(name(5))).await, None);
        // A folder can be opened and not read, which is as near to a broken disk as one gets without one.
        fs::create_dir(folder.path().join(name(6).file_name())).unwrap();
        let error = Bodies::get(&store, at(name(6))).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Unavailable);
        assert_eq!(store.remove(at(name(6))).await.unwrap_err().fault(), Fault::Unavailable);
    });
}

#[test]
fn the_listing_has_every_body_once_with_its_age() {
    let folder = new_folder();
    let clock = TestClock::new();
    let store = VolumeStore::open(folder.path(), clock.clone(), small()).unwrap();
    block_on(async {
        let mut expected = HashSet::new();
        for index in 0..25 {
            expected.insert(put(&store, &"z".repeat(index * 11 + 1)).await.locator);
        }
        let removed = put(&store, "removed").await;
        store.remove(removed).await.unwrap();
        clock.advance(Duration::from_secs(90));
        let beside = VolumeAudit::open_read_only(folder.path(), clock.clone()).unwrap();
        let both: [&dyn BodiesAudit; 2] = [&store, &beside];
        for audit in both {
            for limit in [1, 3, 1_000] {
                let listed = list_all(audit, limit).await;
                assert_eq!(listed.len(), 25, "each once");
                assert_eq!(listed.iter().map(|one| one.body.locator).collect::<HashSet<_>>(), expected);
                for one in listed {
                    assert_eq!(one.age, Duration::from_secs(90));
                    assert!(audit.get(one.body).await.unwrap().is_some());
                }
            }
            let bad = audit.page(Some(BodyCursor("elsewhere".to_owned())), 1).await;
            assert_eq!(bad.unwrap_err().fault(), Fault::Unavailable);
        }
    });
}

#[test]
fn the_listing_goes_on_over_a_volume_that_grows_and_one_that_is_gone() {
    let folder = new_folder();
    let store = open(folder.path(), VolumeOptions::default());
    let beside = VolumeAudit::open_read_only(folder.path(), TestClock::new()).unwrap();
    block_on(async {
        put(&store, "one").await;
        let page = beside.page(None, 1).await.unwrap();
        assert_eq!(page.bodies.len(), 1);
        put(&store, "two").await;
        let page = beside.page(page.next, 10).await.unwrap();
        assert_eq!(page.bodies.len(), 1, "what came since");
        assert_eq!(page.next, None);

        let page = beside.page(None, 1).await.unwrap();
        fs::remove_file(folder.path().join(&volume_files(folder.path())[0])).unwrap();
        let page = beside.page(page.next, 10).await.unwrap();
        assert!(page.bodies.is_empty() && page.next.is_none());
    });
}

#[test]
fn a_copy_beside_a_running_store_is_clean_and_keeps_what_is_removed_meanwhile() {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = (home.path().join("bodies"), home.path().join("copy"));
    pair::write(&from, PAIR).unwrap();
    let store = open(&from, small());
    block_on(async {
        let mut bodies = Vec::new();
        for index in 0..20 {
            bodies.push(put(&store, &"c".repeat(index * 20 + 1)).await);
        }
        let hold = RemovalHold::take(&from).unwrap();
        store.remove(bodies[0]).await.unwrap();
        assert!(get(&store, bodies[0]).await.is_some(), "held back");
        let totals = copy_volumes(&from, &to).unwrap();
        assert_eq!(totals.volumes, u64::try_from(volume_files(&from).len()).unwrap());
        drop(hold);
        let trigger = put(&store, "later").await;
        store.remove(trigger).await.unwrap();
        assert_eq!(get(&store, bodies[0]).await, None, "and made up for");

        let copy = VolumeAudit::open_read_only(&to, TestClock::new()).unwrap();
        assert_eq!(list_all(&copy, 1_000).await.len(), 20);
        for body in &bodies {
            assert!(copy.get(*body).await.unwrap().is_some());
        }
        let again = copy_volumes(&from, &to).unwrap_err();
        assert!(matches!(again, OpenError::NotEmpty { .. }), "{again}");
    });
    // The copy is a store like any other.
    let restored = open(&to, small());
    block_on(async {
        let body = put(&restored, "new").await;
        assert_eq!(get(&restored, body).await.unwrap(), "new");
    });
}

#[test]
fn a_removed_body_gives_its_blocks_back() {
    use std::os::unix::fs::MetadataExt as _;
    let folder = new_folder();
    let store = open(folder.path(), VolumeOptions::default());
    block_on(async {
        let text = "hole".repeat(225_000);
        let body = put(&store, &text).await;
        let neighbour = put(&store, &text).await;
        let file = folder.path().join(volume_of(body));
        let (before, length) = (fs::metadata(&file).unwrap().blocks(), fs::metadata(&file).unwrap().len());
        store.remove(body).await.unwrap();
        let after = fs::metadata(&file).unwrap();
        assert_eq!(after.len(), length);
        assert!(after.blocks() + 1_000 < before, "{before} -> {}", after.blocks());
        let bytes = fs::read(&file).unwrap();
        let left = bytes.windows(4).filter(|window| window == b"hole").count();
        assert_eq!(left, 225_000, "one body is left");
        assert_eq!(get(&store, neighbour).await.unwrap(), text);
    });
}

#[test]
fn a_closed_store_has_done_everything_it_was_asked() {
    let folder = new_folder();
    let store = open(folder.path(), small());
    let mut stored = Vec::new();
    block_on(async {
        for _ in 0..10 {
            let body = new_body(fresh_id(), "asked", NOW.expiry(Ttl::Month));
            let mut asked = store.put(body.clone());
            let _ = futures_util::poll!(asked.as_mut());
            stored.push(body);
        }
    });
    store.close();
    let audit = VolumeAudit::open_read_only(folder.path(), TestClock::new()).unwrap();
    let listed = block_on(list_all(&audit, 100));
    let ids: HashSet<_> = listed.iter().map(|one| one.body.id).collect();
    assert_eq!(ids, stored.iter().map(|body| body.id).collect());
    assert!(listed.iter().all(|one| one.body.sha256 == Digest::of(b"asked")));
}

#[test]
fn what_a_backup_held_back_is_removed_without_another_command_and_when_the_store_is_closed() {
    for closes in [false, true] {
        let folder = new_folder();
        let store = open(folder.path(), VolumeOptions::default());
        let body = block_on(put(&store, "held back by a backup"));
        let hold = RemovalHold::take(folder.path()).unwrap();
        block_on(store.remove(body)).unwrap();
        assert!(block_on(get(&store, body)).is_some());
        drop(hold);
        if closes {
            store.close();
        }
        let path = folder.path().join(volume_of(body));
        let gone = || Ok(!fs::read(&path)?.windows(4).any(|bytes| bytes == b"held"));
        if closes {
            assert!(gone().unwrap());
        } else {
            quire_testkit::eventually("it is removed", Duration::from_secs(30), gone).unwrap();
        }
    }
}
