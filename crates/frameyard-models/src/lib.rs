#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(loom, shuttle)), no_std)]

#[cfg(loom)]
mod modelled;
#[cfg(loom)]
mod region;
#[cfg(shuttle)]
mod scheduled;
#[cfg(any(loom, shuttle))]
mod weakness;

#[cfg(loom)]
pub use modelled::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use region::ModelledRegion;
#[cfg(shuttle)]
pub use scheduled::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence, run_alone, run_scheduled};
#[cfg(any(loom, shuttle))]
pub use weakness::{Weakness, is_weakened, weakened};
