//! The egressctl binary: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    egressctl::main()
}
