//! Fitting a machine's free parameters to rows of a published table, and how far predictions of the other rows are off.
//!
//! A [`RateTable`] holds what was published; a [`Selection`] names rows of it. A [`Predictor`] says what a machine does at a
//! [`Point`]; a [`Crew`] asks it at many points, on several host threads. [`Fit`] moves the parameters of
//! [`Calibration::parameters`](crate::Calibration::parameters) until the predictions meet the named rows, [`record`] writes into
//! the machine's file what came out and on what, and [`Errors`] compares predictions with what was published.

mod crew;
mod errors;
mod faults;
mod fit;
mod free;
mod least_squares;
mod record;
mod selection;
mod table;

use frameyard::policy::ZonePolicy;

use crate::machine::Machine;
use crate::page_fault::Mode;
use crate::sim_yard::SimError;

pub use crew::Crew;
pub use errors::{Errors, ModeErrors, OrderCount, PolicyErrors, Prediction, Role};
pub use faults::{Effort, FaultPredictor};
pub use fit::{Fit, FitError, Fitted, FittedParameter};
pub use free::FreeParameters;
pub use record::{RecordError, record};
pub use selection::{ParseSelectionError, Selection};
pub use table::{Measured, RateTable, TableError};

/// What is to be predicted: a number of tasks under a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point {
    /// How frames cross between CPUs and zones.
    pub policy: ZonePolicy,
    /// What the tasks are.
    pub mode: Mode,
    /// How many there are.
    pub tasks: u32,
}

/// Predicts operations a second.
pub trait Predictor {
    /// What a machine does at a point, in operations a second of all tasks together; more than 0. The same for the same arguments.
    ///
    /// # Errors
    ///
    /// [`SimError`] where the machine cannot be simulated.
    fn predict(&mut self, machine: &Machine, point: &Point) -> Result<f64, SimError>;
}
