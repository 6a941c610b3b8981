//! The write-ahead log stays bounded, and what is copied from where.

use quire_core::testing::rows_contract::row_until as row;

use super::{
    super::{
        checkpoint,
        writer::{self, Writer},
    },
    batches::Batch,
    *,
};

const BOUNDS: LogBounds = LogBounds { copy_every_pages: 16, restart_after_pages: 64 };
const LATER: Timestamp = Timestamp::from_unix_ms(i64::MAX);

fn bounded_writer(path: &Path) -> (Writer, crossbeam_channel::Receiver<()>) {
    bounded_writer_with(path, BOUNDS)
}

fn bounded_writer_with(path: &Path, log: LogBounds) -> (Writer, crossbeam_channel::Receiver<()>) {
    let (signal, signals) = crossbeam_channel::bounded(1);
    let options = Options { log, ..Options::default() };
    let clock = Arc::new(SystemClock::new());
    (Writer::new(writer::open(path).unwrap(), clock, &options, signal).unwrap(), signals)
}

fn log_pages(path: &Path) -> u64 {
    fs::metadata(log_of(path)).unwrap().len() / 4_096
}

/// Commits batches of 20 rows; returns how long the log was at most, in pages.
fn write(writer: &mut Writer, path: &Path, batches: std::ops::Range<u32>) -> u64 {
    let mut most = 0;
    for first in batches.map(|n| n * 20) {
        let batch = (first..first + 20).fold(Batch::default(), |batch, n| batch.insert(row(n, LATER)));
        let (told, _) = batch.commit(writer);
        assert!(told.iter().all(|told| matches!(told, Ok(Insert::Inserted { .. }))));
        writer.after_batch();
        most = most.max(log_pages(path));
    }
    most
}

#[test]
fn the_log_stays_bounded_although_no_thread_copies_it() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let (mut writer, signals) = bounded_writer(&path);
    let most = write(&mut writer, &path, 0..100);
    // 100 batches of several pages each would have made it far longer; one batch fits in 40 pages.
    assert!((65..65 + 40).contains(&most), "{most}");
    assert!(signals.try_recv().is_ok(), "the thread was told before that");
}

#[tokio::test]
async fn a_long_reader_holds_the_log_back_and_no_commit() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let (mut writer, _signals) = bounded_writer(&path);
    write(&mut writer, &path, 0..1);
    let long = beside(&path);
    long.execute_batch("BEGIN").unwrap();
    let count = |connection: &Connection| -> i64 {
        connection.query_row("SELECT count(*) FROM pastes", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(&long), 20);
    let grown = write(&mut writer, &path, 1..60);
    assert!(grown > 150, "{grown}");
    assert_eq!(count(&long), 20, "its snapshot stands");
    long.execute_batch("COMMIT").unwrap();
    write(&mut writer, &path, 60..100);
    assert!(log_pages(&path) < grown + 64, "the log began anew: {} {grown}", log_pages(&path));
    assert_eq!(stored_ids(&path).await.len(), 2_000);
}

#[test]
fn the_thread_copies_the_log_when_it_is_told() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    let (mut writer, _signals) = bounded_writer(&path);
    write(&mut writer, &path, 0..3);
    let before = fs::metadata(&path).unwrap().len();
    let (signal, thread) = checkpoint::spawn(&path).unwrap();
    signal.send(()).unwrap();
    drop(signal);
    thread.join().unwrap();
    assert!(fs::metadata(&path).unwrap().len() > before, "the rows were only in the log");
}

/// A file system of 4 MB, which only root may have.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
            .arg(folder.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn deletes_go_through_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount() else {
        assert!(!rustix::process::geteuid().is_root(), "root can mount");
        println!("skipped: only root can mount a small disk");
        return;
    };
    let path = made(disk.0.path());
    let (mut writer, _signals) = bounded_writer_with(&path, LogBounds::default());
    write(&mut writer, &path, 0..20);
    // As after a checkpoint: the database has its pages, and the log is written anew over them.
    checkpoint::make_room(&writer.connection);
    let rest = fs::File::create(disk.0.path().join("something else")).unwrap();
    let fill = |bytes: &[u8]| while std::io::Write::write_all(&mut &rest, bytes).is_ok() {};
    fill(&[1; 4_096]);
    let remove = |writer: &mut Writer, n: u32| {
        let (_, told) = Batch::default().remove(id(n)).commit(writer);
        writer.after_batch();
        told.into_iter().next().unwrap()
    };
    let mut failed = 0;
    for n in 0..400 {
        if let Err(error) = remove(&mut writer, n) {
            assert_eq!(error.fault(), Fault::UnknownOutcome);
            failed += 1;
            assert!(remove(&mut writer, n).unwrap(), "the log began anew, so the next one finds room");
        }
    }
    assert!(failed > 0, "a disk that was never full proves nothing");
}
