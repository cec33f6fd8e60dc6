//! Base images: what their bytes are, and what they should be.

mod claim;
mod decompress;
pub mod digest;
pub mod head;
pub mod identity;
pub mod policy;
pub mod pull;
pub mod qcow2;
pub mod ready;
mod source;
pub mod store;
mod stream;
pub mod sums;
mod verify;
