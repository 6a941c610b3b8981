//! The database file: whether it is one of ours, how it is made, and how it is opened.
//!
//! A store is made in two steps, so that the caller can compare the pair id of the bodies in between (O5):
//! [`pair_id`] says what the file carries, [`create`] makes a store with a given pair id in one transaction.
//! A crash at any moment leaves either no schema, and `pair_id` says `None` again, or the whole of it.
//!
//! The pair id is a view with a constant in it, because the contract allows one table and no other.
//!
//! Never touches a file that is not quire's, and never makes a store but when told to: opening one that is
//! missing must not look like an empty one.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf, absolute},
    time::Duration,
};

use quire_core::pair::PairId;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::{data_folder::check_writable, private};

/// "quir", in the header of every database of ours.
const APPLICATION_ID: i32 = 0x7175_6972;
/// Each brings a database from the version before it; the version is how many were applied. Only ever
/// append: what was released must not change.
const MIGRATIONS: &[&str] = &[include_str!("schema_v1.sql")];
/// What `PRAGMA auto_vacuum` calls INCREMENTAL.
const AUTO_VACUUM_INCREMENTAL: i64 = 2;
/// How long a connection waits for another one's lock before its call fails. Only other processes hold
/// locks for long; ours share one writer.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a row store was not opened or made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no store yet, or one whose making was interrupted.
    #[error("{} holds no rows yet: it is made by the first `quire serve`", path.display())]
    NotCreated {
        /// The file.
        path: PathBuf,
    },
    /// A store was to be made where there is one.
    #[error("{} already is a row store, and is left as it is", path.display())]
    AlreadyCreated {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error(
        "{} is not an SQLite database, or its first page is damaged: check the path, or restore a backup",
        path.display()
    )]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The database is another program's.
    #[error(
        "{} is a database of another program (application id {application_id}): check the path",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it says it is.
        application_id: i32,
    },
    /// The database was written by a newer quire.
    #[error(
        "{} has schema version {found} and this quire knows versions up to {known}: run the newer quire, or \
         restore a backup from before the upgrade",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: usize,
        /// Ours.
        known: usize,
    },
    /// The database contradicts itself.
    #[error("{} is damaged ({what}): restore a backup", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// The write-ahead log is there and the database is not; opening would throw the log away.
    #[error(
        "{} is missing or empty, but its write-ahead log is not: put the two back together, or restore a backup",
        path.display()
    )]
    StrayLog {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{} cannot be used: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// SQLite refused.
    #[error("{} cannot be used: {source}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl OpenError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), source }
    }

    pub(super) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, what: error.to_string() },
            _ => Self::Refused { path, source: Box::new(error) },
        }
    }
}

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Read, in this process or beside a running server.
    Read,
    /// Read and write a file that exists.
    Write,
    /// The same, and make the file.
    Create,
}

/// The pair id of the store at `path`; `None` if there is no store yet: no file, an empty one, or one whose
/// making was interrupted.
///
/// # Errors
/// The file is not a row store that this program can use.
pub fn pair_id(path: &Path) -> Result<Option<PairId>, OpenError> {
    refuse_stray_log(path)?;
    if !path.try_exists().map_err(|error| OpenError::io(path, error))? {
        return Ok(None);
    }
    // For writing, because an interrupted transaction may have to be rolled back first.
    let connection = connect(path, Access::Write)?;
    match version(&connection, path)? {
        None => Ok(None),
        Some(_) => read_pair_id(&connection, path).map(Some),
    }
}

/// Makes a store that carries `pair_id`: all of it or nothing, and durable, the directory entry included.
/// The folder must exist.
///
/// # Errors
/// There is a store already, or something else that is not ours; or it could not be made, and then it may be
/// tried again.
pub fn create(path: &Path, pair_id: PairId) -> Result<(), OpenError> {
    refuse_stray_log(path)?;
    private::make_file(path).map_err(|error| OpenError::io(path, error))?;
    let mut connection = connect(path, Access::Create)?;
    initialise(&mut connection, path, pair_id)?;
    // Closed first: closing a file drops this process's locks on it, SQLite's too.
    drop(connection);
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| OpenError::io(path, error))?;
    sync_folder(path)
}

/// Makes sure that files can be made in the folder of the store, as its log must be.
///
/// # Errors
/// They cannot.
pub fn check_folder(path: &Path) -> Result<(), OpenError> {
    let check = || check_writable(absolute(path)?.parent().unwrap_or(Path::new("/")));
    check().map_err(|error| OpenError::io(path, error))
}

/// Makes what a crash must not lose findable: the file's entry in its folder.
pub(super) fn sync_folder(path: &Path) -> Result<(), OpenError> {
    let sync = || {
        let whole = absolute(path)?;
        File::open(whole.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    sync().map_err(|error| OpenError::io(path, error))
}

/// A connection to a file that may or may not be ours; nothing has been read from it.
pub(super) fn connect(path: &Path, access: Access) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX
        | match access {
            Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
            Access::Create => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        };
    // Absolute, because SQLite takes a name that begins with "file:" for a URI.
    let whole = absolute(path).map_err(|error| OpenError::io(path, error))?;
    let connect = || {
        let connection = Connection::open_with_flags(&whole, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Reading through a memory map would turn a failing disk into a signal that kills the process
        // instead of an error that fails one call.
        connection.pragma_update(None, "mmap_size", 0)?;
        Ok(connection)
    };
    connect().map_err(|error| OpenError::sqlite(path, error))
}

/// A connection to a store of ours whose schema this program knows.
pub(super) fn connect_to_store(path: &Path, access: Access) -> Result<Connection, OpenError> {
    refuse_stray_log(path)?;
    let not_created = || OpenError::NotCreated { path: path.to_path_buf() };
    if !path.try_exists().map_err(|error| OpenError::io(path, error))? {
        return Err(not_created());
    }
    let connection = connect(path, access)?;
    version(&connection, path)?.ok_or_else(not_created)?;
    Ok(connection)
}

/// Brings an older schema up to this program's, a transaction for all steps.
pub(super) fn upgrade(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let applied = version(connection, path)?.unwrap_or(0);
    if applied == MIGRATIONS.len() {
        return Ok(());
    }
    let mut step = || {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        migrate(&transaction, MIGRATIONS, applied)?;
        transaction.commit()
    };
    step().map_err(|error| OpenError::sqlite(path, error))
}

/// The pair id of a store of ours.
pub(super) fn read_pair_id(connection: &Connection, path: &Path) -> Result<PairId, OpenError> {
    let written: String = connection
        .query_row("SELECT pair_id FROM quire_pair", [], |row| row.get(0))
        .map_err(|error| OpenError::sqlite(path, error))?;
    let not_hex = || OpenError::Corrupt { path: path.to_path_buf(), what: "its pair id is malformed".into() };
    PairId::from_hex(&written).ok_or_else(not_hex)
}

fn initialise(connection: &mut Connection, path: &Path, pair_id: PairId) -> Result<(), OpenError> {
    // First of all: the settings below would be written into a store that is there.
    if version(connection, path)?.is_some() {
        return Err(OpenError::AlreadyCreated { path: path.to_path_buf() });
    }
    let refused = |error| OpenError::sqlite(path, error);
    // auto_vacuum counts only before the first page is written. The mode is INCREMENTAL so that space can be
    // given back in small steps; it cannot be chosen later. Pages stay at 4096 bytes, what the kernel and the
    // disk write anyway: larger ones cost more log for each row that lands on a random one.
    connection
        .execute_batch(
            "PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = EXTRA",
        )
        .map_err(refused)?;
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
    let auto_vacuum: i64 =
        transaction.pragma_query_value(None, "auto_vacuum", |row| row.get(0)).map_err(refused)?;
    if auto_vacuum != AUTO_VACUUM_INCREMENTAL {
        // An empty database, but one that something else began.
        return Err(OpenError::Foreign { path: path.to_path_buf(), application_id: 0 });
    }
    let view = format!("CREATE VIEW quire_pair AS SELECT '{}' AS pair_id", pair_id.to_hex());
    transaction
        .pragma_update(None, "application_id", APPLICATION_ID)
        .and_then(|()| migrate(&transaction, MIGRATIONS, 0))
        .and_then(|()| transaction.execute_batch(&view))
        .and_then(|()| transaction.commit())
        .map_err(refused)
}

/// Applies the steps that are missing. The version is part of the transaction.
fn migrate(connection: &Connection, steps: &[&str], applied: usize) -> rusqlite::Result<()> {
    for step in steps.iter().skip(applied) {
        connection.execute_batch(step)?;
    }
    connection.pragma_update(None, "user_version", i64::try_from(steps.len()).unwrap_or(i64::MAX))
}

/// The schema version of a database of ours; `None` of an empty database; anything else is refused.
fn version(connection: &Connection, path: &Path) -> Result<Option<usize>, OpenError> {
    let read = || {
        let application_id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let objects: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((application_id, version, objects))
    };
    let (application_id, version, objects) = read().map_err(|error| OpenError::sqlite(path, error))?;
    let path = path.to_path_buf();
    match (application_id, usize::try_from(version).unwrap_or(0)) {
        (0, 0) if objects == 0 => Ok(None),
        (APPLICATION_ID, 0) => Err(OpenError::Corrupt { path, what: "it has no schema version".into() }),
        (APPLICATION_ID, found) if found > MIGRATIONS.len() => {
            Err(OpenError::Newer { path, found, known: MIGRATIONS.len() })
        }
        (APPLICATION_ID, found) => Ok(Some(found)),
        _ => Err(OpenError::Foreign { path, application_id }),
    }
}

/// SQLite deletes a log whose database has no pages; whoever mixed the two up may still need it.
fn refuse_stray_log(path: &Path) -> Result<(), OpenError> {
    let bytes = |path: &Path| match path.metadata() {
        Ok(found) => Ok(found.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(OpenError::io(path, error)),
    };
    let mut log = path.as_os_str().to_os_string();
    log.push("-wal");
    if bytes(path)? == 0 && bytes(Path::new(&log))? > 0 {
        return Err(OpenError::StrayLog { path: path.to_path_buf() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_apply_only_the_steps_that_are_missing() {
        let connection = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a (x)", "CREATE TABLE b (x)", "CREATE TABLE c (x)"];
        migrate(&connection, &steps[..1], 0).unwrap();
        // A step that ran twice would fail: the table exists.
        migrate(&connection, &steps, 1).unwrap();
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
        assert_eq!((version, tables), (3, 3));
    }
}
