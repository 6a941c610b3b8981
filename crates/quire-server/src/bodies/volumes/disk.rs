//! What the writer asks of the file system, as a trait, so that a test can fail or hold any one call.
//!
//! Promises nothing beyond the system calls it names: no retry, no buffer. Reading needs no seam and goes to
//! the files directly.

use std::{
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
};

use crate::private;

/// Makes and opens files.
pub(super) trait Disk: Send + Sync {
    /// Makes a file for reading and writing. Fails if there is one: nothing is ever overwritten.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Takes back a file that was made and never used.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the folder's entries durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// One open file.
pub(super) trait DiskFile: Send + fmt::Debug {
    /// The file itself, to read from.
    fn reader(&self) -> &File;

    /// Writes all of it, or fails with any part of it written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the contents and the length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or extends the file.
    fn set_len(&self, length: u64) -> io::Result<()>;
}

/// The real one.
#[derive(Debug)]
pub(super) struct LocalDisk;

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(private::file_options().read(true).write(true).create_new(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::options().read(true).write(true).open(path)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        sync_folder(folder)
    }
}

impl DiskFile for File {
    fn reader(&self) -> &File {
        self
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::sync_data(self)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        Self::set_len(self, length)
    }
}

/// Makes the entries of `folder` durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Fills `buffer` from `offset` on as far as the file goes; returns how far that was.
pub(super) fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(super::record::as_offset(filled));
        match file.read_at(rest, at) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
