//! The threads that look rows up.
//!
//! Each has a connection that cannot write; with a write-ahead log it waits for no writer, and sees every
//! row whose insert has been answered. Threads of their own, because a lookup takes microseconds and handing
//! it to a pool for blocking work costs more than that.
//!
//! Whether a row has expired is decided by the statement, with the time at which it runs (R3).

use std::{
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use crossbeam_channel::{Receiver, Sender, bounded};
use quire_core::{
    paste::{Id, StoredRow},
    ports::{Clock, Fault, PortError},
};
use rusqlite::{Connection, OptionalExtension as _};
use tokio::sync::oneshot;

use super::{
    Options,
    record::{self, columns},
    schema::{self, Access, OpenError},
};

const FIND: &str = concat!("SELECT ", columns!(), " FROM pastes WHERE id = ?1 AND expires_at > ?2");

/// What a lookup found.
pub(super) type Found = Result<Option<Arc<StoredRow>>, PortError>;

/// A lookup, and who waits for it.
pub(super) struct Query {
    pub(super) id: Id,
    pub(super) answer: oneshot::Sender<Found>,
}

/// Starts the threads; they end when the sender is gone, after all that was sent has been answered.
pub(super) fn spawn(
    path: &Path,
    clock: &Arc<dyn Clock>,
    options: &Options,
) -> Result<(Sender<Query>, Vec<JoinHandle<()>>), OpenError> {
    let (sender, queries) = bounded(options.read_queue_len);
    let mut threads = Vec::new();
    for n in 0..options.readers {
        let connection = open(path)?;
        let (clock, queries) = (Arc::clone(clock), Receiver::clone(&queries));
        let thread = thread::Builder::new()
            .name(format!("rows-reader-{n}"))
            .spawn(move || run(&connection, &*clock, &queries))
            .map_err(|error| OpenError::io(path, error))?;
        threads.push(thread);
    }
    Ok((sender, threads))
}

/// A reader's connection.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let connection = schema::connect_to_store(path, Access::Read)?;
    let prepare = || {
        // The cache is small: every commit of the writer empties it, and the kernel's is behind it.
        connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -8192")?;
        connection.prepare_cached(FIND).map(drop)
    };
    prepare().map_err(|error| OpenError::sqlite(path, error))?;
    Ok(connection)
}

fn run(connection: &Connection, clock: &dyn Clock, queries: &Receiver<Query>) {
    for Query { id, answer } in queries {
        // Nobody waits any more; under overload that is most of the queue.
        if answer.is_closed() {
            continue;
        }
        let found = find(connection, clock, id);
        let _ = answer.send(found.map_err(|error| PortError::because(Fault::Unavailable, error)));
    }
}

fn find(connection: &Connection, clock: &dyn Clock, id: Id) -> rusqlite::Result<Option<Arc<StoredRow>>> {
    let mut statement = connection.prepare_cached(FIND)?;
    let now = clock.wall().unix_ms();
    let row = statement.query_row((id.as_str(), now), record::read).optional()?;
    Ok(row.map(|row| Arc::new(StoredRow::new(row))))
}
