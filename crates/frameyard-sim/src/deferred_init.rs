//! Initialising the memory map of a simulated machine, in virtual time.
//!
//! The yard is created in the state after early boot, with the map of each node's first section
//! ([`InitMode::Deferred`]). Then [`YardInit::finish`](frameyard::views::YardInit::finish) runs in virtual time, with the same
//! jobs and locks as on a real machine.
//!
//! The map of a large machine needs much host memory. The simulator therefore runs a [fraction](DeferredInit::fraction) of
//! each node, in sections smaller by the same factor, and multiplies the time.
//!
//! [Tasks](DeferredInit::tasks) may allocate and free pages during the pass, on CPUs that the pass then lacks.

use std::cell::Cell;
use std::fmt;

use frameyard::boot::{InitJobs, InitMode, Initialiser, JobGranularity, MapInit};
use frameyard::page::MapContent;
use frameyard::platform::NodeInit;
use frameyard::policy::ZonePolicy;
use frameyard::{ByteSize, CpuId, Geometry, Gfp, NodeId, Order, Pfn, PfnRange};

use crate::account::Account;
use crate::list_access::ListAccess;
use crate::machine::Machine;
use crate::region::HostPages;
use crate::sim_yard::{FIRST_FRAME, SimError, SimYard};
use crate::time::Picos;

/// The threads that initialise a node's map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InitThreads {
    /// The boot CPU alone initialises one node after the other, section by section, before other CPUs run.
    BootCpu,
    /// One: the kernel's `pgdatinit` thread, before it used jobs of several threads.
    OnePerNode,
    /// One for each CPU of the node (the kernel's `deferred_page_init_max_threads`), up to one for each section.
    OnePerCpu,
    /// This number, at most the node's CPUs.
    Count(u16),
}

impl fmt::Display for InitThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BootCpu => f.write_str("boot-cpu"),
            Self::OnePerNode => f.write_str("one-per-node"),
            Self::OnePerCpu => f.write_str("one-per-cpu"),
            Self::Count(threads) => threads.fmt(f),
        }
    }
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
    /// Tasks that allocate and free pages until the pass is done, on the last CPUs of the machine.
    pub tasks: u16,
    /// Where free frames go.
    pub policy: ZonePolicy,
}

impl DeferredInit {
    /// The usual divisor: the map of a machine with 1 TiB takes 512 MiB of the host.
    pub const FRACTION: u16 = 32;

    /// As a kernel does it, by these threads.
    #[must_use]
    pub const fn of_kernel(threads: InitThreads) -> Self {
        let policy = ZonePolicy::Vanilla;
        Self { threads, initialiser: Initialiser::StoresPerPage, fraction: Self::FRACTION, tasks: 0, policy }
    }
}

impl fmt::Display for DeferredInit {
    /// How page structures are written, and by which threads: `stores-per-page/one-per-cpu`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.initialiser, self.threads)
    }
}

/// The result of an initialisation.
#[derive(Clone, PartialEq, Debug)]
pub struct DeferredInitRun {
    /// The time for all of the machine's memory.
    pub time: Picos,
    /// The time of the simulated fraction.
    pub simulated: Picos,
    /// The finished pass over each node, in order of their ends. Empty for [`InitThreads::BootCpu`].
    pub nodes: Vec<NodeInit>,
    /// The use of all CPUs' time, for the simulated fraction; with tasks also for their allocations after it.
    pub account: Account,
    /// The tasks' allocations of single pages during the pass, not multiplied.
    pub during: AllocTimes,
    /// As many rounds of allocations after the pass.
    pub after: AllocTimes,
}

/// Times of the tasks' allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocTimes {
    /// The number of allocations.
    pub count: u64,
    /// All of them together.
    pub total: Picos,
    /// The longest.
    pub worst: Picos,
}

impl AllocTimes {
    /// The mean in nanoseconds; `None` without allocations.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total.as_ns() / self.count as f64)
    }

    fn and(self, time: Picos) -> Self {
        Self { count: self.count + 1, total: self.total + time, worst: self.worst.max(time) }
    }
}

/// Pages that a task allocates before it frees them: more than a per-CPU list holds, so that each round visits the zone.
const PAGES_HELD: usize = 512;

/// Initialises the rest of a machine's map after early boot.
///
/// # Errors
///
/// [`SimError`] if the host has too little memory.
///
/// # Panics
///
/// If the fraction is invalid, the machine has no CPU beside those of the tasks, or the tasks find no free page.
pub fn run(machine: &Machine, how: &DeferredInit) -> Result<DeferredInitRun, SimError> {
    let fraction = u64::from(how.fraction);
    assert!(fraction.is_power_of_two() && fraction <= 32, "the fraction is a power of two, at most 32");
    assert!(usize::from(how.tasks) < machine.cpus(), "the pass needs a CPU");
    let geometry = geometry_of(machine, fraction);
    let content = if how.initialiser.can_write(MapContent::Kernel) { MapContent::Kernel } else { MapContent::Zero };
    let map_init = MapInit {
        mode: InitMode::Deferred,
        content,
        initialiser: how.initialiser,
        jobs: jobs_of(how.threads, geometry),
        ..MapInit::default()
    };
    let yard = SimYard::create(
        machine,
        &nodes_of(machine, geometry, fraction),
        ListAccess::Locks,
        &[],
        HostPages::Huge,
        |config| {
            config.geometry = geometry;
            config.map_init = map_init;
            config.policy = how.policy;
        },
    )?;
    let begin = yard.platform().now();
    let done = Cell::new(None);
    let (during, after) = (Cell::default(), Cell::default());
    let pass = || {
        if how.threads == InitThreads::BootCpu {
            finish_alone(&yard);
        }
        yard.init().finish().expect("the whole map is present, and no worker panics");
        done.set(Some(yard.platform().now()));
    };
    let task = || {
        let mut rounds = 0;
        while done.get().is_none() {
            allocate_and_free(&yard, &during);
            rounds += 1;
        }
        (0..rounds).for_each(|_| allocate_and_free(&yard, &after));
    };
    let mut tasks: Vec<(CpuId, Box<dyn FnOnce() + '_>)> = vec![(CpuId(0), Box::new(pass))];
    let last = machine.cpus() as u32;
    tasks.extend((1..=u32::from(how.tasks)).map(|at| (CpuId(last - at), Box::new(task) as Box<dyn FnOnce()>)));
    yard.run(tasks)?;
    let end: Picos = done.get().expect("the pass has ended");
    let simulated = end - begin;
    Ok(DeferredInitRun {
        time: Picos(simulated.0 * fraction),
        simulated,
        nodes: yard.platform().node_inits(),
        account: yard.platform().account(),
        during: during.get(),
        after: after.get(),
    })
}

/// The machine's geometry with smaller sections.
fn geometry_of(machine: &Machine, fraction: u64) -> Geometry {
    let own = machine.geometry;
    let section = ByteSize(own.section_size().0 / fraction);
    Geometry::new(own.page_size(), section, own.pageblock_order(), own.max_order())
        .expect("a section holds a block or more")
}

fn jobs_of(threads: InitThreads, geometry: Geometry) -> InitJobs {
    InitJobs {
        granularity: JobGranularity::Ranges,
        threads: match threads {
            InitThreads::BootCpu | InitThreads::OnePerNode => Some(1),
            InitThreads::OnePerCpu => None,
            InitThreads::Count(count) => Some(count.into()),
        },
        alignment: Some(geometry.section_pages()),
        min_chunk: Some(geometry.section_pages()),
    }
}

/// The running CPU initialises all that is deferred.
fn finish_alone(yard: &SimYard) {
    for node in (0..yard.nodes()).map(NodeId) {
        while yard.init().next_section(node).expect("the whole map is present").is_some() {}
    }
}

/// Allocates single pages, adds the time of each allocation to `times`, and frees them.
fn allocate_and_free(yard: &SimYard, times: &Cell<AllocTimes>) {
    let allocate = |_| {
        let begin = yard.platform().now();
        let page = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("the first section has free pages");
        let time = yard.platform().now() - begin;
        times.update(|times| times.and(time));
        page
    };
    let pages: Vec<Pfn> = (0..PAGES_HELD).map(allocate).collect();
    for page in pages {
        yard.free(page, Order::ZERO).expect("the task allocated the page");
    }
}

/// A fraction of each node's memory above 4 GiB, which early boot leaves uninitialised.
fn nodes_of(machine: &Machine, geometry: Geometry, fraction: u64) -> Vec<(PfnRange, NodeId)> {
    let mut start = FIRST_FRAME;
    let node = |(node, memory): (usize, &ByteSize)| {
        let range = PfnRange::new(start, geometry.pages_in(ByteSize(memory.0 / fraction)));
        start = range.end;
        (range, NodeId(node as u16))
    };
    machine.high_memory.iter().enumerate().map(node).filter(|(range, _)| !range.is_empty()).collect()
}
