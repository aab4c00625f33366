//! A machine's free parameters as a vector of numbers.

use crate::machine::{Machine, MachineError, clock_step};

/// Free parameters of a machine.
///
/// Clocks that are not free stay in proportion to the free ones: if `clock.mhz[0]` and `clock.mhz[9]` are free,
/// the clocks between follow both, by their distance.
#[derive(Clone, Debug)]
pub struct FreeParameters<'m> {
    base: &'m Machine,
    paths: Vec<String>,
}

impl<'m> FreeParameters<'m> {
    /// Parameters of a machine, by path.
    ///
    /// # Errors
    ///
    /// [`MachineError`] if there is no such parameter, or the machine's value is out of bounds.
    pub fn new(base: &'m Machine, paths: &[String]) -> Result<Self, MachineError> {
        for path in paths {
            let value = base.parameter(path).ok_or_else(|| MachineError::NoParameter(path.clone()))?;
            base.clone().set_parameter(path, value)?;
        }
        Ok(Self { base, paths: paths.to_vec() })
    }

    /// The paths.
    #[must_use]
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// The values in a machine.
    #[must_use]
    pub fn values(&self, machine: &Machine) -> Vec<f64> {
        self.paths.iter().filter_map(|path| machine.parameter(path)).collect()
    }

    /// The bounds.
    #[must_use]
    pub fn bounds(&self) -> Vec<(f64, f64)> {
        let bounds = self.paths.iter().filter_map(|path| self.base.parameter_bounds(path));
        bounds.map(std::ops::RangeInclusive::into_inner).collect()
    }

    /// The machine with other values.
    ///
    /// # Errors
    ///
    /// [`MachineError::OutOfBounds`] if a value is out of bounds.
    pub fn applied(&self, values: &[f64]) -> Result<Machine, MachineError> {
        let mut machine = self.base.clone();
        // All clocks together come before single clocks.
        let mut order: Vec<usize> = (0..self.paths.len()).collect();
        order.sort_by_key(|at| clock_step(&self.paths[*at]).is_some());
        for at in order {
            machine.set_parameter(&self.paths[at], values[at])?;
        }
        self.follow(&mut machine);
        Ok(machine)
    }

    /// Sets the clocks that are not free.
    fn follow(&self, machine: &mut Machine) {
        let mut free: Vec<usize> = self.paths.iter().filter_map(|path| clock_step(path)).collect();
        free.sort_unstable();
        let (Some(first), Some(last)) = (free.first(), free.last()) else { return };
        let base = &self.base.clock.mhz;
        let factor = |step: usize| f64::from(machine.clock.mhz[step]) / f64::from(base[step]);
        let followed = |step: usize| {
            let before = free.iter().rev().find(|free| **free <= step).unwrap_or(first);
            let after = free.iter().find(|free| **free >= step).unwrap_or(last);
            let share = if before == after { 0.0 } else { (step - before) as f64 / (after - before) as f64 };
            let factor = factor(*before) * (1.0 - share) + factor(*after) * share;
            (f64::from(base[step]) * factor).round() as u32
        };
        machine.clock.mhz = (0..base.len()).map(followed).collect();
    }
}

/// A value in the coordinate of the search: its logarithm, shifted if the bounds include 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    zero: f64,
}

impl Scale {
    pub(super) fn new((least, _): (f64, f64)) -> Self {
        Self { zero: if least > 0.0 { 0.0 } else { 1.0 - least } }
    }

    pub(super) fn place(self, value: f64) -> f64 {
        (value + self.zero).ln()
    }

    pub(super) fn value(self, place: f64) -> f64 {
        place.exp() - self.zero
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_between_free_ones_follow_both_and_later_ones_the_nearest() {
        let mut base = Machine::built_in("broadwell-40").unwrap();
        base.clock.mhz = vec![3000, 3000, 2000, 1000];
        let paths = ["clock.mhz[2]", "costs.access_cycles", "clock.mhz[0]"].map(str::to_owned);
        let free = FreeParameters::new(&base, &paths).unwrap();
        let machine = free.applied(&[1000.0, 7.0, 3000.0]).unwrap();
        assert_eq!(machine.clock.mhz, [3000, 2250, 1000, 500]);
        assert_eq!(machine.costs.access_cycles, 7.0);
        assert_eq!(free.values(&machine), [1000.0, 7.0, 3000.0]);
    }

    #[test]
    fn unknown_parameters_are_refused() {
        let base = Machine::built_in("broadwell-40").unwrap();
        let refused = FreeParameters::new(&base, &["costs.no".to_owned()]).unwrap_err();
        assert_eq!(refused, MachineError::NoParameter("costs.no".to_owned()));
    }

    #[test]
    fn a_scale_handles_ratios_and_values_that_may_be_zero() {
        for bounds in [(0.5, 8.0), (0.0, 8.0)] {
            let scale = Scale::new(bounds);
            for value in [bounds.0, 1.0, bounds.1] {
                assert!((scale.value(scale.place(value)) - value).abs() < 1e-12);
            }
        }
    }
}
