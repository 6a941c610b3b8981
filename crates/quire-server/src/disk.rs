//! Free disk space, looked at once a second and not on any request (contract O8).

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::config::DiskReserve;

/// How often the file system is asked. At the service's 10 MB/s, one interval is 10 MB past the reserve.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Whether the data folder's file system has less free space than the reserve.
#[derive(Clone, Debug)]
pub struct DiskWatch {
    folder: PathBuf,
    reserve: DiskReserve,
    low: Arc<AtomicBool>,
}

impl DiskWatch {
    /// Looks once; [`run`](Self::run) keeps looking.
    #[must_use]
    pub fn new(folder: &Path, reserve: DiskReserve) -> Self {
        let watch = Self { folder: folder.to_owned(), reserve, low: Arc::new(AtomicBool::new(false)) };
        watch.look();
        watch
    }

    /// Whether creates are to be refused. Costs one atomic load.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// What creates may still take: free space above the reserve. `None` if the file system cannot be asked.
    #[must_use]
    pub fn room_bytes(&self) -> Option<u64> {
        let (free_bytes, reserve_bytes) = self.ask()?;
        Some(free_bytes.saturating_sub(reserve_bytes))
    }

    /// Keeps looking until the task is aborted.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(ASK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let watch = self.clone();
            // The call can hang on a frozen disk; then the last answer stands and creates fail on their own.
            if let Err(error) = tokio::task::spawn_blocking(move || watch.look()).await {
                tracing::error!(%error, "looking at the free disk space failed");
            }
        }
    }

    /// Free bytes, and how many of them are the reserve.
    fn ask(&self) -> Option<(u64, u64)> {
        let stat = rustix::fs::statvfs(&self.folder).ok()?;
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        let total_bytes = stat.f_blocks.saturating_mul(stat.f_frsize);
        Some((free_bytes, self.reserve.bytes_of(total_bytes)))
    }

    fn look(&self) {
        // A file system that cannot be asked is not known to be full; what is wrong with it shows at the
        // next write.
        let Some((free_bytes, reserve_bytes)) = self.ask() else { return };
        let low = free_bytes < reserve_bytes;
        if self.low.swap(low, Ordering::Relaxed) == low {
            return;
        }
        if low {
            tracing::error!(free_bytes, "free disk space is under --disk-reserve; creates get 503");
        } else {
            tracing::info!(free_bytes, "free disk space is over --disk-reserve again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_of_everything_is_low_and_of_nothing_is_not() {
        let temp = tempfile::tempdir().unwrap();
        assert!(DiskWatch::new(temp.path(), DiskReserve::Bytes(u64::MAX)).is_low());
        let unreserved = DiskWatch::new(temp.path(), DiskReserve::Bytes(0));
        assert!(!unreserved.is_low());
        assert!(unreserved.room_bytes() > Some(0));
        assert_eq!(DiskWatch::new(temp.path(), DiskReserve::Bytes(u64::MAX)).room_bytes(), Some(0));
        assert_eq!(DiskWatch::new(&temp.path().join("absent"), DiskReserve::Bytes(0)).room_bytes(), None);
    }
}
