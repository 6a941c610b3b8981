//! Removing bodies, and holding that back while a backup is taken.
//!
//! A removal marks the record's header and then gives the body's blocks back. It is not synced: a power cut
//! may undo it, and then the body is an orphan, for its row is gone already (contract O3).
//!
//! Promises that nothing but the record asked for is touched: its header is read and compared first. While
//! another process holds the removal lock nothing is removed; removals wait in memory, [`DEFERRED_MAX`] of
//! them, and are made up for once the lock is free, at the latest when the store is closed. One past that bound
//! fails, so that its orphan is counted; one lost in a crash is an orphan too. Never waits for the lock.

use std::{
    collections::VecDeque,
    fs::{File, TryLockError},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use quire_core::{
    paste::BodyRef,
    ports::{Fault, PortError},
};
use rustix::fs::FallocateFlags;

use crate::private;

use super::{
    OpenError,
    disk::read_up_to,
    name::place,
    record::{HEADER_BYTES, HEADER_LEN, RecordHeader, RecordState, as_offset, record_bytes},
};

const LOCK_FILE_NAME: &str = "removal.lock";
/// Removals that wait for the lock. Past it they fail.
pub(super) const DEFERRED_MAX: usize = 65_536;
/// Waiting removals made up for at one go, so that they do not hold up what is being written.
const DEFERRED_PER_TURN: usize = 512;
/// How often the lock is tried while removals wait for it.
const RETRY_EVERY: Duration = Duration::from_secs(1);
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
    /// Whether somebody else had the lock when it was last tried.
    held: bool,
}

impl Removals {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            lock: open_lock(folder)?,
            deferred: VecDeque::new(),
            held: false,
        })
    }

    /// Removes these bodies, and some of those that had to wait, or lets them all wait.
    pub(super) fn apply(&mut self, bodies: Vec<BodyRef>) -> Vec<Result<(), PortError>> {
        if bodies.is_empty() && self.deferred.is_empty() {
            return Vec::new();
        }
        let tried = self.lock.try_lock_shared();
        self.held = tried.is_err();
        match tried {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return bodies.into_iter().map(|body| self.defer(body)).collect();
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

    /// How long to wait for a command before what was deferred is tried again; `None` if nothing was.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        // Where the last turn had the lock, only its bound left something over.
        (!self.deferred.is_empty()).then_some(if self.held { RETRY_EVERY } else { Duration::ZERO })
    }

    /// The last try, when no command can come any more.
    pub(super) fn finish(&mut self) {
        while !self.deferred.is_empty() {
            self.apply(Vec::new());
            if self.held {
                let bodies = self.deferred.len();
                tracing::warn!(bodies, "a backup still holds body removal; deleted bodies stay as orphans");
                return;
            }
        }
    }

    fn defer(&mut self, body: BodyRef) -> Result<(), PortError> {
        if self.deferred.len() >= DEFERRED_MAX {
            return Err(PortError::because(
                Fault::Unavailable,
                io::Error::other("too many removals wait for a backup to end"),
            ));
        }
        self.deferred.push_back(body);
        Ok(())
    }
}

fn open_lock(folder: &Path) -> io::Result<File> {
    private::file_options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join(LOCK_FILE_NAME))
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
