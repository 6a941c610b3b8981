//! Reading bodies, on threads of their own so that no read waits for a write or for the executor.
//!
//! Promises that what is returned is what was stored: the header must be the one asked for and the body must
//! hash to its digest. Never takes a lock that the writer holds, and keeps at most the stated number of files
//! open.

use std::{fs::File, io, path::PathBuf, sync::Arc};

use bytes::Bytes;
use crossbeam_channel::Receiver;
use quick_cache::sync::Cache;
use quire_core::{
    paste::{BODY_BYTES_MAX, BodyRef, Digest},
    ports::{BodyCursor, BodyPage, Clock, Fault, PortError},
};

use super::{
    audit,
    disk::read_up_to,
    name::{VolumeName, place},
    pair::PairId,
    record::{HEADER_LEN, HeaderBytes, RecordHeader, RecordState},
    writer::Answer,
};

/// What a reader thread is asked for.
pub(super) enum ReadCommand {
    /// A body.
    Get(BodyRef, Answer<Option<Bytes>>),
    /// A page of the listing.
    Page(Option<BodyCursor>, usize, Answer<BodyPage>),
}

/// Works until every sender is gone.
pub(super) fn run(commands: &Receiver<ReadCommand>, reader: &VolumeReader) {
    while let Ok(command) = commands.recv() {
        match command {
            // Nobody waits for these any more: their deadlines passed while they stood in the queue.
            ReadCommand::Get(_, answer) if answer.is_closed() => {}
            ReadCommand::Page(_, _, answer) if answer.is_closed() => {}
            ReadCommand::Get(body, answer) => {
                let _ = answer.send(reader.get(&body));
            }
            ReadCommand::Page(from, limit, answer) => {
                let _ = answer.send(reader.page(from.as_ref(), limit));
            }
        }
    }
}

/// Reads volumes, blocking. Any number of threads may share one.
pub(super) struct VolumeReader {
    folder: PathBuf,
    pair: PairId,
    clock: Arc<dyn Clock>,
    files: Cache<VolumeName, Arc<File>>,
}

/// What makes a record something else than what was stored.
#[derive(Debug, thiserror::Error)]
enum Mismatch {
    #[error("the row says a length that no body has")]
    Length,
    #[error("the record is cut off")]
    CutOff,
    #[error("the record's header is not the one that was written")]
    Header,
    #[error("the record's body does not hash to its digest")]
    Body,
}

impl VolumeReader {
    pub(super) fn new(folder: PathBuf, pair: PairId, clock: Arc<dyn Clock>, open_files_max: usize) -> Self {
        Self { folder, pair, clock, files: Cache::new(open_files_max) }
    }

    /// As [`quire_core::ports::Bodies::get`].
    pub(super) fn get(&self, body: &BodyRef) -> Result<Option<Bytes>, PortError> {
        let Some((name, offset)) = body.locator.and_then(place) else { return Ok(None) };
        // Checked before it is believed: it says how much memory to take.
        let length = usize::try_from(body.size_bytes).ok().filter(|length| *length <= BODY_BYTES_MAX);
        let Some(length) = length else { return Err(corrupt(Mismatch::Length)) };

        let Some(file) = self.file(name).map_err(unavailable)? else { return Ok(None) };
        let mut record = vec![0; HEADER_LEN + length];
        let filled = read_up_to(&file, &mut record, offset).map_err(unavailable)?;
        if filled == 0 {
            return Ok(None);
        }
        record.truncate(filled);
        let Err(mismatch) = check(&record, body, length) else {
            return Ok(Some(Bytes::from(record).slice(HEADER_LEN..)));
        };
        // A removal marks the header before it touches the body, so that a reader who came in between can
        // tell from a second look.
        if is_removed(&file, offset, body).map_err(unavailable)? { Ok(None) } else { Err(corrupt(mismatch)) }
    }

    /// As [`quire_core::ports::BodiesAudit::page`].
    pub(super) fn page(&self, from: Option<&BodyCursor>, limit: usize) -> Result<BodyPage, PortError> {
        audit::page(&self.folder, self.pair, self.clock.wall(), from, limit)
            .map_err(|error| PortError::because(Fault::Unavailable, error))
    }

    /// `None` if there is no such volume. Its absence is not remembered: it may be made at any time.
    fn file(&self, name: VolumeName) -> io::Result<Option<Arc<File>>> {
        let open = || File::open(self.folder.join(name.file_name())).map(Arc::new);
        match self.files.get_or_insert_with(&name, open) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn check(record: &[u8], body: &BodyRef, length: usize) -> Result<(), Mismatch> {
    let (header, bytes) = record.split_first_chunk().ok_or(Mismatch::CutOff)?;
    let header = RecordHeader::decode(header).ok_or(Mismatch::Header)?;
    let is_the_one = header.state == RecordState::Live
        && header.id == body.id
        && header.length == body.size_bytes
        && header.sha256 == body.sha256;
    if !is_the_one {
        return Err(Mismatch::Header);
    }
    if bytes.len() != length {
        return Err(Mismatch::CutOff);
    }
    if Digest::of(bytes) == body.sha256 { Ok(()) } else { Err(Mismatch::Body) }
}

fn is_removed(file: &File, offset: u64, body: &BodyRef) -> io::Result<bool> {
    let mut bytes: HeaderBytes = [0; HEADER_LEN];
    read_up_to(file, &mut bytes, offset)?;
    let header = RecordHeader::decode(&bytes);
    Ok(header.is_some_and(|header| header.state == RecordState::Removed && header.id == body.id))
}

fn corrupt(mismatch: Mismatch) -> PortError {
    PortError::because(Fault::Corrupt, mismatch)
}

fn unavailable(error: io::Error) -> PortError {
    PortError::because(Fault::Unavailable, error)
}
