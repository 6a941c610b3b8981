//! Recovery, exhaustively: one small volume, damaged at every byte there is.

use std::{fs, path::PathBuf};

use quire_core::{testing::bodies_contract::fresh_id, time::Timestamp};
use tempfile::TempDir;

use super::{
    super::{
        disk::LocalDisk,
        record::{RecordHeader, encode_record},
    },
    *,
};

const PAIR: PairId = PairId::from_bytes([7; 16]);
/// Without padding, with some, and over a border; the last one with some, so that losing it can be tried.
const LENGTHS: [usize; 4] = [64, 1, 130, 100];

struct Written {
    folder: TempDir,
    name: VolumeName,
    bytes: Vec<u8>,
    /// Where each record begins, where its body ends, where the next one begins.
    records: Vec<(usize, usize, usize)>,
}

fn record(length: usize) -> Vec<u8> {
    let body = vec![b'b'; length];
    let header = RecordHeader {
        state: RecordState::Live,
        id: fresh_id(),
        length: u32::try_from(length).unwrap(),
        sha256: Digest::of(&body),
        written_at: Timestamp::from_unix_ms(1),
    };
    let mut bytes = Vec::new();
    encode_record(&mut bytes, &header, &body);
    bytes
}

impl Written {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = VolumeName::new(20_000, 1).unwrap();
        let mut volume = Volume::create(&LocalDisk, folder.path(), PAIR, name).unwrap();
        let mut records = Vec::new();
        for length in LENGTHS {
            let begin = usize::try_from(volume.append(&record(length)).unwrap()).unwrap();
            records.push((begin, begin + 64 + length, usize::try_from(volume.end()).unwrap()));
        }
        let bytes = fs::read(folder.path().join(name.file_name())).unwrap();
        assert_eq!(bytes.len(), records.last().unwrap().2);
        Self { folder, name, bytes, records }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.name.file_name())
    }

    fn recover(&self, bytes: &[u8]) -> Recovered {
        fs::write(self.path(), bytes).unwrap();
        Volume::recover(&LocalDisk, self.folder.path(), PAIR, self.name).unwrap()
    }

    /// Recovers the damaged bytes, appends, and checks where that went and what was left of the rest.
    fn check(&self, damaged: &[u8], is_whole: impl Fn(usize, usize) -> bool, what: &str) {
        let whole: Vec<_> = self.records.iter().filter(|(begin, end, _)| is_whole(*begin, *end)).collect();
        let end = whole.last().map_or(64, |(_, _, next)| *next);
        let Recovered::Open(mut volume) = self.recover(damaged) else { panic!("{what}: not usable") };
        assert_eq!(volume.end(), as_offset(end), "{what}");
        assert_eq!(fs::metadata(self.path()).unwrap().len(), as_offset(end), "{what}");
        let new = record(70);
        assert_eq!(volume.append(&new).unwrap(), as_offset(end), "{what}");
        let after = fs::read(self.path()).unwrap();
        for (begin, end, _) in whole {
            assert_eq!(after[*begin..*end], self.bytes[*begin..*end], "{what}");
        }
        assert_eq!(after[end..], new, "{what}");
    }
}

#[test]
fn cut_anywhere_it_keeps_what_is_whole() {
    let written = Written::new();
    for cut in 0..=written.bytes.len() {
        if cut < 64 {
            assert!(matches!(written.recover(&written.bytes[..cut]), Recovered::Unusable), "cut at {cut}");
            assert_eq!(fs::metadata(written.path()).unwrap().len(), as_offset(cut), "and is left alone");
        } else {
            written.check(&written.bytes[..cut], |_, end| end <= cut, &format!("cut at {cut}"));
        }
    }
}

#[test]
fn with_any_byte_changed_it_keeps_every_other_record() {
    let written = Written::new();
    for at in 0..written.bytes.len() {
        let mut damaged = written.bytes.clone();
        damaged[at] ^= 0x40;
        if at < 64 {
            assert!(matches!(written.recover(&damaged), Recovered::Unusable), "byte {at}");
        } else {
            written.check(&damaged, |begin, end| at < begin || at >= end, &format!("byte {at}"));
        }
    }
}

#[test]
fn zeroed_from_anywhere_it_keeps_what_stands_in_front() {
    let written = Written::new();
    for from in 64..=written.bytes.len() {
        let mut damaged = written.bytes.clone();
        damaged[from..].fill(0);
        // Zeros over zeros change nothing, so compare what is there and not where the zeros began.
        let same = |begin: usize, end: usize| damaged[begin..end] == written.bytes[begin..end];
        written.check(&damaged, same, &format!("zeros from {from}"));
    }
}

#[test]
fn whatever_was_not_finished_behind_the_last_record_is_cut_off() {
    let written = Written::new();
    let unfinished = record(1_000);
    let mut tails: Vec<Vec<u8>> =
        (0..unfinished.len() - 24).step_by(3).map(|length| unfinished[..length].to_vec()).collect();
    tails.push(vec![0; 5_000]);
    tails.push(vec![0xFF; 5_000]);
    tails.push(b"text".repeat(40_000));
    let mut torn = unfinished.clone();
    torn[500..].fill(0);
    tails.push(torn);
    for tail in tails {
        let damaged = [&written.bytes[..], &tail].concat();
        written.check(&damaged, |_, _| true, &format!("a tail of {}", tail.len()));
    }
}

#[test]
fn a_whole_record_behind_a_long_stretch_of_damage_is_found() {
    let written = Written::new();
    let mut damaged = written.bytes.clone();
    damaged.extend(b"no header".repeat(30_000));
    damaged.resize(damaged.len().next_multiple_of(64), 0);
    let far = record(50);
    damaged.extend_from_slice(&far);
    let Recovered::Open(volume) = written.recover(&damaged) else { panic!("not usable") };
    assert_eq!(volume.end(), as_offset(damaged.len()));
}

#[test]
fn a_removed_record_at_the_end_counts() {
    let written = Written::new();
    let (begin, end, next) = *written.records.last().unwrap();
    let mut damaged = written.bytes.clone();
    let header = RecordHeader::decode(damaged[begin..].first_chunk().unwrap()).unwrap();
    let mut mark = Vec::new();
    RecordHeader { state: RecordState::Removed, ..header }.encode_into(&mut mark);
    damaged[begin..begin + 64].copy_from_slice(&mark);
    damaged[begin + 64..end].fill(0);
    let Recovered::Open(volume) = written.recover(&damaged) else { panic!("not usable") };
    assert_eq!(volume.end(), as_offset(next));
}

#[test]
fn a_volume_of_another_store_or_format_is_refused_untouched() {
    let written = Written::new();
    let with_header = |header: VolumeHeader| [&header.encode(), &written.bytes[64..]].concat();
    let good = VolumeHeader::new(PAIR, written.name);
    let others = [
        VolumeHeader { pair: PairId::from_bytes([8; 16]), ..good },
        VolumeHeader { name: VolumeName::new(20_000, 2).unwrap(), ..good },
        VolumeHeader { format_version: 2, ..good },
    ];
    for header in others {
        let bytes = [with_header(header), b"noise".to_vec()].concat();
        fs::write(written.path(), &bytes).unwrap();
        let refused = Volume::recover(&LocalDisk, written.folder.path(), PAIR, written.name).unwrap_err();
        assert!(matches!(refused, RecoverError::Foreign { .. } | RecoverError::OtherFormat { found: 2, .. }));
        assert_eq!(fs::read(written.path()).unwrap(), bytes);
    }
}

#[test]
fn making_a_volume_never_takes_over_a_file() {
    let written = Written::new();
    let failed = Volume::create(&LocalDisk, written.folder.path(), PAIR, written.name).unwrap_err();
    assert_eq!(failed.source.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(written.path()).unwrap(), written.bytes);
}
