#![doc = include_str!("../README.md")]
#![no_std]

mod platform;

pub use platform::{Counted, CountingPlatform, CountingRow, LocksTaken, PageTouches, SpanTouches};
