//! Fits of a machine whose predictions are formulas: the fit must recover known parameters.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use frameyard::policy::ZonePolicy;

use super::*;
use crate::calibration::Point;
use crate::page_fault::Mode;

/// Tasks work 600 cycles, queue for a lock held `handover_transfers` × 20 ns, and share `node_gb_per_s`. The
/// prediction has noise of `roughness`.
#[derive(Clone)]
struct Formula {
    roughness: f64,
}

impl Predictor for Formula {
    type Case = Point;

    fn predict(&mut self, machine: &Machine, point: &Point) -> Result<f64, SimError> {
        let parameter = |path| machine.parameter(path).unwrap();
        let tasks = f64::from(point.tasks);
        let clock = machine.clock.mhz[(point.tasks as usize).min(machine.clock.mhz.len()) - 1];
        let work = 600.0 / f64::from(clock) * 1e-6;
        let visits = if point.policy == ZonePolicy::BigPcp { 0.1 } else { 1.0 };
        let line = parameter("lock.handover_transfers") * 20e-9 * visits * tasks;
        let moved = 8192.0 * tasks / (parameter("memory.node_gb_per_s") * 1e9);
        let rate = tasks / (work + line + moved);
        let ripple = (rate * 1e-2).sin() * self.roughness;
        Ok(rate * (1.0 + ripple))
    }

    fn work(_: &Point) -> u64 {
        1
    }
}

const EXACT: Formula = Formula { roughness: 0.0 };
const FREE: [&str; 4] = ["clock.mhz[0]", "lock.handover_transfers", "memory.node_gb_per_s", "clock.mhz[7]"];

fn pool(formula: Formula) -> PredictorPool<Formula> {
    PredictorPool::new(NonZeroUsize::new(2).unwrap(), formula)
}

/// A machine with these parameters free, and the rows predicted with other values.
fn task(values: &[(&str, f64)]) -> (Machine, Vec<(Point, f64)>) {
    let mut machine = Machine::built_in("broadwell-40").unwrap();
    machine.calibration.parameters = FREE.map(str::to_owned).to_vec();
    machine.calibration.start.clear();
    let mut wanted = machine.clone();
    let points = [ZonePolicy::BigPcp, ZonePolicy::Vanilla416]
        .into_iter()
        .flat_map(|policy| [1, 2, 5, 10, 20, 40].map(move |tasks| Point { policy, mode: Mode::Processes, tasks }));
    let free = FreeParameters::new(&machine, &machine.calibration.parameters).unwrap();
    for (path, value) in values {
        wanted.set_parameter(path, *value).unwrap();
    }
    let wanted = free.applied(&free.values(&wanted)).unwrap();
    let rows = points.map(|point| (point, EXACT.clone().predict(&wanted, &point).unwrap())).collect();
    (machine, rows)
}

const WANTED: [(&str, f64); 4] = [
    ("clock.mhz[0]", 2500.0),
    ("lock.handover_transfers", 3.0),
    ("memory.node_gb_per_s", 90.0),
    ("clock.mhz[7]", 2000.0),
];

fn assert_found(fitted: &Fitted, within: f64) {
    for (path, wanted) in WANTED {
        let found = fitted.machine.parameter(path).unwrap();
        assert!((found / wanted - 1.0).abs() < within, "{path} is {found}, was {wanted}");
    }
}

#[test]
fn recovers_known_parameters() {
    let (machine, rows) = task(&WANTED);
    let fitted = Fit { machine: &machine, rows, rounds: 40 }.run(&mut pool(EXACT), &|| ()).unwrap();
    assert_found(&fitted, 0.02);
    assert!(fitted.error < 0.002 && fitted.error_before > 0.1, "{fitted:?}");
    assert!(fitted.parameters.iter().all(|parameter| !parameter.is_at_bound()));
}

#[test]
fn noise_does_not_mislead() {
    let (machine, rows) = task(&WANTED);
    let noisy = Formula { roughness: 0.002 };
    let fitted = Fit { machine: &machine, rows, rounds: 40 }.run(&mut pool(noisy), &|| ()).unwrap();
    assert_found(&fitted, 0.1);
    assert!(fitted.error < 0.005, "{fitted:?}");
}

#[test]
fn a_fit_is_deterministic_and_stays_below_its_most_predictions() {
    let (machine, rows) = task(&WANTED);
    let fit = Fit { machine: &machine, rows, rounds: 10 };
    let made = AtomicU64::new(0);
    let count = || {
        made.fetch_add(1, Ordering::Relaxed);
    };
    let run = || fit.run(&mut pool(EXACT), &count).unwrap();
    let first = run();
    assert!((1..=fit.most_predictions().unwrap()).contains(&made.load(Ordering::Relaxed)));
    assert_eq!(run(), first);
}

#[test]
fn a_fit_from_the_recorded_start_repeats_the_first() {
    let (mut machine, rows) = task(&WANTED);
    // Clocks between free ones follow them, so their first values would not return.
    machine.calibration.parameters = ["lock.handover_transfers", "memory.node_gb_per_s"].map(str::to_owned).to_vec();
    let fit = |machine: &Machine| {
        Fit { machine, rows: rows.clone(), rounds: 10 }.run(&mut pool(EXACT), &|| ()).unwrap().parameters
    };
    let first = fit(&machine);
    machine.calibration.start = first.iter().map(|parameter| parameter.before).collect();
    first.iter().for_each(|parameter| machine.set_parameter(&parameter.path, parameter.after).unwrap());
    assert_eq!(fit(&machine), first);
}

#[test]
fn reports_a_parameter_at_its_bound() {
    let (machine, mut rows) = task(&WANTED);
    // Only far slower clocks make few tasks ten times slower.
    rows.iter_mut().for_each(|(_, rate)| *rate /= 10.0);
    let fitted = Fit { machine: &machine, rows, rounds: 40 }.run(&mut pool(EXACT), &|| ()).unwrap();
    let clock = &fitted.parameters[0];
    assert!(clock.is_at_bound() && clock.after < clock.before, "{clock:?}");
}

#[test]
fn too_few_rows_and_missing_parameters_are_refused() {
    let (mut machine, rows) = task(&WANTED);
    let few = Fit { machine: &machine, rows: rows[..3].to_vec(), rounds: 1 };
    assert!(matches!(few.most_predictions(), Err(FitError::TooFewRows { rows: 3, parameters: 4 })));
    machine.calibration.parameters.clear();
    assert!(matches!(Fit { machine: &machine, rows, rounds: 1 }.most_predictions(), Err(FitError::NothingFree)));
}
