//! SSH: one connection per host, known to be the host's, and libvirt's socket carried through it.
//!
//! [`dial()`] goes through its stages and gives a [`Link`]; [`local()`] gives one to this machine. A
//! link has a private unix socket, and every connection to that becomes a channel of its own to
//! libvirt's socket on the host.

mod abandoned;
mod agent;
mod auth;
mod by_hand;
mod client;
mod dial;
mod far;
mod forward;
mod here;
mod host_key;
mod key;
pub mod known_hosts;
mod link;
mod private_dir;
mod pump;
mod session;
mod shared;
mod tcp;
mod transport;
mod wire;

pub use dial::{DialOptions, dial};
pub use key::Prompt;
pub use link::{Closer, Link, local};
pub use shared::ExecOutput;

/// Where this module's log lines come from.
const LOG_TARGET: &str = "egressctl::ssh";
