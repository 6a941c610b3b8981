//! Erasing in place, without a store around it.

use std::fs;

use quire_core::{
    paste::{Digest, Locator},
    testing::bodies_contract::fresh_id,
    time::Timestamp,
};

use super::{
    super::{name::VolumeName, record::encode_record},
    *,
};

/// A file of a volume header's worth of zeros, one record and something behind it.
fn file_with_record(folder: &Path, text: &str) -> (PathBuf, BodyRef) {
    let name = VolumeName::new(20_000, 1).unwrap();
    let header = RecordHeader {
        state: RecordState::Live,
        id: fresh_id(),
        length: u32::try_from(text.len()).unwrap(),
        sha256: Digest::of(text.as_bytes()),
        written_at: Timestamp::from_unix_ms(0),
    };
    let mut bytes = vec![0; HEADER_LEN];
    encode_record(&mut bytes, &header, text.as_bytes());
    bytes.extend_from_slice(b"behind");
    let path = folder.join(name.file_name());
    fs::write(&path, bytes).unwrap();
    let locator = Some(Locator { volume: name.to_number(), offset: 64 });
    (path, BodyRef { id: header.id, size_bytes: header.length, sha256: header.sha256, locator })
}

fn header_at_64(path: &Path) -> Option<RecordHeader> {
    record_at(&File::open(path).unwrap(), 64).unwrap()
}

#[test]
fn where_no_hole_can_be_punched_zeros_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for length in [1, 64, 65_536, 200_001] {
        let (path, body) = file_with_record(folder.path(), &"x".repeat(length));
        let before = fs::read(&path).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let header = header_at_64(&path).unwrap();
        erase(&file, 64, header, |_, _, _| Err(io::ErrorKind::Unsupported.into())).unwrap();
        let after = fs::read(&path).unwrap();
        assert_eq!(after.len(), before.len());
        assert!(after[128..128 + length].iter().all(|byte| *byte == 0));
        assert!(after.ends_with(b"behind"));
        let header = header_at_64(&path).unwrap();
        assert!(header.state == RecordState::Removed && header.id == body.id);
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn zeros_never_make_a_file_longer() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = file_with_record(folder.path(), &"x".repeat(1_000));
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let header = header_at_64(&path).unwrap();
    file.set_len(300).unwrap();
    erase(&file, 64, header, |_, _, _| Err(io::ErrorKind::Unsupported.into())).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 300);
}

#[test]
fn a_removal_that_failed_half_way_can_be_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, body) = file_with_record(folder.path(), &"x".repeat(10_000));
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let header = header_at_64(&path).unwrap();
    let failed = erase(&file, 64, header, |_, _, _| Err(io::Error::from_raw_os_error(5)));
    assert_eq!(failed.unwrap_err().raw_os_error(), Some(5));
    assert!(fs::read(&path).unwrap().contains(&b'x'));
    remove(folder.path(), &body).unwrap();
    assert!(!fs::read(&path).unwrap().contains(&b'x'));
}

#[test]
fn a_hold_defers_a_bounded_number_and_the_rest_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let (path, body) = file_with_record(folder.path(), "kept for now");
    let mut removals = Removals::open(folder.path()).unwrap();
    let hold = RemovalHold::take(folder.path()).unwrap();
    assert!(removals.apply(vec![body; 3]).iter().all(Result::is_ok));
    assert_eq!(removals.deferred.len(), 3);
    let answers = removals.apply(vec![body; DEFERRED_MAX]);
    assert_eq!(answers.len(), DEFERRED_MAX);
    let faults: Vec<_> = answers.into_iter().filter_map(Result::err).map(|error| error.fault()).collect();
    assert_eq!(faults, [Fault::Unavailable; 3], "those past the bound are counted as orphans");
    assert_eq!(removals.retry_after(), Some(RETRY_EVERY));
    assert_eq!(removals.deferred.len(), DEFERRED_MAX);
    assert_eq!(header_at_64(&path).unwrap().state, RecordState::Live);

    drop(hold);
    assert!(removals.apply(Vec::new()).is_empty());
    assert_eq!(header_at_64(&path).unwrap().state, RecordState::Removed);
    assert_eq!(removals.deferred.len(), DEFERRED_MAX - DEFERRED_PER_TURN);
    assert_eq!(removals.retry_after(), Some(Duration::ZERO), "the lock was free");
    // Between two turns the lock is free.
    drop(RemovalHold::take(folder.path()).unwrap());
    removals.finish();
    assert_eq!((removals.deferred.len(), removals.retry_after()), (0, None));
}

#[test]
fn the_last_try_does_not_wait_for_a_hold() {
    let folder = tempfile::tempdir().unwrap();
    let (path, body) = file_with_record(folder.path(), "kept by a backup");
    let mut removals = Removals::open(folder.path()).unwrap();
    let _hold = RemovalHold::take(folder.path()).unwrap();
    assert!(removals.apply(vec![body]).iter().all(Result::is_ok));
    removals.finish();
    assert_eq!(header_at_64(&path).unwrap().state, RecordState::Live);
}
