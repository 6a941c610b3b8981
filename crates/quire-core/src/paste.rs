//! Validated types: whatever holds one of these has already been checked.

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::time::Timestamp;

/// Characters in an id; 62^12 = 3.23e21 ids.
pub const ID_LEN: usize = 12;
/// Random bytes in a delete token: 128 bits.
pub const TOKEN_RANDOM_BYTES: usize = 16;
/// Characters in a delete token: 16 bytes as base64url without padding.
pub const TOKEN_LEN: usize = 22;
/// Longest syntax label in bytes.
pub const SYNTAX_BYTES_MAX: usize = 32;
/// Longest body in bytes: 1 MB in powers of ten (contract C2).
pub const BODY_BYTES_MAX: usize = 1_000_000;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The public name of a paste: 12 characters of `[0-9A-Za-z]`, case-sensitive. It is a capability:
/// whoever knows it may read the paste, so `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id([u8; ID_LEN]);

impl Id {
    /// Accepts exactly the written form of an id; anything else is `None`.
    #[must_use]
    pub fn parse(written: &[u8]) -> Option<Self> {
        let bytes: [u8; ID_LEN] = written.try_into().ok()?;
        bytes.iter().all(u8::is_ascii_alphanumeric).then_some(Self(bytes))
    }

    /// Draws characters uniformly from random bytes by rejection sampling; `None` if too many of them had
    /// to be rejected and more randomness is needed.
    ///
    /// A byte's low six bits give 64 equally likely values; 62 of them are characters and two are thrown
    /// away, so that no character is likelier than another (contract M1).
    #[must_use]
    pub fn from_random(random: &[u8]) -> Option<Self> {
        let mut characters = random.iter().filter_map(|byte| ALPHABET.get(usize::from(byte & 0x3F)).copied());
        let mut id = [0; ID_LEN];
        for slot in &mut id {
            *slot = characters.next()?;
        }
        Some(Self(id))
    }

    /// The id as text, to be sent to whoever may know it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only ASCII letters and digits get in; the empty string could never be reached.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The id's bytes, for a store's own format.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; ID_LEN] {
        &self.0
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Id(..)")
    }
}

/// The secret that deletes a paste. It is shown once and never stored; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct DeleteToken([u8; TOKEN_LEN]);

impl DeleteToken {
    /// Accepts 22 characters of base64url without padding; anything else is `None`.
    #[must_use]
    pub fn parse(written: &[u8]) -> Option<Self> {
        let bytes: [u8; TOKEN_LEN] = written.try_into().ok()?;
        let alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        bytes.iter().all(alphabet).then_some(Self(bytes))
    }

    /// Writes 128 random bits as a token.
    #[must_use]
    pub fn from_random(random: [u8; TOKEN_RANDOM_BYTES]) -> Self {
        let mut token = [0; TOKEN_LEN];
        // 16 bytes are always 22 characters, so this cannot fail; were the two constants ever to disagree,
        // the unwritten rest would fail every parse.
        let _ = URL_SAFE_NO_PAD.encode_slice(random, &mut token);
        Self(token)
    }

    /// The token as text, for the one answer that carries it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// What the store keeps: the SHA-256 of the token's characters.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Digest::of(&self.0))
    }
}

impl fmt::Debug for DeleteToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeleteToken(..)")
    }
}

/// The SHA-256 of a delete token. Comparison takes the same time wherever the two differ.
#[derive(Clone, Copy, Debug)]
pub struct TokenHash(pub Digest);

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.0.ct_eq(&other.0.0).into()
    }
}

impl Eq for TokenHash {}

/// A SHA-256. `Debug` does not show it: the digest of a guessable text tells the text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// 64 lower-case hexadecimal characters.
    #[must_use]
    pub fn to_hex(self) -> String {
        to_hex(&self.0)
    }
}

/// Lower-case hexadecimal, two characters a byte.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).map_or('0', |byte| char::from(*byte));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0x0F)]).collect()
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// How long a paste lives: one of four, so that what is stored together expires together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ttl {
    /// `1d`, 86,400 s
    Day,
    /// `7d`, 604,800 s
    Week,
    /// `30d`, 2,592,000 s: what an absent header means
    #[default]
    Month,
    /// `365d`, 31,536,000 s
    Year,
}

impl Ttl {
    /// Every lifetime a client may ask for.
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Year];

    /// Accepts exactly the four written forms.
    #[must_use]
    pub fn parse(written: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|ttl| ttl.as_str().as_bytes() == written)
    }

    /// The written form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "1d",
            Self::Week => "7d",
            Self::Month => "30d",
            Self::Year => "365d",
        }
    }

    /// The length of the lifetime.
    #[must_use]
    pub const fn duration(self) -> Duration {
        const DAY_SECONDS: u64 = 86_400;
        Duration::from_secs(match self {
            Self::Day => DAY_SECONDS,
            Self::Week => 7 * DAY_SECONDS,
            Self::Month => 30 * DAY_SECONDS,
            Self::Year => 365 * DAY_SECONDS,
        })
    }
}

/// A label the client chose for highlighting: 1 to 32 bytes of visible ASCII, given back, never
/// interpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syntax(String);

impl Syntax {
    /// Accepts 1 to 32 bytes of 0x21-0x7E.
    #[must_use]
    pub fn parse(written: &[u8]) -> Option<Self> {
        let fits = (1..=SYNTAX_BYTES_MAX).contains(&written.len());
        if !fits || !written.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        String::from_utf8(written.to_vec()).ok().map(Self)
    }

    /// The label as it was sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A body that may be stored: UTF-8, not empty, at most [`BODY_BYTES_MAX`]. The bytes are those that were
/// sent, untouched (contract C5). `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Bytes);

/// Why bytes are not a [`Text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// There were no bytes.
    #[error("the body is empty")]
    Empty,
    /// There were more than [`BODY_BYTES_MAX`].
    #[error("the body is larger than 1,000,000 bytes")]
    TooLarge,
    /// They were not UTF-8.
    #[error("the body is not UTF-8")]
    NotUtf8,
}

impl Text {
    /// Checks the bytes and keeps them as they are.
    ///
    /// # Errors
    /// Says which of the three conditions does not hold.
    pub fn new(bytes: Bytes) -> Result<Self, TextError> {
        match bytes.len() {
            0 => return Err(TextError::Empty),
            1..=BODY_BYTES_MAX => {}
            _ => return Err(TextError::TooLarge),
        }
        std::str::from_utf8(&bytes).map_err(|_| TextError::NotUtf8)?;
        Ok(Self(bytes))
    }

    /// The bytes as they were sent.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.0.len())
    }
}

/// Where a body stands in the volumes of one box. Opaque to everyone but the adapter that gave it out; a
/// bucket finds bodies by their id and gives none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Locator {
    /// Which volume.
    pub volume: i64,
    /// Where the record begins, in bytes from the volume's start.
    pub offset: i64,
}

/// One row: everything that is stored of a paste but its body.
#[derive(Clone, Debug)]
pub struct Row {
    /// Primary key.
    pub id: Id,
    /// When the row store inserted it.
    pub created_at: Timestamp,
    /// From this instant on nobody can read it. Absolute, whole seconds.
    pub expires_at: Timestamp,
    /// Bytes stored, not bytes claimed.
    pub size_bytes: u32,
    /// The client's label.
    pub syntax: Option<Syntax>,
    /// What the delete token must hash to.
    pub delete_token_hash: TokenHash,
    /// What the body must hash to.
    pub body_sha256: Digest,
    /// Where the body is, on one box.
    pub locator: Option<Locator>,
}

impl Row {
    /// What it takes to find and check the body.
    #[must_use]
    pub const fn body(&self) -> BodyRef {
        BodyRef { id: self.id, size_bytes: self.size_bytes, sha256: self.body_sha256, locator: self.locator }
    }
}

/// What it takes to find a body and to check that it is the one that was stored.
#[derive(Clone, Copy, Debug)]
pub struct BodyRef {
    /// Whose body it is.
    pub id: Id,
    /// How long it is.
    pub size_bytes: u32,
    /// What it hashes to.
    pub sha256: Digest,
    /// Where it is, on one box.
    pub locator: Option<Locator>,
}

/// A live paste, as a reader gets it.
#[derive(Clone, Debug)]
pub struct Paste {
    /// Its row.
    pub row: Arc<StoredRow>,
    /// Its body, whose digest is the row's.
    pub body: Bytes,
}

/// A row together with the text forms of its fields that every answer carries, made once when the row is
/// loaded so that a cached row costs no formatting (the hot path of a read).
#[derive(Clone, Debug)]
pub struct StoredRow {
    /// The row itself.
    pub row: Row,
    /// `expires_at` in RFC 3339.
    pub expires_at_text: Bytes,
    /// The body's digest as 64 hexadecimal characters in double quotes: a strong validator for caches.
    pub entity_tag: Bytes,
}

impl StoredRow {
    /// Formats what is formatted once.
    #[must_use]
    pub fn new(row: Row) -> Self {
        let expires_at_text = Bytes::from(row.expires_at.to_rfc3339());
        let entity_tag = Bytes::from(format!("\"{}\"", row.body_sha256.to_hex()));
        Self { row, expires_at_text, entity_tag }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_is_twelve_characters_of_base62() {
        assert_eq!(Id::parse(b"7Kq2mP9xL0aB").unwrap().as_str(), "7Kq2mP9xL0aB");
        for bad in [
            &b""[..],
            b"7Kq2mP9xL0a",
            b"7Kq2mP9xL0aBc",
            b"7Kq2mP9xL0a-",
            b"7Kq2mP9xL0a\0",
            "7Kq2mP9xL0\u{e9}".as_bytes(),
        ] {
            assert!(Id::parse(bad).is_none());
        }
    }

    #[test]
    fn sampling_maps_every_character_from_equally_many_bytes() {
        let mut seen = std::collections::HashMap::new();
        for byte in 0..=255_u8 {
            if let Some(id) = Id::from_random(&[byte; ID_LEN]) {
                *seen.entry(id.as_bytes()[0]).or_insert(0) += 1;
            }
        }
        assert_eq!(seen.len(), 62, "every character can be drawn");
        assert!(seen.values().all(|count| *count == 4), "and each from four of the 256 bytes");
    }

    #[test]
    fn sampling_skips_what_it_rejects_and_asks_for_more_when_short() {
        let mut random = vec![62, 63, 255];
        random.extend([0; ID_LEN - 1]);
        assert!(Id::from_random(&random).is_none());
        random.push(61);
        assert_eq!(Id::from_random(&random).unwrap().as_str(), "00000000000z");
    }

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        let id = Id::parse(b"7Kq2mP9xL0aB").unwrap();
        let token = DeleteToken::from_random([7; 16]);
        let text = Text::new(Bytes::from_static(b"secret words")).unwrap();
        let shown = format!("{id:?} {token:?} {:?} {text:?} {:?}", token.hash(), Digest::of(b"secret words"));
        for secret in [id.as_str(), token.as_str(), "secret words", &Digest::of(b"secret words").to_hex()] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn text_is_checked_and_kept() {
        assert_eq!(Text::new(Bytes::new()), Err(TextError::Empty));
        assert_eq!(Text::new(Bytes::from_static(b"ab\xFF")), Err(TextError::NotUtf8));
        assert_eq!(Text::new(Bytes::from(vec![b'a'; BODY_BYTES_MAX + 1])), Err(TextError::TooLarge));
        assert!(Text::new(Bytes::from(vec![b'a'; BODY_BYTES_MAX])).is_ok());
        let odd = Bytes::from_static("\u{FEFF}a\r\nb\0 e\u{301}\n".as_bytes());
        assert_eq!(Text::new(odd.clone()).unwrap().bytes(), &odd);
    }

    #[test]
    fn digest_is_lower_case_hex() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_hex(), empty);
    }

    proptest! {
        #[test]
        fn a_token_reads_back_and_hashes_alike(random: [u8; 16]) {
            let token = DeleteToken::from_random(random);
            let again = DeleteToken::parse(token.as_str().as_bytes()).unwrap();
            prop_assert_eq!(token.hash(), again.hash());
        }

        #[test]
        fn a_token_of_another_form_is_refused(written in proptest::collection::vec(any::<u8>(), 0..40)) {
            let allowed = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'_';
            prop_assert_eq!(DeleteToken::parse(&written).is_some(), written.len() == 22 && written.iter().all(allowed));
        }

        #[test]
        fn a_ttl_is_one_of_four(written in "[0-9 d]{0,5}") {
            let listed = ["1d", "7d", "30d", "365d"].contains(&written.as_str());
            prop_assert_eq!(Ttl::parse(written.as_bytes()).is_some(), listed);
        }

        #[test]
        fn a_syntax_label_is_short_visible_ascii(written in proptest::collection::vec(any::<u8>(), 0..40)) {
            let good = (1..=32).contains(&written.len()) && written.iter().all(|b| (0x21..=0x7E).contains(b));
            let parsed = Syntax::parse(&written);
            prop_assert_eq!(parsed.is_some(), good);
            if let Some(label) = parsed {
                prop_assert_eq!(label.as_str().as_bytes(), &written[..]);
            }
        }
    }
}
