//! Errors of predictions against published values.

use frameyard::policy::ZonePolicy;
use frameyard::units::named;

use crate::page_fault::Mode;

use super::{Measured, Point};

/// The role of a row in a fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Predicted: the fit did not use the row.
    Predicted,
    /// Calibrated: the fit used the row.
    Calibrated,
}

named!(Role: Predicted => "predicted", Calibrated => "calibrated");

/// A published row and its prediction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// The row.
    pub point: Point,
    /// The published value.
    pub published: Measured,
    /// The predicted operations per second.
    pub predicted: f64,
    /// The role of the row in the fit.
    pub role: Role,
}

impl Prediction {
    /// The relative error of the prediction; positive if it is too high.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.predicted / self.published.mean - 1.0
    }
}

/// Errors of predictions, by mode. Calibrated rows do not count.
#[derive(Clone, PartialEq, Debug)]
pub struct Errors {
    /// The errors of each mode that has rows.
    pub modes: Vec<ModeErrors>,
}

/// Errors of the predictions for a mode.
#[derive(Clone, PartialEq, Debug)]
pub struct ModeErrors {
    /// The mode.
    pub mode: Mode,
    /// The number of rows that count.
    pub rows: usize,
    /// The mean absolute relative error.
    pub mean_absolute: f64,
    /// The errors of each policy.
    pub policies: Vec<PolicyErrors>,
    /// The mean absolute error of the other policies' speed-ups over the base policy, as shares of the base.
    pub speed_up: Option<f64>,
    /// The order of the policies.
    pub order: OrderCount,
}

/// Errors of the predictions for a policy in a mode.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PolicyErrors {
    /// The policy.
    pub policy: ZonePolicy,
    /// The number of rows that count.
    pub rows: usize,
    /// The mean absolute relative error.
    pub mean_absolute: f64,
    /// The mean relative error, with its sign.
    pub mean: f64,
    /// The mean absolute error of the speed-up over the base policy at the same number of tasks, as shares of the
    /// base; `None` for the base. A row counts unless both its value and the base's were calibrated.
    pub speed_up: Option<f64>,
}

/// Agreement with the published order of policies.
///
/// A pair of policies with the same number of tasks counts if the published difference exceeds two standard
/// deviations of a difference, 2·√(s₁² + s₂²), and the fit did not use both values. A number of tasks counts if it
/// has such a pair. It is right if all its pairs are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OrderCount {
    /// Pairs that count.
    pub pairs: usize,
    /// Pairs predicted in the published order.
    pub right_pairs: usize,
    /// Numbers of tasks that count.
    pub rows: usize,
    /// Numbers of tasks whose pairs are all right.
    pub right_rows: usize,
}

impl OrderCount {
    /// The share of numbers of tasks in the right order; `None` if none counts.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.right_rows as f64 / self.rows as f64)
    }
}

impl Errors {
    /// Compares predictions, with speed-ups over a base policy.
    #[must_use]
    pub fn of(predictions: &[Prediction], base: ZonePolicy) -> Self {
        let mode = |mode| {
            let of_mode: Vec<_> = predictions.iter().filter(|row| row.point.mode == mode).copied().collect();
            (!of_mode.is_empty()).then(|| mode_errors(mode, &of_mode, base))
        };
        Self { modes: Mode::ALL.into_iter().filter_map(mode).collect() }
    }
}

fn mode_errors(mode: Mode, rows: &[Prediction], base: ZonePolicy) -> ModeErrors {
    let mut policies: Vec<ZonePolicy> = Vec::new();
    for row in rows {
        if !policies.contains(&row.point.policy) {
            policies.push(row.point.policy);
        }
    }
    let of_policy = |policy: &ZonePolicy| {
        let own: Vec<_> = rows.iter().filter(|row| row.point.policy == *policy).copied().collect();
        let speed_ups = if *policy == base { Vec::new() } else { speed_up_errors(&own, rows, base) };
        (policy_errors(*policy, &own, &speed_ups), speed_ups)
    };
    let (policies, speed_ups): (Vec<_>, Vec<_>) = policies.iter().map(of_policy).unzip();
    let counted = counted(rows);
    ModeErrors {
        mode,
        rows: counted.len(),
        mean_absolute: mean(counted.iter().map(|error| error.abs())).unwrap_or(0.0),
        policies,
        speed_up: mean(speed_ups.concat().into_iter()),
        order: order(rows),
    }
}

fn policy_errors(policy: ZonePolicy, rows: &[Prediction], speed_ups: &[f64]) -> PolicyErrors {
    let counted = counted(rows);
    PolicyErrors {
        policy,
        rows: counted.len(),
        mean_absolute: mean(counted.iter().map(|error| error.abs())).unwrap_or(0.0),
        mean: mean(counted.iter().copied()).unwrap_or(0.0),
        speed_up: mean(speed_ups.iter().copied()),
    }
}

/// The errors of the rows that count.
fn counted(rows: &[Prediction]) -> Vec<f64> {
    rows.iter().filter(|row| row.role == Role::Predicted).map(Prediction::error).collect()
}

/// The absolute errors of the rows' speed-ups over the base.
fn speed_up_errors(own: &[Prediction], rows: &[Prediction], base: ZonePolicy) -> Vec<f64> {
    let error = |row: &Prediction| {
        let is_its_base = |other: &&Prediction| other.point == Point { policy: base, ..row.point };
        let base = rows.iter().find(is_its_base).filter(|base| is_predicted(row, base))?;
        Some((row.predicted / base.predicted - row.published.mean / base.published.mean).abs())
    };
    own.iter().filter_map(error).collect()
}

/// Whether the fit did not use both values.
fn is_predicted(a: &Prediction, b: &Prediction) -> bool {
    a.role == Role::Predicted || b.role == Role::Predicted
}

fn order(rows: &[Prediction]) -> OrderCount {
    let mut tasks: Vec<u32> = rows.iter().map(|row| row.point.tasks).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let mut count = OrderCount::default();
    for tasks in tasks {
        let alike: Vec<_> = rows.iter().filter(|row| row.point.tasks == tasks).collect();
        let pairs = alike.iter().enumerate().flat_map(|(at, a)| alike[at + 1..].iter().map(move |b| (*a, *b)));
        let significant: Vec<bool> = pairs.filter_map(|(a, b)| is_right(a, b)).collect();
        let right = significant.iter().filter(|right| **right).count();
        count.pairs += significant.len();
        count.right_pairs += right;
        count.rows += usize::from(!significant.is_empty());
        count.right_rows += usize::from(!significant.is_empty() && right == significant.len());
    }
    count
}

/// Whether a pair that counts is predicted in the published order.
fn is_right(a: &Prediction, b: &Prediction) -> Option<bool> {
    let difference = a.published.mean - b.published.mean;
    let is_significant = difference.abs() > 2.0 * a.published.stdev.hypot(b.published.stdev);
    (is_significant && is_predicted(a, b)).then_some((a.predicted - b.predicted) * difference > 0.0)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: ZonePolicy, tasks: u32, published: f64, predicted: f64, role: Role) -> Prediction {
        let point = Point { policy, mode: Mode::Threads, tasks };
        Prediction { point, published: Measured { mean: published, stdev: 1.0 }, predicted, role }
    }

    use Role::{Calibrated, Predicted};
    use ZonePolicy::{BigPcp, ClusterBulk, Vanilla416};

    fn threads(rows: &[Prediction]) -> ModeErrors {
        let Errors { modes } = Errors::of(rows, Vanilla416);
        let [mode] = <[ModeErrors; 1]>::try_from(modes).unwrap();
        assert_eq!(mode.mode, Mode::Threads);
        mode
    }

    #[test]
    fn errors_are_means_over_predicted_rows() {
        let errors = threads(&[
            row(Vanilla416, 1, 100.0, 150.0, Calibrated),
            row(Vanilla416, 2, 100.0, 90.0, Predicted),
            row(Vanilla416, 3, 100.0, 104.0, Predicted),
            row(ClusterBulk, 2, 200.0, 220.0, Predicted),
        ]);
        assert_eq!(errors.rows, 3);
        assert!((errors.mean_absolute - 0.08).abs() < 1e-9);
        let base = errors.policies[0];
        assert_eq!((base.policy, base.rows, base.speed_up), (Vanilla416, 2, None));
        assert!((base.mean_absolute - 0.07).abs() < 1e-9 && (base.mean + 0.03).abs() < 1e-9);
    }

    #[test]
    fn a_speed_up_counts_unless_both_its_rows_were_calibrated() {
        let errors = threads(&[
            row(Vanilla416, 1, 100.0, 100.0, Calibrated),
            row(BigPcp, 1, 110.0, 150.0, Calibrated),
            row(ClusterBulk, 1, 105.0, 108.0, Predicted),
            row(BigPcp, 2, 110.0, 150.0, Predicted),
        ]);
        let speed_up = |policy| errors.policies.iter().find(|errors| errors.policy == policy).unwrap().speed_up;
        assert_eq!(speed_up(BigPcp), None);
        assert!((speed_up(ClusterBulk).unwrap() - 0.03).abs() < 1e-9);
        assert_eq!(errors.speed_up, speed_up(ClusterBulk));
    }

    #[test]
    fn order_counts_where_the_difference_exceeds_two_standard_deviations() {
        // Two standard deviations of a difference are 2.83 here.
        let errors = threads(&[
            row(Vanilla416, 1, 100.0, 101.0, Predicted),
            row(ClusterBulk, 1, 102.8, 100.0, Predicted),
            row(Vanilla416, 2, 100.0, 101.0, Predicted),
            row(ClusterBulk, 2, 102.9, 100.0, Predicted),
            row(BigPcp, 2, 110.0, 120.0, Predicted),
            row(Vanilla416, 3, 100.0, 90.0, Calibrated),
            row(ClusterBulk, 3, 105.0, 91.0, Predicted),
            row(BigPcp, 3, 110.0, 89.0, Calibrated),
        ]);
        let order = OrderCount { pairs: 5, right_pairs: 3, rows: 2, right_rows: 0 };
        assert_eq!(errors.order, order);
        assert_eq!(order.share(), Some(0.0));
        assert_eq!(OrderCount::default().share(), None);
    }
}
