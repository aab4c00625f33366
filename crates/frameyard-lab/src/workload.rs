//! What is run on a yard: the operations and their timing, without any rendering.

pub mod alloc;
pub(crate) mod churn;
mod tasks;

pub use tasks::{TaskError, run_tasks};
