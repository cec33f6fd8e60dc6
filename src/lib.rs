//! egressctl: proxy VMs on your own libvirt/KVM hypervisors, over nothing but SSH.
#![warn(missing_docs)]

pub mod cancel;
pub mod config;
pub mod error;
pub mod image;
pub mod name;
pub mod seed;
pub mod xml;
pub mod ssh;
