//! Predictions at many points, on several host threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::machine::Machine;
use crate::sim_yard::SimError;

use super::Predictor;

/// A predictor for each host thread. A prediction depends only on its machine and case, so any predictor may make
/// it.
#[derive(Clone, Debug)]
pub struct PredictorPool<P> {
    predictors: Vec<P>,
}

impl<P: Predictor + Clone + Send> PredictorPool<P> {
    /// `threads` equal predictors.
    #[must_use]
    pub fn new(threads: NonZeroUsize, predictor: P) -> Self {
        Self { predictors: vec![predictor; threads.get()] }
    }

    /// The predictions of cases on machines, in order. Calls `predicted` after each, on any thread.
    ///
    /// # Errors
    ///
    /// The first failed prediction in the order of `requests`.
    ///
    /// # Panics
    ///
    /// If a predictor panics.
    pub fn predict(
        &mut self,
        requests: &[(&Machine, P::Case)],
        predicted: &(dyn Fn() + Sync),
    ) -> Result<Vec<f64>, SimError> {
        // The longest predictions come first, so that threads end together.
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(P::work(&requests[*at].1)));
        let next = AtomicUsize::new(0);
        let work = |predictor: &mut P| {
            let mut own = Vec::new();
            while let Some(at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (machine, case) = &requests[*at];
                own.push((*at, predictor.predict(machine, case)));
                predicted();
            }
            own
        };
        let mut all: Vec<(usize, Result<f64, SimError>)> = std::thread::scope(|scope| {
            let threads: Vec<_> = self.predictors.iter_mut().map(|predictor| scope.spawn(|| work(predictor))).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.flat_map(|own| own.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, prediction)| prediction).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Squares;

    impl Predictor for Squares {
        type Case = u32;

        fn predict(&mut self, _: &Machine, number: &u32) -> Result<f64, SimError> {
            match *number {
                0 => Err(SimError::NoMemory),
                number => Ok(f64::from(number * number)),
            }
        }

        fn work(number: &u32) -> u64 {
            (*number).into()
        }
    }

    fn squares(numbers: &[u32], threads: usize) -> Result<Vec<f64>, SimError> {
        let machine = Machine::built_in("broadwell-40").unwrap();
        let requests: Vec<_> = numbers.iter().map(|number| (&machine, *number)).collect();
        let predicted = AtomicUsize::new(0);
        let count = || {
            predicted.fetch_add(1, Ordering::Relaxed);
        };
        let answers = PredictorPool::new(NonZeroUsize::new(threads).unwrap(), Squares).predict(&requests, &count);
        assert_eq!(predicted.into_inner(), numbers.len());
        answers
    }

    #[test]
    fn predictions_come_in_the_order_of_the_questions() {
        for threads in [1, 2, 5] {
            assert_eq!(squares(&[3, 1, 2], threads).unwrap(), [9.0, 1.0, 4.0]);
        }
    }

    #[test]
    fn returns_the_first_failure() {
        assert!(matches!(squares(&[3, 0, 2], 2), Err(SimError::NoMemory)));
    }
}
