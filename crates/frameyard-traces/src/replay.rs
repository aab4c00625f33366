//! Replaying a recording against a yard.
//!
//! 1. [`ReplayPlan`] turns events into operations: each names the frame of the recording by its place in the memory of the yard.
//! 2. `layout` decides where free memory was when the recording began, so that the free lists agree with the snapshot.
//! 3. `setup` creates a yard with that memory, under the policy of the replay.
//! 4. [`ReplayPlan::replay`] does the operations and counts. [`ReplayPlan::replay_on_threads`] does them at the same time.
//! 5. [`ReplayCopies`] has several copies of the recorded memory in a yard of another platform, and does the operations of all.
//!
//! The yard chooses its own frames for allocations. A free frees the frame that the yard chose for the allocation of the recorded frame.
//! Frames that were allocated before the recording and are freed in it are allocated in the yard from the start, at their own numbers.

mod calls;
mod copies;
mod counts;
mod layout;
mod memory;
mod plan;
mod platform;
mod recorded_memory;
mod run;
mod setup;
mod threads;

pub use copies::{CopyCounts, CopyPlace, Pausing, ReplayCopies};
pub use counts::{LockedByOrder, YardCounts};
pub use memory::{MakeMemory, YardMemory, YardParts, own_memory};
pub use plan::{Anomalies, KernelCounts, PlanError, PlannedOperation, ReplayPlan};
pub use run::{FreeMemory, ReplayResult, Sample};
pub use setup::{Detail, SetUp, SetUpError, Start};
