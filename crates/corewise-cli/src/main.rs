//! The `corewise` command.
fn main() {}
