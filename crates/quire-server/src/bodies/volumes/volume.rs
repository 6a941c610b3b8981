//! One volume file that records are appended to.
//!
//! Promises:
//! - a record whose offset [`Volume::append`] returned is durable, and so is the file's entry in its folder;
//! - nothing that was durable is overwritten or cut off: what is truncated stands behind the last whole
//!   record, or was never answered for;
//! - what was removed from the folder under a running server is not written to again, and nothing that went into
//!   it is answered as stored;
//! - after a failed sync the file is never written or synced again. The kernel may have dropped the pages it
//!   could not write and reports that once, so a second sync that succeeds would prove nothing.

use std::{
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

use quire_core::paste::Digest;

use super::{
    disk::{Disk, DiskFile, read_up_to},
    name::VolumeName,
    pair::PairId,
    record::{FORMAT_VERSION, HEADER_BYTES, HEADER_LEN, RecordState, VolumeHeader, as_offset},
    scan::{Found, Scan},
};

/// A volume that is open for appending.
#[derive(Debug)]
pub(super) struct Volume {
    name: VolumeName,
    file: Box<dyn DiskFile>,
    /// Where the next record goes; everything in front of it stays as it is.
    end: u64,
    closed_for_good: bool,
}

/// Why nothing could be appended, and what is known of the effect.
#[derive(Debug, thiserror::Error)]
pub(super) enum AppendError {
    /// Nothing of it will ever be read as a record that was answered for.
    #[error("the volume could not be written: {0}")]
    NotWritten(#[source] io::Error),
    /// It was written, and nobody knows whether it will survive a power cut.
    #[error("the volume could not be synced: {0}")]
    NotSynced(#[source] io::Error),
}

/// Why no volume could be made.
#[derive(Debug)]
pub(super) struct CreateFailed {
    /// What went wrong.
    pub(super) source: io::Error,
    /// Whether the unfinished file is still there, so that its name is taken.
    pub(super) left_behind: bool,
}

/// What became of opening an existing volume.
#[derive(Debug)]
pub(super) enum Recovered {
    /// It can be appended to.
    Open(Volume),
    /// Its own header is not whole (the process ended while it was made, or the disk lost it): its records
    /// are read, but nothing is added to it.
    Unusable,
}

/// Why an existing volume must not be touched.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecoverError {
    /// Someone has put another store's file here.
    #[error("volume {file_name} belongs to another store or another place")]
    Foreign {
        /// Which.
        file_name: String,
    },
    /// A newer program wrote it.
    #[error("volume {file_name} is of format {found}, and this program knows {FORMAT_VERSION}")]
    OtherFormat {
        /// Which.
        file_name: String,
        /// Its format.
        found: u32,
    },
    /// It could not be read.
    #[error("a volume could not be opened: {0}")]
    Io(#[from] io::Error),
}

impl Volume {
    /// Makes an empty volume and makes it durable, its entry in the folder included, so that records in it
    /// need nothing but a sync of their own.
    pub(super) fn create(
        disk: &dyn Disk,
        folder: &Path,
        pair: PairId,
        name: VolumeName,
    ) -> Result<Self, CreateFailed> {
        let path = folder.join(name.file_name());
        let file = disk.create(&path).map_err(|source| CreateFailed { source, left_behind: false })?;
        let header = VolumeHeader::new(pair, name).encode();
        let made = file
            .write_all_at(&header, 0)
            .and_then(|()| file.sync_data())
            .and_then(|()| disk.sync_folder(folder));
        match made {
            Ok(()) => Ok(Self { name, file, end: HEADER_BYTES, closed_for_good: false }),
            // On a full disk this comes with every put; a file left behind each time would use up the inodes.
            Err(source) => Err(CreateFailed { source, left_behind: disk.remove(&path).is_err() }),
        }
    }

    /// Opens the last volume of a series after a restart and cuts off what was never finished.
    pub(super) fn recover(
        disk: &dyn Disk,
        folder: &Path,
        pair: PairId,
        name: VolumeName,
    ) -> Result<Recovered, RecoverError> {
        let file = disk.open(&folder.join(name.file_name()))?;
        let mut bytes = [0; HEADER_LEN];
        read_up_to(file.reader(), &mut bytes, 0)?;
        let Some(header) = VolumeHeader::decode(&bytes) else { return Ok(Recovered::Unusable) };
        if header.format_version != FORMAT_VERSION {
            let found = header.format_version;
            return Err(RecoverError::OtherFormat { file_name: name.file_name(), found });
        }
        if header.pair != pair || header.name != name {
            return Err(RecoverError::Foreign { file_name: name.file_name() });
        }

        let end = end_of_last_whole_record(file.reader())?;
        let found_bytes = file.reader().metadata()?.len();
        if found_bytes != end {
            // Longer only if padding was lost, which is then put back.
            tracing::warn!(
                volume = name.file_name(),
                found_bytes,
                kept_bytes = end,
                "cut an unfinished write"
            );
            file.set_len(end)?;
        }
        // The process may have ended between making the file and making its entry durable.
        disk.sync_folder(folder)?;
        Ok(Recovered::Open(Self { name, file, end, closed_for_good: false }))
    }

    /// Which volume this is.
    pub(super) const fn name(&self) -> VolumeName {
        self.name
    }

    /// Where the next record goes.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Whether a failure has ended its use.
    pub(super) const fn is_closed_for_good(&self) -> bool {
        self.closed_for_good
    }

    /// Appends whole records in one write and makes them durable; returns where the first one begins.
    pub(super) fn append(&mut self, records: &[u8]) -> Result<u64, AppendError> {
        if self.closed_for_good {
            return Err(AppendError::NotWritten(io::Error::other("the volume was closed for good")));
        }
        let start = self.end;
        if let Err(error) = self.file.write_all_at(records, start) {
            // Part of it may have been written. Were it left, the file would still be readable, but a full
            // disk would not get its blocks back.
            if let Err(truncate_error) = self.file.set_len(start) {
                self.close_for_good("truncated after a failed write", &truncate_error);
            }
            return Err(AppendError::NotWritten(error));
        }
        if let Err(error) = self.file.sync_data() {
            self.close_for_good("synced", &error);
            return Err(AppendError::NotSynced(error));
        }
        // A file that has no name any more takes and syncs everything, and is gone with this process.
        if let Err(error) = self.check_named() {
            self.close_for_good("found in its folder", &error);
            return Err(AppendError::NotWritten(error));
        }
        self.end = start.saturating_add(as_offset(records.len()));
        Ok(start)
    }

    fn check_named(&self) -> io::Result<()> {
        if self.file.reader().metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its file was removed"));
        }
        Ok(())
    }

    fn close_for_good(&mut self, could_not_be: &str, error: &io::Error) {
        self.closed_for_good = true;
        let volume = self.name.file_name();
        tracing::error!(volume, %error, "a volume could not be {could_not_be} and is not written again");
    }
}

/// A record that was answered for may stand behind one that the disk has damaged since, so the last whole one
/// counts and not the first broken one.
fn end_of_last_whole_record(file: &std::fs::File) -> io::Result<u64> {
    let mut end = HEADER_BYTES;
    let mut scan = Scan::new(file, HEADER_BYTES)?;
    let mut body = Vec::new();
    while let Some(found) = scan.next_before(u64::MAX)? {
        if is_whole(file, &found, &mut body)? {
            end = found.end();
        } else {
            scan.doubt(&found);
        }
    }
    Ok(end)
}

fn is_whole(file: &std::fs::File, found: &Found, body: &mut Vec<u8>) -> io::Result<bool> {
    if found.header.state == RecordState::Removed {
        return Ok(true);
    }
    // Bounded by BODY_BYTES_MAX, which decoding the header has checked.
    body.resize(usize::try_from(found.header.length).unwrap_or(0), 0);
    file.read_exact_at(body, found.offset + HEADER_BYTES)?;
    Ok(Digest::of(body) == found.header.sha256)
}

#[cfg(test)]
mod tests;
