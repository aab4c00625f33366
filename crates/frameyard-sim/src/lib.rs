// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`Machine`]: Machine
//! [`SimYard`]: SimYard
//! [`SimConfig`]: SimConfig
//! [`SimPlatform`]: SimPlatform
//! [`Account`]: Account
//! [`Profile`]: Profile
//! [`FaultLoop`]: FaultLoop
//! [`ParallelExit`]: ParallelExit
//! [`deferred_init`]: mod@deferred_init
//! [`Fit`]: Fit
//! [`Errors`]: Errors
//!
#![doc = include_str!("../README.md")]

mod account;
mod cache;
mod calibration;
mod channel;
mod confined;
pub mod deferred_init;
mod engine;
mod fiber;
mod frame_bytes;
mod lines;
mod list_access;
mod machine;
mod page_fault;
mod parallel_exit;
mod platform;
mod profile;
mod region;
mod sim_yard;
mod time;
mod workers;

pub use account::{Accessed, Account, Cause, CostId, Share, Spent};
pub use cache::LINE_BYTES;
pub use calibration::{
    Effort, Errors, FaultPredictor, Fit, FitError, Fitted, FittedParameter, FreeParameters, InitPredictor, Measured,
    ModeErrors, OrderCount, ParseSelectionError, Point, PolicyErrors, Prediction, Predictor, PredictorPool, RateTable,
    RecordError, Role, Selection, TableError, record,
};
pub use engine::LockStats;
pub use frameyard_machines::{
    AccessCosts, Caches, Calibration, Clock, KernelOverhead, Lock, LockMethod, MapInitCosts, Memory, Topology,
};
pub use list_access::ListAccess;
pub use machine::{KernelCost, Machine, MachineError};
pub use page_fault::{FaultLoop, FaultRun, Mode};
pub use parallel_exit::{ExitRun, ParallelExit};
pub use platform::SimPlatform;
pub use profile::Profile;
pub use sim_yard::{SimConfig, SimError, SimYard};
pub use time::Picos;
