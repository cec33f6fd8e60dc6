//! egressctl against real hypervisors: the lab that `tests/lab/lab up 2` starts. tests/run brings it up and runs this.
//!
//! `EGRESSCTL_LAB` is the lab's directory, or several with colons between them: as many tests can run at once.
//! `EGRESSCTL_BIN` the binary to test (else this build's).

mod again;
mod calls;
mod check;
mod cli;
mod connection;
mod crash;
mod credentials;
mod definitions;
mod deletion;
mod distance;
mod dry_run;
mod enter;
mod fleet;
mod gate;
mod gc;
mod generations;
mod guest;
mod hangs;
mod hidden;
mod hints;
mod instances;
mod lacking;
mod leftovers;
mod listing;
mod many;
mod modular;
mod oddities;
mod old;
mod ownership;
mod pipeline;
mod pools;
mod progress;
#[path = "../support/pty.rs"]
mod pty;
mod pull;
mod pull_faults;
mod refusals;
mod restricted;
mod saved;
#[path = "../support/schema.rs"]
mod schema;
mod secrets;
mod support;
mod suspended;
mod terminal;
mod together;
mod unseen;
