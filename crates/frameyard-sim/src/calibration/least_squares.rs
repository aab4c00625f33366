//! Least squares for expensive, slightly noisy functions: Levenberg-Marquardt with slopes from differences over wide
//! steps. Broyden's update corrects the slopes after each move; they are renewed when moves no longer help.
//!
//! Wide steps average out noise. Values that the residuals hardly constrain stay near their start: the damping has a
//! floor, and each value is weakly pulled to its start.

/// Settings of a search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Search {
    /// The step of the first differences.
    pub(super) first_step: f64,
    /// The search ends when steps would become shorter than this.
    pub(super) last_step: f64,
    /// The most rounds.
    pub(super) rounds: u32,
    /// The weight of a value's distance from its start, as a residual.
    pub(super) pull: f64,
}

/// A point and its evaluation.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Place {
    pub(super) values: Vec<f64>,
    /// The residuals, followed by the pulls to the start values.
    pub(super) residuals: Vec<f64>,
}

impl Place {
    /// The sum of squares.
    fn cost(&self) -> f64 {
        dot(&self.residuals, &self.residuals)
    }
}

/// Evaluates residuals at several points, possibly in parallel.
pub(super) type Evaluate<'f, E> = dyn FnMut(&[Vec<f64>]) -> Result<Vec<Vec<f64>>, E> + 'f;

/// Dampings that a round tries; each is ten times the one before.
const TRIES: usize = 4;
/// The largest move of a value in a round.
const LONGEST_MOVE: f64 = 0.7;
/// Slopes that gained less than this share of the cost are renewed.
const STALE: f64 = 0.1;
/// New slopes that gained less than this were too noisy, or taken over too wide a step.
const WIDE: f64 = 0.02;

impl Search {
    /// The most evaluations with this number of values.
    pub(super) fn most_evaluations(&self, values: usize) -> u64 {
        1 + u64::from(self.rounds) * (values + TRIES) as u64
    }

    /// Finds the values within bounds with the least sum of squares, from `start` on.
    pub(super) fn minimise<E>(
        &self,
        start: &[f64],
        bounds: &[(f64, f64)],
        evaluate: &mut Evaluate<'_, E>,
    ) -> Result<Place, E> {
        let mut ask = |places: Vec<Vec<f64>>| {
            let residuals = evaluate(&places)?;
            let place = |(values, mut residuals): (Vec<f64>, Vec<f64>)| {
                residuals.extend(values.iter().zip(start).map(|(value, start)| (value - start) * self.pull));
                Place { values, residuals }
            };
            Ok(places.into_iter().zip(residuals).map(place).collect::<Vec<_>>())
        };
        let mut best = ask(vec![start.to_vec()])?.swap_remove(0);
        let (mut step, mut damping) = (self.first_step, 0.1);
        let mut known: Option<Slopes> = None;
        for _ in 0..self.rounds {
            let is_new = known.is_none();
            let (mut slopes, probes) = match known.take() {
                Some(slopes) => (slopes, Vec::new()),
                None => {
                    let probes = ask(probes(&best.values, bounds, step))?;
                    (Slopes::between(&best, &probes), probes)
                }
            };
            let dampings: [f64; TRIES] = std::array::from_fn(|at| damping * 10f64.powi(at as i32 - 1));
            let tried = ask(dampings.iter().map(|damping| slopes.minimum(&best, *damping, bounds)).collect())?;
            let found = tried.into_iter().chain(probes).enumerate();
            let Some((at, found)) = found.min_by(|(_, a), (_, b)| a.cost().total_cmp(&b.cost())) else { break };
            let gain = 1.0 - found.cost() / best.cost();
            match dampings.get(at).filter(|_| gain > 0.0) {
                Some(found) => damping = found.clamp(1e-6, 1e3),
                None if is_new => damping = (damping * 10.0).min(1e3),
                None => {}
            }
            if gain > 0.0 {
                slopes.learn(&best, &found);
                best = found;
            }
            known = (gain >= STALE).then_some(slopes);
            if is_new && gain < WIDE {
                step /= 2.0;
            }
            // Below rounding the cost cannot fall further.
            if step < self.last_step || best.cost() < 1e-20 {
                break;
            }
        }
        Ok(best)
    }
}

/// A point one step away along each value, on the side with room within the bounds.
fn probes(values: &[f64], bounds: &[(f64, f64)], step: f64) -> Vec<Vec<f64>> {
    let probe = |at: usize| {
        let mut probe = values.to_vec();
        let up = values[at] + step;
        probe[at] = if up <= bounds[at].1 { up } else { (values[at] - step).max(bounds[at].0) };
        probe
    };
    (0..values.len()).map(probe).collect()
}

/// The derivatives of the residuals by each value.
struct Slopes(Vec<Vec<f64>>);

impl Slopes {
    /// From probes one step away along each value.
    fn between(here: &Place, probes: &[Place]) -> Self {
        let slope = |(at, probe): (usize, &Place)| {
            let step = probe.values[at] - here.values[at];
            let change = |(there, here): (&f64, &f64)| if step == 0.0 { 0.0 } else { (there - here) / step };
            probe.residuals.iter().zip(&here.residuals).map(change).collect()
        };
        Self(probes.iter().enumerate().map(slope).collect())
    }

    /// Corrects the slopes along a move by the residuals at its end (Broyden's update).
    fn learn(&mut self, from: &Place, to: &Place) {
        let moves: Vec<f64> = to.values.iter().zip(&from.values).map(|(to, from)| to - from).collect();
        let length = dot(&moves, &moves);
        if length == 0.0 {
            return;
        }
        for at in 0..from.residuals.len() {
            let expected: f64 = self.0.iter().zip(&moves).map(|(slope, step)| slope[at] * step).sum();
            let missing = (to.residuals[at] - from.residuals[at] - expected) / length;
            self.0.iter_mut().zip(&moves).for_each(|(slope, step)| slope[at] += missing * step);
        }
    }

    /// The minimum of the damped linear model around a point, within the bounds.
    fn minimum(&self, around: &Place, damping: f64, bounds: &[(f64, f64)]) -> Vec<f64> {
        let values = &around.values;
        let mut is_held = vec![false; values.len()];
        loop {
            let moves = self.moves(&around.residuals, damping, &is_held);
            // A value at a bound that would leave it is held, and the remaining values are solved again.
            let leaves = |at: &usize| {
                let (least, most) = bounds[*at];
                !is_held[*at] && (values[*at] <= least && moves[*at] < 0.0 || values[*at] >= most && moves[*at] > 0.0)
            };
            let Some(at) = (0..values.len()).find(leaves) else {
                let longest = moves.iter().fold(0.0, |longest: f64, step| longest.max(step.abs()));
                let scale = (LONGEST_MOVE / longest).min(1.0);
                let moved = values.iter().zip(&moves).zip(bounds);
                return moved
                    .map(|((value, step), (least, most))| (value + step * scale).clamp(*least, *most))
                    .collect();
            };
            is_held[at] = true;
        }
    }

    /// Solves the damped normal equations for the values that are not held.
    fn moves(&self, residuals: &[f64], damping: f64, is_held: &[bool]) -> Vec<f64> {
        let Self(slopes) = self;
        let count = slopes.len();
        let squares: Vec<f64> = slopes.iter().map(|slope| dot(slope, slope)).collect();
        let largest = squares.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let mut equations = vec![vec![0.0; count + 1]; count];
        for row in 0..count {
            if is_held[row] {
                equations[row][row] = 1.0;
                continue;
            }
            for column in (0..count).filter(|column| !is_held[*column]) {
                equations[row][column] = dot(&slopes[row], &slopes[column]);
            }
            equations[row][row] += damping * squares[row].max(largest * 1e-3);
            equations[row][count] = -dot(&slopes[row], residuals);
        }
        solved(equations)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Solves linear equations by elimination; each row ends with its right side.
fn solved(mut equations: Vec<Vec<f64>>) -> Vec<f64> {
    let count = equations.len();
    for at in 0..count {
        let pivot = (at..count).max_by(|a, b| equations[*a][at].abs().total_cmp(&equations[*b][at].abs()));
        equations.swap(at, pivot.unwrap_or(at));
        let row = equations[at].clone();
        for other in (0..count).filter(|other| *other != at) {
            let factor = if row[at] == 0.0 { 0.0 } else { equations[other][at] / row[at] };
            equations[other].iter_mut().zip(&row).for_each(|(value, above)| *value -= factor * above);
        }
    }
    let solution = |(at, row): (usize, &Vec<f64>)| if row[at] == 0.0 { 0.0 } else { row[count] / row[at] };
    equations.iter().enumerate().map(solution).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const SEARCH: Search = Search { first_step: 0.1, last_step: 1e-3, rounds: 60, pull: 0.0 };
    const WIDE: [(f64, f64); 2] = [(-10.0, 10.0); 2];

    fn found(search: Search, bounds: &[(f64, f64)], residuals: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
        let mut evaluate = |places: &[Vec<f64>]| Ok::<_, Infallible>(places.iter().map(|at| residuals(at)).collect());
        search.minimise(&[-1.2, 1.0], bounds, &mut evaluate).unwrap().values
    }

    fn assert_close(found: &[f64], expected: &[f64], within: f64) {
        let are_close = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= within);
        assert!(are_close, "{found:?}, expected {expected:?}");
    }

    #[test]
    fn a_curved_valley_is_followed_to_its_end() {
        let search = Search { first_step: 1e-3, last_step: 1e-6, ..SEARCH };
        let residuals = |at: &[f64]| vec![10.0 * (at[1] - at[0] * at[0]), 1.0 - at[0]];
        assert_close(&found(search, &WIDE, residuals), &[1.0, 1.0], 1e-3);
    }

    #[test]
    fn a_value_held_at_its_bound_leaves_the_rest_optimal() {
        let residuals = |at: &[f64]| vec![at[0] - 3.0, at[0] + at[1] - 1.0];
        assert_close(&found(SEARCH, &[(-10.0, 2.0), (-10.0, 10.0)], residuals), &[2.0, -1.0], 1e-3);
    }

    #[test]
    fn noise_below_the_step_does_not_stop_the_search() {
        let rough = |value: f64| 0.005 * (value * 1e4).sin();
        let residuals = |at: &[f64]| vec![at[0] - 0.5 + rough(at[0]), at[1] - 2.0 + rough(at[1]), at[0] * at[1] - 1.0];
        assert_close(&found(Search { last_step: 0.02, ..SEARCH }, &WIDE, residuals), &[0.5, 2.0], 0.02);
    }

    #[test]
    fn an_unconstrained_value_stays_at_its_start() {
        let search = Search { pull: 0.01, ..SEARCH };
        assert_close(&found(search, &WIDE, |at| vec![at[0] - 0.5]), &[0.5, 1.0], 1e-3);
    }
}
