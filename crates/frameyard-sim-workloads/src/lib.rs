#![doc = include_str!("../README.md")]
//!
//! # How a run proceeds
//!
//! Tasks run the same code as on a host, each on a virtual CPU of its own. A driver moves them from stage to stage. `runtime`
//! is the clock, the queue and the CPU time of one task; `workers` starts the tasks; `driver` counts their progress and reads
//! the counters; `fixture` creates the yard and checks it afterwards. The tasks of `alloc`, `frag` and `replay` have no owners and no
//! rounds: `tasks` starts those of the first two, `replay` its own.

mod alloc;
mod driver;
mod fixture;
mod frag;
mod highalloc;
mod parallel_free;
mod replay;
mod runtime;
mod sockets;
mod tasks;
mod time_spent;
mod timed_runs;
mod virtual_time;
mod workers;

pub use alloc::{alloc, check_alloc};
pub use fixture::{FrameContents, SimFixture, SimInit, SimOptions, with_sim_fixture};
pub use frag::frag;
pub use highalloc::{highalloc, other_cpus};
pub use parallel_free::parallel_free;
pub use replay::{SimReplay, SimReplayError, SimReplayPlan};
pub use time_spent::{TimeSpent, whole_ns};
pub use timed_runs::{decision_support, kernbench, order0_thp, page_fault, purge};
pub use virtual_time::SimRun;
