//! Fits of a machine's free parameters to rows of a published table, and errors of predictions for the other rows.
//!
//! A [`RateTable`] holds published values; a [`Selection`] names rows of it. A [`Predictor`] predicts one case
//! for a machine; a [`PredictorPool`] predicts many on several host threads. [`Fit`] moves the parameters of
//! [`Calibration::parameters`](crate::Calibration::parameters) until the predictions meet the named rows.
//! [`record()`] writes the result into the machine's file, and [`Errors`] compares predictions with published values.

mod errors;
mod faults;
mod fit;
mod free;
mod least_squares;
mod map_init;
mod predictor_pool;
mod record;
mod selection;
mod table;

use std::fmt;

use frameyard::policy::ZonePolicy;

use crate::machine::Machine;
use crate::page_fault::Mode;
use crate::sim_yard::SimError;

pub use errors::{Errors, ModeErrors, OrderCount, PolicyErrors, Prediction, Role};
pub use faults::{Effort, FaultPredictor};
pub use fit::{Fit, FitError, Fitted, FittedParameter};
pub use free::FreeParameters;
pub use map_init::InitPredictor;
pub use predictor_pool::PredictorPool;
pub use record::{RecordError, record};
pub use selection::{ParseSelectionError, Selection};
pub use table::{Measured, RateTable, TableError};

/// A predicted case: a number of tasks under a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point {
    /// The transfer policy of the zones.
    pub policy: ZonePolicy,
    /// The kind of the tasks.
    pub mode: Mode,
    /// The number of tasks.
    pub tasks: u32,
}

impl fmt::Display for Point {
    /// The row's name: `big-pcp/processes/40`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.policy, self.mode, self.tasks)
    }
}

/// Predicts operations per second.
pub trait Predictor {
    /// What is predicted: a row of a table.
    type Case: Copy + Sync;

    /// The operations per second of all tasks together; more than 0, and a pure function of the arguments.
    ///
    /// # Errors
    ///
    /// [`SimError`] if the machine cannot be simulated.
    fn predict(&mut self, machine: &Machine, case: &Self::Case) -> Result<f64, SimError>;

    /// The host's work for a case, in any unit: a [`PredictorPool`] begins with the most.
    fn work(case: &Self::Case) -> u64;
}
