//! The few SSH data types (RFC 4251 section 5) that key files, `known_hosts` and agents use.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

/// Reads SSH data types off the front of a byte slice.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes(4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.bytes(length)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The key type that a public key blob begins with, such as `ssh-ed25519` (RFC 4253 section 6.6).
pub(super) fn blob_type(blob: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(Reader::new(blob).string()?).ok()?;
    let sane = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    sane.then_some(name)
}

/// `SHA256:…`, as ssh-keygen and sshd's log print fingerprints.
pub(super) fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob)))
}

/// Decodes a public key's base64, and checks that the blob is of the type written before it.
pub(super) fn decode_key(key_type: &str, base64: &str) -> Option<Vec<u8>> {
    let blob = STANDARD.decode(base64).ok()?;
    (blob_type(&blob)? == key_type).then_some(blob)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIHJhbmRvbWJ5dGVzcmFuZG9tYnl0ZXNyYW5kb21ieXQA";

    #[test]
    fn a_key_must_be_of_the_type_it_says() {
        assert_eq!(
            decode_key("ssh-ed25519", KEY).map(|blob| blob.len()),
            Some(51)
        );
        for (key_type, base64) in [
            ("ssh-rsa", KEY),
            ("ssh-ed25519", "AAAA"),
            ("ssh-ed25519", "not base64!"),
            ("ssh-ed25519", ""),
        ] {
            assert_eq!(decode_key(key_type, base64), None, "{key_type} {base64}");
        }
    }

    #[test]
    fn a_string_longer_than_its_data_is_refused() {
        assert_eq!(Reader::new(&[0, 0, 0, 2, b'a']).string(), None);
        assert_eq!(Reader::new(&[0xff; 4]).string(), None);
        assert_eq!(Reader::new(&[0, 0, 0, 1, b'a']).string(), Some(&b"a"[..]));
    }
}
