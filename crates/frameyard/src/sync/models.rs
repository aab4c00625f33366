//! Models: what loom and shuttle explore in place of `core`'s atomics. Only builds under `cfg(loom)` or `cfg(shuttle)` have this module.
//!
//! | item | under | purpose |
//! |---|---|---|
//! | `AtomicU8` … `AtomicU64`, `fence`, `Ordering` | loom | loom's atomics, with orderings and operations that a switch can weaken |
//! | the same | shuttle | `core`'s atomics; shuttle may switch threads before each access |
//! | `Weakness`, `weakened` | both | break one protection on purpose: a model must then fail |
//! | `ModelledRegion` | loom | a control region whose tables are separate vectors, because loom's atomics are not plain words |
//! | `run_scheduled`, `run_alone`, `act_after` | shuttle | choose which accesses are scheduled, and act in between two of them |
//!
//! A model shows that a protocol holds, and that it fails without its protection:
//!
//! ```ignore
//! use frameyard::sync::{AtomicU64, Ordering, Weakness, weakened};
//!
//! let add_twice = || loom::model(|| {
//!     let count = std::sync::Arc::new(AtomicU64::new(0));
//!     let other = std::sync::Arc::clone(&count);
//!     let thread = loom::thread::spawn(move || other.fetch_add(1, Ordering::Relaxed));
//!     count.fetch_add(1, Ordering::Relaxed);
//!     thread.join().unwrap();
//!     assert_eq!(count.load(Ordering::Relaxed), 2);
//! });
//! add_twice();
//! assert!(std::panic::catch_unwind(|| weakened(Weakness::SplitAddition, add_twice)).is_err());
//! ```

#[cfg(loom)]
mod modelled;
#[cfg(loom)]
mod region;
#[cfg(shuttle)]
mod scheduled;
mod weakness;

#[cfg(loom)]
pub use modelled::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use region::ModelledRegion;
#[cfg(shuttle)]
pub use scheduled::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(all(shuttle, test))]
pub(crate) use scheduled::{run_alone, run_scheduled};
pub use weakness::{Weakness, is_weakened, weakened};
