//! Walks over the records of one volume, and finds its way again where something else stands.
//!
//! Promises to find every record whose header is whole and whose body lies within the file, in order, and to
//! hold at most [`WINDOW_BYTES`] of the file. Where there is no header it looks at every following multiple
//! of 64; that no body can be mistaken for a record is the promise of [`super::record`]. Never checks a body
//! and never writes.

use std::{fs::File, io};

use super::{
    disk::read_up_to,
    record::{HEADER_BYTES, HEADER_LEN, HeaderBytes, RecordHeader, as_offset, record_bytes},
};

/// How much is read at once while looking for the next header.
pub(super) const WINDOW_BYTES: usize = 64 * 1024;

/// A record that a scan found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Where it begins.
    pub(super) offset: u64,
    /// What its header says.
    pub(super) header: RecordHeader,
}

impl Found {
    /// Where the next record may begin.
    pub(super) fn end(&self) -> u64 {
        self.offset + record_bytes(self.header.length)
    }
}

/// A walk over one file, up to the length it had when the walk began.
pub(super) struct Scan<'a> {
    file: &'a File,
    file_bytes: u64,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
    lost: bool,
}

impl<'a> Scan<'a> {
    /// A walk from `at` on, or from the next place where a record may begin.
    pub(super) fn new(file: &'a File, at: u64) -> io::Result<Self> {
        let at = at.max(HEADER_BYTES).checked_next_multiple_of(HEADER_BYTES).unwrap_or(u64::MAX);
        let file_bytes = file.metadata()?.len();
        Ok(Self { file, file_bytes, at, window: Vec::new(), window_at: 0, lost: false })
    }

    /// Where the walk stands.
    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    /// Makes the walk go on from inside the record just found: its body is not what its header says, so
    /// neither may be its length.
    pub(super) const fn doubt(&mut self, found: &Found) {
        self.at = found.offset + HEADER_BYTES;
        self.lost = true;
    }

    /// The next record that begins before `stop`, or `None` once the walk has come there or to the end.
    pub(super) fn next_before(&mut self, stop: u64) -> io::Result<Option<Found>> {
        while self.at < stop {
            let Some(bytes) = self.header_bytes()? else { return Ok(None) };
            let found = RecordHeader::decode(&bytes).map(|header| Found { offset: self.at, header });
            match found {
                Some(found) if self.lies_within(&found) => {
                    self.lost = false;
                    self.at = found.end();
                    return Ok(Some(found));
                }
                // A header whose body is cut off is a record that was never finished.
                _ => {
                    self.lost = true;
                    self.at += HEADER_BYTES;
                }
            }
        }
        Ok(None)
    }

    /// The padding may be missing: it carries nothing.
    fn lies_within(&self, found: &Found) -> bool {
        found.offset + HEADER_BYTES + u64::from(found.header.length) <= self.file_bytes
    }

    fn header_bytes(&mut self) -> io::Result<Option<HeaderBytes>> {
        if self.at.saturating_add(HEADER_BYTES) > self.file_bytes {
            return Ok(None);
        }
        if let Some(bytes) = self.in_window() {
            return Ok(Some(bytes));
        }
        // From header to header the bodies are not worth reading; a scan that is lost reads everything.
        self.window.resize(if self.lost { WINDOW_BYTES } else { HEADER_LEN }, 0);
        let filled = read_up_to(self.file, &mut self.window, self.at)?;
        self.window.truncate(filled);
        self.window_at = self.at;
        Ok(self.in_window())
    }

    fn in_window(&self) -> Option<HeaderBytes> {
        let start = usize::try_from(self.at.checked_sub(self.window_at)?).ok()?;
        debug_assert!(as_offset(self.window.len()) <= as_offset(WINDOW_BYTES));
        self.window.get(start..)?.first_chunk().copied()
    }
}
