//! The one thread that changes rows, with group commit.
//!
//! 1 it takes what waits, up to [`BATCH_LEN_MAX`]; 2 `BEGIN IMMEDIATE`; 3 a statement for each member; 4
//! `COMMIT`, synced: **the commit point** of all of them; 5 each is answered. What arrives meanwhile is the
//! next batch, so a lone create waits for no timer and a crowd shares its syncs.
//!
//! | what fails | what the members are told | what is done |
//! | --- | --- | --- |
//! | 2, or the file was removed | `Unavailable`, all of them: nothing was done | the next batch tries again |
//! | 3, by the primary key or the deadline | that member alone: conflict, deadline passed | the batch goes on |
//! | 3 otherwise, or 4 | `UnknownOutcome`, all of them | rolled back, unless SQLite has done so already |
//!
//! It never goes on in a transaction in which something failed: SQLite may have rolled it back silently (a
//! full disk does), and what followed would commit row by row. It never ends but when nobody can send it
//! work any more: a server that reads and never writes again is worse than one that is restarted.

use std::{
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use crossbeam_channel::{Receiver, Sender, bounded};
use quire_core::{
    paste::Id,
    ports::{Clock, Fault, Insert, NewRow, PortError},
};
use rusqlite::{Connection, ErrorCode, MAIN_DB, ffi};
use tokio::sync::oneshot;

use super::{
    Options,
    checkpoint::{self, LogKeeper},
    files::StoreFiles,
    record::{self, INSERT},
    schema::{self, Access, OpenError},
};

/// Most members of a transaction. A bound, so that nobody waits long behind others; past some hundred there
/// is little left to share.
pub(super) const BATCH_LEN_MAX: usize = 512;

const REMOVE: &str = "DELETE FROM pastes WHERE id = :id AND expires_at > :now";

/// What the writer is asked to do.
pub(super) enum Job {
    /// See `Rows::insert`.
    Insert { row: NewRow, answer: Answer<Insert> },
    /// See `Rows::remove`.
    Remove { id: Id, answer: Answer<bool> },
}

/// Who waits, and what they will be told once it is durable.
pub(super) struct Answer<T> {
    to: oneshot::Sender<Result<T, PortError>>,
    outcome: Option<T>,
}

impl<T> Answer<T> {
    /// An answer to come, and where it comes.
    pub(super) fn channel() -> (Self, oneshot::Receiver<Result<T, PortError>>) {
        let (to, from) = oneshot::channel();
        (Self { to, outcome: None }, from)
    }

    fn send(self, committed: &Result<(), PortError>) {
        let told = match committed {
            Ok(()) => self.outcome.ok_or_else(|| PortError::new(Fault::UnknownOutcome)),
            Err(error) => Err(error.clone()),
        };
        // Whoever asked may have gone; what was done stays done.
        let _ = self.to.send(told);
    }
}

/// The writer without its thread, so that a test can say what makes up a batch.
pub(super) struct Writer {
    pub(super) connection: Connection,
    clock: Arc<dyn Clock>,
    log: LogKeeper,
    files: StoreFiles,
}

/// Starts the writer and the checkpoints that go with it. It ends when the sender is gone, after all that
/// was sent has been answered.
pub(super) fn spawn(
    path: &Path,
    clock: Arc<dyn Clock>,
    options: &Options,
) -> Result<(Sender<Job>, JoinHandle<()>), OpenError> {
    // Opened first: whatever a crash left in the log is recovered by a connection that may write.
    let connection = open(path)?;
    let (signal, checkpoints) = checkpoint::spawn(path)?;
    let writer =
        Writer::new(connection, clock, options, signal).map_err(|error| OpenError::sqlite(path, error))?;
    let (sender, jobs) = bounded(options.write_queue_len);
    let thread = thread::Builder::new()
        .name("rows-writer".into())
        .spawn(move || {
            let guard = AbortUnlessDone { done: false };
            writer.run(&jobs);
            // The writer is dropped by now, and with it what keeps the checkpoints going.
            let _ = checkpoints.join();
            guard.finish();
        })
        .map_err(|error| OpenError::io(path, error))?;
    Ok((sender, thread))
}

/// The writer's connection: write-ahead log, a sync at every commit.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let mut connection = schema::connect_to_store(path, Access::Write)?;
    let refused = |error| OpenError::sqlite(path, error);
    // SQLite falls back to reading where it may not write, and the first create would be the first to know.
    if connection.is_readonly(MAIN_DB).map_err(refused)? {
        let source = "it cannot be written to; check that it belongs to the user quire runs as".into();
        return Err(OpenError::Refused { path: path.to_path_buf(), source });
    }
    schema::upgrade(&mut connection, path)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(refused)?;
    if mode != "wal" {
        let source = format!("its journal mode stays {mode}; a write-ahead log is needed").into();
        return Err(OpenError::Refused { path: path.to_path_buf(), source });
    }
    // 64 MB hold the inner pages of the key's tree for some hundred million rows; nobody else writes, so they
    // stay valid from one transaction to the next.
    let settings = "PRAGMA synchronous = FULL; PRAGMA cache_size = -65536";
    connection.execute_batch(settings).map_err(refused)?;
    schema::sync_folder(path)?;
    Ok(connection)
}

impl Writer {
    pub(super) fn new(
        mut connection: Connection,
        clock: Arc<dyn Clock>,
        options: &Options,
        signal: Sender<()>,
    ) -> rusqlite::Result<Self> {
        // A schema that lacks what the statements need shows now.
        for statement in [INSERT, REMOVE] {
            connection.prepare_cached(statement)?;
        }
        let log = LogKeeper::watch(&mut connection, options.log, signal)?;
        let files = StoreFiles::of(&connection);
        Ok(Self { connection, clock, log, files })
    }

    fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let mut batch = vec![first];
            batch.extend(jobs.try_iter().take(BATCH_LEN_MAX - 1));
            self.commit(batch);
            self.after_batch();
        }
    }

    pub(super) fn after_batch(&mut self) {
        self.log.after_batch(&self.connection);
    }

    /// One transaction: steps 2 to 5 of the module's header.
    pub(super) fn commit(&self, mut batch: Vec<Job>) {
        let committed = self.apply(&mut batch);
        if let Err(error) = &committed {
            // Each caller's edge logs the cause; an error here would be a second line for the same fault.
            tracing::debug!(%error, members = batch.len(), "a batch of changes to rows failed");
        }
        for job in batch {
            match job {
                Job::Insert { answer, .. } => answer.send(&committed),
                Job::Remove { answer, .. } => answer.send(&committed),
            }
        }
    }

    fn apply(&self, batch: &mut [Job]) -> Result<(), PortError> {
        self.files.check().map_err(|error| PortError::because(Fault::Unavailable, error))?;
        self.begin().map_err(|error| PortError::because(Fault::Unavailable, error))?;
        batch
            .iter_mut()
            .try_for_each(|job| self.execute(job))
            .and_then(|()| self.connection.prepare_cached("COMMIT")?.execute([]).map(drop))
            .map_err(|error| {
                if let Err(error) = self.leave_transaction() {
                    tracing::error!(%error, "a failed batch could not be rolled back yet");
                }
                if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
                    // Even a delete needs room in the log. Once the log is copied it begins anew, in blocks that it
                    // has already, so that deletes can make room.
                    checkpoint::make_room(&self.connection);
                }
                PortError::because(Fault::UnknownOutcome, error)
            })
    }

    fn begin(&self) -> rusqlite::Result<()> {
        // Of a batch that could not be rolled back nothing may slip into this one.
        self.leave_transaction()?;
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)
    }

    fn leave_transaction(&self) -> rusqlite::Result<()> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.connection.execute_batch("ROLLBACK")
    }

    fn execute(&self, job: &mut Job) -> rusqlite::Result<()> {
        match job {
            Job::Insert { row, answer } => answer.outcome = Some(self.insert(row)?),
            Job::Remove { id, answer } => answer.outcome = Some(self.remove(*id)?),
        }
        Ok(())
    }

    fn insert(&self, row: &NewRow) -> rusqlite::Result<Insert> {
        let mut statement = self.connection.prepare_cached(INSERT)?;
        // As late as can be: the deadline is judged by it.
        let now = self.clock.wall();
        let expires_at = now.expiry(row.ttl);
        match record::insert(&mut statement, row, now, expires_at) {
            Ok(0) => Ok(Insert::DeadlinePassed),
            Ok(_) => Ok(Insert::Inserted { expires_at }),
            Err(error) if is_duplicate(&error) && !self.connection.is_autocommit() => Ok(Insert::Conflict),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, id: Id) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached(REMOVE)?;
        let now = self.clock.wall().unix_ms();
        Ok(statement.execute(rusqlite::named_params! { ":id": id.as_str(), ":now": now })? > 0)
    }
}

fn is_duplicate(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| {
        matches!(error.extended_code, ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_UNIQUE)
    })
}

/// Ends the process if the writer's thread ends in any way but the orderly one.
pub(super) struct AbortUnlessDone {
    pub(super) done: bool,
}

impl AbortUnlessDone {
    fn finish(mut self) {
        self.done = true;
    }
}

impl Drop for AbortUnlessDone {
    fn drop(&mut self) {
        if !self.done {
            tracing::error!("the thread that writes rows has ended; so does the process");
            std::process::abort();
        }
    }
}
