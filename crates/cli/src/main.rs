//! homenode
fn main() {}
