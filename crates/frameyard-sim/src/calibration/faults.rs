//! Predicts page faults per second by running page_fault1's loop on the simulated machine.

use frameyard::PageCount;
use frameyard::watermarks::PcpSizing;
use frameyard_vm::{LruPolicy, Vm, VmConfig};

use crate::list_access::ListAccess;
use crate::machine::Machine;
use crate::page_fault::{FaultLoop, FaultRun};
use crate::sim_yard::{SimConfig, SimError, SimYard};

use super::{Point, Predictor};

/// Pages of page_fault1's mapping: 128 MiB.
const MAPPING: u32 = 32768;
/// Pages of a section, 128 MiB.
const SECTION: u64 = 1 << 15;
/// The least memory of a node: with less, per-CPU batches would be smaller than on a large node.
const LEAST_MEMORY: u64 = 9 * SECTION;
/// The largest batch of one CPU, that of `big-pcp`.
const LARGEST_BATCH: u64 = 10922;

/// The amount of simulated work for a prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Pages that each task maps. With fewer than the 32768 pages of page_fault1, the machine's caches are smaller by the
    /// same factor, so that they hold an equally small part.
    pub pages: u32,
    /// Counted mappings. The same number precedes them.
    pub rounds: u32,
    /// Seed of the sizes of the first mappings.
    pub seed: u64,
}

impl Effort {
    /// The work of page_fault1.
    pub const FULL: Self = Self { pages: MAPPING, rounds: 1, seed: 1 };

    /// The machine with caches as much smaller as the mappings are.
    fn scaled(&self, machine: &Machine) -> Machine {
        let scaled = |kib: u64| (kib * u64::from(self.pages.min(MAPPING)) / u64::from(MAPPING)).max(1);
        let mut machine = machine.clone();
        machine.caches.private_kib = scaled(machine.caches.private_kib);
        machine.caches.shared_kib = scaled(machine.caches.shared_kib);
        machine
    }
}

/// Predicts page_fault1's loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPredictor {
    /// The amount of simulated work.
    pub effort: Effort,
    /// The locks of the LRU lists.
    pub lru: LruPolicy,
}

impl FaultPredictor {
    /// A predictor with the LRU locks of the tables' kernels.
    #[must_use]
    pub const fn new(effort: Effort) -> Self {
        Self { effort, lru: LruPolicy::Vanilla }
    }

    /// Runs the loop.
    ///
    /// # Errors
    ///
    /// [`SimError`] if the yard cannot be created or the run does not end.
    ///
    /// # Panics
    ///
    /// If the machine has fewer CPUs than tasks.
    pub fn run(&self, machine: &Machine, point: &Point) -> Result<FaultRun, SimError> {
        let Point { policy, mode, tasks } = *point;
        let Effort { pages, rounds, seed } = self.effort;
        let machine = &self.effort.scaled(machine);
        // The mappings of all tasks of a node, half as much again for page tables and per-CPU lists, and a reserve.
        let on_node = u64::from(tasks).min(machine.cpus() as u64 / u64::from(machine.topology.sockets));
        let needed = on_node * (u64::from(pages) * 3 / 2 + LARGEST_BATCH);
        let node_memory = PageCount((needed.next_multiple_of(SECTION) + 4 * SECTION).max(LEAST_MEMORY));
        let config =
            SimConfig { node_memory, policy, sizing: PcpSizing::Early, lists: ListAccess::Locks, costs: Vec::new() };
        let yard = SimYard::new(machine, &config)?;
        let vm = Vm::create(&yard, &VmConfig::default()).map_err(SimError::Owners)?;
        FaultLoop { tasks, mode, pages, rounds, seed, lru: self.lru }.run(&yard, &vm)
    }
}

impl Predictor for FaultPredictor {
    type Case = Point;

    fn predict(&mut self, machine: &Machine, point: &Point) -> Result<f64, SimError> {
        Ok(self.run(machine, point)?.rate)
    }

    fn work(point: &Point) -> u64 {
        point.tasks.into()
    }
}

#[cfg(test)]
mod tests {
    use frameyard::policy::ZonePolicy;

    use super::*;
    use crate::page_fault::Mode;

    #[test]
    fn caches_are_smaller_by_the_factor_of_the_mappings() {
        let machine = Machine::built_in("broadwell-40").unwrap();
        let caches = |pages| Effort { pages, ..Effort::FULL }.scaled(&machine).caches;
        assert_eq!(caches(MAPPING), machine.caches);
        assert_eq!((caches(4096).private_kib, caches(4096).shared_kib), (32, 3200));
        assert_eq!(caches(1).private_kib, 1);
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
