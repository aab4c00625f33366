//! Published tables that simulated machines are fitted to and compared with.

use std::num::NonZeroUsize;
use std::thread;

use frameyard_sim::{Crew, Effort, FaultPredictor, Machine, Measured, Point, RateTable};
use frameyard_vm::LruPolicy;

use crate::Failure;

/// The table: its header says what its columns are.
const PAGE_FAULT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/page_fault1-broadwell-40cpu.csv"));

/// Page faults a second by tasks, policy and mode.
pub(super) fn page_fault() -> Result<RateTable, Failure> {
    RateTable::parse(PAGE_FAULT).map_err(Failure::run_time)
}

/// The published value of a row that is named, on a machine that is large enough.
///
/// # Errors
///
/// [`Failure::Input`] where the table does not have the row, or the machine not the CPUs.
pub(super) fn value(table: &RateTable, point: &Point, machine: &Machine) -> Result<Measured, Failure> {
    let Point { policy, mode, tasks } = point;
    let measured = table.at(point).ok_or_else(|| {
        Failure::input(format!(
            "{policy}/{mode}/{tasks}: not in the table, which has 1 to 40 tasks of vanilla-4.16, cluster-bulk and big-pcp"
        ))
    })?;
    if *tasks as usize > machine.cpus() {
        let (name, cpus) = (&machine.name, machine.cpus());
        return Err(Failure::input(format!("{policy}/{mode}/{tasks}: {name} has {cpus} CPUs, one for each task")));
    }
    Ok(measured)
}

/// Predictors of page faults on the host's CPUs, with the lists of used pages locked as the published kernels did.
pub(super) fn predictors(effort: Effort) -> Crew<FaultPredictor> {
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Crew::new(threads, FaultPredictor { effort, lru: LruPolicy::Vanilla })
}

#[cfg(test)]
mod tests {
    use frameyard::ZonePolicy;
    use frameyard_sim::Mode;

    use super::*;

    #[test]
    fn the_table_has_240_values_of_three_kernels() {
        let table = page_fault().unwrap();
        assert_eq!(table.values().len(), 240);
        for policy in [ZonePolicy::Vanilla416, ZonePolicy::ClusterBulk, ZonePolicy::BigPcp] {
            for (mode, tasks) in Mode::ALL.into_iter().flat_map(|mode| (1..=40).map(move |tasks| (mode, tasks))) {
                assert!(table.at(&Point { policy, mode, tasks }).is_some(), "{policy} {mode} {tasks}");
            }
        }
        let last = Point { policy: ZonePolicy::BigPcp, mode: Mode::Threads, tasks: 40 };
        assert_eq!(table.at(&last), Some(Measured { mean: 2_868_986.0, stdev: 52_724.0 }));
    }
}
