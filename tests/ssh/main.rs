//! The SSH connection against a real sshd on 127.0.0.1, one of each test's own.

mod agents;
mod authentication;
mod forwarding;
mod hangs;
mod host_keys;
mod sshd;
mod transfer;
