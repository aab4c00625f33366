//! The integration tests of the simulator, in one program: one module per subject.

mod accounting;
mod bring_up;
mod closed_forms;
mod owners;
mod profile;
mod workers;
