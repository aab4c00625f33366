//! The only door to atomics: `core`'s, or loom's when a model is being explored.
//!
//! Every module of the core takes its atomics from here, so that a protocol runs unchanged under the
//! model checker. Orderings stronger than `Relaxed` name the function they pair with where they are used.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
mod modelled;

#[cfg(loom)]
pub use modelled::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
#[doc(hidden)]
pub use modelled::{Weakness, is_weakened, weakened};
