//! The fast paths: a block comes from a list of the caller's CPU and goes back to one.
//!
//! Read [`alloc`] and [`free`] from top to bottom. The lists are in [`lists`](crate::lists), and the bytes that decide
//! racing frees are in the [allocation map](crate::zone::allocation_map). Whatever a list cannot serve goes to
//! [`request`](crate::request).

mod alloc;
mod at_once;
pub(crate) mod free;

pub use at_once::{AllocAtOnce, FreeAtOnce, UnfinishedAlloc, UnfinishedFree};
