//! Listing what the volumes hold, for `verify` and the janitor.
//!
//! Promises to list every record with a whole header that was not removed, also behind damage, and to work
//! beside a writer in another process: it takes no lock, changes nothing, and passes over a record that is
//! being written. Whether a listed body is whole is found out by reading it.
//!
//! A page costs a bounded amount of reading: it may hold fewer bodies than asked for, and go on.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use quire_core::{
    paste::{BodyRef, Locator},
    ports::{BodiesAudit, BodyCursor, BodyPage, Clock, ListedBody, PortFuture},
    time::Timestamp,
};

use super::{
    OpenError,
    disk::read_up_to,
    name::{self, VolumeName},
    pair::{self, PairId},
    reader::VolumeReader,
    record::{HEADER_BYTES, HEADER_LEN, RecordState, VolumeHeader},
    scan::{Found, Scan},
};

/// Volumes looked into for one page.
const VOLUMES_PER_PAGE: usize = 64;
/// How far into a volume one page goes.
const BYTES_PER_PAGE: u64 = 64 * 1024 * 1024;
/// Files kept open by a reader that is used for one pass.
const OPEN_FILES_MAX: usize = 64;

/// Reads the volumes of a folder that another process may be writing to. For `quire verify`: its calls block
/// the thread that awaits them.
pub struct VolumeAudit {
    reader: VolumeReader,
}

impl VolumeAudit {
    /// Opens the folder without changing anything in it.
    ///
    /// # Errors
    /// The folder has no readable pair file of a format this program knows.
    pub fn open_read_only(folder: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let pair = pair::read(folder)?.ok_or_else(|| OpenError::NoPair { folder: folder.to_owned() })?;
        Ok(Self { reader: VolumeReader::new(folder.to_owned(), pair, clock, OPEN_FILES_MAX) })
    }
}

impl BodiesAudit for VolumeAudit {
    fn page(&self, from: Option<BodyCursor>, limit: usize) -> PortFuture<'_, BodyPage> {
        Box::pin(async move { self.reader.page(from.as_ref(), limit) })
    }

    fn get(&self, body: BodyRef) -> PortFuture<'_, Option<Bytes>> {
        Box::pin(async move { self.reader.get(&body) })
    }
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    /// It was not given out by this adapter.
    #[error("that is no place in the listing of the volumes")]
    Cursor,
    /// Its bodies would all look like orphans.
    #[error("volume {0} belongs to another store")]
    Foreign(String),
    /// A volume could not be read.
    #[error("the volumes could not be read: {0}")]
    Io(#[from] io::Error),
}

/// As [`BodiesAudit::page`], by a store's clock that says `now`.
pub(super) fn page(
    folder: &Path,
    pair: PairId,
    now: Timestamp,
    from: Option<&BodyCursor>,
    limit: usize,
) -> Result<BodyPage, PageError> {
    let mut place = match from {
        Some(cursor) => Some(Place::parse(&cursor.0).ok_or(PageError::Cursor)?),
        None => first_after(folder, None)?,
    };
    let mut bodies = Vec::new();
    for _ in 0..VOLUMES_PER_PAGE {
        let Some(at) = place else { return Ok(BodyPage { bodies, next: None }) };
        place = match read_volume(folder, pair, now, at, limit.max(1), &mut bodies)? {
            Some(further) => return Ok(BodyPage { bodies, next: Some(further.cursor()) }),
            None => first_after(folder, Some(at.name))?,
        };
    }
    Ok(BodyPage { bodies, next: place.map(Place::cursor) })
}

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    name: VolumeName,
    offset: u64,
}

impl Place {
    fn cursor(self) -> BodyCursor {
        BodyCursor(format!("{}:{}", self.name.file_name(), self.offset))
    }

    fn parse(cursor: &str) -> Option<Self> {
        let (file_name, offset) = cursor.split_once(':')?;
        Some(Self { name: VolumeName::parse(file_name)?, offset: offset.parse().ok()? })
    }
}

/// The folder is listed only where a volume ends, since at full size it has tens of thousands of them.
fn first_after(folder: &Path, name: Option<VolumeName>) -> io::Result<Option<Place>> {
    let names = name::list(folder)?;
    let next = names.into_iter().find(|candidate| name.is_none_or(|name| *candidate > name));
    Ok(next.map(|name| Place { name, offset: HEADER_BYTES }))
}

/// Adds a volume's records to the page; returns where to go on in it, or `None` at its end.
fn read_volume(
    folder: &Path,
    pair: PairId,
    now: Timestamp,
    at: Place,
    limit: usize,
    bodies: &mut Vec<ListedBody>,
) -> Result<Option<Place>, PageError> {
    let path: PathBuf = folder.join(at.name.file_name());
    let file = match File::open(path) {
        Ok(file) => file,
        // Its day is over, and it was dropped since the folder was listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if at.offset <= HEADER_BYTES {
        check_pair(&file, pair, at.name)?;
    }
    let mut scan = Scan::new(&file, at.offset)?;
    let stop = scan.position().saturating_add(BYTES_PER_PAGE);
    while bodies.len() < limit {
        match scan.next_before(stop)? {
            Some(found) => bodies.extend(listed(at.name, &found, now)),
            None if scan.position() >= stop => break,
            None => return Ok(None),
        }
    }
    Ok(Some(Place { name: at.name, offset: scan.position() }))
}

/// A header that the disk has damaged says nothing, and the records behind it are still to be listed.
fn check_pair(file: &File, pair: PairId, name: VolumeName) -> Result<(), PageError> {
    let mut bytes = [0; HEADER_LEN];
    read_up_to(file, &mut bytes, 0)?;
    match VolumeHeader::decode(&bytes) {
        Some(header) if header.pair != pair => Err(PageError::Foreign(name.file_name())),
        _ => Ok(()),
    }
}

fn listed(name: VolumeName, found: &Found, now: Timestamp) -> Option<ListedBody> {
    let header = &found.header;
    if header.state == RecordState::Removed {
        return None;
    }
    let locator = Locator { volume: name.to_number(), offset: i64::try_from(found.offset).ok()? };
    let body =
        BodyRef { id: header.id, size_bytes: header.length, sha256: header.sha256, locator: Some(locator) };
    Some(ListedBody { body, age: now.since(header.written_at) })
}
