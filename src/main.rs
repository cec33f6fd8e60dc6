//! The egressctl binary: everything is in the library.

fn main() {}
