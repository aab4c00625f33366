//! A recording of a kernel's page allocator in virtual time: several copies of it at once, on a machine with more CPUs.
//!
//! A copy is the recorded memory and the recorded CPUs once more. Copies take turns over the sockets. All CPUs of a copy are on one socket,
//! whose memory holds the copy, and each has a virtual CPU for itself: cores first, then their second threads. So a node is a zone with
//! the memory of its copies, and the machine has as much memory as the copies need.
//!
//! Copies start at random times, so that they are out of step.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU32;

use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, CpuId, Geometry, PageCount, Pfn};
use frameyard_sim::{ListAccess, Machine, Picos, SimConfig, SimError, SimPlatform, SimYard, Topology};
use frameyard_traces::replay::{
    CopyCounts, CopyPlace, FreeMemory, Pausing, ReplayCopies, ReplayPlan, SetUp, SetUpError, YardCounts,
};

use crate::sim::sockets::cpu_of_socket;
use crate::sim::time_spent::TimeSpent;

/// The time, for each operation of the CPU that has most, within which copies start. An operation takes about ten times as long.
const START_EACH: Picos = Picos::from_ns(10);
/// Operations between two calls that show progress.
const SHOWN: u64 = 1 << 12;
/// Host memory for each simulated frame. A frame whose neighbours are used, too, takes 64 bytes for its page structure, 8 for the state of
/// its cache line and 2 in other tables; the recordings at hand take 19 to 21 bytes for each frame of theirs.
const HOST_BYTES_EACH: u64 = 25;
/// Host memory for each operation of a copy, at most: the slot of its frame.
const SLOT_BYTES: u64 = 16;

/// Why copies of a recording cannot be replayed on a machine.
#[derive(Debug)]
pub enum SimReplayError {
    /// A copy has more CPUs than a socket of the machine.
    TooManyRecordedCpus {
        /// CPUs of the recording.
        recorded: u32,
        /// CPUs of a socket.
        socket: u32,
    },
    /// The machine has too few CPUs for the copies.
    TooManyCopies {
        /// Copies.
        copies: u32,
        /// Copies that the CPUs of the machine hold.
        most: u32,
    },
    /// The yard cannot be set up.
    SetUp(SetUpError),
    /// The machine cannot be simulated.
    Sim(SimError),
}

impl fmt::Display for SimReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRecordedCpus { recorded, socket } => {
                write!(
                    f,
                    "the recording has {recorded} CPUs, and a socket of the machine has {socket}: choose another --machine"
                )
            }
            Self::TooManyCopies { copies, most } => write!(
                f,
                "{copies} copies of the recording have more CPUs than the machine, which holds {most}: run fewer --copies, or choose another --machine"
            ),
            Self::SetUp(error) => error.fmt(f),
            Self::Sim(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SimReplayError {}

/// Copies of a recording on a machine.
#[derive(Clone, Copy, Debug)]
pub struct SimReplayPlan<'p> {
    plan: &'p ReplayPlan,
    machine: &'p Machine,
    copies: NonZeroU32,
}

/// What a replay on a simulated machine found.
#[derive(Clone, PartialEq, Debug)]
pub struct SimReplay {
    /// The policy.
    pub policy: ZonePolicy,
    /// How CPUs used their own lists.
    pub lists: ListAccess,
    /// The operations of all copies.
    pub counts: CopyCounts,
    /// What the yard counted.
    pub yard: YardCounts,
    /// Where memory was free before the first operation and after the last.
    pub free: [FreeMemory; 2],
    /// Pages of the snapshot's free blocks that found no place.
    pub missing_pages: PageCount,
    /// From the start of the first copy to the end of the last, and what the CPUs spent that time on.
    pub spent: TimeSpent,
}

impl SimReplay {
    /// Pages through the zone lock for 1000 pages allocated; `None` without allocations.
    #[must_use]
    pub fn zone_locked_per_1000(&self) -> Option<f64> {
        let pages = self.yard.zone_locked_pages as f64;
        (self.counts.pages_allocated > 0).then(|| pages * 1000.0 / self.counts.pages_allocated as f64)
    }

    /// The virtual time of an operation. That of waits for an earlier operation on the same frame is left out.
    #[must_use]
    pub fn time_per_operation(&self) -> Option<Picos> {
        (self.counts.operations > 0).then(|| Picos(self.spent.busy().0 / self.counts.operations))
    }
}

impl<'p> SimReplayPlan<'p> {
    /// That many copies; without a number, all that the machine's CPUs hold.
    ///
    /// # Errors
    ///
    /// [`SimReplayError::TooManyRecordedCpus`], [`SimReplayError::TooManyCopies`].
    pub fn new(plan: &'p ReplayPlan, machine: &'p Machine, copies: Option<NonZeroU32>) -> Result<Self, SimReplayError> {
        let Topology { sockets, .. } = machine.topology;
        let socket = machine.cpus() as u32 / u32::from(sockets);
        let most = NonZeroU32::new(socket / plan.cpus() * u32::from(sockets))
            .ok_or(SimReplayError::TooManyRecordedCpus { recorded: plan.cpus(), socket })?;
        match copies.unwrap_or(most) {
            copies if copies > most => Err(SimReplayError::TooManyCopies { copies: copies.get(), most: most.get() }),
            copies => Ok(Self { plan, machine, copies }),
        }
    }

    /// The number of copies.
    #[must_use]
    pub fn copies(&self) -> NonZeroU32 {
        self.copies
    }

    /// Operations of all copies.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.plan.operations().count() as u64 * u64::from(self.copies.get())
    }

    /// Memory of a node: that of its copies, in whole sections.
    fn node_memory(&self) -> PageCount {
        let geometry = Geometry::X86_64;
        let section = geometry.section_size().0 / geometry.page_size().0;
        let of_node = self.copies.get().div_ceil(self.machine.topology.sockets.into());
        PageCount((self.plan.frames_of_copy().0 * u64::from(of_node)).next_multiple_of(section))
    }

    /// Memory of the simulated machine.
    #[must_use]
    pub fn memory(&self) -> ByteSize {
        Geometry::X86_64.size_of(PageCount(self.node_memory().0 * u64::from(self.machine.topology.sockets)))
    }

    /// About as many bytes of host memory as a replay takes.
    #[must_use]
    pub fn host_memory_needed(&self) -> ByteSize {
        let frames = self.memory().0 / Geometry::X86_64.page_size().0;
        ByteSize(frames * HOST_BYTES_EACH + self.operations() * SLOT_BYTES)
    }

    /// Replays under the policy of a set-up. The same plan and set-up give the same result. `done` is called every few thousand operations,
    /// with their number since the call before.
    ///
    /// # Errors
    ///
    /// [`SimReplayError`].
    pub fn replay(&self, set_up: SetUp, done: &dyn Fn(u64)) -> Result<SimReplay, SimReplayError> {
        let lists = ListAccess::of_policy(set_up.policy);
        let config = SimConfig {
            node_memory: self.node_memory(),
            policy: set_up.initial_policy(),
            sizing: PcpSizing::Scaled,
            lists,
            costs: Vec::new(),
        };
        let yard = SimYard::sparse(self.machine, &config).map_err(SimReplayError::Sim)?;
        let copies = ReplayCopies::new(self.plan, self.places(&yard));
        let platform = yard.platform();
        let missing_pages =
            copies.set_up(&yard, set_up, &|cpu| platform.set_up_on(cpu)).map_err(SimReplayError::SetUp)?;
        platform.set_up_on(CpuId(0));
        let (before, begin) = (YardCounts::of(&yard), FreeMemory::of(&yard));
        let (profile, start) = (platform.profile(), platform.now());
        let counts = self.run(&yard, &copies, &self.starts(set_up.seed), done)?;
        let spent = TimeSpent::of(platform, &platform.profile().since(&profile), platform.now() - start);
        Ok(SimReplay {
            policy: set_up.policy,
            lists,
            counts,
            yard: YardCounts::of(&yard).since(&before),
            free: [begin, FreeMemory::of(&yard)],
            missing_pages,
            spent,
        })
    }

    /// Runs all CPUs of all copies to their ends.
    fn run(
        &self,
        yard: &SimYard,
        copies: &ReplayCopies,
        starts: &[Picos],
        done: &dyn Fn(u64),
    ) -> Result<CopyCounts, SimReplayError> {
        let sum = Cell::new(CopyCounts::default());
        let pausing = VirtualCpus { platform: yard.platform(), done, not_shown: Cell::new(0) };
        let (sum, pausing) = (&sum, &pausing);
        let tasks = copies.cpus().map(|(cpu, copy, recorded)| {
            let task = move || {
                pausing.platform.idle_for(starts[copy]);
                let counts = copies.operate(yard, copy, recorded, pausing);
                sum.set(sum.get().and(counts));
            };
            (cpu, Box::new(task) as Box<dyn FnOnce() + '_>)
        });
        yard.run(tasks.collect()).map_err(SimReplayError::Sim)?;
        done(pausing.not_shown.get());
        Ok(sum.get())
    }

    /// When each copy starts.
    fn starts(&self, seed: u64) -> Vec<Picos> {
        let within = START_EACH.0 * self.plan.most_operations_of_cpu().max(1);
        let mut rng = fastrand::Rng::with_seed(seed);
        (0..self.copies.get()).map(|_| Picos(rng.u64(..within))).collect()
    }

    /// The place of each copy.
    fn places(&self, yard: &SimYard) -> Vec<CopyPlace> {
        let (topology, recorded) = (self.machine.topology, self.plan.cpus());
        let of_node = self.node_memory();
        let place = |copy: u32| {
            let (socket, turn) = (copy % u32::from(topology.sockets), copy / u32::from(topology.sockets));
            let before = of_node.0 * u64::from(socket) + self.plan.frames_of_copy().0 * u64::from(turn);
            CopyPlace {
                first: Pfn(yard.frame_range().start.0 + before),
                cpus: (turn * recorded..(turn + 1) * recorded).map(|at| cpu_of_socket(topology, socket, at)).collect(),
            }
        };
        (0..self.copies.get()).map(place).collect()
    }
}

/// The CPUs of a simulated machine, which sleep in virtual time.
struct VirtualCpus<'y> {
    platform: &'y SimPlatform,
    done: &'y dyn Fn(u64),
    not_shown: Cell<u64>,
}

impl Pausing for VirtualCpus<'_> {
    fn sleep(&self) {
        self.platform.sleep();
    }

    fn wake(&self, cpu: CpuId) {
        self.platform.wake(cpu);
    }

    fn operation_done(&self) {
        self.not_shown.set(self.not_shown.get() + 1);
        if self.not_shown.get() == SHOWN {
            (self.done)(self.not_shown.take());
        }
    }
}
