//! Predicts initialised page structures per second.

use crate::deferred_init::{self, DeferredInit};
use crate::machine::Machine;
use crate::sim_yard::SimError;

use super::Predictor;

/// Predicts the initialisation of a machine's memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitPredictor;

impl Predictor for InitPredictor {
    type Case = DeferredInit;

    fn predict(&mut self, machine: &Machine, how: &DeferredInit) -> Result<f64, SimError> {
        let time = deferred_init::run(machine, how)?.time;
        Ok(InitPredictor::rate(machine, time.as_ns()))
    }

    fn work(_: &DeferredInit) -> u64 {
        1
    }
}

impl InitPredictor {
    /// Page structures per second if the whole map takes `ns` nanoseconds.
    #[must_use]
    pub fn rate(machine: &Machine, ns: f64) -> f64 {
        machine.geometry.pages_in(machine.installed).0 as f64 / ns * 1e9
    }
}
