//! Free disk space, looked at once a second and not on any request (contract O8).
//!
//! Rows and bodies may lie on file systems of their own, so each that quire writes to is watched, and one that is
//! low is enough.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::config::{
    DiskReserve,
    stores::{BodyStore, RowStore, Stores},
};

/// How often the file systems are asked. At the service's 10 MB/s, one interval is 10 MB past the reserve.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Whether a file system that quire writes to has less free space than the reserve.
#[derive(Clone, Debug)]
pub struct DiskWatch {
    watched: Arc<[Watched]>,
    reserve: DiskReserve,
    disk: Arc<dyn Disk>,
    low: Arc<AtomicBool>,
}

/// One file system.
#[derive(Debug)]
struct Watched {
    /// The flag that chose it.
    flag: &'static str,
    folder: PathBuf,
    low: AtomicBool,
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Space {
    free_bytes: u64,
    total_bytes: u64,
}

/// Whom to ask for room; a seam, so that a test can fill one disk and not another.
trait Disk: fmt::Debug + Send + Sync {
    /// Which file system the folder lies on.
    fn device(&self, folder: &Path) -> Option<u64>;

    /// `None` if it cannot be asked.
    fn space(&self, folder: &Path) -> Option<Space>;
}

#[derive(Debug)]
struct LocalDisk;

impl Disk for LocalDisk {
    fn device(&self, folder: &Path) -> Option<u64> {
        fs::metadata(folder).ok().map(|found| found.dev())
    }

    fn space(&self, folder: &Path) -> Option<Space> {
        let stat = rustix::fs::statvfs(folder).ok()?;
        Some(Space {
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }
}

impl DiskWatch {
    /// Looks once at where the stores lie, which must exist; [`run`](Self::run) keeps looking.
    #[must_use]
    pub fn new(stores: &Stores, reserve: DiskReserve) -> Self {
        Self::on(Arc::new(LocalDisk), stores, reserve)
    }

    fn on(disk: Arc<dyn Disk>, stores: &Stores, reserve: DiskReserve) -> Self {
        let Stores { data, rows: RowStore::Sqlite(rows), bodies: BodyStore::Local(bodies) } = stores;
        let rows = match rows.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut watched: Vec<Watched> = Vec::new();
        let mut devices = Vec::new();
        // Usually all three are one file system, which is then named once when it is low.
        for (flag, folder) in [("--bodies", bodies.as_path()), ("--rows", rows), ("--data", data)] {
            let device = disk.device(folder);
            if device.is_none() || !devices.contains(&device) {
                watched.push(Watched { flag, folder: folder.to_owned(), low: AtomicBool::new(false) });
                devices.push(device);
            }
        }
        let watch = Self { watched: watched.into(), reserve, disk, low: Arc::new(AtomicBool::new(false)) };
        watch.look();
        watch
    }

    /// Whether creates are to be refused. Costs one atomic load.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// What creates may still take: free space above the reserve, where there is least of it. `None` if no file
    /// system can be asked.
    #[must_use]
    pub fn room_bytes(&self) -> Option<u64> {
        let rooms = self.watched.iter().filter_map(|watched| {
            let (free_bytes, reserve_bytes) = self.ask(watched)?;
            Some(free_bytes.saturating_sub(reserve_bytes))
        });
        rooms.min()
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

    /// Free bytes, and how many of them are the reserve. A share is of that file system.
    fn ask(&self, watched: &Watched) -> Option<(u64, u64)> {
        let Space { free_bytes, total_bytes } = self.disk.space(&watched.folder)?;
        Some((free_bytes, self.reserve.bytes_of(total_bytes)))
    }

    fn look(&self) {
        for watched in &*self.watched {
            // A file system that cannot be asked is not known to be full; what is wrong with it shows at the
            // next write.
            let Some((free_bytes, reserve_bytes)) = self.ask(watched) else { continue };
            let low = free_bytes < reserve_bytes;
            if watched.low.swap(low, Ordering::Relaxed) == low {
                continue;
            }
            let holds = watched.flag;
            if low {
                tracing::error!(
                    free_bytes,
                    holds,
                    "free disk space is under --disk-reserve; creates get 503"
                );
            } else {
                tracing::info!(free_bytes, holds, "free disk space is over --disk-reserve again");
            }
        }
        let low = self.watched.iter().any(|watched| watched.low.load(Ordering::Relaxed));
        self.low.store(low, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Each folder is a disk of its own, by its name, with what is in the list free of 1,000 bytes.
    #[derive(Debug)]
    struct Disks(Mutex<Vec<(&'static str, Option<u64>)>>);

    impl Disks {
        fn set(&self, folder: &str, free_bytes: Option<u64>) {
            let mut disks = self.0.lock().unwrap();
            disks.iter_mut().find(|(name, _)| *name == folder).unwrap().1 = free_bytes;
        }
    }

    impl Disk for Disks {
        fn device(&self, folder: &Path) -> Option<u64> {
            let index = self.0.lock().unwrap().iter().position(|(name, _)| Path::new(name) == folder);
            index.map(|index| u64::try_from(index).unwrap())
        }

        fn space(&self, folder: &Path) -> Option<Space> {
            let disks = self.0.lock().unwrap();
            let (_, free_bytes) = disks.iter().find(|(name, _)| Path::new(name) == folder)?;
            free_bytes.map(|free_bytes| Space { free_bytes, total_bytes: 1_000 })
        }
    }

    fn stores(data: &str, rows: &str, bodies: &str) -> Stores {
        Stores {
            data: data.into(),
            rows: RowStore::Sqlite(Path::new(rows).join("rows.db")),
            bodies: BodyStore::Local(bodies.into()),
        }
    }

    #[test]
    fn a_reserve_of_everything_is_low_and_of_nothing_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let here = temp.path().to_str().unwrap();
        let watch = |reserve| DiskWatch::new(&stores(here, here, here), DiskReserve::Bytes(reserve));
        assert!(watch(u64::MAX).is_low());
        assert!(!watch(0).is_low());
        assert!(watch(0).room_bytes() > Some(0));
        assert_eq!(watch(u64::MAX).room_bytes(), Some(0));
        assert_eq!(watch(0).watched.len(), 1, "one file system is asked once");
        let absent = stores("/absent/a", "/absent/b", "/absent/c");
        assert_eq!(DiskWatch::new(&absent, DiskReserve::Bytes(0)).room_bytes(), None);
    }

    #[test]
    fn any_file_system_that_is_low_is_enough() {
        for low in ["/data", "/rows", "/bodies"] {
            let free = vec![("/data", Some(500)), ("/rows", Some(400)), ("/bodies", Some(300))];
            let disks = Arc::new(Disks(Mutex::new(free)));
            let apart = stores("/data", "/rows", "/bodies");
            let watch = DiskWatch::on(disks.clone(), &apart, DiskReserve::Percent(10));
            assert!(!watch.is_low());
            assert_eq!(watch.room_bytes(), Some(200), "where there is least");
            disks.set(low, Some(99));
            watch.look();
            assert!(watch.is_low(), "{low}");
            assert_eq!(watch.room_bytes(), Some(0));
            // Whoever cannot be asked for a moment has not become free.
            disks.set(low, None);
            watch.look();
            assert!(watch.is_low(), "{low}");
            disks.set(low, Some(100));
            watch.look();
            assert!(!watch.is_low(), "{low}");
        }
    }

    #[test]
    fn rows_without_a_folder_in_their_name_lie_in_the_current_one() {
        let watch = DiskWatch::new(&stores("/absent", "", "/absent"), DiskReserve::Bytes(u64::MAX));
        assert!(watch.is_low());
    }
}
