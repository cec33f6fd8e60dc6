//! libvirt's XML: what is sent to it and what it answers, without a byte of it written by hand.

pub mod capabilities;
pub mod domain;
pub mod domain_info;
pub mod metadata;
pub mod pool;
mod tree;
pub mod volume;
