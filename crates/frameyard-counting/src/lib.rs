#![doc = include_str!("../README.md")]
#![no_std]

mod counted;
mod platform;
mod task_counters;

pub use counted::{Counted, LineTouches, LocksTaken, PageTouches, SpanTouches};
pub use platform::CountingPlatform;
pub use task_counters::TaskCounters;
