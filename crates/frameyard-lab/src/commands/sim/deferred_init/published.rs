//! Published times of initialising memory maps.

use frameyard::boot::Initialiser;
use frameyard_sim::deferred_init::{DeferredInit, InitThreads};
use frameyard_sim::{InitPredictor, Machine};
use serde::Deserialize;

use crate::Failure;
use crate::commands::page_zeroing;
use crate::commands::published_table::records;
use crate::commands::sim::published::FittedTable;

/// The published tables; their headers name the columns. The second one has other numbers of threads, and `broadwell-88`.
const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/deferred-init.csv"));
const THREADS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/deferred-init-threads.csv"));

/// The published times of one machine, in ms: one thread per node, and one per CPU.
#[derive(Clone, PartialEq, Deserialize, Debug)]
struct Record {
    machine: String,
    kernel_boot_base_ms: f64,
    kernel_boot_base_stdev: f64,
    kernel_boot_parallel_ms: f64,
    kernel_boot_parallel_stdev: f64,
    deferred_init_base_ms: f64,
    deferred_init_base_stdev: f64,
    deferred_init_parallel_ms: f64,
    deferred_init_parallel_stdev: f64,
}

/// The published time of one machine with a number of threads on each node, in ms.
#[derive(Clone, PartialEq, Deserialize, Debug)]
struct ThreadsRecord {
    machine: String,
    threads_per_node: u16,
    deferred_init_ms: f64,
    deferred_init_stdev: f64,
    kernel_boot_ms: Option<f64>,
    kernel_boot_stdev: Option<f64>,
}

impl From<ThreadsRecord> for PublishedInit {
    fn from(line: ThreadsRecord) -> Self {
        Self {
            time_ms: line.deferred_init_ms,
            stdev_ms: Some(line.deferred_init_stdev),
            boot_ms: line.kernel_boot_ms,
            boot_stdev_ms: line.kernel_boot_stdev,
        }
    }
}

/// A published time, in ms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct PublishedInit {
    pub(super) time_ms: f64,
    pub(super) stdev_ms: Option<f64>,
    /// The boot of the whole kernel.
    pub(super) boot_ms: Option<f64>,
    pub(super) boot_stdev_ms: Option<f64>,
}

impl PublishedInit {
    /// The published time of a case.
    pub(super) fn of(machine: &str, how: &DeferredInit) -> Option<Self> {
        if how.tasks > 0 {
            return None;
        }
        if how.threads == InitThreads::BootCpu {
            let seconds = page_zeroing::of(how.initialiser).filter(|_| machine == page_zeroing::MACHINE)?.seconds;
            return Some(Self { time_ms: seconds * 1e3, stdev_ms: None, boot_ms: None, boot_stdev_ms: None });
        }
        if how.initialiser != of_kernel() {
            return None;
        }
        let with = |threads: u16| threads_of(machine).find(|line| line.threads_per_node == threads).map(Self::from);
        if let InitThreads::Count(threads) = how.threads {
            return with(threads);
        }
        let Some(line) = lines().find(|line| line.machine == machine) else {
            return with(1).filter(|_| how.threads == InitThreads::OnePerNode);
        };
        let (time, stdev, boot, boot_stdev) = match how.threads {
            InitThreads::OnePerNode => (
                line.deferred_init_base_ms,
                line.deferred_init_base_stdev,
                line.kernel_boot_base_ms,
                line.kernel_boot_base_stdev,
            ),
            InitThreads::OnePerCpu => (
                line.deferred_init_parallel_ms,
                line.deferred_init_parallel_stdev,
                line.kernel_boot_parallel_ms,
                line.kernel_boot_parallel_stdev,
            ),
            InitThreads::BootCpu | InitThreads::Count(_) => return None,
        };
        Some(Self { time_ms: time, stdev_ms: Some(stdev), boot_ms: Some(boot), boot_stdev_ms: Some(boot_stdev) })
    }

    /// The part of the boot that is not the initialisation.
    pub(super) fn outside_ms(&self) -> Option<f64> {
        self.boot_ms.map(|boot| boot - self.time_ms)
    }
}

fn lines() -> impl Iterator<Item = Record> {
    records(TABLE)
}

/// The lines of a machine in the table by threads.
fn threads_of(machine: &str) -> impl Iterator<Item = ThreadsRecord> {
    records::<ThreadsRecord>(THREADS).filter(move |line| line.machine == machine)
}

/// How the kernels of the table write page structures.
const fn of_kernel() -> Initialiser {
    DeferredInit::of_kernel(InitThreads::OnePerNode).initialiser
}

/// The machines of the tables.
pub(super) fn machines() -> Vec<String> {
    let mut machines: Vec<String> = lines().map(|line| line.machine).collect();
    for line in records::<ThreadsRecord>(THREADS) {
        if !machines.contains(&line.machine) {
            machines.push(line.machine);
        }
    }
    machines
}

/// The threads of the published times of a machine; of a machine without any, the fewest and the most.
pub(super) fn ways(machine: &str) -> Vec<InitThreads> {
    if machine == page_zeroing::MACHINE {
        return vec![InitThreads::BootCpu];
    }
    let counts = threads_of(machine).map(|line| line.threads_per_node).filter(|threads| *threads > 1);
    let mut ways = vec![InitThreads::OnePerNode];
    ways.extend(counts.map(InitThreads::Count));
    if lines().any(|line| line.machine == machine) || ways.len() == 1 {
        ways.push(InitThreads::OnePerCpu);
    }
    ways
}

/// The published cases of a machine.
pub(super) fn cases(machine: &str) -> Vec<(DeferredInit, PublishedInit)> {
    let threads = ways(machine);
    let cases = Initialiser::ALL.into_iter().flat_map(|initialiser| {
        threads.iter().map(move |threads| DeferredInit { initialiser, ..DeferredInit::of_kernel(*threads) })
    });
    cases.filter_map(|how| Some((how, PublishedInit::of(machine, &how)?))).collect()
}

/// The published cases of a machine that have these names, with page structures per second.
///
/// # Errors
///
/// [`Failure::Input`] where nothing of that name was published.
pub(in crate::commands::sim) fn rows(names: &[String], machine: &Machine) -> Result<Vec<(DeferredInit, f64)>, Failure> {
    let cases = cases(&machine.name);
    let row = |name: &String| match cases.iter().find(|(how, _)| how.to_string() == *name) {
        Some((how, published)) => Ok((*how, InitPredictor::rate(machine, published.time_ms * 1e6))),
        None => {
            let known: Vec<String> = cases.iter().map(|(how, _)| how.to_string()).collect();
            let (machine, known) = (&machine.name, known.join(", "));
            Err(Failure::input(format!("{name}: no published time of {machine}; published are: {known}")))
        }
    };
    names.iter().map(row).collect()
}

/// Whether the machine's parameters were fitted on its own published time of the case.
pub(super) fn is_calibrated(machine: &Machine, how: &DeferredInit) -> bool {
    let fit = &machine.calibration;
    fit.table.as_deref() == Some(FittedTable::DeferredInit.name()) && fit.rows.contains(&how.to_string())
}

/// What one expects without a model: the time of the fitted machine with the same threads, in proportion to a node's memory. Between one
/// thread and one for each CPU, the machine's own time with one thread divided by the threads, but no less than with a thread for each
/// CPU. On one machine, that every pass over the map takes the fitted time.
pub(super) fn naive_ms(machine: &Machine, how: &DeferredInit) -> Option<f64> {
    if is_calibrated(machine, how) {
        return None;
    }
    if how.threads == InitThreads::BootCpu {
        let passes = page_zeroing::of(how.initialiser)?.pass_count;
        let (_, fitted) = cases(&machine.name).into_iter().find(|(how, _)| is_calibrated(machine, how))?;
        return Some(fitted.time_ms * f64::from(passes));
    }
    if let InitThreads::Count(threads) = how.threads {
        let own = |threads| {
            let how = DeferredInit { threads, ..*how };
            PublishedInit::of(&machine.name, &how).map(|known| known.time_ms)
        };
        let shared = own(InitThreads::OnePerNode)? / f64::from(threads);
        return Some(own(InitThreads::OnePerCpu).map_or(shared, |least| shared.max(least)));
    }
    let node_bytes = |machine: &Machine| machine.installed.0 as f64 / f64::from(machine.topology.sockets);
    let mut known = lines().filter_map(|line| Machine::built_in(&line.machine).ok());
    let fitted = known.find(|known| is_calibrated(known, how))?;
    let time_ms = PublishedInit::of(&fitted.name, how)?.time_ms;
    Some(time_ms * node_bytes(machine) / node_bytes(&fitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_names_a_built_in_machine() {
        let lines: Vec<Record> = lines().collect();
        assert_eq!(lines.len(), TABLE.lines().count() - 1);
        for line in &lines {
            assert!(Machine::built_in(&line.machine).is_ok_and(|machine| machine.name == line.machine), "{line:?}");
        }
    }

    #[test]
    fn a_time_has_its_spread_its_boot_and_the_rest_of_the_boot() {
        let of = |threads| PublishedInit::of("haswell-2699v3", &DeferredInit::of_kernel(threads));
        let found = of(InitThreads::OnePerCpu).unwrap();
        let expected =
            PublishedInit { time_ms: 89.0, stdev_ms: Some(1.7), boot_ms: Some(1145.3), boot_stdev_ms: Some(1.5) };
        assert_eq!(found, expected);
        assert!((found.outside_ms().unwrap() - 1056.3).abs() < 1e-9);
        assert_eq!(of(InitThreads::OnePerNode).unwrap().boot_ms, Some(1666.0));
        assert_eq!((of(InitThreads::Count(2)), of(InitThreads::BootCpu)), (None, None));
        let between = of(InitThreads::Count(9)).unwrap();
        assert_eq!((between.time_ms, between.boot_ms), (119.3, Some(1173.0)));
        let older = |threads| PublishedInit::of("broadwell-88", &DeferredInit::of_kernel(threads));
        assert_eq!(older(InitThreads::OnePerNode).map(|found| (found.time_ms, found.boot_ms)), Some((5860.0, None)));
        assert_eq!(older(InitThreads::OnePerCpu), None);
        let how = DeferredInit { tasks: 1, ..DeferredInit::of_kernel(InitThreads::OnePerCpu) };
        assert_eq!(PublishedInit::of("haswell-2699v3", &how), None, "the published pass ran alone");
    }

    #[test]
    fn times_of_ways_to_write_are_those_of_the_boot_cpu() {
        let how = |initialiser| DeferredInit { initialiser, ..DeferredInit::of_kernel(InitThreads::BootCpu) };
        let of = |initialiser| PublishedInit::of("sparc-m7", &how(initialiser)).map(|found| found.time_ms.round());
        assert_eq!(of(Initialiser::TwoPass), Some(17460.0));
        assert_eq!((of(Initialiser::MemsetPerPage), of(Initialiser::Stream)), (Some(61090.0), None));
    }

    #[test]
    fn a_machine_is_calibrated_where_its_own_row_was_fitted() {
        let is = |name: &str, how: &DeferredInit| is_calibrated(&Machine::built_in(name).unwrap(), how);
        let of_kernel = DeferredInit::of_kernel(InitThreads::OnePerCpu);
        assert!(is("haswell-2699v3", &of_kernel) && !is("haswell-2699v3-guest4", &of_kernel));
        let alone = DeferredInit::of_kernel(InitThreads::BootCpu);
        assert!(is("sparc-m7", &alone));
        assert!(!is("sparc-m7", &DeferredInit { initialiser: Initialiser::MemsetPerPage, ..alone }));
    }

    #[test]
    fn rows_are_named_by_the_way_and_the_threads() {
        let rows = |names: &[&str], machine: &str| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            rows(&names, &Machine::built_in(machine).unwrap())
        };
        let found = rows(&["stores-per-page/one-per-cpu"], "haswell-2699v3").unwrap();
        assert_eq!(found[0].0, DeferredInit::of_kernel(InitThreads::OnePerCpu));
        // 256 GiB of pages in 89 ms.
        assert!((found[0].1 / ((256 << 18) as f64 / 0.089) - 1.0).abs() < 0.01, "{found:?}");
        let refused = rows(&["stream/boot-cpu"], "sparc-m7").unwrap_err().to_string();
        assert!(refused.contains("memset-per-page/boot-cpu"), "{refused}");
    }

    #[test]
    fn the_packaged_tables_equal_the_published_ones() {
        for (name, table) in [("deferred-init", TABLE), ("deferred-init-threads", THREADS)] {
            let path = format!("{}/../../data/published/{name}.csv", env!("CARGO_MANIFEST_DIR"));
            // The published tables are absent where the crate is built from its package.
            if let Ok(text) = std::fs::read_to_string(path) {
                assert_eq!(text, table);
            }
        }
    }

    #[test]
    fn published_numbers_of_threads_of_a_machine_are_its_cases() {
        let threads = |machine: &str| cases(machine).into_iter().map(|(how, _)| how.threads).collect::<Vec<_>>();
        let counts = [4, 9, 13, 18, 27].map(InitThreads::Count);
        let all: Vec<_> = [InitThreads::OnePerNode].into_iter().chain(counts).chain([InitThreads::OnePerCpu]).collect();
        assert_eq!(threads("haswell-2699v3"), all);
        assert_eq!(threads("broadwell-88"), [InitThreads::OnePerNode, InitThreads::Count(11)]);
        assert_eq!(machines().len(), 7);
    }

    #[test]
    fn the_naive_time_is_that_of_the_fitted_machine_for_its_memory() {
        let naive = |name: &str, threads| {
            naive_ms(&Machine::built_in(name).unwrap(), &DeferredInit::of_kernel(threads)).map(f64::round)
        };
        // 384 GiB a node instead of 128.
        assert_eq!(naive("skylake-8167m", InitThreads::OnePerNode), Some(1854.0));
        assert_eq!(naive("skylake-8167m", InitThreads::OnePerCpu), Some(267.0));
        assert_eq!(naive("haswell-2699v3", InitThreads::OnePerCpu), None);
        assert_eq!(naive("haswell-2699v3", InitThreads::Count(4)), Some(155.0));
        assert_eq!(naive("haswell-2699v3", InitThreads::Count(27)), Some(89.0));
        let how = DeferredInit { initialiser: Initialiser::TwoPass, ..DeferredInit::of_kernel(InitThreads::BootCpu) };
        assert_eq!(naive_ms(&Machine::built_in("sparc-m7").unwrap(), &how), Some(17050.0));
    }
}
