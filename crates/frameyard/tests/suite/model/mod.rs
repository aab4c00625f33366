//! Random actions on a yard, checked against a simple model of what a frame allocator owes its callers.
//!
//! [`Action`] is what can be done; every eight bytes decode to one, so the same actions serve property tests
//! and fuzzing. [`Machine`] is what a yard is created on. [`run`] does the actions on a yard and compares every
//! answer with the reference, which knows which frames are in whose hands and nothing of how the yard works.

mod action;
mod checks;
mod driver;
mod machines;
mod reference;

pub(crate) use action::{Action, BYTES_PER_ACTION, Misuse, Place, Target, View};
pub(crate) use driver::run;
pub(crate) use machines::{Machine, machines};
