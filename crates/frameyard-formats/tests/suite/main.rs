//! Tests of the formats: against captures of real kernels, against fixed numbers, and on small yards.

mod captured_zoneinfo;
mod captures;
#[path = "../../../frameyard/tests/suite/fixture/mod.rs"]
#[expect(dead_code, reason = "the fixture of the core, of which these tests use a part")]
mod fixture;
mod metrics;
mod proc_formats;
mod yard_report;
