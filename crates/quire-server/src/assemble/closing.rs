//! Closing the stores, within a time.
//!
//! To close is to wait for the stores' threads, and one of them may hang in a call to a frozen disk. So it is done on
//! a thread that nothing waits for past the deadline. What is not closed by then is left as a crash would leave it.

use std::{mem, sync::Arc, thread};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::Ended;
use crate::{bodies::volumes::VolumeStore, data_folder::DataFolder, rows::sqlite::SqliteRows};

/// What has to be closed at the end, and is locked until then.
pub(super) struct Stores {
    rows: Arc<SqliteRows>,
    bodies: Arc<VolumeStore>,
    locks: [DataFolder; 2],
}

impl Stores {
    pub(super) fn new(rows: Arc<SqliteRows>, bodies: Arc<VolumeStore>, locks: [DataFolder; 2]) -> Self {
        Self { rows, bodies, locks }
    }

    /// Closes both, waiting for it until the deadline. Everybody else who had the stores should have let go of
    /// them.
    pub(super) async fn close(self, deadline: Instant) -> Ended {
        let (done, closed) = oneshot::channel();
        let close = move || {
            // Whether anybody still waits is nobody's business here.
            let _ = done.send(self.close_now());
        };
        // Not on the runtime, whose own end waits for its threads.
        if let Err(error) = thread::Builder::new().name("closing".into()).spawn(close) {
            tracing::error!(%error, "no thread to close the stores on");
            return Ended::Unfinished;
        }
        match timeout_at(deadline, closed).await {
            Ok(Ok(ended)) => ended,
            _ => Ended::Unfinished,
        }
    }

    /// Leaves them as they are: dropping them would wait for their threads.
    pub(super) fn leave(self) {
        mem::forget(self);
    }

    fn close_now(self) -> Ended {
        let Self { rows, bodies, locks } = self;
        let ended = match (Arc::try_unwrap(rows), Arc::try_unwrap(bodies)) {
            (Ok(rows), Ok(bodies)) => {
                // Rows first, as in every other reclaim: a body that waits to be removed has no row.
                drop(rows);
                bodies.close();
                Ended::Finished
            }
            in_use => {
                tracing::error!("a store is still in use at the end");
                mem::forget(in_use);
                Ended::Unfinished
            }
        };
        // Nobody else may open them before.
        drop(locks);
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Condvar, Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use quire_core::{
        pair::PairId,
        paste::Id,
        ports::{Bodies as _, Clock, Rows as _},
        testing::bodies_contract::{fresh_id, new_body},
        time::Timestamp,
    };

    use super::*;
    use crate::{
        bodies::volumes::{self, VolumeOptions},
        rows::sqlite,
        system::SystemClock,
    };

    /// A clock that keeps whoever asks it waiting while it is shut, as a frozen disk would.
    #[derive(Default)]
    struct GateClock {
        shut: Mutex<bool>,
        opened: Condvar,
        asked: AtomicUsize,
    }

    impl GateClock {
        fn set_shut(&self, shut: bool) {
            *self.shut.lock().unwrap() = shut;
            self.opened.notify_all();
        }
    }

    impl Clock for GateClock {
        fn wall(&self) -> Timestamp {
            self.asked.fetch_add(1, Ordering::SeqCst);
            drop(self.opened.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
            Timestamp::from_unix_ms(1_793_641_440_000)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }

    struct Opened {
        stores: Stores,
        rows_clock: Arc<GateClock>,
        folder: tempfile::TempDir,
    }

    fn opened() -> Opened {
        let folder = tempfile::tempdir().unwrap();
        let (path, bodies) = (folder.path().join("rows.db"), folder.path().join("bodies"));
        let pair = PairId::from_bytes([7; 16]);
        let locks = [DataFolder::lock("--data", folder.path()), DataFolder::lock("--bodies", &bodies)];
        volumes::pair::write(&bodies, pair).unwrap();
        sqlite::create(&path, pair).unwrap();
        let rows_clock = Arc::new(GateClock::default());
        let rows = SqliteRows::open(&path, rows_clock.clone(), &sqlite::Options::default()).unwrap();
        let bodies =
            VolumeStore::open(&bodies, Arc::new(SystemClock::new()), VolumeOptions::default()).unwrap();
        let stores = Stores::new(Arc::new(rows), Arc::new(bodies), locks.map(Result::unwrap));
        Opened { stores, rows_clock, folder }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(200)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[tokio::test]
    async fn idle_stores_are_closed_and_unlocked() {
        let Opened { stores, folder, .. } = opened();
        stores
            .bodies
            .put(new_body(fresh_id(), "x", Timestamp::from_unix_ms(1_893_641_440_000)))
            .await
            .unwrap();
        assert_eq!(stores.close(later()).await, Ended::Finished);
        assert!(!folder.path().join("rows.db-wal").exists(), "the log was folded into the database");
        DataFolder::lock("--data", folder.path()).unwrap();
    }

    #[tokio::test]
    async fn a_read_that_hangs_does_not_keep_the_process() {
        let Opened { stores, rows_clock, folder } = opened();
        rows_clock.set_shut(true);
        let rows = Arc::clone(&stores.rows);
        let hung = tokio::spawn(async move { rows.find(Id::parse(b"000000000000").unwrap()).await });
        // The client has gone, and with it whoever held the store; the reader's thread has not.
        tokio::task::yield_now().await;
        let hangs = || Ok(rows_clock.asked.load(Ordering::SeqCst) > 0);
        quire_testkit::eventually("the reader hangs", Duration::from_secs(30), hangs).unwrap();
        hung.abort();
        let _ = hung.await;
        assert_eq!(stores.close(soon()).await, Ended::Unfinished);
        assert!(DataFolder::lock("--data", folder.path()).is_err(), "nobody else opens them meanwhile");
        rows_clock.set_shut(false);
    }

    #[tokio::test]
    async fn a_store_that_somebody_holds_is_left() {
        let Opened { stores, .. } = opened();
        let held = Arc::clone(&stores.rows);
        assert_eq!(stores.close(later()).await, Ended::Unfinished);
        assert!(held.now().await.is_ok(), "and works on");
    }
}
