//! `verify` and `backup` beside a running server.

use std::sync::atomic::{AtomicBool, AtomicU32};

use quire_core::testing::rows_contract::row_until as row;

use super::{
    batches::{Batch, writer_at},
    *,
};

const LATER: Timestamp = Timestamp::from_unix_ms(i64::MAX);

#[tokio::test]
async fn the_audit_sees_every_row_in_order_and_changes_nothing() {
    let store = Store::new();
    for n in [5, 3, 17, 11, 2] {
        insert_new(&*store.rows, new_row(&*store.rows, n).await).await;
    }
    store.move_expiry(id(11), Timestamp::from_unix_ms(1_000)).await.unwrap();
    let wanted = [2, 3, 5, 11, 17].map(id);
    assert_eq!(stored_ids(&store.path).await, wanted, "beside the running server");

    let Store { rows, path, _folder } = store;
    drop(rows);
    let before = fs::read(&path).unwrap();
    assert_eq!(stored_ids(&path).await, wanted, "and alone");
    let audit = SqliteAudit::open_read_only(&path).unwrap();
    assert_eq!(audit.pair_id().unwrap(), PAIR);
    let expired = audit.find_any(id(11)).await.unwrap().unwrap();
    assert_eq!((expired.id, expired.expires_at.unix_ms(), expired.size_bytes), (id(11), 1_000, 12));
    assert!(audit.find_any(id(12)).await.unwrap().is_none());
    assert!(audit.page(Some(id(17)), 10).await.unwrap().is_empty());
    drop(audit);
    assert!(fs::read(&path).unwrap() == before, "the file is as it was");
}

#[tokio::test]
async fn a_backup_under_writes_is_one_moment() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let writer = writer_at(&path, Arc::new(SystemClock::new()));
    let rows = (0..2_000).fold(Batch::default(), |batch, n| batch.insert(row(n, LATER)));
    rows.commit(&writer);
    let (stop, pairs) = (AtomicBool::new(false), AtomicU32::new(1_000));
    let copy = folder.path().join("copy.db");
    std::thread::scope(|scope| {
        let (writer, stop, pairs) = (writer, &stop, &pairs);
        scope.spawn(move || {
            // Two rows a transaction: a copy has both or neither.
            for n in (1_000..4_500).take_while(|_| !stop.load(Ordering::SeqCst)) {
                let pair = Batch::default().insert(row(2 * n, LATER)).insert(row(2 * n + 1, LATER));
                assert!(pair.commit(&writer).0.iter().all(Result::is_ok));
                pairs.store(n + 1, Ordering::SeqCst);
            }
        });
        for attempt in 0.. {
            assert!(attempt < 100, "no copy was ever taken while rows were written");
            let before = pairs.load(Ordering::SeqCst);
            backup_to(&path, &copy).unwrap();
            if pairs.load(Ordering::SeqCst) > before + 1 {
                break;
            }
            fs::remove_file(&copy).unwrap();
        }
        stop.store(true, Ordering::SeqCst);
    });
    let ids = stored_ids(&copy).await;
    assert!(ids.len() >= 2_000 && ids.len() % 2 == 0, "{}", ids.len());
    assert_eq!(ids, (0..u32::try_from(ids.len()).unwrap()).map(id).collect::<Vec<_>>());
    assert_eq!(pair_id(&copy).unwrap(), Some(PAIR));
    let auto_vacuum: i64 = beside(&copy).pragma_query_value(None, "auto_vacuum", |row| row.get(0)).unwrap();
    assert_eq!(auto_vacuum, 2);
    let restored = SqliteRows::open(&copy, Arc::new(SystemClock::new()), &Options::default()).unwrap();
    assert!(restored.find(id(1)).await.unwrap().is_some());
    insert_new(&restored, new_row(&restored, 9_999).await).await;
}

#[tokio::test]
async fn a_backup_is_there_whole_or_not_at_all() {
    let store = Store::new();
    insert_new(&*store.rows, new_row(&*store.rows, 1).await).await;
    let copy = store.path.with_file_name("copy.db");
    let part = store.path.with_file_name("copy.db.part");

    fs::write(&copy, b"something of value").unwrap();
    assert!(matches!(backup_to(&store.path, &copy), Err(OpenError::Io { .. })));
    assert_eq!(fs::read(&copy).unwrap(), b"something of value");
    fs::remove_file(&copy).unwrap();

    let nowhere = store.path.with_file_name("no such folder").join("copy.db");
    assert!(backup_to(&store.path, &nowhere).is_err());
    let missing = store.path.with_file_name("missing.db");
    assert!(matches!(backup_to(&missing, &copy), Err(OpenError::NotCreated { .. })));
    assert!(!missing.exists() && !copy.exists() && !part.exists());

    fs::write(&part, b"what a crash left").unwrap();
    backup_to(&store.path, &copy).unwrap();
    assert!(!part.exists());
    assert_eq!(stored_ids(&copy).await, [id(1)]);
}
