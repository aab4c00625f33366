//! What is run on a yard: the operations and their timing, without any rendering.
//!
//! Workloads of what owns frames run on a `ground` as tasks of a `crew`, threads or processes, which go
//! through the same stages (`stage`); each has a module of its own, with what a task does and what a run is.

pub mod alloc;
pub(crate) mod churn;
pub(crate) mod compaction;
pub(crate) mod contig;
pub(crate) mod copy_speed;
pub(crate) mod counts;
pub(crate) mod course;
pub(crate) mod crew;
pub(crate) mod crossing;
pub(crate) mod device_map;
mod exchange;
pub(crate) mod fault_cost;
pub(crate) mod ground;
pub(crate) mod held;
pub(crate) mod highalloc;
mod host_time;
pub(crate) mod kernbench;
pub(crate) mod memory_region;
pub(crate) mod order0_thp;
pub(crate) mod page_fault;
pub(crate) mod parallel_free;
pub(crate) mod pin;
pub(crate) mod purge;
pub(crate) mod report_free;
pub(crate) mod simulated;
mod stage;
mod stamp;
pub(crate) mod stress;
pub(crate) mod task;
mod tasks;

pub use tasks::{TaskError, run_tasks};
