//! The integration tests of the simulator, in one program: one module per subject.

mod accounting;
mod addresses;
mod closed_forms;
mod deferred_init;
mod list_access;
mod owners;
mod profile;
mod workers;
