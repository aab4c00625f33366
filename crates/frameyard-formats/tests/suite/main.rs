//! Tests of the formats: against captures of real kernels, against fixed numbers, and on small yards.

mod captured_zoneinfo;
mod captures;
#[path = "../../../frameyard/tests/fixture/mod.rs"]
mod fixture;
mod metrics;
mod proc_formats;
mod yard_report;
