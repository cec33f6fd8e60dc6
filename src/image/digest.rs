//! Digests of a stream: SHA-256 always, SHA-512 where one is wanted.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256, Sha512};

/// Digests under way.
pub struct Hasher {
    sha256: Sha256,
    sha512: Option<Sha512>,
    bytes: u64,
}

/// The digests of a whole stream, as lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    /// 64 digits.
    pub sha256: String,
    /// 128 digits, where it was asked for.
    pub sha512: Option<String>,
    /// How many bytes they are of.
    pub bytes: u64,
}

impl Hasher {
    /// Starts; SHA-512 costs as much again, so it is computed only on request.
    pub fn new(with_sha512: bool) -> Self {
        Hasher {
            sha256: Sha256::new(),
            sha512: with_sha512.then(Sha512::new),
            bytes: 0,
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.sha256.update(data);
        if let Some(sha512) = &mut self.sha512 {
            sha512.update(data);
        }
        self.bytes += data.len() as u64;
    }

    /// The digests of all bytes taken.
    pub fn finish(self) -> Digests {
        Digests {
            sha256: hex(&self.sha256.finalize()),
            sha512: self.sha512.map(|digest| hex(&digest.finalize())),
            bytes: self.bytes,
        }
    }
}

/// Lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// SHA-256 of some bytes, as hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // FIPS 180-2, appendices B.1 and C.1.
        let mut hasher = Hasher::new(true);
        hasher.update(b"a");
        hasher.update(b"bc");
        let digests = hasher.finish();
        assert_eq!(
            digests.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(
            digests
                .sha512
                .unwrap()
                .starts_with("ddaf35a193617abacc417349ae204131")
        );
        assert_eq!(digests.bytes, 3);
        assert_eq!(Hasher::new(false).finish().sha512, None);
    }
}
