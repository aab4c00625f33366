//! The workloads on simulated machines: what `frameyard sim` runs, without the command line, the tables and the files. The tasks are those of the
//! rest of this crate. Here they run on the virtual CPUs of `frameyard-sim`, in virtual time.
//!
//! | function | runs |
//! |---|---|
//! | `with_sim_fixture` | code with a new yard and owners of its frames; checks afterwards that the yard is valid and no frame is lost |
//! | `page_fault`, `order0_thp`, `purge`, `kernbench`, `decision_support` | tasks in rounds, for a virtual time |
//! | `parallel_free` | the exit of address spaces that hold most of memory |
//! | `highalloc` | requests for huge blocks while builders fill the page cache |
//! | `alloc` | blocks of one order allocated and freed in several patterns, on a yard of its own without owners |
//! | `frag` | random frees and allocations of frames or blocks in fragmented memory, on a yard of its own without owners |
//! | `SimReplayPlan::replay` | copies of a recording of a kernel's page allocator at once, also on a yard of its own |
//!
//! Each but the first and the last three returns a `SimRun`: the result of the workload, and what the CPUs spent their time on. Four tasks fault pages in:
//!
//! ```rust
//! use std::num::NonZeroU32;
//! use std::time::Duration;
//!
//! use frameyard::ByteSize;
//! use frameyard::policy::ZonePolicy;
//! use frameyard::watermarks::PcpSizing;
//! use frameyard_sim::{ListAccess, Machine};
//! use frameyard_workloads::sim::{FrameContents, SimInit, SimOptions, page_fault, with_sim_fixture};
//! use frameyard_vm::LruPolicy;
//! use frameyard_workloads::{Setting, TaskMode, WorkloadError};
//!
//! let machine = Machine::built_in("broadwell-40")?;
//! let (zone, lru) = (ZonePolicy::default(), LruPolicy::default());
//! let options = SimOptions {
//!     memory: ByteSize::mib(512),
//!     zone,
//!     lru,
//!     sizing: PcpSizing::Classic,
//!     lists: ListAccess::Sequences,
//!     contents: FrameContents::Dropped,
//!     init: SimInit::Eager,
//!     costs: &[],
//! };
//! let setting = Setting { mode: TaskMode::Threads, tasks: NonZeroU32::new(4).unwrap(), zone, lru };
//! let run = with_sim_fixture::<_, WorkloadError>(&machine, &options, |fixture| {
//!     page_fault(fixture, &setting, 1, ByteSize::mib(2), Duration::from_millis(1))
//! })?;
//! println!("{:.0} faults per second, {:?} of the time misses", run.run.rate(), run.spent.misses());
//! assert_eq!(run.run.reports.len(), 4);
//! assert!(run.spent.length() <= run.simulated);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
