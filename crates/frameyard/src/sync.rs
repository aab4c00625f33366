//! Atomics: `core`'s, loom's under `cfg(loom)`, or under `cfg(shuttle)` ones before which shuttle may switch threads.
//!
//! All modules of the core take their atomics from here, so that a protocol runs unchanged under the model checkers. A comment
//! at each ordering stronger than `Relaxed` names the function that it pairs with.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::compiler_fence;
#[cfg(not(any(loom, shuttle)))]
pub use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

mod all_atomic;
#[cfg(loom)]
mod modelled;
#[cfg(shuttle)]
mod scheduled;
#[cfg(any(loom, shuttle))]
mod weakness;

pub(crate) use all_atomic::{AllAtomic, all_atomic};
#[cfg(loom)]
pub use modelled::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub use scheduled::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(all(test, shuttle))]
pub(crate) use scheduled::{act_after, run_alone, run_scheduled};
#[cfg(loom)]
use weakness::weakness;
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub use weakness::{Weakness, is_weakened, weakened};
