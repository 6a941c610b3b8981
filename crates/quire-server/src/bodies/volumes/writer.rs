//! The writer thread: the only one that changes a volume.
//!
//! It takes what waits, up to [`BATCH_COMMANDS_MAX`] commands and about [`BATCH_BYTES_MAX`] of bodies, groups
//! the bodies by day of expiry, and for each volume makes one write and one sync before it answers. A lone
//! put waits for nobody: there is no timer, a batch grows only while the last one is being synced.
//!
//! | what failed | what the callers hear | what happens to the volume |
//! | --- | --- | --- |
//! | opening or making it | unavailable: nothing was done | the next put tries again |
//! | the write | unavailable: nothing can be read of it | cut back; closed for good if that fails too |
//! | the sync | outcome unknown | closed for good, a new one is begun |
//!
//! Promises that nothing is answered as stored before it is durable, and that nothing is tried twice. If the
//! thread ends in any way but by its callers' leaving, the process ends (see [`super::thread`]).

use std::{collections::BTreeMap, sync::Arc};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use quire_core::{
    paste::{BodyRef, Locator},
    ports::{Clock, Fault, NewBody, PortError, Put},
    time::Timestamp,
};
use tokio::sync::oneshot;

use super::{
    name::VolumeName,
    record::{RecordHeader, RecordState, as_offset, encode_record, record_bytes},
    removal::Removals,
    series::{SeriesSet, fits},
    volume::AppendError,
};

/// Commands taken at one go.
pub(super) const BATCH_COMMANDS_MAX: usize = 512;
/// Bytes of bodies past which a batch takes no more; the last body may reach beyond by its own length.
pub(super) const BATCH_BYTES_MAX: usize = 8_000_000;

/// Where an answer goes. The caller may have stopped waiting, and that changes nothing.
pub(super) type Answer<T> = oneshot::Sender<Result<T, PortError>>;

/// What the writer is asked to do.
pub(super) enum Command {
    /// Store a body.
    Put(PutCommand),
    /// Remove one.
    Remove(BodyRef, Answer<()>),
}

/// A body that waits to be stored.
pub(super) struct PutCommand {
    pub(super) body: NewBody,
    pub(super) answer: Answer<Put>,
}

impl PutCommand {
    /// A text is at most 1 MB long; were it ever longer than a header can say, it would not be readable as a
    /// record and the reader would say so.
    fn length(&self) -> u32 {
        u32::try_from(self.body.text.bytes().len()).unwrap_or(u32::MAX)
    }

    fn record_bytes(&self) -> u64 {
        record_bytes(self.length())
    }

    fn encode_into(&self, bytes: &mut Vec<u8>, written_at: Timestamp) {
        let header = RecordHeader {
            state: RecordState::Live,
            id: self.body.id,
            length: self.length(),
            sha256: self.body.sha256,
            written_at,
        };
        encode_record(bytes, &header, self.body.text.bytes());
    }
}

/// The writer's whole state.
pub(super) struct Writer {
    pub(super) commands: Receiver<Command>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) series: SeriesSet,
    pub(super) removals: Removals,
    /// Kept from batch to batch; as large as the largest batch was.
    pub(super) buffer: Vec<u8>,
}

#[derive(Default)]
struct Batch {
    puts: BTreeMap<i64, Vec<PutCommand>>,
    removals: Vec<(BodyRef, Answer<()>)>,
    commands: usize,
    body_bytes: usize,
}

impl Batch {
    const fn is_full(&self) -> bool {
        self.commands >= BATCH_COMMANDS_MAX || self.body_bytes >= BATCH_BYTES_MAX
    }

    fn add(&mut self, command: Command) {
        self.commands += 1;
        match command {
            Command::Put(put) => {
                self.body_bytes += put.body.text.bytes().len();
                self.puts.entry(put.body.expires_near.unix_day()).or_default().push(put);
            }
            Command::Remove(body, answer) => self.removals.push((body, answer)),
        }
    }
}

impl Writer {
    /// Works until every sender is gone and everything sent is done.
    pub(super) fn run(mut self) {
        loop {
            let first = match self.removals.retry_after() {
                None => self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => self.commands.recv_timeout(wait),
            };
            let mut batch = Batch::default();
            match first {
                Ok(first) => batch.add(first),
                // Nobody wants anything, so there is time for the removals that had to wait.
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while !batch.is_full()
                && let Ok(command) = self.commands.try_recv()
            {
                batch.add(command);
            }
            self.apply(batch);
        }
        self.removals.finish();
    }

    /// Bodies first: a client waits for them, and nobody for a removal.
    fn apply(&mut self, batch: Batch) {
        let now = self.clock.wall();
        self.series.close_before(now.unix_day());
        for (day, members) in batch.puts {
            self.store(day, members, now);
        }
        let (bodies, answers): (Vec<_>, Vec<_>) = batch.removals.into_iter().unzip();
        for (answer, result) in answers.into_iter().zip(self.removals.apply(bodies)) {
            let _ = answer.send(result);
        }
    }

    fn store(&mut self, day: i64, members: Vec<PutCommand>, now: Timestamp) {
        let mut waiting = members.into_iter().peekable();
        let volume_bytes_max = self.series.volume_bytes_max();
        // Once for each volume: the last one may fill up in the middle of a batch.
        while let Some(first) = waiting.peek() {
            let volume = match self.series.for_append(day, first.record_bytes()) {
                Ok(volume) => volume,
                Err(error) => {
                    let error = PortError::because(Fault::Unavailable, error);
                    waiting.for_each(|member| drop(member.answer.send(Err(error.clone()))));
                    return;
                }
            };
            self.buffer.clear();
            let mut members = Vec::new();
            while let Some(member) = waiting.next_if(|next| {
                fits(volume_bytes_max, volume, as_offset(self.buffer.len()), next.record_bytes())
            }) {
                let offset = as_offset(self.buffer.len());
                member.encode_into(&mut self.buffer, now);
                members.push((offset, member.answer));
            }
            let name = volume.name();
            let outcome = volume.append(&self.buffer).map_err(|error| match error {
                AppendError::NotWritten(_) => PortError::because(Fault::Unavailable, error),
                AppendError::NotSynced(_) => PortError::because(Fault::UnknownOutcome, error),
            });
            for (offset, answer) in members {
                let stored = outcome.clone().and_then(|start| locate(name, start + offset));
                let _ = answer.send(stored);
            }
        }
    }
}

fn locate(name: VolumeName, offset: u64) -> Result<Put, PortError> {
    // A file of 2^63 bytes cannot be; were one claimed, nothing would be lost but the answer.
    let offset = i64::try_from(offset).map_err(|error| PortError::because(Fault::UnknownOutcome, error))?;
    Ok(Put::Stored(Some(Locator { volume: name.to_number(), offset })))
}
