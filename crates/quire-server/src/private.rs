//! Files and folders that nobody but their owner may read: a row has the hash of a delete token, a body is
//! whatever somebody posted behind a secret link.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Options with which a new file gets mode 0600.
#[must_use]
pub fn file_options() -> OpenOptions {
    let mut options = File::options();
    options.mode(0o600);
    options
}

/// Makes a folder, and those above it that are not there, with mode 0700. One that is there keeps its mode.
///
/// # Errors
/// Whatever the file system says.
pub fn make_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes an empty file for a program that would make it readable by everybody, as SQLite would. Files that SQLite
/// puts beside a database take its mode. Whatever is there already is left as it is.
pub(crate) fn make_file(path: &Path) -> io::Result<()> {
    match file_options().write(true).create_new(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
