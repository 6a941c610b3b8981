//! Whether the files of an open store still stand where they are looked for.
//!
//! SQLite goes on with an open file after its name is gone: it commits, it syncs, and all of it is lost with the
//! process. So the writer asks before each batch. Files are asked about by name and never opened: closing one would
//! drop the locks that SQLite holds on it in this process.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

/// The database and its log, as they were when the store was opened.
pub(super) struct StoreFiles(Vec<(PathBuf, (u64, u64))>);

impl StoreFiles {
    /// The files of a connection that has read from its store, so that both are there.
    pub(super) fn of(connection: &Connection) -> Self {
        let database = connection.path().unwrap_or_default();
        let names = [PathBuf::from(database), PathBuf::from(format!("{database}-wal"))];
        // One that is not on a disk has no file to lose.
        Self(names.into_iter().filter_map(|path| identity(&path).ok().map(|found| (path, found))).collect())
    }

    /// Fails if one of them was removed or replaced.
    pub(super) fn check(&self) -> io::Result<()> {
        for (path, opened) in &self.0 {
            if identity(path).ok() != Some(*opened) {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "a file of the row store was removed or replaced while it was open",
                ));
            }
        }
        Ok(())
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}
