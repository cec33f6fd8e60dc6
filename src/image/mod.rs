//! Base images: what their bytes are, and what they should be.

pub mod head;
pub mod qcow2;
pub mod sums;
