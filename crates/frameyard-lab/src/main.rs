//! The program `frameyard`.

fn main() {}
