//! What is there after the process, or the machine, was stopped in the middle: the files are copied while
//! the store is open, the log is damaged, and the copy is opened.

use std::sync::OnceLock;

use proptest::prelude::*;
use quire_core::testing::rows_contract::row_until as row;

use super::{
    batches::{Batch, writer_at},
    *,
};

const BATCHES: u32 = 12;
const BATCH_LEN: u32 = 5;

/// The files of a store in use, and how long the log was when each batch had been answered.
struct Files {
    database: Vec<u8>,
    log: Vec<u8>,
    log_lens: Vec<usize>,
}

fn files() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let folder = TempDir::new().unwrap();
        let path = made(folder.path());
        let writer = writer_at(&path, Arc::new(SystemClock::new()));
        let mut log_lens = Vec::new();
        for first in (0..BATCHES).map(|n| n * BATCH_LEN) {
            let later = Timestamp::from_unix_ms(i64::MAX);
            let batch = (first..first + BATCH_LEN).fold(Batch::default(), |all, n| all.insert(row(n, later)));
            assert!(batch.commit(&writer).0.iter().all(|told| matches!(told, Ok(Insert::Inserted { .. }))));
            log_lens.push(fs::read(log_of(&path)).unwrap().len());
        }
        assert!(log_lens.is_sorted_by(|a, b| a < b), "every batch is in the log, and nowhere else");
        Files { database: fs::read(&path).unwrap(), log: fs::read(log_of(&path)).unwrap(), log_lens }
    })
}

/// Opens the store with this log and asserts that exactly the batches are there whose last byte lies
/// before `whole_until`; and that the store works.
fn assert_recovers(log: &[u8], whole_until: usize) {
    let files = files();
    let batches = files.log_lens.iter().filter(|len| **len <= whole_until).count();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("rows.db");
    fs::write(&path, &files.database).unwrap();
    fs::write(log_of(&path), log).unwrap();

    assert_eq!(pair_id(&path).unwrap(), Some(PAIR));
    let wanted = u32::try_from(batches).unwrap() * BATCH_LEN;
    let mut ids: Vec<Id> = (0..wanted).map(id).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let rows = SqliteRows::open(&path, Arc::new(SystemClock::new()), &Options::default()).unwrap();
        assert_eq!(stored_ids(&path).await, ids);
        insert_new(&rows, new_row(&rows, 9_000).await).await;
        drop(rows);
        ids.push(id(9_000));
        assert_eq!(stored_ids(&path).await, ids);
        let damage: String =
            beside(&path).pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
        assert_eq!(damage, "ok");
    });
}

#[test]
fn every_acknowledged_row_is_there_after_a_crash() {
    let files = files();
    assert_recovers(&files.log, files.log.len());
    let mut followed = files.log.clone();
    followed.extend((0..10_000_u32).map(|n| n.to_le_bytes()[0].wrapping_mul(37)));
    assert_recovers(&followed, files.log.len());
    // A page that was being written again: a copy of older frames is noise as well.
    let mut repeated = files.log.clone();
    repeated.extend_from_slice(&files.log[32..32 + 3 * 4_120]);
    assert_recovers(&repeated, files.log.len());
    assert_recovers(&[], 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_log_cut_anywhere_leaves_whole_batches(cut: prop::sample::Index, garbage in 0..5_000_usize) {
        let files = files();
        let cut = cut.index(files.log.len());
        let mut log = files.log[..cut].to_vec();
        log.extend(std::iter::repeat_n(0x5A, garbage));
        assert_recovers(&log, cut);
    }

    #[test]
    fn a_byte_changed_anywhere_leaves_whole_batches(at: prop::sample::Index, by in 1..=255_u8) {
        let files = files();
        let at = at.index(files.log.len());
        let mut log = files.log.clone();
        log[at] ^= by;
        assert_recovers(&log, at);
    }
}
