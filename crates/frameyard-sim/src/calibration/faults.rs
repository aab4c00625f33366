//! Predicts page faults a second by running the loop of page_fault1 on the simulated machine.

use frameyard::PageCount;
use frameyard::watermarks::PcpSizing;
use frameyard_vm::{LruPolicy, Vm, VmConfig};

use crate::machine::Machine;
use crate::page_fault::{FaultLoop, FaultRun, Start};
use crate::sim_yard::{SimConfig, SimError, SimYard};

use super::{Point, Predictor};

/// Pages of page_fault1's mapping: 128 MiB.
const MAPPING: u32 = 32768;
/// Few tasks map together as much as so many, so that caches hold as little of it.
const MANY: u32 = 8;
/// Simulated memory comes in sections of so many pages, 128 MiB.
const SECTION: u64 = 1 << 15;
/// A node is never so small that its lists' batches are smaller than on a large one.
const LEAST_MEMORY: u64 = 9 * SECTION;
/// The largest batch that a CPU takes for itself, that of `big-pcp`.
const LARGEST_BATCH: u64 = 10922;

/// How much is simulated for a prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Pages that each task maps where there are many tasks; few tasks map more, but no more than the 32768 pages of
    /// page_fault1, so that caches hold as little of it.
    pub pages: u32,
    /// Mappings that are counted.
    pub rounds: u32,
    /// Decides how far tasks are apart.
    pub seed: u64,
}

impl Effort {
    /// As much as page_fault1 maps.
    pub const FULL: Self = Self { pages: MAPPING, rounds: 1, seed: 1 };

    /// How many pages each of so many tasks maps.
    #[must_use]
    pub fn pages_of(&self, tasks: u32) -> u32 {
        self.pages.max(MAPPING.min(self.pages.saturating_mul(MANY) / tasks.max(1)))
    }
}

/// Predicts what the loop of page_fault1 does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPredictor {
    /// How much is simulated.
    pub effort: Effort,
    /// How lists of used pages are locked.
    pub lru: LruPolicy,
    /// How far tasks are apart.
    pub start: Start,
}

impl FaultPredictor {
    /// Of tasks that are apart, with lists of used pages locked as in the kernels of the tables.
    #[must_use]
    pub const fn new(effort: Effort) -> Self {
        Self { effort, lru: LruPolicy::Vanilla, start: Start::Apart }
    }

    /// Runs the loop.
    ///
    /// # Errors
    ///
    /// [`SimError`] where there is no such machine, or the run does not come to its end.
    ///
    /// # Panics
    ///
    /// Where the machine has fewer CPUs than tasks.
    pub fn run(&self, machine: &Machine, point: &Point) -> Result<FaultRun, SimError> {
        let Point { policy, mode, tasks } = *point;
        let Effort { rounds, seed, .. } = self.effort;
        let pages = self.effort.pages_of(tasks);
        // The mappings of all tasks of a node, half of them more for page tables and what lists hold, and a reserve.
        let on_node = u64::from(tasks).min(machine.cpus() as u64 / u64::from(machine.topology.sockets));
        let needed = on_node * (u64::from(pages) * 3 / 2 + LARGEST_BATCH);
        let node_memory = PageCount((needed.next_multiple_of(SECTION) + 4 * SECTION).max(LEAST_MEMORY));
        let config = SimConfig { node_memory, policy, sizing: PcpSizing::Early, costs: Vec::new() };
        let yard = SimYard::new(machine, &config)?;
        let vm = Vm::create(&yard, &VmConfig::default()).map_err(SimError::Owners)?;
        FaultLoop { tasks, mode, pages, rounds, seed, start: self.start, lru: self.lru }.run(&yard, &vm)
    }
}

impl Predictor for FaultPredictor {
    fn predict(&mut self, machine: &Machine, point: &Point) -> Result<f64, SimError> {
        Ok(self.run(machine, point)?.rate)
    }
}

#[cfg(test)]
mod tests {
    use frameyard::policy::ZonePolicy;

    use super::*;
    use crate::page_fault::Mode;

    #[test]
    fn few_tasks_map_as_much_as_many() {
        let effort = Effort { pages: 4096, ..Effort::FULL };
        assert_eq!([1, 2, 5, 8, 40].map(|tasks| effort.pages_of(tasks)), [32768, 16384, 6553, 4096, 4096]);
        assert_eq!(Effort::FULL.pages_of(40), 32768);
    }

    #[test]
    fn a_prediction_depends_on_its_arguments_alone() {
        let machine = Machine::built_in("broadwell-40").unwrap();
        let point = Point { policy: ZonePolicy::Vanilla416, mode: Mode::Processes, tasks: 12 };
        let mut predictor = FaultPredictor::new(Effort { pages: 64, ..Effort::FULL });
        let first = predictor.predict(&machine, &point).unwrap();
        assert!(first > 1e5, "{first} faults a second");
        assert_eq!(predictor.predict(&machine, &point).unwrap(), first);
    }
}
