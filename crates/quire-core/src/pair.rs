//! The random number that the rows and the bodies of one store share (contract O5), so that an emptied or
//! exchanged row store never looks like a world of orphans.

use std::fmt;

use crate::{
    paste::to_hex,
    ports::{Entropy, PortError},
};

/// 128 random bits: no two stores are taken for one by chance. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PairId([u8; 16]);

impl PairId {
    /// A pair id of these (random) bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A new one.
    ///
    /// # Errors
    /// There is no randomness to be had.
    pub fn random(entropy: &dyn Entropy) -> Result<Self, PortError> {
        let mut bytes = [0; 16];
        entropy.fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// 32 lower-case hexadecimal characters.
    #[must_use]
    pub fn to_hex(self) -> String {
        to_hex(&self.0)
    }

    /// Its bytes, for a store's own format.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Accepts exactly what [`to_hex`](Self::to_hex) writes.
    #[must_use]
    pub fn from_hex(written: &str) -> Option<Self> {
        let pair = Self(u128::from_str_radix(written, 16).ok()?.to_be_bytes());
        (pair.to_hex() == written).then_some(pair)
    }
}

impl fmt::Debug for PairId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PairId({})", self.to_hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_id_reads_back_and_nothing_else_does() {
        let pair = PairId::from_bytes([0x0A; 16]);
        assert_eq!(PairId::from_hex(&pair.to_hex()), Some(pair));
        for bad in ["", "0a", "+a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", &"0A".repeat(16), &"0a".repeat(17)] {
            assert_eq!(PairId::from_hex(bad), None, "{bad}");
        }
    }
}
