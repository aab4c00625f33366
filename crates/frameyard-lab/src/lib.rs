//! What the program `frameyard` is made of, as a library.

pub mod machine;
