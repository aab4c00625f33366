//! Fits of free parameters to published rows.

use std::fmt;

use crate::machine::{Machine, MachineError};
use crate::sim_yard::SimError;

use super::free::Scale;
use super::least_squares::{Place, Search};
use super::{FreeParameters, Point, Predictor, PredictorPool};

/// A fit of a machine's free parameters ([`Calibration::parameters`](crate::Calibration::parameters)) to published
/// rows.
///
/// It minimises the sum of squared relative errors, taken as differences of logarithms. The first stage fits the
/// kernel overheads to the rows with one task. The second stage fits all parameters to all rows. Then the difference
/// between a short and a long simulation of the result is added to the errors, and the second stage runs once more.
#[derive(Clone, Debug)]
pub struct Fit<'m> {
    /// The machine, with start values.
    pub machine: &'m Machine,
    /// The rows, with the published operations per second.
    pub rows: Vec<(Point, f64)>,
    /// The most rounds of a stage. A round predicts every row four times, and once more per parameter if it renews
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
        let near = |bound: f64| (self.after - bound).abs() <= 1e-3 * bound.abs();
        near(self.bounds.0) || near(self.bounds.1)
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

/// The table of the parameters that rows with one task constrain.
const KERNEL_OVERHEAD: &str = "kernel_overhead.";

impl Fit<'_> {
    /// Runs the fit. The search predicts with `quick`; its results are predicted again with `thorough`. Calls `watch`
    /// after each prediction.
    ///
    /// # Errors
    ///
    /// [`FitError`] if a prediction fails, or rows and parameters do not make a fit.
    ///
    /// # Panics
    ///
    /// If a predictor panics.
    pub fn run<P: Predictor + Clone + Send, Q: Predictor + Clone + Send>(
        &self,
        quick: &mut PredictorPool<P>,
        thorough: &mut PredictorPool<Q>,
        watch: &(dyn Fn() + Sync),
    ) -> Result<Fitted, FitError> {
        let free = self.free()?;
        let every: Vec<usize> = (0..self.rows.len()).collect();
        let unshifted = vec![0.0; self.rows.len()];
        let before = self.errors(thorough, self.machine, watch)?;
        let mut start = self.machine.clone();
        if let Some((rows, paths)) = self.first_stage() {
            let first = FreeParameters::new(self.machine, &paths)?;
            start = self.search((&first, &start), &rows, &unshifted, quick, watch)?.0;
        }
        let (once, errors) = self.search((&free, &start), &every, &unshifted, quick, watch)?;
        let exact = self.errors(thorough, &once, watch)?;
        let shifts: Vec<f64> = exact.iter().zip(&errors).map(|(exact, quick)| exact - quick).collect();
        let (twice, _) = self.search((&free, &once), &every, &shifts, quick, watch)?;
        let exact_twice = self.errors(thorough, &twice, watch)?;
        let (machine, errors) =
            if mean_square(&exact_twice) < mean_square(&exact) { (twice, exact_twice) } else { (once, exact) };
        Ok(self.fitted(&free, machine, &errors, &before))
    }

    /// The most predictions that the fit makes.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run) if rows and parameters do not make a fit.
    pub fn most_predictions(&self) -> Result<u64, FitError> {
        let rows = self.rows.len() as u64;
        let all = 3 * rows + 2 * rows * self.stage(self.free()?.paths().len()).1;
        let first = self.first_stage().map_or(0, |(rows, paths)| rows.len() as u64 * self.stage(paths.len()).1);
        Ok(all + first)
    }

    fn free(&self) -> Result<FreeParameters<'_>, FitError> {
        let paths = &self.machine.calibration.parameters;
        match (self.rows.len(), paths.len()) {
            (_, 0) => Err(FitError::NothingFree),
            (rows, parameters) if rows < parameters => Err(FitError::TooFewRows { rows, parameters }),
            _ => Ok(FreeParameters::new(self.machine, paths)?),
        }
    }

    /// The rows with one task and the kernel overheads, if there are any of both.
    fn first_stage(&self) -> Option<(Vec<usize>, Vec<String>)> {
        let rows: Vec<usize> = (0..self.rows.len()).filter(|at| self.rows[*at].0.tasks == 1).collect();
        let overheads = self.machine.calibration.parameters.iter().filter(|path| path.starts_with(KERNEL_OVERHEAD));
        let paths: Vec<String> = overheads.cloned().collect();
        (!rows.is_empty() && !paths.is_empty()).then_some((rows, paths))
    }

    /// The search of a stage with this number of parameters, and the most predictions of each row.
    fn stage(&self, parameters: usize) -> (Search, u64) {
        let search = Search { first_step: FIRST_STEP, last_step: LAST_STEP, rounds: self.rounds, pull: PULL };
        (search, search.most_evaluations(parameters))
    }

    /// Runs a stage from a machine's values on. Returns the machine found, and the errors of its predictions for some
    /// of the rows, as logarithms. `shifts` are added to the errors.
    fn search<P: Predictor + Clone + Send>(
        &self,
        (free, start): (&FreeParameters<'_>, &Machine),
        rows: &[usize],
        shifts: &[f64],
        quick: &mut PredictorPool<P>,
        watch: &(dyn Fn() + Sync),
    ) -> Result<(Machine, Vec<f64>), FitError> {
        let bounds = free.bounds();
        let scales: Vec<Scale> = bounds.iter().map(|bounds| Scale::new(*bounds)).collect();
        let place = |values: &[f64]| -> Vec<f64> {
            values.iter().zip(&scales).map(|(value, scale)| scale.place(*value)).collect()
        };
        // Rounding may move a value slightly beyond its bound.
        let value =
            |((place, scale), (least, most)): ((&f64, &Scale), &(f64, f64))| scale.value(*place).clamp(*least, *most);
        let machine = |places: &[f64]| {
            let values: Vec<f64> = places.iter().zip(&scales).zip(&bounds).map(value).collect();
            free.applied(&values)
        };
        let start = place(&free.values(start));
        let limits: Vec<(f64, f64)> = bounds
            .iter()
            .zip(&scales)
            .map(|((least, most), scale)| (scale.place(*least), scale.place(*most)))
            .collect();
        let mut evaluate = |places: &[Vec<f64>]| {
            let machines = places.iter().map(|places| machine(places)).collect::<Result<Vec<_>, _>>()?;
            let requests: Vec<_> =
                machines.iter().flat_map(|machine| rows.iter().map(move |row| (machine, self.rows[*row].0))).collect();
            let rates = quick.predict(&requests, watch)?;
            let errors = |rates: &[f64]| {
                let each = rates.iter().zip(rows);
                each.map(|(rate, row)| (rate / self.rows[*row].1).ln() + shifts[*row]).collect()
            };
            Ok::<_, FitError>(rates.chunks(rows.len()).map(errors).collect())
        };
        let (search, _) = self.stage(limits.len());
        let Place { values, residuals } = search.minimise(&start, &limits, &mut evaluate)?;
        let unshifted = residuals.iter().zip(rows).map(|(error, row)| error - shifts[*row]).collect();
        Ok((machine(&values)?, unshifted))
    }

    /// The errors of a machine's predictions for all rows, as logarithms.
    fn errors<P: Predictor + Clone + Send>(
        &self,
        pool: &mut PredictorPool<P>,
        machine: &Machine,
        watch: &(dyn Fn() + Sync),
    ) -> Result<Vec<f64>, FitError> {
        let requests: Vec<_> = self.rows.iter().map(|(point, _)| (machine, *point)).collect();
        let rates = pool.predict(&requests, watch)?;
        Ok(rates.iter().zip(&self.rows).map(|(rate, (_, published))| (rate / published).ln()).collect())
    }

    fn fitted(&self, free: &FreeParameters<'_>, machine: Machine, errors: &[f64], before: &[f64]) -> Fitted {
        let (start, end, bounds) = (free.values(self.machine), free.values(&machine), free.bounds());
        let paths = free.paths().iter().enumerate();
        let parameters = paths.map(|(at, path)| FittedParameter {
            path: path.clone(),
            before: start[at],
            after: end[at],
            bounds: bounds[at],
        });
        Fitted {
            parameters: parameters.collect(),
            predicted: self.rows.iter().zip(errors).map(|((_, published), error)| published * error.exp()).collect(),
            error: mean_square(errors).sqrt(),
            error_before: mean_square(before).sqrt(),
            machine,
        }
    }
}

fn mean_square(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64
}

#[cfg(test)]
mod tests;
