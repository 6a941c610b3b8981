//! Which volume is appended to for each day of expiry.
//!
//! Promises that a volume is appended to only if it is the last of its series, was found or made whole, and
//! never failed to sync in this process; and that no more than [`OPEN_MAX`] are open. A series is recovered
//! when it is first appended to, so that a start does not read every volume there is.

use std::{
    collections::{HashMap, VecDeque},
    io,
    path::PathBuf,
    sync::Arc,
};

use super::{
    disk::Disk,
    name::{self, VolumeName},
    pair::PairId,
    record::HEADER_BYTES,
    volume::{RecoverError, Recovered, Volume},
};

/// Volumes open for appending at once. Four lifetimes make four series a day, and for a moment at midnight
/// eight.
const OPEN_MAX: usize = 16;

/// Why there is no volume to append to. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub(super) enum SeriesError {
    /// No volume can be named for this day, or the day's numbers are used up.
    #[error("no volume can be named for that day of expiry")]
    NoName,
    /// The folder could not be listed.
    #[error("the volumes could not be listed: {0}")]
    List(#[source] io::Error),
    /// The last volume could not be used.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// No volume could be made.
    #[error("no volume could be made: {0}")]
    Create(#[source] io::Error),
}

/// The series that are being appended to.
pub(super) struct SeriesSet {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    pair: PairId,
    volume_bytes_max: u64,
    /// The one used last is at the back.
    open: VecDeque<Volume>,
    /// By day: sequence numbers below it are not appended to any more, be they full or closed for good. An
    /// entry is a few bytes and there are four a day at most, so none is ever dropped.
    floors: HashMap<i64, u32>,
    /// The day for which the series of days before it were last closed.
    closed_before: Option<i64>,
}

impl SeriesSet {
    pub(super) fn new(disk: Arc<dyn Disk>, folder: PathBuf, pair: PairId, volume_bytes_max: u64) -> Self {
        Self {
            disk,
            folder,
            pair,
            volume_bytes_max,
            open: VecDeque::new(),
            floors: HashMap::new(),
            closed_before: None,
        }
    }

    /// The volume that a record of `bytes` for this day goes to. One is opened or made if need be.
    pub(super) fn for_append(&mut self, day: i64, bytes: u64) -> Result<&mut Volume, SeriesError> {
        let at_hand = self.open.iter().position(|volume| volume.name().day() == day);
        let at_hand = at_hand.and_then(|index| self.open.remove(index));
        let volume = match at_hand {
            Some(volume) => volume,
            None => self.open_last(day)?,
        };
        let usable = !volume.is_closed_for_good() && fits(self.volume_bytes_max, &volume, 0, bytes);
        let volume = if usable {
            volume
        } else {
            self.raise_floor(day, volume.name().sequence())?;
            drop(volume);
            self.open_last(day)?
        };
        if self.open.len() >= OPEN_MAX
            && let Some(unused) = self.open.pop_front()
        {
            self.retire(&unused);
        }
        Ok(self.open.push_back_mut(volume))
    }

    /// The bound for [`fits`], for a caller that holds one of the volumes.
    pub(super) const fn volume_bytes_max(&self) -> u64 {
        self.volume_bytes_max
    }

    /// Closes the series of days that are over, once a day: their files are to be dropped, and an open file
    /// keeps its blocks. If a clock is wrong, a series is opened again and stays open; were it closed with
    /// every batch, every batch would recover it.
    pub(super) fn close_before(&mut self, today: i64) {
        if self.closed_before.replace(today) == Some(today) {
            return;
        }
        let (open, over) = self.open.drain(..).partition(|volume| volume.name().day() >= today);
        self.open = open;
        let over: VecDeque<Volume> = over;
        for volume in &over {
            self.retire(volume);
        }
    }

    /// Closing the file must not make anyone forget that it must not be used again.
    fn retire(&mut self, volume: &Volume) {
        if volume.is_closed_for_good() {
            let next = volume.name().sequence().saturating_add(1);
            self.floors.insert(volume.name().day(), next);
        }
    }

    fn open_last(&mut self, day: i64) -> Result<Volume, SeriesError> {
        let names = name::list(&self.folder).map_err(SeriesError::List)?;
        let last = names.into_iter().rfind(|name| name.day() == day);
        if let Some(last) = last {
            if last.sequence() >= self.floor(day) {
                match Volume::recover(&*self.disk, &self.folder, self.pair, last) {
                    Ok(Recovered::Open(volume)) => return Ok(volume),
                    Ok(Recovered::Unusable) => {}
                    // A bad sector in one file must not end the day's creates.
                    Err(RecoverError::Io(error)) => {
                        let volume = last.file_name();
                        tracing::error!(volume, %error, "a volume could not be recovered, the next is begun");
                    }
                    Err(refused) => return Err(refused.into()),
                }
            }
            self.raise_floor(day, last.sequence())?;
        }
        let name = VolumeName::new(day, self.floor(day)).ok_or(SeriesError::NoName)?;
        Volume::create(&*self.disk, &self.folder, self.pair, name).or_else(|failed| {
            if failed.left_behind {
                self.raise_floor(day, name.sequence())?;
            }
            Err(SeriesError::Create(failed.source))
        })
    }

    fn floor(&self, day: i64) -> u32 {
        self.floors.get(&day).copied().unwrap_or(1)
    }

    fn raise_floor(&mut self, day: i64, used: u32) -> Result<(), SeriesError> {
        let next = used.checked_add(1).ok_or(SeriesError::NoName)?;
        self.floors.insert(day, next.max(self.floor(day)));
        Ok(())
    }
}

/// Whether `bytes` more fit once `queued` are written. A volume that holds nothing takes whatever comes.
pub(super) fn fits(volume_bytes_max: u64, volume: &Volume, queued: u64, bytes: u64) -> bool {
    let start = volume.end().saturating_add(queued);
    start == HEADER_BYTES || start.saturating_add(bytes) <= volume_bytes_max
}
