// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`AllocWorkload`]: alloc::AllocWorkload
//! [`page_fault`]: page_fault
//! [`churn`]: churn
//! [`frag`]: frag
//! [`compaction`]: compaction
//! [`pin`]: pin
//! [`stress`]: stress
//! [`sim`]: sim
//! [`Setting`]: Setting
//! [`TaskMode`]: TaskMode
//! [`Fixture`]: fixture::Fixture
//! [`TaskRunner`]: TaskRunner
//! [`WorkloadError`]: WorkloadError
//!
#![doc = include_str!("../README.md")]
//!
//! The loops for this host, and the allocator in them, are compiled here, with this crate's optimisation: a function that
//! measures is not generic. The functions that are generic over the platform prepare, run and check the same tasks on other
//! platforms, which [`sim`] does on simulated machines.
//!
//! # Modules
//!
//! Bottom-up; a module uses only those above it in this list.
//!
//! | modules | hold |
//! |---|---|
//! | [`error`], [`setting`], [`measure`], [`counts`], [`report`], [`request_times`] | plain values |
//! | `stage`, `cpu_work`, `runtime`, `exchange`, `site`, `host_runtime` | what a task runs on: the stages of a run, the clock, an address space |
//! | `mapping`, `stamp`, `retry` | steps that several loops share |
//! | `task` | the loops of tasks, one file each |
//! | [`workers`], [`fixture`], [`background`], [`timed_run`] | starting tasks as threads or processes, driving them, checking the yard afterwards |
//! | [`page_fault`], [`order0_thp`], [`purge`], [`parallel_free`], [`highalloc`], [`kernbench`], [`decision_support`], [`stress`] | workloads of several tasks on a [`Fixture`](fixture::Fixture) |
//! | [`alloc`], [`churn`], [`compaction`], [`compare_exchange`], [`contig`], [`copy_speed`], [`device_map`], [`fault_cost`], [`frag`], [`gigantic`], [`held`], [`huge_pool`], [`memory_region`], [`pin`], [`report_free`], [`transfer`] | measurements with loops of their own |
//! | [`sim`] | the same tasks on simulated machines |

pub mod alloc;
pub mod background;
pub mod churn;
pub mod compaction;
pub mod compare_exchange;
pub mod contig;
pub mod copy_speed;
pub mod counts;
mod cpu_work;
pub mod decision_support;
pub mod device_map;
pub mod error;
mod exchange;
pub mod fault_cost;
pub mod fixture;
pub mod frag;
pub mod gigantic;
pub mod held;
pub mod highalloc;
mod host_runtime;
mod host_time;
pub mod huge_pool;
pub mod kernbench;
mod mapping;
pub mod measure;
pub mod memory_region;
pub mod order0_thp;
pub mod page_fault;
pub mod parallel_free;
pub mod pin;
pub mod purge;
pub mod report;
pub mod report_free;
pub mod request_times;
mod retry;
mod runtime;
pub mod setting;
pub mod sim;
mod site;
mod stage;
mod stamp;
pub mod stress;
mod task;
mod tasks;
pub mod timed_run;
pub mod transfer;
pub mod workers;

pub use error::WorkloadError;
pub use mapping::{MAP_SIZE, Pages};
pub use runtime::{Piece, Runtime};
pub use setting::{Setting, TaskMode};
pub use task::{TaskSpec, task_seed};
pub use tasks::{TaskError, TaskRunner};
