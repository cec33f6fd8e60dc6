//! Base images: what their bytes are, and what they should be.

mod claim;
pub mod digest;
pub mod head;
pub mod identity;
pub mod pull;
pub mod qcow2;
pub mod ready;
mod source;
pub mod store;
pub mod sums;
