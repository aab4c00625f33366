//! Bringing up the memory map of a simulated machine, and how long that takes.
//!
//! The yard is created as early boot leaves it, its map written up to a first section of each node
//! ([`InitMode::Deferred`]); then [`finish_init`](frameyard::Yard::finish_init) runs in virtual time, with the jobs and the locks that it
//! has on a real machine. Large machines would need much memory of the host; so a [fraction](BringUp::fraction) of a node is
//! simulated, in sections that are as much smaller, and the time multiplied.

use frameyard::boot::{Cutting, InitJobs, InitMode, Initialiser, MapInit};
use frameyard::page::MapContent;
use frameyard::platform::NodeInit;
use frameyard::{ByteSize, CpuId, Geometry, NodeId, Order, PageCount, PfnRange};

use crate::account::Account;
use crate::machine::Machine;
use crate::sim_yard::{FIRST_FRAME, SimError, SimYard};
use crate::time::Picos;

/// How many threads bring up a node's map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BringUpThreads {
    /// One: the kernel's `pgdatinit` thread, before it had jobs of several threads.
    OnePerNode,
    /// One for each CPU of the node (the kernel's `deferred_page_init_max_threads`), if there is a section for each.
    OnePerCpu,
    /// So many, or as many as the node has CPUs.
    Count(u16),
}

/// How the map of a simulated machine is brought up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BringUp {
    /// By how many threads.
    pub threads: BringUpThreads,
    /// By which means page structures are written: with content as a kernel's, or not at all ([`Initialiser::None`]).
    pub initialiser: Initialiser,
    /// Only one part in so many of each node's memory is simulated: a power of two, at most 32.
    pub fraction: u16,
}

impl BringUp {
    /// The usual fraction: the map of a machine with 1 TiB takes 512 MiB of the host.
    pub const FRACTION: u16 = 32;

    /// As a kernel does it, by so many threads.
    #[must_use]
    pub const fn of_kernel(threads: BringUpThreads) -> Self {
        Self { threads, initialiser: Initialiser::StoresPerPage, fraction: Self::FRACTION }
    }
}

/// What bringing up a map came to.
#[derive(Clone, PartialEq, Debug)]
pub struct BringUpRun {
    /// How long it takes, for all of the machine's memory.
    pub time: Picos,
    /// How long the simulated fraction took.
    pub simulated: Picos,
    /// What was done for each node, in the order in which they were through.
    pub nodes: Vec<NodeInit>,
    /// Where the time of all CPUs went, for the simulated fraction.
    pub account: Account,
}

/// Brings up what is left of a machine's map after early boot.
///
/// # Errors
///
/// [`SimError`] where the host has too little memory.
///
/// # Panics
///
/// Where the fraction is none that [`BringUp`] names.
pub fn run(machine: &Machine, how: &BringUp) -> Result<BringUpRun, SimError> {
    let fraction = u64::from(how.fraction);
    assert!(fraction.is_power_of_two() && fraction <= 32, "the fraction is a power of two, at most 32");
    let (pageblock, max) = (Order(9), Order(10));
    let section = ByteSize((128 << 20) / fraction);
    let geometry = Geometry::new(ByteSize(4096), section, pageblock, max).expect("a section holds a block or more");
    let jobs = InitJobs {
        cutting: Cutting::Ranges,
        threads: match how.threads {
            BringUpThreads::OnePerNode => Some(1),
            BringUpThreads::OnePerCpu => None,
            BringUpThreads::Count(count) => Some(count.into()),
        },
        alignment: Some(geometry.section_pages()),
        min_chunk: Some(geometry.section_pages()),
    };
    let content = if how.initialiser.can_write(MapContent::Kernel) { MapContent::Kernel } else { MapContent::Zero };
    let map_init =
        MapInit { mode: InitMode::Deferred, content, initialiser: how.initialiser, jobs, ..MapInit::default() };
    let yard = SimYard::create(machine, &nodes_of(machine, fraction), &[], |config| {
        config.geometry = geometry;
        config.map_init = map_init;
    })?;
    let begin = yard.platform().now();
    let finish = || yard.finish_init().expect("all of the map is there, and no worker panics");
    let end = yard.run(vec![(CpuId(0), Box::new(finish))])?;
    let simulated = end - begin;
    Ok(BringUpRun {
        time: Picos(simulated.0 * fraction),
        simulated,
        nodes: yard.platform().node_inits(),
        account: yard.platform().account(),
    })
}

/// A fraction of each node's memory above 4 GiB, which early boot has not brought up.
fn nodes_of(machine: &Machine, fraction: u64) -> Vec<(PfnRange, NodeId)> {
    let mut start = FIRST_FRAME;
    let node = |(node, memory): (usize, &ByteSize)| {
        let range = PfnRange::new(start, PageCount((memory.0 >> 12) / fraction));
        start = range.end;
        (range, NodeId(node as u16))
    };
    machine.high_memory.iter().enumerate().map(node).filter(|(range, _)| !range.is_empty()).collect()
}
