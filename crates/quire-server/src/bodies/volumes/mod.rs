//! Bodies of one box, packed into append-only files: the volumes.
//!
//! There is one series of volumes for each UTC day of expiry, so that what expires together stands together.
//!
//! ```text
//! DATA/bodies/pair                    which rows these bodies belong to
//! DATA/bodies/removal.lock            held by a backup while it copies
//! DATA/bodies/2026-12-30.000001.vol   header (64), then records: header (64), body, zeros up to 64
//! ```
//!
//! # Promises
//!
//! - A put that was answered is durable, its file's entry in the folder included, and reads back until it is
//!   removed, whatever is cut short or damaged elsewhere.
//! - Nothing older is ever overwritten: a volume only grows, a full or failed one is left, and no sequence
//!   number is used twice while its file exists (contract M3).
//! - A failed write is nothing done; a failed sync is an unknown outcome, and is never tried again.
//! - Reads wait neither for the writer nor for the executor. Queues, open files and memory are bounded. The
//!   write queue is bounded in commands; the bytes in it are bounded by whoever lets creates in.
//!
//! It must never decide whether a paste is live, and never look for a body but where its row says it is.
//!
//! | module | what it does |
//! | --- | --- |
//! | `record`, `name` | bytes and names, pure |
//! | [`pair`](mod@pair) | the pair file |
//! | `disk` | the system calls of the writer, as a trait |
//! | `scan` | from record to record, and over damage |
//! | `volume`, `series`, `writer`, `removal` | the writer thread |
//! | `reader` | the reader threads |
//! | `audit`, `copy` | for `verify`, the janitor and `backup` |

mod audit;
mod copy;
mod disk;
mod name;
pub mod pair;
mod reader;
mod record;
mod removal;
mod scan;
mod series;
mod thread;
mod volume;
mod writer;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use quire_core::{
    paste::BodyRef,
    ports::{Bodies, BodiesAudit, BodyCursor, BodyPage, Clock, Fault, NewBody, PortError, PortFuture, Put},
};
use tokio::sync::oneshot;

pub use audit::VolumeAudit;
pub use copy::{CopyTotals, copy_volumes};
pub use removal::RemovalHold;

use disk::{Disk, LocalDisk};
use reader::{ReadCommand, VolumeReader};
use removal::Removals;
use series::SeriesSet;
use writer::{Command, PutCommand, Writer};

/// Bounds of a volume store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Length past which a volume is left and the next one begun.
    pub volume_bytes_max: u64,
    /// Commands that may wait for the writer.
    pub write_queue_max: usize,
    /// Reads that may wait for a reader.
    pub read_queue_max: usize,
    /// Threads that read.
    pub reader_threads: usize,
    /// Files kept open for reading.
    pub open_files_max: usize,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            volume_bytes_max: 256_000_000,
            write_queue_max: 4_096,
            read_queue_max: 4_096,
            reader_threads: 2,
            open_files_max: 512,
        }
    }
}

/// Why a folder of bodies cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system said no.
    #[error("{doing} in {} failed: {source}", .folder.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Where.
        folder: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// There is no pair file: it is no body store, or an unfinished copy of one.
    #[error("{} has no pair file, so it is no body store", .folder.display())]
    NoPair {
        /// Where.
        folder: PathBuf,
    },
    /// The pair file is something else.
    #[error("the pair file of the bodies cannot be understood")]
    NotAPairFile,
    /// A newer program has been here.
    #[error("the bodies are kept in format {found}, which is newer than the {known} that this program knows")]
    NewerFormat {
        /// Its format.
        found: u64,
        /// The newest one this program can use.
        known: u64,
    },
    /// A copy would mix two stores.
    #[error("{} holds bodies already", .folder.display())]
    NotEmpty {
        /// Where.
        folder: PathBuf,
    },
}

impl OpenError {
    fn io(doing: &'static str, folder: &Path, source: io::Error) -> Self {
        Self::Io { doing, folder: folder.to_owned(), source }
    }
}

/// The body store of one box. Its threads end once it is dropped and what was asked of it is done.
pub struct VolumeStore {
    commands: Sender<Command>,
    reads: Sender<ReadCommand>,
    threads: Vec<JoinHandle<()>>,
}

impl VolumeStore {
    /// Opens the folder for reading and writing; it must have its pair file already (see [`pair::write`]).
    /// That no other process does so is the caller's business.
    ///
    /// # Errors
    /// The folder is no body store that this program can use, or its threads cannot be started.
    pub fn open(folder: &Path, clock: Arc<dyn Clock>, options: VolumeOptions) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(LocalDisk), folder, clock, options)
    }

    fn open_on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        clock: Arc<dyn Clock>,
        options: VolumeOptions,
    ) -> Result<Self, OpenError> {
        let pair = pair::read(folder)?.ok_or_else(|| OpenError::NoPair { folder: folder.to_owned() })?;
        let removals = Removals::open(folder)
            .map_err(|error| OpenError::io("opening the removal lock", folder, error))?;
        let (commands, to_write) = crossbeam_channel::bounded(options.write_queue_max);
        let (reads, to_read) = crossbeam_channel::bounded(options.read_queue_max);
        let series = SeriesSet::new(disk, folder.to_owned(), pair, options.volume_bytes_max);
        let writer =
            Writer { commands: to_write, clock: Arc::clone(&clock), series, removals, buffer: Vec::new() };
        let reader = VolumeReader::new(folder.to_owned(), pair, clock, options.open_files_max);
        let threads = start_threads(writer, reader, &to_read, options.reader_threads)
            .map_err(|error| OpenError::io("starting the threads", folder, error))?;
        Ok(Self { commands, reads, threads })
    }

    /// Waits until everything asked for is done and the threads have ended.
    pub fn close(self) {
        let Self { commands, reads, threads } = self;
        drop((commands, reads));
        for thread in threads {
            // A thread that did not return has ended the process.
            let _ = thread.join();
        }
    }
}

fn start_threads(
    writer: Writer,
    reader: VolumeReader,
    to_read: &Receiver<ReadCommand>,
    reader_threads: usize,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = vec![thread::spawn("volume-writer", move || writer.run())?];
    let reader = Arc::new(reader);
    for _ in 0..reader_threads.max(1) {
        let (commands, reader) = (to_read.clone(), Arc::clone(&reader));
        threads.push(thread::spawn("volume-reader", move || reader::run(&commands, &reader))?);
    }
    Ok(threads)
}

impl Bodies for VolumeStore {
    fn put(&self, body: NewBody) -> PortFuture<'_, Put> {
        let command = |answer| Command::Put(PutCommand { body, answer });
        Box::pin(ask(&self.commands, command, Fault::UnknownOutcome))
    }

    fn get(&self, body: BodyRef) -> PortFuture<'_, Option<Bytes>> {
        Box::pin(ask(&self.reads, move |answer| ReadCommand::Get(body, answer), Fault::Unavailable))
    }

    fn remove(&self, body: BodyRef) -> PortFuture<'_, ()> {
        Box::pin(ask(&self.commands, move |answer| Command::Remove(body, answer), Fault::UnknownOutcome))
    }
}

impl BodiesAudit for VolumeStore {
    fn page(&self, from: Option<BodyCursor>, limit: usize) -> PortFuture<'_, BodyPage> {
        Box::pin(ask(&self.reads, move |answer| ReadCommand::Page(from, limit, answer), Fault::Unavailable))
    }

    fn get(&self, body: BodyRef) -> PortFuture<'_, Option<Bytes>> {
        Bodies::get(self, body)
    }
}

/// Puts a command into a thread's queue, or refuses at once if it is full, and waits for the answer. `lost` is
/// what is known if the thread ends without one.
async fn ask<C, T>(
    queue: &Sender<C>,
    command: impl FnOnce(oneshot::Sender<Result<T, PortError>>) -> C,
    lost: Fault,
) -> Result<T, PortError> {
    let (answer, answered) = oneshot::channel();
    queue.try_send(command(answer)).map_err(|error| match error {
        TrySendError::Full(_) => PortError::new(Fault::Overloaded),
        TrySendError::Disconnected(_) => PortError::new(Fault::Unavailable),
    })?;
    answered.await.unwrap_or_else(|_| Err(PortError::new(lost)))
}

#[cfg(test)]
mod tests;
