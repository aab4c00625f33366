//! Tests of the counting platform on small yards.

mod counting;
#[path = "../../../frameyard/tests/fixture/mod.rs"]
mod fixture;
