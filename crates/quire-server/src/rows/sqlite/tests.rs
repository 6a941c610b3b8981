//! The adapter against real files. What is shared by the files beside this one stands here.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::join_all};
use quire_core::{
    pair::PairId,
    paste::Ttl,
    ports::RowsAudit as _,
    testing::rows_contract::{self, RowsHarness, id, insert_new, new_row},
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::system::SystemClock;

mod batches;
mod copies;
mod crash;
mod log;
mod opening;

const PAIR: PairId = PairId::from_bytes(*b"sixteen bytes id");

/// A clock that stands still until it is moved.
struct HandClock(AtomicI64);

impl HandClock {
    fn at(unix_ms: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(unix_ms)))
    }

    fn set(&self, to: Timestamp) {
        self.0.store(to.unix_ms(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// A clock that keeps whoever asks it waiting while it is shut.
#[derive(Default)]
struct GateClock {
    shut: Mutex<bool>,
    opened: Condvar,
}

impl GateClock {
    fn set_shut(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }
}

impl Clock for GateClock {
    fn wall(&self) -> Timestamp {
        drop(self.opened.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
        Timestamp::from_unix_ms(1_793_641_440_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// A store in a folder of its own.
struct Store {
    rows: Arc<SqliteRows>,
    path: PathBuf,
    _folder: TempDir,
}

impl Store {
    fn open(clock: Arc<dyn Clock>, options: &Options) -> Self {
        let folder = TempDir::new().unwrap();
        let path = made(folder.path());
        let rows = Arc::new(SqliteRows::open(&path, clock, options).unwrap());
        Self { rows, path, _folder: folder }
    }

    fn new() -> Self {
        Self::open(Arc::new(SystemClock::new()), &Options::default())
    }
}

impl RowsHarness for Store {
    fn rows(&self) -> Arc<dyn Rows> {
        self.rows.clone()
    }

    fn move_expiry(&self, id: Id, to: Timestamp) -> PortFuture<'_, ()> {
        let sql = "UPDATE pastes SET expires_at = ?2 WHERE id = ?1";
        let changed = beside(&self.path).execute(sql, (id.as_str(), to.unix_ms())).unwrap();
        assert_eq!(changed, 1, "the row to move is there");
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Makes a store in `folder` without opening it.
fn made(folder: &Path) -> PathBuf {
    let path = folder.join("rows.db");
    create(&path, PAIR).unwrap();
    path
}

/// Another program's connection to the same file.
fn beside(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection
}

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

/// Every id that is stored, expired or not, in the order of the pages.
async fn stored_ids(path: &Path) -> Vec<Id> {
    let audit = SqliteAudit::open_read_only(path).unwrap();
    let mut ids = Vec::new();
    loop {
        let page = audit.page(ids.last().copied(), 7).await.unwrap();
        assert!(page.len() <= 7);
        if page.is_empty() {
            return ids;
        }
        ids.extend(page.into_iter().map(|row| row.id));
    }
}

#[tokio::test]
async fn the_contract_of_rows_holds() {
    rows_contract::run_all(async || Store::new()).await;
}

#[tokio::test]
async fn expiry_and_deadline_are_judged_to_the_millisecond() {
    let clock = HandClock::at(1_793_641_440_123);
    let store = Store::open(clock.clone(), &Options::default());
    let row = NewRow { ttl: Ttl::Day, deadline: clock.wall(), ..new_row(&*store.rows, 1).await };
    let late = NewRow { id: id(2), ..row.clone() };
    let expires_at = insert_new(&*store.rows, row).await;
    assert_eq!(expires_at.unix_ms(), 1_793_641_440_000 + 86_400_000);

    clock.set(late.deadline.plus(Duration::from_millis(1)));
    assert_eq!(store.rows.insert(late).await.unwrap(), Insert::DeadlinePassed);

    clock.set(Timestamp::from_unix_ms(expires_at.unix_ms() - 1));
    assert!(store.rows.find(id(1)).await.unwrap().is_some());
    clock.set(expires_at);
    assert!(store.rows.find(id(1)).await.unwrap().is_none());
    assert!(!store.rows.remove(id(1)).await.unwrap());
    clock.set(Timestamp::from_unix_ms(expires_at.unix_ms() - 1));
    assert!(store.rows.remove(id(1)).await.unwrap());
}

#[tokio::test]
async fn a_full_queue_of_changes_is_overloaded_at_once() {
    let options = Options { write_queue_len: 4, ..Options::default() };
    let store = Store::open(Arc::new(SystemClock::new()), &options);
    let rows = &*store.rows;
    // While another program holds the write lock the writer waits with one batch in its hands.
    let other = beside(&store.path);
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let template = new_row(rows, 0).await;
    let (mut waiting, mut refused) = (Vec::new(), Vec::new());
    for n in 0..=u32::try_from(writer::BATCH_LEN_MAX + options.write_queue_len).unwrap() {
        let mut call = rows.insert(NewRow { id: id(n), ..template.clone() });
        match (&mut call).now_or_never() {
            None => waiting.push(call),
            Some(told) => {
                assert_eq!(told.unwrap_err().fault(), Fault::Overloaded);
                refused.push(id(n));
            }
        }
    }
    assert!(!refused.is_empty() && waiting.len() >= options.write_queue_len);

    other.execute_batch("ROLLBACK").unwrap();
    for told in join_all(waiting).await {
        assert!(matches!(told.unwrap(), Insert::Inserted { .. }));
    }
    for id in refused {
        assert!(rows.find(id).await.unwrap().is_none(), "what was refused was not done");
    }
}

#[tokio::test]
async fn a_full_queue_of_lookups_is_overloaded_at_once() {
    let options = Options { read_queue_len: 4, readers: 2, ..Options::default() };
    let clock = Arc::new(GateClock::default());
    let store = Store::open(clock.clone(), &options);
    insert_new(&*store.rows, new_row(&*store.rows, 1).await).await;
    clock.set_shut(true);
    let mut waiting = Vec::new();
    let mut refused = 0;
    for _ in 0..=options.read_queue_len + options.readers {
        let mut call = store.rows.find(id(1));
        match (&mut call).now_or_never() {
            None => waiting.push(call),
            Some(told) => {
                assert_eq!(told.unwrap_err().fault(), Fault::Overloaded);
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && waiting.len() >= options.read_queue_len);
    clock.set_shut(false);
    for told in join_all(waiting).await {
        assert!(told.unwrap().is_some());
    }
}

#[tokio::test]
async fn readers_do_not_wait_for_a_writer() {
    let store = Store::new();
    insert_new(&*store.rows, new_row(&*store.rows, 1).await).await;
    let other = beside(&store.path);
    other.execute_batch("BEGIN EXCLUSIVE; DELETE FROM pastes").unwrap();
    // Uncommitted, so the row is there; and the lock is still held when the answer has come.
    assert!(store.rows.find(id(1)).await.unwrap().is_some());
    other.execute_batch("COMMIT").unwrap();
    assert!(store.rows.find(id(1)).await.unwrap().is_none());
}

#[tokio::test]
async fn an_unreadable_store_is_unavailable_and_never_absent() {
    let store = Store::new();
    insert_new(&*store.rows, new_row(&*store.rows, 1).await).await;
    let other = beside(&store.path);
    other.execute_batch("ALTER TABLE pastes RENAME TO elsewhere").unwrap();
    assert_eq!(store.rows.find(id(1)).await.unwrap_err().fault(), Fault::Unavailable);
    other.execute_batch("ALTER TABLE elsewhere RENAME TO pastes").unwrap();
    assert!(store.rows.find(id(1)).await.unwrap().is_some(), "and it recovers by itself");
}

#[tokio::test]
async fn a_row_that_quire_would_not_have_written_is_an_error() {
    let store = Store::new();
    for (n, damage) in
        (1..).zip(["syntax = 'two words'", "body_sha256 = x'00'", "body_offset = NULL", "size_bytes = -1"])
    {
        insert_new(&*store.rows, new_row(&*store.rows, n).await).await;
        let sql = format!("UPDATE pastes SET {damage} WHERE id = ?1");
        assert_eq!(beside(&store.path).execute(&sql, [id(n).as_str()]).unwrap(), 1);
        let error = store.rows.find(id(n)).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Unavailable, "{damage}");
        assert!(!error.to_string().contains(id(n).as_str()));
    }
}

#[tokio::test]
async fn a_closed_store_is_one_file_that_has_everything() {
    let store = Store::new();
    for n in 0..20 {
        insert_new(&*store.rows, new_row(&*store.rows, n).await).await;
    }
    let Store { rows, path, _folder } = store;
    drop(rows);
    assert!(!log_of(&path).exists(), "the log was folded into the database");
    let moved = path.with_file_name("moved.db");
    fs::rename(&path, &moved).unwrap();
    assert_eq!(stored_ids(&moved).await, (0..20).map(id).collect::<Vec<_>>());
}

#[test]
fn a_writer_that_ends_aborts_the_process() {
    use std::os::unix::process::ExitStatusExt as _;
    // The process that aborts is this test once more, told so by a variable.
    const IS_CHILD: &str = "QUIRE_TEST_ABORTS";
    if std::env::var_os(IS_CHILD).is_some() {
        let ended = std::thread::spawn(|| {
            let _guard = writer::AbortUnlessDone { done: false };
            panic!("the writer's thread");
        });
        let _ = ended.join();
        return;
    }
    let name = "rows::sqlite::tests::a_writer_that_ends_aborts_the_process";
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(IS_CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(said.contains("the writer's thread"), "the child ran: {said}");
    assert_eq!(child.status.signal(), Some(6), "{:?}", child.status);
}
