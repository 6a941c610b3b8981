//! What becomes of the members of one transaction, with the writer driven by hand.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_core::testing::rows_contract::row_until as row;
use tokio::sync::oneshot::Receiver;

use super::{
    super::writer::{self, Writer},
    *,
};

/// A writer without its thread; nobody listens to its signals.
pub(super) fn writer_at(path: &Path, clock: Arc<dyn Clock>) -> Writer {
    let (signal, _) = crossbeam_channel::bounded(1);
    Writer::new(writer::open(path).unwrap(), clock, &Options::default(), signal).unwrap()
}

/// What members were told, in their order.
type Told<T> = Vec<Result<T, PortError>>;

/// Members of a transaction, and their answers to come.
#[derive(Default)]
pub(super) struct Batch {
    jobs: Vec<Job>,
    inserts: Vec<Receiver<Result<Insert, PortError>>>,
    removes: Vec<Receiver<Result<bool, PortError>>>,
}

impl Batch {
    pub(super) fn insert(mut self, row: NewRow) -> Self {
        let (answer, told) = Answer::channel();
        self.jobs.push(Job::Insert { row, answer });
        self.inserts.push(told);
        self
    }

    pub(super) fn remove(mut self, id: Id) -> Self {
        let (answer, told) = Answer::channel();
        self.jobs.push(Job::Remove { id, answer });
        self.removes.push(told);
        self
    }

    /// Commits and returns what each was told, inserts and removes apart.
    pub(super) fn commit(self, writer: &Writer) -> (Told<Insert>, Told<bool>) {
        writer.commit(self.jobs);
        let inserts = self.inserts.into_iter().map(|mut told| told.try_recv().unwrap()).collect();
        let removes = self.removes.into_iter().map(|mut told| told.try_recv().unwrap()).collect();
        (inserts, removes)
    }

    /// Commits and asserts that each was told of this fault, and nothing else.
    fn commit_to_fault(self, writer: &Writer, fault: Fault) {
        let members = self.jobs.len();
        let (inserts, removes) = self.commit(writer);
        let faults = inserts.into_iter().map(|told| told.unwrap_err().fault());
        let told: Vec<Fault> =
            faults.chain(removes.into_iter().map(|told| told.unwrap_err().fault())).collect();
        assert_eq!(told, vec![fault; members]);
    }
}

const NOW: i64 = 1_793_641_440_000;

fn soon() -> Timestamp {
    Timestamp::from_unix_ms(NOW).plus(Duration::from_mins(1))
}

fn inserted(told: &Result<Insert, PortError>) -> bool {
    matches!(told, Ok(Insert::Inserted { .. }))
}

#[tokio::test]
async fn a_conflict_and_a_passed_deadline_fail_alone() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let writer = writer_at(&path, HandClock::at(NOW));
    assert!(inserted(&Batch::default().insert(row(1, soon())).commit(&writer).0[0]));
    let passed = Timestamp::from_unix_ms(NOW - 1);
    let (inserts, removes) = Batch::default()
        .insert(row(2, soon()))
        .insert(row(2, soon()))
        .insert(row(3, passed))
        .remove(id(1))
        .remove(id(1))
        .insert(row(1, soon()))
        .insert(row(4, soon()))
        .commit(&writer);
    assert!(inserted(&inserts[0]));
    assert_eq!(inserts[1].as_ref().unwrap(), &Insert::Conflict);
    assert_eq!(inserts[2].as_ref().unwrap(), &Insert::DeadlinePassed);
    assert!(inserted(&inserts[3]), "the id was free again within the batch");
    assert!(inserted(&inserts[4]));
    assert_eq!(removes.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [true, false]);
    drop(writer);
    assert_eq!(stored_ids(&path).await, [id(1), id(2), id(4)]);
}

#[tokio::test]
async fn a_disk_that_fills_up_in_a_batch_leaves_every_outcome_unknown() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let writer = writer_at(&path, HandClock::at(NOW));
    assert!(inserted(&Batch::default().insert(row(1, soon())).commit(&writer).0[0]));
    let pages: i64 = writer.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    // Room for the first members, not for all.
    let limit = |pages: i64| {
        writer
            .connection
            .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let batch = || {
        let first = Batch::default().remove(id(1)).insert(row(2, soon())).insert(row(2, soon()));
        (3..400).fold(first, |batch, n| batch.insert(row(n, soon())))
    };
    limit(pages + 3);
    assert!(
        inserted(&Batch::default().insert(row(900, soon())).commit(&writer).0[0]),
        "there is room for one"
    );
    batch().commit_to_fault(&writer, Fault::UnknownOutcome);
    assert!(writer.connection.is_autocommit());
    assert_eq!(stored_ids(&path).await, [id(1), id(900)], "nothing of the batch committed");

    limit(1_000_000);
    let (inserts, removes) = batch().commit(&writer);
    assert!(removes[0].as_ref().unwrap());
    assert_eq!(inserts.iter().filter(|told| inserted(told)).count(), 398);
    assert_eq!(stored_ids(&path).await.len(), 399);
}

#[tokio::test]
async fn a_failed_commit_leaves_every_outcome_unknown() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let mut writer = writer_at(&path, HandClock::at(NOW));
    assert!(inserted(&Batch::default().insert(row(1, soon())).commit(&writer).0[0]));
    // Its error is a constraint's, and must not be taken for a conflict.
    writer.connection.commit_hook(Some(|| true)).unwrap();
    let batch = || {
        Batch::default().remove(id(1)).insert(row(1, soon())).insert(row(2, soon())).insert(row(2, soon()))
    };
    batch().commit_to_fault(&writer, Fault::UnknownOutcome);
    assert!(writer.connection.is_autocommit());
    writer.connection.commit_hook(None::<fn() -> bool>).unwrap();
    assert_eq!(stored_ids(&path).await, [id(1)]);
    let (inserts, removes) = batch().commit(&writer);
    assert!(*removes[0].as_ref().unwrap() && inserted(&inserts[0]) && inserted(&inserts[1]));
    assert_eq!(inserts[2].as_ref().unwrap(), &Insert::Conflict);
}

#[tokio::test]
async fn an_error_of_a_statement_leaves_every_outcome_unknown() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let writer = writer_at(&path, HandClock::at(NOW));
    // A constraint, but not the key's: it is no conflict.
    let other = beside(&path);
    other
        .execute_batch(
            "CREATE TRIGGER fails BEFORE INSERT ON pastes WHEN new.id LIKE '%0007' \
             BEGIN SELECT RAISE(ABORT, 'made to fail'); END",
        )
        .unwrap();
    (5..10)
        .fold(Batch::default(), |batch, n| batch.insert(row(n, soon())))
        .commit_to_fault(&writer, Fault::UnknownOutcome);
    assert!(writer.connection.is_autocommit());
    assert!(stored_ids(&path).await.is_empty());
    other.execute_batch("DROP TRIGGER fails").unwrap();
    assert!(inserted(&Batch::default().insert(row(7, soon())).commit(&writer).0[0]));
}

#[tokio::test]
async fn a_transaction_that_cannot_begin_did_nothing() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let writer = writer_at(&path, HandClock::at(NOW));
    writer.connection.busy_timeout(Duration::ZERO).unwrap();
    let other = beside(&path);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    Batch::default().insert(row(1, soon())).remove(id(2)).commit_to_fault(&writer, Fault::Unavailable);
    other.execute_batch("ROLLBACK").unwrap();
    assert!(stored_ids(&path).await.is_empty());
    assert!(inserted(&Batch::default().insert(row(1, soon())).commit(&writer).0[0]));
}

#[tokio::test]
async fn a_transaction_left_open_is_rolled_back_before_the_next() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let writer = writer_at(&path, HandClock::at(NOW));
    assert!(inserted(&Batch::default().insert(row(1, soon())).commit(&writer).0[0]));
    writer.connection.execute_batch("BEGIN; DELETE FROM pastes").unwrap();
    assert!(inserted(&Batch::default().insert(row(2, soon())).commit(&writer).0[0]));
    assert_eq!(stored_ids(&path).await, [id(1), id(2)]);
}

#[test]
fn every_commit_is_synced() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let writer = writer_at(&path, HandClock::at(NOW));
    let text = |connection: &Connection, name: &str| -> String {
        connection
            .query_row(&format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}"), [], |row| row.get(0))
            .unwrap()
    };
    for (name, wanted) in [
        ("journal_mode", "wal"),
        ("synchronous", "2"),
        ("auto_vacuum", "2"),
        ("page_size", "4096"),
        ("application_id", "1903520114"),
        ("user_version", "1"),
    ] {
        assert_eq!(text(&writer.connection, name), wanted, "{name}");
    }
    let automatic: i64 =
        writer.connection.pragma_query_value(None, "wal_autocheckpoint", |row| row.get(0)).unwrap();
    assert_eq!(automatic, 0, "no checkpoint runs inside a commit");
    let reader = reader::open(&path).unwrap();
    assert!(reader.execute("DELETE FROM pastes", []).is_err(), "a reader cannot write");
}

/// One step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert { n: u32, body: u32, late: bool },
    Remove { n: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..12_u32;
    prop_oneof![
        3 => (n.clone(), 0..1_000_u32, proptest::bool::weighted(0.2))
            .prop_map(|(n, body, late)| Step::Insert { n, body, late }),
        1 => n.prop_map(|n| Step::Remove { n }),
    ]
}

type Model = BTreeMap<u32, (u32, Timestamp)>;

/// What the contract says must happen at `now`.
fn expect(model: &mut Model, step: Step, now: Timestamp) -> Result<Insert, bool> {
    match step {
        Step::Insert { late: true, .. } => Ok(Insert::DeadlinePassed),
        Step::Insert { n, .. } if model.contains_key(&n) => Ok(Insert::Conflict),
        Step::Insert { n, body, .. } => {
            let expires_at = now.expiry(Ttl::Day);
            model.insert(n, (body, expires_at));
            Ok(Insert::Inserted { expires_at })
        }
        Step::Remove { n } => {
            let live = model.get(&n).is_some_and(|(_, expires_at)| *expires_at > now);
            if live {
                model.remove(&n);
            }
            Err(live)
        }
    }
}

fn stored(path: &Path) -> Model {
    let audit = SqliteAudit::open_read_only(path).unwrap();
    let page = audit.page(None, 1_000).now_or_never().unwrap().unwrap();
    let number = |row: &quire_core::paste::Row| row.id.as_str()[8..].parse().unwrap();
    page.into_iter().map(|row| (number(&row), (row.size_bytes, row.expires_at))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn batches_agree_with_a_model(
        history in proptest::collection::vec(
            (0..30_i64, proptest::collection::vec(step(), 1..20)), 1..12)
    ) {
        let folder = TempDir::new().unwrap();
        let path = made(folder.path());
        let clock = HandClock::at(NOW);
        let mut writer = writer_at(&path, clock.clone());
        let mut model = Model::new();
        for (hours, steps) in history {
            // Long enough that some of what is stored has expired.
            clock.set(clock.wall().plus(Duration::from_hours(hours.unsigned_abs())));
            let now = clock.wall();
            let (mut inserts, mut removes) = (Vec::new(), Vec::new());
            let mut batch = Batch::default();
            for step in steps {
                match expect(&mut model, step, now) {
                    Ok(insert) => inserts.push(insert),
                    Err(removed) => removes.push(removed),
                }
                batch = match step {
                    Step::Insert { n, body, late } => {
                        let deadline = Timestamp::from_unix_ms(now.unix_ms() - i64::from(late));
                        batch.insert(NewRow { size_bytes: body, ttl: Ttl::Day, ..row(n, deadline) })
                    }
                    Step::Remove { n } => batch.remove(id(n)),
                };
            }
            let told = batch.commit(&writer);
            prop_assert_eq!(told.0.into_iter().map(Result::unwrap).collect::<Vec<_>>(), inserts);
            prop_assert_eq!(told.1.into_iter().map(Result::unwrap).collect::<Vec<_>>(), removes);
            prop_assert_eq!(&stored(&path), &model);
        }
        drop(writer);
        prop_assert_eq!(&stored(&path), &model);
        writer = writer_at(&path, clock);
        prop_assert_eq!(&stored(&path), &model);
        drop(writer);
    }
}
