//! Initialising the memory map of a simulated machine, in virtual time.
//!
//! The yard is created in the state after early boot, with the map of each node's first section
//! ([`InitMode::Deferred`]). Then [`YardInit::finish`](frameyard::views::YardInit::finish) runs in virtual time, with the same
//! jobs and locks as on a real machine.
//!
//! The map of a large machine needs much host memory. The simulator therefore runs a [fraction](DeferredInit::fraction) of
//! each node, in sections smaller by the same factor, and multiplies the time.

use frameyard::boot::{InitJobs, InitMode, Initialiser, JobGranularity, MapInit};
use frameyard::page::MapContent;
use frameyard::platform::NodeInit;
use frameyard::{ByteSize, CpuId, Geometry, NodeId, Order, PageCount, PfnRange};

use crate::account::Account;
use crate::machine::Machine;
use crate::sim_yard::{FIRST_FRAME, SimError, SimYard};
use crate::time::Picos;

/// The threads that initialise a node's map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InitThreads {
    /// One: the kernel's `pgdatinit` thread, before it used jobs of several threads.
    OnePerNode,
    /// One for each CPU of the node (the kernel's `deferred_page_init_max_threads`), up to one for each section.
    OnePerCpu,
    /// This number, at most the node's CPUs.
    Count(u16),
}

/// How a simulated machine initialises its map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeferredInit {
    /// The threads.
    pub threads: InitThreads,
    /// How page structures are written: with a kernel's content, or not at all ([`Initialiser::None`]).
    pub initialiser: Initialiser,
    /// The divisor of each node's memory: a power of two, at most 32.
    pub fraction: u16,
}

impl DeferredInit {
    /// The usual divisor: the map of a machine with 1 TiB takes 512 MiB of the host.
    pub const FRACTION: u16 = 32;

    /// As a kernel does it, by these threads.
    #[must_use]
    pub const fn of_kernel(threads: InitThreads) -> Self {
        Self { threads, initialiser: Initialiser::StoresPerPage, fraction: Self::FRACTION }
    }
}

/// The result of an initialisation.
#[derive(Clone, PartialEq, Debug)]
pub struct DeferredInitRun {
    /// The time for all of the machine's memory.
    pub time: Picos,
    /// The time of the simulated fraction.
    pub simulated: Picos,
    /// The finished pass over each node, in order of their ends.
    pub nodes: Vec<NodeInit>,
    /// The use of all CPUs' time, for the simulated fraction.
    pub account: Account,
}

/// Initialises the rest of a machine's map after early boot.
///
/// # Errors
///
/// [`SimError`] if the host has too little memory.
///
/// # Panics
///
/// If the fraction is invalid.
pub fn run(machine: &Machine, how: &DeferredInit) -> Result<DeferredInitRun, SimError> {
    let fraction = u64::from(how.fraction);
    assert!(fraction.is_power_of_two() && fraction <= 32, "the fraction is a power of two, at most 32");
    let (pageblock, max) = (Order(9), Order(10));
    let section = ByteSize((128 << 20) / fraction);
    let geometry = Geometry::new(ByteSize(4096), section, pageblock, max).expect("a section holds a block or more");
    let jobs = InitJobs {
        granularity: JobGranularity::Ranges,
        threads: match how.threads {
            InitThreads::OnePerNode => Some(1),
            InitThreads::OnePerCpu => None,
            InitThreads::Count(count) => Some(count.into()),
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
    let finish = || yard.init().finish().expect("the whole map is present, and no worker panics");
    let end = yard.run(vec![(CpuId(0), Box::new(finish))])?;
    let simulated = end - begin;
    Ok(DeferredInitRun {
        time: Picos(simulated.0 * fraction),
        simulated,
        nodes: yard.platform().node_inits(),
        account: yard.platform().account(),
    })
}

/// A fraction of each node's memory above 4 GiB, which early boot leaves uninitialised.
fn nodes_of(machine: &Machine, fraction: u64) -> Vec<(PfnRange, NodeId)> {
    let mut start = FIRST_FRAME;
    let node = |(node, memory): (usize, &ByteSize)| {
        let range = PfnRange::new(start, PageCount((memory.0 >> 12) / fraction));
        start = range.end;
        (range, NodeId(node as u16))
    };
    machine.high_memory.iter().enumerate().map(node).filter(|(range, _)| !range.is_empty()).collect()
}
