//! The fast paths: a block comes from a list of the caller's CPU and goes back to one.
//!
//! Read [`alloc`] and [`free`] from top to bottom; the lists are in [`lists`](crate::lists), the bytes that decide racing frees in the
//! [allocation map](crate::zone::allocation_map). What a list cannot do goes to [`request`](crate::request).

mod alloc;
mod at_once;
pub(crate) mod free;

pub use at_once::{AllocAtOnce, FreeAtOnce, UnfinishedAlloc, UnfinishedFree};
