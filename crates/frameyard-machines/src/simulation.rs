//! The costs of a simulated machine: the tables under `[simulation]`.
//!
//! A comment in each built-in description states the source of every number. The simulator's documentation explains the use of
//! each.

use serde::{Deserialize, Serialize};

use super::topology::Topology;

/// The maximum number of cores of a simulated machine.
const MAX_CORES: u64 = 1023;
/// The maximum number of CPUs of a simulated machine.
const MAX_SIMULATED_CPUS: u64 = 1024;

/// The costs of a simulated machine.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Simulation {
    /// Capacities of caches.
    pub caches: Caches,
    /// Costs of accesses.
    pub costs: AccessCosts,
    /// Memory channels.
    pub memory: Memory,
    /// Clocks of the cores.
    pub clock: Clock,
    /// Hand-over of locks.
    pub lock: Lock,
    /// Costs of writing the memory map.
    #[serde(default)]
    pub map_init: MapInitCosts,
    /// Costs of the kernel outside its allocator.
    #[serde(default)]
    pub kernel_overhead: KernelOverhead,
    /// The published results that parameters were fitted to.
    #[serde(default, skip_serializing_if = "Calibration::is_empty")]
    pub calibration: Calibration,
}

/// Capacities of caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// The total size of a core's private caches, in KiB.
    pub private_kib: u64,
    /// The last-level cache of a group of cores, in KiB.
    pub shared_kib: u64,
}

/// Costs of accesses, by the place that serves them.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AccessCosts {
    /// Cycles of a hit in the private cache, including the surrounding instructions.
    pub access_cycles: f64,
    /// Additional cycles of an atomic read-modify-write.
    pub atomic_cycles: f64,
    /// Nanoseconds from the last-level cache of the core's group.
    pub shared_hit_ns: f64,
    /// Nanoseconds from the private cache of another core of the group.
    pub same_group_ns: f64,
    /// Nanoseconds from another group of the socket.
    pub same_socket_ns: f64,
    /// Nanoseconds from another socket.
    pub other_socket_ns: f64,
    /// Nanoseconds from memory of the CPU's node.
    pub local_memory_ns: f64,
    /// Nanoseconds from memory of another node.
    pub remote_memory_ns: f64,
    /// The number of missing stores to page structures that a core overlaps.
    pub store_overlap: f64,
    /// The number of prefetches and early loads that a core overlaps.
    pub read_overlap: f64,
}

/// Memory channels.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The bandwidth of a node in GB/s (bytes per nanosecond).
    pub node_gb_per_s: f64,
}

/// Clocks of the cores.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// The clock in MHz with 1, 2, … busy cores on the socket. The last entry applies to higher numbers.
    pub mhz: Vec<u32>,
    /// The factor by which a thread slows down while another thread of its core is busy. With more than two threads a
    /// core, the factor of a full core, whatever the number of busy threads.
    pub smt_slowdown: f64,
    /// The same factor while the other thread spins on a lock. Absent: `smt_slowdown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spin_slowdown: Option<f64>,
}

impl Clock {
    /// The clock in MHz of a socket with `cores` busy cores.
    ///
    /// # Panics
    ///
    /// If `mhz` is empty.
    #[must_use]
    pub fn mhz_with(&self, cores: usize) -> f64 {
        f64::from(self.mhz[cores.clamp(1, self.mhz.len()) - 1])
    }
}

/// Hand-over of locks.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The method of all spinning locks.
    pub kind: LockMethod,
    /// The duration of a hand-over, in transfers of a cache line from the last holder to the next.
    pub handover_transfers: f64,
    /// The nanoseconds that each further waiter adds by reading the lock's word again.
    pub per_waiter_ns: f64,
}

/// The order in which spinning locks serve waiters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockMethod {
    /// The nearest waiter gets the lock, because its exchange arrives first.
    TestAndSet,
    /// First come, first served. All waiters read one word.
    Ticket,
    /// First come, first served. Each waiter reads its own word (the kernel's `qspinlock`).
    Queued,
}

/// Costs of writing the memory map while it is initialised.
///
/// A page structure costs `page_cycles` of the core, the memory latency divided by `lines_in_flight`, and its share of the
/// node's bandwidth: a fetch and a write-back. A pass of `memset` over the map costs the same.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MapInitCosts {
    /// Cycles in which a kernel initialises a page structure and frees its page, without the transfer of the cache line.
    pub page_cycles: f64,
    /// The number of lines of a sequential run that a core has in flight, for all its threads together.
    pub lines_in_flight: f64,
    /// The fraction of [`Memory::node_gb_per_s`] that alternating fetches and write-backs reach.
    pub channel_share: f64,
    /// `lines_in_flight` where each page structure is zeroed by a call of `memset`: 1 if the call ends with a barrier
    /// that waits for its stores. Absent: `lines_in_flight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memset_lines_in_flight: Option<f64>,
    /// Transfers for each line that `memset` of a long run writes: 2 if it fetches the line, 1 if it stores the line
    /// unread, as block-initialising stores do.
    pub memset_transfers: f64,
}

impl Default for MapInitCosts {
    /// Cycles and share as fitted for `haswell-2699v3`, and the number of line fill buffers in Intel's cores up to Broadwell.
    fn default() -> Self {
        Self {
            page_cycles: 24.63,
            lines_in_flight: 10.0,
            channel_share: 0.8949,
            memset_lines_in_flight: None,
            memset_transfers: 2.0,
        }
    }
}

/// Costs of the kernel outside its allocator and the owners of frames, in cycles of a core. Profiles name each cost after its
/// field.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelOverhead {
    /// Exception entry and exit of a fault.
    pub exception_cycles: f64,
    /// Area look-up, accounting, page-table entry and reverse mapping of a fault.
    pub fault_path_cycles: f64,
    /// Zeroing a page.
    pub zero_page_cycles: f64,
    /// Clearing a page-table entry, including the TLB flush.
    pub unmap_page_cycles: f64,
    /// A system call that maps or unmaps addresses.
    pub map_call_cycles: f64,
    /// Work under the LRU lock for each page added or removed.
    pub lru_page_cycles: f64,
    /// Further work under the zone lock each time it is held.
    pub zone_hold_cycles: f64,
    /// Copying a page.
    pub copy_page_cycles: f64,
    /// The caller's time for each CPU that it interrupts and waits for, to end the sections in which CPUs use their own lists. The
    /// interrupted CPU spends `exception_cycles`.
    pub interrupt_cycles: f64,
    /// The part of a block's page structures that the kernel reads under the zone lock, if the block has more than one: 1 up to
    /// Linux 5.18 (`check_new_pages` in `rmqueue`), 0 since.
    pub block_checks: f64,
}

impl Default for KernelOverhead {
    /// Uncalibrated values of a kernel with page-table isolation on a Broadwell processor.
    ///
    /// - Exception: published measurements of Linux 4.15 with isolation, about 900 cycles.
    /// - Zeroing: 4 KiB by `rep stosb` at about 10 GB/s, the memory bandwidth of one core.
    /// - Copying: twice the bytes of zeroing.
    /// - Interrupts: Linux commit 4180bf1b655a reports 100,000 interrupts of all 80 CPUs, Skylake at 2.5 GHz: 93 µs each, of a guest. So
    ///   this is an upper bound.
    /// - Checks of blocks: `rmqueue` of the kernels of the published tables, 4.16 to 5.6.
    /// - The other values: profiles of page_fault1.
    fn default() -> Self {
        Self {
            exception_cycles: 900.0,
            fault_path_cycles: 1000.0,
            zero_page_cycles: 1200.0,
            unmap_page_cycles: 500.0,
            map_call_cycles: 2000.0,
            lru_page_cycles: 0.0,
            zone_hold_cycles: 0.0,
            copy_page_cycles: 2400.0,
            interrupt_cycles: 2900.0,
            block_checks: 1.0,
        }
    }
}

/// The fit of a machine to published measurements.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The fitted parameters, as paths below `[simulation]`: for example `costs.read_overlap`.
    #[serde(default)]
    pub parameters: Vec<String>,
    /// The value of each parameter with which the fit began, so that it can be repeated. Empty: the file's values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<f64>,
    /// The rows that the parameters were fitted to. Empty before a fit.
    #[serde(default)]
    pub rows: Vec<String>,
    /// The published table of the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The most rounds of the search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// The root mean square of the relative errors that remain after the fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
}

impl Calibration {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Simulation {
    /// The first rule that the costs or the machine's topology violate.
    pub(super) fn violated_rule(&self, topology: Option<Topology>, nodes: usize) -> Option<&'static str> {
        topology_rule(topology, nodes).or_else(|| self.cost_rule())
    }

    fn cost_rule(&self) -> Option<&'static str> {
        let Clock { mhz, smt_slowdown, spin_slowdown } = &self.clock;
        let rules = [
            (
                self.costs.store_overlap >= 1.0 && self.costs.read_overlap >= 1.0,
                "store_overlap and read_overlap must be 1 or more",
            ),
            (self.memory.node_gb_per_s > 0.0, "node_gb_per_s must be more than 0"),
            (!mhz.is_empty() && mhz.iter().all(|mhz| *mhz > 0), "mhz must list at least one clock above 0"),
            (*smt_slowdown >= 1.0, "smt_slowdown must be 1 or more"),
            (
                spin_slowdown.is_none_or(|slowdown| (1.0..=*smt_slowdown).contains(&slowdown)),
                "spin_slowdown must be from 1 to smt_slowdown",
            ),
            (
                self.map_init.lines_in_flight > 0.0 && self.map_init.channel_share > 0.0,
                "lines_in_flight and channel_share must be more than 0",
            ),
            (
                self.map_init.memset_lines_in_flight.is_none_or(|lines| lines > 0.0)
                    && (1.0..=2.0).contains(&self.map_init.memset_transfers),
                "memset_lines_in_flight must be more than 0, and memset_transfers from 1 to 2",
            ),
            (self.kernel_overhead.is_possible(), "each kernel overhead must be a number of cycles from 0 on"),
            ((0.0..=1.0).contains(&self.kernel_overhead.block_checks), "block_checks must be from 0 to 1"),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map(|(_, rule)| rule)
    }
}

impl KernelOverhead {
    fn is_possible(&self) -> bool {
        let Self { exception_cycles, fault_path_cycles, zero_page_cycles, unmap_page_cycles, .. } = *self;
        let Self { map_call_cycles, lru_page_cycles, zone_hold_cycles, copy_page_cycles, interrupt_cycles, .. } = *self;
        let per_page = [fault_path_cycles, zero_page_cycles, unmap_page_cycles, lru_page_cycles];
        let others = [exception_cycles, map_call_cycles, zone_hold_cycles, copy_page_cycles, interrupt_cycles];
        per_page.into_iter().chain(others).all(|cycles| cycles.is_finite() && cycles >= 0.0)
    }
}

fn topology_rule(topology: Option<Topology>, nodes: usize) -> Option<&'static str> {
    let Some(topology) = topology else {
        return Some("a simulated machine needs a regular [topology]");
    };
    let Topology { sockets, cores_per_socket, threads_per_core, cores_per_cache, .. } = topology;
    let cores = u64::from(sockets) * u64::from(cores_per_socket);
    let rules = [
        ((1..=8).contains(&threads_per_core), "a core of a simulated machine has 1 to 8 threads"),
        (
            cores <= MAX_CORES && topology.cpu_count() <= MAX_SIMULATED_CPUS,
            "a simulated machine has at most 1023 cores and 1024 CPUs",
        ),
        (
            cores_per_socket.is_multiple_of(cores_per_cache.max(1)),
            "cores_per_cache must divide the cores of a simulated machine's socket",
        ),
        (usize::from(sockets) == nodes, "a simulated machine has one node for each socket"),
    ];
    rules.into_iter().find(|(holds, _)| !holds).map(|(_, rule)| rule)
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, MachineError, Problem, built_in};
    use super::*;

    fn broken(by: impl FnOnce(&mut Machine, &mut Simulation)) -> &'static str {
        let mut machine = built_in("broadwell-40").unwrap();
        let mut simulation = machine.simulation.clone().unwrap();
        by(&mut machine, &mut simulation);
        machine.simulation = Some(simulation);
        match machine.validate() {
            Err(MachineError::Invalid { problem: Problem::Simulation(rule), .. }) => rule,
            other => panic!("expected a violated rule, not {other:?}"),
        }
    }

    #[test]
    fn impossible_costs_and_topologies_are_refused_with_the_rule() {
        assert!(broken(|_, simulation| simulation.costs.store_overlap = 0.5).starts_with("store_overlap"));
        assert!(broken(|_, simulation| simulation.clock.mhz.clear()).starts_with("mhz"));
        assert!(broken(|_, simulation| simulation.clock.spin_slowdown = Some(9.0)).starts_with("spin_slowdown"));
        assert!(broken(|_, simulation| simulation.kernel_overhead.map_call_cycles = f64::NAN).contains("overhead"));
        assert!(broken(|_, simulation| simulation.map_init.memset_transfers = 3.0).contains("from 1 to 2"));
        assert!(broken(|machine, _| machine.cpus.swap(0, 1)).contains("regular [topology]"));
    }

    #[test]
    fn the_last_clock_applies_to_more_cores() {
        let clock = Clock { mhz: vec![3000, 2900], smt_slowdown: 1.5, spin_slowdown: None };
        assert_eq!([0, 1, 2, 7].map(|cores| clock.mhz_with(cores)), [3000.0, 3000.0, 2900.0, 2900.0]);
    }
}
