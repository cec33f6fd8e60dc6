//! The mark inside a seed image that says whose it is, for when its domain is gone.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::iso9660::{APPLICATION, APPLICATION_USE, DESCRIPTOR, SECTOR, VOLUME};
use super::{APPLICATION_ID, LABEL};
use crate::error::{Error, Reason, Result};

/// How many bytes of an image [`read_mark`] needs: its first 34 KiB.
pub const MARK_BYTES: usize = DESCRIPTOR + SECTOR;

/// Whose a seed is. Kept as JSON in the application-use area of the image's primary volume descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedMark {
    /// The instance's uid.
    pub uid: String,
    /// The instance's name.
    pub name: String,
    /// When the instance was made.
    pub created_at: Timestamp,
    /// The process that made it ([`crate::owner::Owner`]), so that one that died can be told from one at work.
    pub owner: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json {
    egressctl: u32,
    uid: String,
    name: String,
    created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

impl SeedMark {
    /// The mark's bytes, at most 512.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let json = Json {
            egressctl: 1,
            uid: self.uid.clone(),
            name: self.name.clone(),
            created_at: self.created_at.to_string(),
            owner: self.owner.clone(),
        };
        let bytes = serde_json::to_vec(&json).unwrap_or_default();
        if bytes.is_empty() || bytes.len() > APPLICATION_USE.1 {
            return Err(Error::usage(Reason::BadArgument, "the uid is too long")
                .hint("a uid of at most 256 characters fits"));
        }
        Ok(bytes)
    }
}

/// More than any seed has: three files of at most 16 MiB. Bytes.
const LARGEST: u64 = 64 << 20;

/// Whether a file of so many bytes may be a seed that was never filled. libvirt makes it as long as its image at once: it
/// holds a mark, is whole sectors, and no more than 64 MiB. A shorter one, an empty one above all, is nobody's we know.
pub fn may_be_unwritten(bytes: u64) -> bool {
    (MARK_BYTES as u64..=LARGEST).contains(&bytes) && bytes.is_multiple_of(SECTOR as u64)
}

/// Reads the mark from an image's first [`MARK_BYTES`] bytes; none unless everything about it is ours.
pub fn read_mark(head: &[u8]) -> Option<SeedMark> {
    let descriptor = head.get(DESCRIPTOR..MARK_BYTES)?;
    let field = |(at, length): (usize, usize)| &descriptor[at..at + length];
    let text = |place| std::str::from_utf8(field(place)).ok().map(str::trim_end);
    let ours = descriptor.starts_with(b"\x01CD001\x01")
        && text(VOLUME) == Some(LABEL)
        && text(APPLICATION) == Some(APPLICATION_ID);
    if !ours {
        return None;
    }
    let area = field(APPLICATION_USE);
    let end = area
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(area.len());
    let json: Json = serde_json::from_slice(&area[..end]).ok()?;
    let created_at = json.created_at.parse().ok()?;
    (json.egressctl == 1).then_some(SeedMark {
        uid: json.uid,
        name: json.name,
        created_at,
        owner: json.owner,
    })
}
