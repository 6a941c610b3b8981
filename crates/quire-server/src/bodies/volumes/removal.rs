//! Removing bodies, and holding that back while a backup is taken.
//!
//! A removal marks the record's header and then gives the body's blocks back. It is not synced: a power cut
//! may undo it, and then the body is an orphan, for its row is gone already (contract O3).
//!
//! Promises that nothing but the record asked for is touched: its header is read and compared first. While
//! another process holds the removal lock nothing is removed; removals wait in memory, [`DEFERRED_MAX`] of
//! them, and what is past that bound or lost in a crash is an orphan too. Never waits for the lock.

use std::{
    collections::VecDeque,
    fs::{File, TryLockError},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use quire_core::{
    paste::BodyRef,
    ports::{Fault, PortError},
};
use rustix::fs::FallocateFlags;

use super::{
    OpenError,
    disk::read_up_to,
    name::place,
    record::{HEADER_BYTES, HEADER_LEN, RecordHeader, RecordState, as_offset, record_bytes},
};

const LOCK_FILE_NAME: &str = "removal.lock";
/// Removals that wait for the lock. Past it they are dropped.
pub(super) const DEFERRED_MAX: usize = 65_536;
/// Waiting removals made up for at one go, so that they do not hold up what is being written.
const DEFERRED_PER_TURN: usize = 512;
/// Zeros written at once where holes cannot be punched.
const ZEROS_BYTES: usize = 64 * 1024;

/// Keeps every process from removing bodies in a folder, until it is dropped. For `quire backup`.
#[derive(Debug)]
pub struct RemovalHold {
    /// The lock lives as long as the open file.
    _lock: File,
}

impl RemovalHold {
    /// Takes the hold, waiting for a removal in progress to end (or for another hold).
    ///
    /// # Errors
    /// The lock file cannot be made or locked.
    pub fn take(folder: &Path) -> Result<Self, OpenError> {
        let taken = open_lock(folder).and_then(|file| file.lock().map(|()| file));
        let lock = taken.map_err(|error| OpenError::io("taking the removal lock", folder, error))?;
        Ok(Self { _lock: lock })
    }
}

/// What the writer thread removes bodies with.
pub(super) struct Removals {
    folder: PathBuf,
    lock: File,
    deferred: VecDeque<BodyRef>,
}

impl Removals {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { folder: folder.to_owned(), lock: open_lock(folder)?, deferred: VecDeque::new() })
    }

    /// Removes these bodies, and some of those that had to wait, or lets them all wait.
    pub(super) fn apply(&mut self, bodies: Vec<BodyRef>) -> Vec<Result<(), PortError>> {
        if bodies.is_empty() && self.deferred.is_empty() {
            return Vec::new();
        }
        match self.lock.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let answers = bodies.iter().map(|_| Ok(())).collect();
                let room = DEFERRED_MAX.saturating_sub(self.deferred.len());
                self.deferred.extend(bodies.into_iter().take(room));
                return answers;
            }
            Err(TryLockError::Error(error)) => {
                let error = PortError::because(Fault::Unavailable, error);
                return bodies.iter().map(|_| Err(error.clone())).collect();
            }
        }
        let answers = bodies.iter().map(|body| remove(&self.folder, body)).collect();
        for _ in 0..DEFERRED_PER_TURN {
            let Some(body) = self.deferred.pop_front() else { break };
            // Its caller was answered long ago.
            if let Err(error) = remove(&self.folder, &body) {
                tracing::warn!(%error, "a deferred removal failed and leaves an orphan");
            }
        }
        if let Err(error) = self.lock.unlock() {
            tracing::error!(%error, "the removal lock could not be released: no backup can be taken");
        }
        answers
    }
}

fn open_lock(folder: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(folder.join(LOCK_FILE_NAME))
}

fn remove(folder: &Path, body: &BodyRef) -> Result<(), PortError> {
    let Some((name, offset)) = body.locator.and_then(place) else { return Ok(()) };
    let file = match File::options().read(true).write(true).open(folder.join(name.file_name())) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(PortError::because(Fault::Unavailable, error)),
    };
    let found = record_at(&file, offset).map_err(|error| PortError::because(Fault::Unavailable, error))?;
    let Some(header) = found.filter(|header| header.id == body.id) else { return Ok(()) };
    erase(&file, offset, header, punch_hole).map_err(|error| PortError::because(Fault::UnknownOutcome, error))
}

fn record_at(file: &File, offset: u64) -> io::Result<Option<RecordHeader>> {
    let mut bytes = [0; HEADER_LEN];
    // A header that is cut off is filled up with zeros, which makes it no header.
    read_up_to(file, &mut bytes, offset)?;
    Ok(RecordHeader::decode(&bytes))
}

/// The mark first: a reader that sees the hole looks at the header again and finds out why. A record that is
/// marked already loses its body again, in case the first attempt failed half-way.
fn erase(
    file: &File,
    offset: u64,
    header: RecordHeader,
    punch: impl Fn(&File, u64, u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut mark = Vec::with_capacity(HEADER_LEN);
    RecordHeader { state: RecordState::Removed, ..header }.encode_into(&mut mark);
    file.write_all_at(&mark, offset)?;

    let (start, length) = (offset + HEADER_BYTES, record_bytes(header.length) - HEADER_BYTES);
    match punch(file, start, length) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            // Never past the end: the file must not grow.
            let rest = file.metadata()?.len().saturating_sub(start);
            write_zeros(file, start, length.min(rest))
        }
        other => other,
    }
}

fn punch_hole(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, offset, length)?)
}

fn write_zeros(file: &File, mut offset: u64, length: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES];
    let end = offset + length;
    while offset < end {
        let step = usize::try_from(end - offset).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
        file.write_all_at(zeros.get(..step).unwrap_or(&zeros), offset)?;
        offset += as_offset(step);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
