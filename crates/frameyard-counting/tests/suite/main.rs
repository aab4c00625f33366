//! Tests of the counting platform on small yards.

mod counting;
#[path = "../../../frameyard/tests/suite/fixture/mod.rs"]
#[expect(dead_code, reason = "the fixture of the core, of which these tests use a part")]
mod fixture;
mod lines;
