//! Base images: what their bytes are, and what they should be.

mod approach;
pub(crate) mod claim;
mod decompress;
pub mod digest;
mod fan_out;
pub mod head;
mod identify;
pub mod identity;
mod lanes;
pub mod names;
mod newest;
pub mod policy;
mod publish;
pub mod pull;
pub mod qcow2;
mod ranges;
pub mod ready;
pub mod remove;
pub mod room;
mod source;
pub mod store;
mod stream;
pub mod sums;
mod verify;

#[cfg(test)]
pub(crate) use source::fuzz_headers;
