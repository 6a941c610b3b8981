//! What every [`Rows`] must do, as one suite that the fake and each adapter run against a real store.
//!
//! An adapter's test implements [`RowsHarness`] and calls [`run_all`] from whatever executor it has; each
//! case gets a store of its own and panics if the contract does not hold. Time is never waited for: a row is
//! made to expire by moving its `expires_at` through the harness, behind the adapter's back, and always
//! before the adapter first reads it, so that a cache may be under test as well.
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a panic is how a test fails")]

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::join_all};

use crate::{
    paste::{DeleteToken, Digest, Id, Locator, Row, StoredRow, Syntax, Ttl},
    ports::{Insert, NewRow, PortFuture, Rows},
    time::Timestamp,
};

/// Far enough away that no test run comes near it.
const LONG: Duration = Duration::from_hours(1);

/// A store under test, and a way to it that does not go through the adapter.
pub trait RowsHarness: Send + Sync {
    /// The adapter.
    fn rows(&self) -> Arc<dyn Rows>;

    /// Rewrites `expires_at` of a stored row through the test's own connection. Fails if there is no such
    /// row.
    fn move_expiry(&self, id: Id, to: Timestamp) -> PortFuture<'_, ()>;
}

/// Runs every case, each against a store of its own from `make`.
pub async fn run_all<H: RowsHarness>(make: impl AsyncFn() -> H) {
    a_row_reads_back_as_it_was_inserted(&make().await).await;
    what_was_never_inserted_is_not_found(&make().await).await;
    ids_differ_by_case(&make().await).await;
    the_store_tells_the_expiry_it_computed(&make().await).await;
    a_conflict_leaves_the_older_row_untouched(&make().await).await;
    an_expired_row_still_holds_its_id(&make().await).await;
    a_passed_deadline_inserts_nothing(&make().await).await;
    an_expired_row_is_not_found(&make().await).await;
    an_expired_row_is_not_removed(&make().await).await;
    a_removed_row_is_gone(&make().await).await;
    of_racing_removes_one_wins(&make().await).await;
    of_racing_inserts_of_one_id_one_wins(&make().await).await;
    many_at_once_are_each_answered(&make().await).await;
    an_insert_nobody_waits_for_is_whole_or_absent(&make().await).await;
}

/// Every field survives, present or absent, at the ends of its range.
pub async fn a_row_reads_back_as_it_was_inserted(store: &dyn RowsHarness) {
    let rows = store.rows();
    let mut whole = new_row(&*rows, 1).await;
    whole.size_bytes = 1_000_000;
    whole.syntax = Syntax::parse(b"!~0123456789abcdef0123456789ABCDE");
    assert!(whole.syntax.is_none(), "33 bytes are too many for a label");
    whole.syntax = Syntax::parse(b"!~0123456789abcdef0123456789ABCD");
    whole.locator = Some(Locator { volume: i64::MAX, offset: i64::MAX - 1 });
    let mut bare = new_row(&*rows, 2).await;
    bare.size_bytes = 1;
    bare.syntax = None;
    bare.locator = None;
    for row in [whole, bare] {
        let expires_at = insert_new(&*rows, row.clone()).await;
        for found in [found(&*rows, row.id).await, rows.find_in_store(row.id).await.unwrap()] {
            assert_same(&found.unwrap().row, &row, expires_at);
        }
    }
}

/// An id that was never minted is `None`, and removing it is `false`.
pub async fn what_was_never_inserted_is_not_found(store: &dyn RowsHarness) {
    let rows = store.rows();
    insert_new(&*rows, new_row(&*rows, 1).await).await;
    assert_absent(&*rows, id(2)).await;
    assert!(!rows.remove(id(2)).await.unwrap());
    assert!(found(&*rows, id(1)).await.is_some(), "and nothing else was removed");
}

/// Two ids that differ only in case are two rows (M1).
pub async fn ids_differ_by_case(store: &dyn RowsHarness) {
    let rows = store.rows();
    let (lower, upper) = (Id::parse(b"abcdefghijkl").unwrap(), Id::parse(b"ABCDEFGHIJKL").unwrap());
    let row = NewRow { id: lower, ..new_row(&*rows, 1).await };
    let expires_at = insert_new(&*rows, row.clone()).await;
    assert_absent(&*rows, upper).await;
    assert!(!rows.remove(upper).await.unwrap());
    insert_new(&*rows, NewRow { id: upper, ..new_row(&*rows, 2).await }).await;
    assert!(rows.remove(upper).await.unwrap());
    assert_same(&found(&*rows, lower).await.unwrap().row, &row, expires_at);
}

/// `created_at` is the store's clock at the insert, and `expires_at` follows from it (M4).
pub async fn the_store_tells_the_expiry_it_computed(store: &dyn RowsHarness) {
    let rows = store.rows();
    for (n, ttl) in (1..).zip(Ttl::ALL) {
        let row = NewRow { ttl, ..new_row(&*rows, n).await };
        let before = rows.now().await.unwrap();
        let expires_at = insert_new(&*rows, row.clone()).await;
        let after = rows.now().await.unwrap();
        let stored = found(&*rows, row.id).await.unwrap();
        assert!(before <= stored.row.created_at && stored.row.created_at <= after);
        assert_eq!(expires_at, stored.row.created_at.expiry(ttl));
        assert_eq!(stored.row.expires_at, expires_at);
    }
}

/// The primary key excludes duplicates, and the row that was there first keeps every field (M3).
pub async fn a_conflict_leaves_the_older_row_untouched(store: &dyn RowsHarness) {
    let rows = store.rows();
    let older = new_row(&*rows, 1).await;
    let expires_at = insert_new(&*rows, older.clone()).await;
    let newer = NewRow { id: older.id, ttl: Ttl::Year, ..new_row(&*rows, 2).await };
    assert_eq!(rows.insert(newer).await.unwrap(), Insert::Conflict);
    assert_same(&found(&*rows, older.id).await.unwrap().row, &older, expires_at);
}

/// A row that has expired but was not swept is a duplicate like any other (M3).
pub async fn an_expired_row_still_holds_its_id(store: &dyn RowsHarness) {
    let rows = store.rows();
    let older = new_row(&*rows, 1).await;
    let expires_at = insert_new(&*rows, older.clone()).await;
    store.move_expiry(older.id, Timestamp::from_unix_ms(1_000)).await.unwrap();
    let newer = NewRow { id: older.id, ..new_row(&*rows, 2).await };
    assert_eq!(rows.insert(newer).await.unwrap(), Insert::Conflict);
    store.move_expiry(older.id, expires_at).await.unwrap();
    assert_same(&found(&*rows, older.id).await.unwrap().row, &older, expires_at);
}

/// Past its deadline an insert takes no effect, by the store's own clock (O5).
pub async fn a_passed_deadline_inserts_nothing(store: &dyn RowsHarness) {
    let rows = store.rows();
    let row = new_row(&*rows, 1).await;
    let passed = Timestamp::from_unix_ms(rows.now().await.unwrap().unix_ms() - 60_000);
    let late = NewRow { deadline: passed, ..row.clone() };
    assert_eq!(rows.insert(late).await.unwrap(), Insert::DeadlinePassed);
    assert_absent(&*rows, row.id).await;
    let expires_at = insert_new(&*rows, row.clone()).await;
    assert_same(&found(&*rows, row.id).await.unwrap().row, &row, expires_at);
}

/// Expiry is a predicate on the read: nobody has to sweep (R3).
pub async fn an_expired_row_is_not_found(store: &dyn RowsHarness) {
    let rows = store.rows();
    let (expired, live) = (new_row(&*rows, 1).await, new_row(&*rows, 2).await);
    insert_new(&*rows, expired.clone()).await;
    insert_new(&*rows, live.clone()).await;
    let now = rows.now().await.unwrap();
    let soon = now.plus(LONG);
    store.move_expiry(expired.id, now).await.unwrap();
    store.move_expiry(live.id, soon).await.unwrap();
    assert_absent(&*rows, expired.id).await;
    assert_same(&found(&*rows, live.id).await.unwrap().row, &live, soon);
}

/// The deleting statement checks expiry itself, and the row stays for the sweeper (D2).
pub async fn an_expired_row_is_not_removed(store: &dyn RowsHarness) {
    let rows = store.rows();
    let row = new_row(&*rows, 1).await;
    insert_new(&*rows, row.clone()).await;
    let now = rows.now().await.unwrap();
    store.move_expiry(row.id, now).await.unwrap();
    assert!(!rows.remove(row.id).await.unwrap());
    store.move_expiry(row.id, now.plus(LONG)).await.unwrap();
    assert!(rows.remove(row.id).await.unwrap(), "it was still there");
}

/// Once removed, a row is not found, not removed again, and its id is free.
pub async fn a_removed_row_is_gone(store: &dyn RowsHarness) {
    let rows = store.rows();
    let (row, bystander) = (new_row(&*rows, 1).await, new_row(&*rows, 2).await);
    insert_new(&*rows, row.clone()).await;
    insert_new(&*rows, bystander.clone()).await;
    assert!(found(&*rows, row.id).await.is_some());
    assert!(rows.remove(row.id).await.unwrap());
    assert_absent(&*rows, row.id).await;
    assert!(!rows.remove(row.id).await.unwrap());
    assert!(found(&*rows, bystander.id).await.is_some());
    insert_new(&*rows, row).await;
}

/// Of callers who race to remove one row exactly one is told that it did (D2).
pub async fn of_racing_removes_one_wins(store: &dyn RowsHarness) {
    let rows = store.rows();
    for n in 1..=20 {
        let row = new_row(&*rows, n).await;
        insert_new(&*rows, row.clone()).await;
        let told = join_all((0..8).map(|_| rows.remove(row.id))).await;
        assert_eq!(told.into_iter().filter(|removed| *removed.as_ref().unwrap()).count(), 1);
        assert_absent(&*rows, row.id).await;
    }
}

/// Of inserts that race for one id exactly one is told that it won, and its row is the one stored (M3).
pub async fn of_racing_inserts_of_one_id_one_wins(store: &dyn RowsHarness) {
    let rows = store.rows();
    let mut racers = Vec::new();
    for n in 1..=8 {
        racers.push(NewRow { id: id(0), ..new_row(&*rows, n).await });
    }
    let told = join_all(racers.iter().map(|row| rows.insert(row.clone()))).await;
    let mut winners = Vec::new();
    for (row, outcome) in racers.iter().zip(told) {
        match outcome.unwrap() {
            Insert::Inserted { expires_at } => winners.push((row, expires_at)),
            other => assert_eq!(other, Insert::Conflict),
        }
    }
    assert_eq!(winners.len(), 1);
    for (row, expires_at) in winners {
        assert_same(&found(&*rows, id(0)).await.unwrap().row, row, expires_at);
    }
}

/// Calls that are under way together each get their own answer.
pub async fn many_at_once_are_each_answered(store: &dyn RowsHarness) {
    let rows = store.rows();
    let mut wanted = Vec::new();
    for n in 0..200 {
        wanted.push(new_row(&*rows, n).await);
    }
    for outcome in join_all(wanted.iter().map(|row| rows.insert(row.clone()))).await {
        assert!(matches!(outcome.unwrap(), Insert::Inserted { .. }));
    }
    let removed: HashSet<Id> = wanted.iter().step_by(3).map(|row| row.id).collect();
    for gone in join_all(removed.iter().map(|id| rows.remove(*id))).await {
        assert!(gone.unwrap());
    }
    let answers = join_all(wanted.iter().map(|row| rows.find(row.id))).await;
    for (row, answer) in wanted.iter().zip(answers) {
        match answer.unwrap() {
            None => assert!(removed.contains(&row.id)),
            Some(stored) => {
                assert!(!removed.contains(&row.id));
                assert_same(&stored.row, row, stored.row.expires_at);
            }
        }
    }
}

/// A future that is dropped leaves its effect done or not done, never half done.
pub async fn an_insert_nobody_waits_for_is_whole_or_absent(store: &dyn RowsHarness) {
    let rows = store.rows();
    for n in 1..=20 {
        let dropped = new_row(&*rows, n).await;
        // Polled once, so that it is under way, and then dropped.
        let _ = rows.insert(dropped.clone()).now_or_never();
        let second = NewRow { id: dropped.id, ..new_row(&*rows, n + 1_000).await };
        let stored = match rows.insert(second.clone()).await.unwrap() {
            Insert::Inserted { .. } => second,
            other => {
                assert_eq!(other, Insert::Conflict);
                dropped
            }
        };
        let row = found(&*rows, stored.id).await.unwrap();
        assert_same(&row.row, &stored, row.row.expires_at);
    }
}

/// The `n`th id of a test; `n` has at most four digits.
#[must_use]
pub fn id(n: u32) -> Id {
    Id::parse(format!("contract{n:04}").as_bytes()).unwrap()
}

/// A row whose every field follows from `n`, but for its deadline.
#[must_use]
pub fn row_until(n: u32, deadline: Timestamp) -> NewRow {
    NewRow {
        id: id(n),
        ttl: Ttl::Month,
        size_bytes: n + 1,
        syntax: Syntax::parse(format!("lang-{n}").as_bytes()),
        delete_token_hash: DeleteToken::parse(format!("{n:022}").as_bytes()).unwrap().hash(),
        body_sha256: Digest::of(&n.to_le_bytes()),
        locator: Some(Locator { volume: i64::from(n), offset: i64::from(n) * 1_000 }),
        deadline,
    }
}

/// The same, with a deadline that will not pass.
pub async fn new_row(rows: &dyn Rows, n: u32) -> NewRow {
    row_until(n, rows.now().await.unwrap().plus(LONG))
}

/// Inserts a row that must not be refused and returns its expiry.
pub async fn insert_new(rows: &dyn Rows, row: NewRow) -> Timestamp {
    let outcome = rows.insert(row).await.unwrap();
    let expires_at = match outcome {
        Insert::Inserted { expires_at } => Some(expires_at),
        Insert::Conflict | Insert::DeadlinePassed => None,
    };
    assert!(expires_at.is_some(), "{outcome:?}");
    expires_at.unwrap()
}

/// Asserts that a stored row is the one that was sent.
pub fn assert_same(stored: &Row, sent: &NewRow, expires_at: Timestamp) {
    assert_eq!(stored.id, sent.id);
    assert_eq!(stored.expires_at, expires_at);
    assert_eq!(stored.size_bytes, sent.size_bytes);
    assert_eq!(stored.syntax, sent.syntax);
    assert_eq!(stored.delete_token_hash, sent.delete_token_hash);
    assert_eq!(stored.body_sha256, sent.body_sha256);
    assert_eq!(stored.locator, sent.locator);
}

async fn found(rows: &dyn Rows, id: Id) -> Option<Arc<StoredRow>> {
    rows.find(id).await.unwrap()
}

async fn assert_absent(rows: &dyn Rows, id: Id) {
    assert!(rows.find(id).await.unwrap().is_none());
    assert!(rows.find_in_store(id).await.unwrap().is_none());
}
