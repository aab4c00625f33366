//! Fits of free parameters to published rows.

use std::fmt;

use crate::machine::{Machine, MachineError};
use crate::sim_yard::SimError;

use super::free::Scale;
use super::least_squares::{Place, Search};
use super::{FreeParameters, Predictor, PredictorPool};

/// A fit of a machine's free parameters ([`Calibration::parameters`](crate::Calibration::parameters)) to published
/// rows.
///
/// It minimises the sum of squared relative errors, taken as differences of logarithms.
#[derive(Clone, Debug)]
pub struct Fit<'m, C> {
    /// The machine. The search begins with the calibration's [start values](crate::Calibration::start), or with the machine's
    /// values if there are none.
    pub machine: &'m Machine,
    /// The rows, with the published operations per second.
    pub rows: Vec<(C, f64)>,
    /// The most rounds of the search. A round predicts every row four times, and once more per parameter if it renews
    /// the slopes.
    pub rounds: u32,
}

/// The result of a fit.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    /// The machine with the fitted parameters.
    pub machine: Machine,
    /// The predictions for the rows of the fit.
    pub predicted: Vec<f64>,
    /// The root mean square of the rows' relative errors, as logarithms.
    pub error: f64,
    /// The same with the start values.
    pub error_before: f64,
    /// The fitted parameters.
    pub parameters: Vec<FittedParameter>,
}

/// A fitted parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct FittedParameter {
    /// The parameter's path.
    pub path: String,
    /// The start value.
    pub before: f64,
    /// The fitted value.
    pub after: f64,
    /// The bounds.
    pub bounds: (f64, f64),
}

impl FittedParameter {
    /// Whether the fit pushed the parameter to a bound: the rows ask for an impossible value, or do not constrain it.
    #[must_use]
    pub fn is_at_bound(&self) -> bool {
        let is_at = |bound: f64| (self.after - bound).abs() <= 1e-3 * bound.abs();
        is_at(self.bounds.0) || is_at(self.bounds.1)
    }
}

/// Why a fit failed.
#[derive(Debug)]
pub enum FitError {
    /// A prediction failed.
    Sim(SimError),
    /// The machine has no such parameter, or a value is out of bounds.
    Machine(MachineError),
    /// The machine names no free parameters.
    NothingFree,
    /// Fewer rows than free parameters.
    TooFewRows {
        /// Rows.
        rows: usize,
        /// Free parameters.
        parameters: usize,
    },
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sim(error) => error.fmt(f),
            Self::Machine(error) => error.fmt(f),
            Self::NothingFree => f.write_str(
                "the machine names no free parameters: list their paths at simulation.calibration.parameters",
            ),
            Self::TooFewRows { rows, parameters } => {
                write!(f, "{rows} rows cannot constrain {parameters} parameters: name at least {parameters} rows")
            }
        }
    }
}

impl std::error::Error for FitError {}

impl From<SimError> for FitError {
    fn from(error: SimError) -> Self {
        Self::Sim(error)
    }
}

impl From<MachineError> for FitError {
    fn from(error: MachineError) -> Self {
        Self::Machine(error)
    }
}

/// Steps relative to the value: wide compared with the noise of simulated runs, at the end still about as wide.
const FIRST_STEP: f64 = 0.1;
const LAST_STEP: f64 = 0.01;
/// A change of a parameter by the factor e counts as an error of 0.5 % in one row.
const PULL: f64 = 0.005;

impl<C: Copy> Fit<'_, C> {
    /// Runs the fit. Calls `watch` after each prediction.
    ///
    /// # Errors
    ///
    /// [`FitError`] if a prediction fails, or rows and parameters do not make a fit.
    ///
    /// # Panics
    ///
    /// If a predictor panics.
    pub fn run<P: Predictor<Case = C> + Clone + Send>(
        &self,
        pool: &mut PredictorPool<P>,
        watch: &(dyn Fn() + Sync),
    ) -> Result<Fitted, FitError> {
        let free = self.free()?;
        let start = self.start(&free);
        let before = self.errors(pool, &free.applied(&start)?, watch)?;
        let (machine, errors) = self.search(&free, &start, pool, watch)?;
        let (end, bounds) = (free.values(&machine), free.bounds());
        let paths = free.paths().iter().enumerate();
        let parameters = paths.map(|(at, path)| FittedParameter {
            path: path.clone(),
            before: start[at],
            after: end[at],
            bounds: bounds[at],
        });
        Ok(Fitted {
            parameters: parameters.collect(),
            predicted: self.rows.iter().zip(&errors).map(|((_, published), error)| published * error.exp()).collect(),
            error: mean_square(&errors).sqrt(),
            error_before: mean_square(&before).sqrt(),
            machine,
        })
    }

    /// The most predictions that the fit makes.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run) if rows and parameters do not make a fit.
    pub fn most_predictions(&self) -> Result<u64, FitError> {
        let parameters = self.free()?.paths().len();
        Ok(self.rows.len() as u64 * (1 + self.method().most_evaluations(parameters)))
    }

    /// The values of the free parameters with which the search begins.
    fn start(&self, free: &FreeParameters<'_>) -> Vec<f64> {
        match &self.machine.calibration.start {
            start if start.len() == free.paths().len() => start.clone(),
            _ => free.values(self.machine),
        }
    }

    fn free(&self) -> Result<FreeParameters<'_>, FitError> {
        let paths = &self.machine.calibration.parameters;
        match (self.rows.len(), paths.len()) {
            (_, 0) => Err(FitError::NothingFree),
            (rows, parameters) if rows < parameters => Err(FitError::TooFewRows { rows, parameters }),
            _ => Ok(FreeParameters::new(self.machine, paths)?),
        }
    }

    fn method(&self) -> Search {
        Search { first_step: FIRST_STEP, last_step: LAST_STEP, rounds: self.rounds, pull: PULL }
    }

    /// Returns the machine with the best values found, and the errors of its predictions, as logarithms.
    fn search<P: Predictor<Case = C> + Clone + Send>(
        &self,
        free: &FreeParameters<'_>,
        start: &[f64],
        pool: &mut PredictorPool<P>,
        watch: &(dyn Fn() + Sync),
    ) -> Result<(Machine, Vec<f64>), FitError> {
        let bounds = free.bounds();
        let scales: Vec<Scale> = bounds.iter().map(|bounds| Scale::new(*bounds)).collect();
        let start: Vec<f64> = start.iter().zip(&scales).map(|(value, scale)| scale.place(*value)).collect();
        // Rounding may move a value slightly beyond its bound.
        let value =
            |((place, scale), (least, most)): ((&f64, &Scale), &(f64, f64))| scale.value(*place).clamp(*least, *most);
        let machine = |places: &[f64]| {
            let values: Vec<f64> = places.iter().zip(&scales).zip(&bounds).map(value).collect();
            free.applied(&values)
        };
        let limits: Vec<(f64, f64)> = bounds
            .iter()
            .zip(&scales)
            .map(|((least, most), scale)| (scale.place(*least), scale.place(*most)))
            .collect();
        let mut evaluate = |places: &[Vec<f64>]| {
            let machines = places.iter().map(|places| machine(places)).collect::<Result<Vec<_>, _>>()?;
            let requests: Vec<_> =
                machines.iter().flat_map(|machine| self.rows.iter().map(move |(case, _)| (machine, *case))).collect();
            let rates = pool.predict(&requests, watch)?;
            Ok::<_, FitError>(rates.chunks(self.rows.len()).map(|rates| self.errors_of(rates)).collect())
        };
        let Place { values, residuals } = self.method().minimise(&start, &limits, &mut evaluate)?;
        Ok((machine(&values)?, residuals))
    }

    /// The errors of a machine's predictions, as logarithms.
    fn errors<P: Predictor<Case = C> + Clone + Send>(
        &self,
        pool: &mut PredictorPool<P>,
        machine: &Machine,
        watch: &(dyn Fn() + Sync),
    ) -> Result<Vec<f64>, FitError> {
        let requests: Vec<_> = self.rows.iter().map(|(case, _)| (machine, *case)).collect();
        Ok(self.errors_of(&pool.predict(&requests, watch)?))
    }

    fn errors_of(&self, rates: &[f64]) -> Vec<f64> {
        rates.iter().zip(&self.rows).map(|(rate, (_, published))| (rate / published).ln()).collect()
    }
}

fn mean_square(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64
}

#[cfg(test)]
mod tests;
