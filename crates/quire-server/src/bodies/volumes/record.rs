//! The two headers of a volume file, as bytes: that of the file and that of each record.
//!
//! Pure functions over bytes, all integers little-endian, all headers [`HEADER_BYTES`] long. Never does I/O.
//!
//! # No body can contain a record
//!
//! Every magic begins with `0xFF`, a byte that no UTF-8 text contains, and a body is checked UTF-8. A reader
//! that has lost its place may therefore look for the next record at every 64th byte, bodies included, and
//! can only find records that this adapter wrote.

use quire_core::{
    paste::{BODY_BYTES_MAX, Digest, ID_LEN, Id},
    time::Timestamp,
};

use super::{name::VolumeName, pair::PairId};

/// Length of either header, and what every record begins on a multiple of.
pub(super) const HEADER_BYTES: u64 = 64;
/// The same as an array length.
pub(super) const HEADER_LEN: usize = 64;
/// Format of the volumes this program writes, the only one it reads.
pub(super) const FORMAT_VERSION: u32 = 1;

const VOLUME_MAGIC: [u8; 4] = [0xFF, b'Q', b'V', 0xFE];
const LIVE_MAGIC: [u8; 4] = [0xFF, b'Q', b'R', 0xFE];
const REMOVED_MAGIC: [u8; 4] = [0xFF, b'Q', b'X', 0xFE];

/// A header as it stands in the file.
pub(super) type HeaderBytes = [u8; HEADER_LEN];

/// What a volume file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VolumeHeader {
    /// How the rest of the file is to be read.
    pub(super) format_version: u32,
    /// Which store it belongs to.
    pub(super) pair: PairId,
    /// What the file was called when it was made.
    pub(super) name: VolumeName,
}

impl VolumeHeader {
    /// The header of a volume that this program makes.
    pub(super) const fn new(pair: PairId, name: VolumeName) -> Self {
        Self { format_version: FORMAT_VERSION, pair, name }
    }

    /// Magic 4, version 4, pair 16, volume number 8, zeros 28, CRC 4.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        let volume = self.name.to_number().to_le_bytes();
        push_with_crc(
            &mut bytes,
            &[&VOLUME_MAGIC, &self.format_version.to_le_bytes(), self.pair.bytes(), &volume, &[0; 28]],
        );
        bytes
    }

    /// `None` for whatever is not a whole volume header.
    pub(super) fn decode(bytes: &HeaderBytes) -> Option<Self> {
        let rest = checked(bytes)?;
        let (magic, rest) = rest.split_first_chunk::<4>()?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (pair, rest) = rest.split_first_chunk::<16>()?;
        let (volume, _) = rest.split_first_chunk::<8>()?;
        let name = VolumeName::from_number(i64::from_le_bytes(*volume))?;
        let format_version = u32::from_le_bytes(*version);
        let header = Self { format_version, pair: PairId::from_bytes(*pair), name };
        (*magic == VOLUME_MAGIC).then_some(header)
    }
}

/// Whether a record's body may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordState {
    /// It was written and not removed.
    Live,
    /// It was removed; its body may be gone from the disk. The header stays, so that a scan can pass over it.
    Removed,
}

/// What stands in front of each body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    /// Whether the body may be read.
    pub(super) state: RecordState,
    /// Whose body it is.
    pub(super) id: Id,
    /// Length of the body, without padding.
    pub(super) length: u32,
    /// What the body hashes to.
    pub(super) sha256: Digest,
    /// When it was written, by the store's clock.
    pub(super) written_at: Timestamp,
}

impl RecordHeader {
    /// Appends magic 4, id 12, length 4, SHA-256 32, Unix milliseconds 8, CRC 4.
    pub(super) fn encode_into(&self, bytes: &mut Vec<u8>) {
        let magic = match self.state {
            RecordState::Live => LIVE_MAGIC,
            RecordState::Removed => REMOVED_MAGIC,
        };
        let length = self.length.to_le_bytes();
        let written_at = self.written_at.unix_ms().to_le_bytes();
        push_with_crc(bytes, &[&magic, self.id.as_bytes(), &length, &self.sha256.0, &written_at]);
    }

    /// `None` for whatever is not a whole record header.
    pub(super) fn decode(bytes: &HeaderBytes) -> Option<Self> {
        // Cheaper than the CRC, and wrong at almost every place where a lost reader looks.
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let state = match *magic {
            LIVE_MAGIC => RecordState::Live,
            REMOVED_MAGIC => RecordState::Removed,
            _ => return None,
        };
        checked(bytes)?;
        let (id, rest) = rest.split_first_chunk::<ID_LEN>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (sha256, rest) = rest.split_first_chunk::<32>()?;
        let (written_at, _) = rest.split_first_chunk::<8>()?;
        let length = u32::from_le_bytes(*length);
        if !(1..=BODY_BYTES_MAX).contains(&usize::try_from(length).ok()?) {
            return None;
        }
        Some(Self {
            state,
            id: Id::parse(id)?,
            length,
            sha256: Digest(*sha256),
            written_at: Timestamp::from_unix_ms(i64::from_le_bytes(*written_at)),
        })
    }
}

/// Appends a whole record: header, body, zeros up to the next place where a record may begin.
pub(super) fn encode_record(bytes: &mut Vec<u8>, header: &RecordHeader, body: &[u8]) {
    header.encode_into(bytes);
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(HEADER_LEN), 0);
}

/// How much of the file a record with a body of `length` bytes takes.
pub(super) fn record_bytes(length: u32) -> u64 {
    HEADER_BYTES + u64::from(length).next_multiple_of(HEADER_BYTES)
}

/// A buffer's length as a file offset.
pub(super) fn as_offset(length: usize) -> u64 {
    // No platform has a usize wider than 64 bits; were there one, the write would fail, not wrap.
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn push_with_crc(bytes: &mut Vec<u8>, fields: &[&[u8]]) {
    let mut crc = crc32fast::Hasher::new();
    for field in fields {
        crc.update(field);
        bytes.extend_from_slice(field);
    }
    bytes.extend_from_slice(&crc.finalize().to_le_bytes());
}

/// The header without its CRC, if the CRC is right.
fn checked(bytes: &HeaderBytes) -> Option<&[u8]> {
    let (covered, crc) = bytes.split_last_chunk::<4>()?;
    (crc32fast::hash(covered) == u32::from_le_bytes(*crc)).then_some(covered)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(state: RecordState) -> RecordHeader {
        RecordHeader {
            state,
            id: Id::parse(b"7Kq2mP9xL0aB").unwrap(),
            length: 5,
            sha256: Digest::of(b"hello"),
            written_at: Timestamp::from_unix_ms(1_793_641_440_999),
        }
    }

    fn encoded(header: &RecordHeader) -> HeaderBytes {
        let mut bytes = Vec::new();
        header.encode_into(&mut bytes);
        bytes.try_into().unwrap()
    }

    #[test]
    fn headers_read_back() {
        for state in [RecordState::Live, RecordState::Removed] {
            assert_eq!(RecordHeader::decode(&encoded(&header(state))), Some(header(state)));
        }
        let volume = VolumeHeader::new(PairId::from_bytes([7; 16]), VolumeName::new(20_819, 3).unwrap());
        assert_eq!(VolumeHeader::decode(&volume.encode().try_into().unwrap()), Some(volume));
    }

    #[test]
    fn a_header_with_any_byte_changed_is_none() {
        let record = encoded(&header(RecordState::Live));
        let volume = VolumeHeader::new(PairId::from_bytes([7; 16]), VolumeName::new(20_819, 3).unwrap());
        let volume: HeaderBytes = volume.encode().try_into().unwrap();
        for position in 0..HEADER_LEN {
            for change in [1, 0x80, 0xFF] {
                let (mut record, mut volume) = (record, volume);
                record[position] ^= change;
                volume[position] ^= change;
                assert_eq!(RecordHeader::decode(&record), None, "byte {position}");
                assert_eq!(VolumeHeader::decode(&volume), None, "byte {position}");
            }
        }
    }

    #[test]
    fn a_length_no_body_can_have_is_none() {
        for length in [0, 1_000_001, u32::MAX] {
            let header = RecordHeader { length, ..header(RecordState::Live) };
            assert_eq!(RecordHeader::decode(&encoded(&header)), None);
        }
    }

    proptest! {
        #[test]
        fn a_record_takes_the_room_it_says(body in proptest::collection::vec(any::<u8>(), 1..300)) {
            let mut bytes = vec![0; HEADER_LEN];
            let length = u32::try_from(body.len()).unwrap();
            encode_record(&mut bytes, &RecordHeader { length, ..header(RecordState::Live) }, &body);
            prop_assert_eq!(as_offset(bytes.len()), HEADER_BYTES + record_bytes(length));
            prop_assert_eq!(bytes.len() % HEADER_LEN, 0);
        }

        #[test]
        fn no_text_holds_a_header(text in "\\PC{16,64}") {
            // 0xFF first: whatever 64 bytes of a text are taken, they are no header.
            for window in text.as_bytes().windows(HEADER_LEN) {
                prop_assert!(window[0] != 0xFF);
                prop_assert_eq!(RecordHeader::decode(window.try_into().unwrap()), None);
            }
        }
    }
}
