//! The rows as `verify` sees them, and copies of them: both work beside a running server, from another
//! process too, and neither changes a row.
//!
//! Calls block while they read. Whoever asks has nothing else to do.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use quire_core::{
    pair::PairId,
    paste::{Id, Row},
    ports::{Fault, PortError, PortFuture, RowsAudit},
};
use rusqlite::{Connection, OptionalExtension as _};

use super::{
    record::{self, columns},
    schema::{self, Access, OpenError},
};
use crate::private;

/// The empty string comes before every id.
const PAGE: &str = concat!("SELECT ", columns!(), " FROM pastes WHERE id > ?1 ORDER BY id LIMIT ?2");
const FIND_ANY: &str = concat!("SELECT ", columns!(), " FROM pastes WHERE id = ?1");

/// Every row, expired or not.
pub struct SqliteAudit {
    connection: Mutex<Connection>,
    path: PathBuf,
}

impl SqliteAudit {
    /// Opens the store at `path` for reading. A server may be writing to it.
    ///
    /// # Errors
    /// There is no row store that this program can use.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        let connection = schema::connect_to_store(path, Access::Read)?;
        Ok(Self { connection: Mutex::new(connection), path: path.to_path_buf() })
    }

    /// The pair id the store carries.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn pair_id(&self) -> Result<PairId, OpenError> {
        self.with(|connection| schema::read_pair_id(connection, &self.path))
    }

    fn with<T>(&self, use_it: impl FnOnce(&Connection) -> T) -> T {
        use_it(&self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ask<T: Send>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send,
    ) -> Result<T, PortError> {
        self.with(question).map_err(|error| PortError::because(Fault::Unavailable, error))
    }
}

impl RowsAudit for SqliteAudit {
    fn page(&self, after: Option<Id>, limit: usize) -> PortFuture<'_, Vec<Row>> {
        Box::pin(async move {
            let after = after.as_ref().map_or("", Id::as_str);
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            self.ask(|connection| {
                connection.prepare_cached(PAGE)?.query_map((after, limit), record::read)?.collect()
            })
        })
    }

    fn find_any(&self, id: Id) -> PortFuture<'_, Option<Row>> {
        Box::pin(async move {
            self.ask(|connection| {
                connection.prepare_cached(FIND_ANY)?.query_row([id.as_str()], record::read).optional()
            })
        })
    }
}

/// Copies the rows as they are at one moment into a new file, beside a running server. The copy is a store
/// like any other: same pair id, same schema. It is there whole and durable, or not at all; blocks until
/// then.
///
/// # Errors
/// There is no row store at `path`, something stands at `copy` already, or the copy could not be written.
pub fn backup_to(path: &Path, copy: &Path) -> Result<(), OpenError> {
    let connection = schema::connect_to_store(path, Access::Read)?;
    let failed = |error| OpenError::io(copy, error);
    if copy.try_exists().map_err(failed)? {
        return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, "it exists already")));
    }
    let mut part = copy.as_os_str().to_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    // What an interrupted copy left.
    remove_if_there(&part).map_err(failed)?;
    private::make_file(&part).map_err(failed)?;
    let written = write_copy(&connection, &part)
        .and_then(|()| fs::rename(&part, copy).map_err(failed))
        .and_then(|()| schema::sync_folder(copy));
    if written.is_err() {
        // The first failure is the one to tell.
        let _ = remove_if_there(&part);
    }
    written
}

fn write_copy(connection: &Connection, part: &Path) -> Result<(), OpenError> {
    let whole = std::path::absolute(part).map_err(|error| OpenError::io(part, error))?;
    let not_text = || io::Error::new(io::ErrorKind::InvalidInput, "its name is not UTF-8");
    let name = whole.to_str().ok_or_else(|| OpenError::io(part, not_text()))?;
    connection.execute("VACUUM INTO ?1", [name]).map_err(|error| OpenError::sqlite(part, error))?;
    fs::File::open(&whole).and_then(|file| file.sync_all()).map_err(|error| OpenError::io(part, error))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
