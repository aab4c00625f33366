//! What is run on a yard: the operations and their timing, without any rendering.

pub mod alloc;
mod tasks;

pub use tasks::{TaskError, run_tasks};
