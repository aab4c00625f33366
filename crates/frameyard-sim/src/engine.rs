//! The state of a simulated machine: clocks, caches, channels, locks and the schedule.

use frameyard::platform::{Activity, NodeInit};
use frameyard::{NodeId, Pfn, PfnRange};

use crate::account::{Accessed, Account, Cause, CostId, Slot, Spent};
use crate::cache::{FillClock, LINE_BYTES};
use crate::channel::Channel;
use crate::fiber::STACK_BYTES;
use crate::lines::{FrameLines, PageLine, SharedLines, Use};
use crate::machine::{Distance, KernelCost, Machine, Place};
use crate::profile::{Profile, StackId};
use crate::region::{HostPages, Words};
use crate::time::Picos;
use locks::LockQueues;
use running_cpu::RunningCpu;
use schedule::Ready;
use speed::{Busy, Speeds};

mod access;
mod interrupts;
mod locks;
mod map;
mod recent;
mod running_cpu;
mod schedule;
mod speed;
mod workers;

pub(crate) use access::InOrder;
pub use locks::LockStats;
pub(crate) use locks::{Handover, is_shared};

/// The state of a virtual CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// No task: before its task begins and after it ends.
    None,
    /// The CPU runs or is ready to run.
    Ready,
    /// The CPU spins on a lock.
    Waiting,
    /// The CPU sleeps until the word of a lock changes. Its core may be idle until then.
    Asleep,
}

/// A virtual CPU.
struct Cpu {
    clock: Picos,
    place: Place,
    task: Task,
    /// The spans that the CPU is in.
    stack: StackId,
    /// Interrupts whose time the CPU has not spent yet.
    interrupts: u64,
}

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// Bytes of a stretch of the control region, whose lines get their numbers together.
const STRETCH: usize = 1024;

/// The regions of a yard: frames, control region, frame bytes and memory map.
#[derive(Clone, Debug)]
pub(crate) struct YardRegions {
    pub(crate) frames: PfnRange,
    /// The frames of each node.
    pub(crate) nodes: Vec<(PfnRange, NodeId)>,
    /// The address and size of the control region.
    pub(crate) control: (usize, usize),
    /// The address and size of the frames' bytes.
    pub(crate) bytes: (usize, usize),
    /// The address of the memory map.
    pub(crate) map: usize,
    /// The pages behind the map and the state of its lines.
    pub(crate) host_pages: HostPages,
}

/// The state of a simulated machine.
pub(crate) struct Engine {
    machine: Machine,
    cpus: Vec<Cpu>,
    places: Vec<Place>,
    context: RunningCpu,
    running: bool,
    ready: Ready,
    waiting: usize,
    /// The number of tasks, and its maximum so far.
    tasks: usize,
    most_tasks: usize,
    privates: Vec<FillClock>,
    groups: Vec<FillClock>,
    channels: Vec<Channel>,
    regions: YardRegions,
    pages: Words,
    /// The index of the page structure that each core missed last.
    last_fetched: Vec<usize>,
    /// For each stretch of the control region, the number of its first line plus 1; 0 before the stretch's first use.
    /// Most stretches are never used.
    control_lines: Vec<u32>,
    /// Lines of the allocation map, by their index in the control region. The entries of other lines stay unused.
    allocation_map: Words,
    lines: SharedLines,
    frame_lines: FrameLines,
    locks: LockQueues,
    profile: Profile,
    /// The cost of writing a page structure beside its lines.
    map_page: CostId,
    node_inits: Vec<NodeInit>,
    speeds: Speeds,
    busy: Busy,
}

impl Engine {
    /// `None` if the host lacks memory for this state.
    pub(crate) fn new(machine: &Machine, regions: YardRegions, mut costs: Vec<&'static str>) -> Option<Self> {
        let map_page = CostId::nth(costs.len());
        costs.push(map::COST);
        let places: Vec<Place> = (0..machine.cores()).map(|core| machine.place_of_core(core)).collect();
        let cpus = (0..machine.cpus()).map(|cpu| Cpu {
            clock: Picos(0),
            place: machine.place(cpu),
            task: Task::None,
            stack: 0,
            interrupts: 0,
        });
        let lines_of = |kib: u64| FillClock::new((kib << 10) / LINE_BYTES);
        let mut engine = Self {
            cpus: cpus.collect(),
            context: RunningCpu::unloaded(machine.place(0)),
            running: false,
            ready: Ready::default(),
            waiting: 0,
            tasks: 0,
            most_tasks: 0,
            privates: vec![lines_of(machine.caches.private_kib); machine.cores()],
            groups: vec![lines_of(machine.caches.shared_kib); machine.groups()],
            channels: (0..machine.topology.sockets).map(|_| Channel::new(&machine.memory)).collect(),
            pages: Words::new(regions.frames.count().0 as usize, regions.host_pages)?,
            last_fetched: vec![usize::MAX; machine.cores()],
            control_lines: vec![0; regions.control.1.div_ceil(STRETCH)],
            allocation_map: Words::new(regions.control.1.div_ceil(LINE_BYTES as usize), regions.host_pages)?,
            lines: SharedLines::new(machine.cores(), machine.groups()),
            frame_lines: FrameLines::new(regions.frames.count().0 as usize),
            locks: LockQueues::default(),
            machine: machine.clone(),
            busy: Busy::none(machine),
            places,
            regions,
            profile: Profile::new(costs),
            map_page,
            node_inits: Vec::new(),
            speeds: Speeds::of(machine),
        };
        engine.load_context(0);
        Some(engine)
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn costs(&self) -> &[&'static str] {
        self.profile.costs()
    }

    /// Bytes of the simulator itself, with the stacks of the largest number of tasks so far.
    pub(crate) fn bytes(&self) -> usize {
        let numbers = size_of_val(&*self.control_lines) + size_of_val(&*self.allocation_map);
        let lines = size_of_val(&*self.pages) + numbers + self.lines.bytes() + self.frame_lines.bytes();
        let channels: usize = self.channels.iter().map(Channel::bytes).sum();
        lines + channels + self.profile.bytes() + self.speeds.bytes() + self.most_tasks * STACK_BYTES
    }

    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    /// The CPU that runs, or the CPU of set-up code.
    #[inline(always)]
    pub(crate) fn current(&self) -> usize {
        self.context.cpu
    }

    pub(crate) fn set_current(&mut self, cpu: usize) {
        self.save_context();
        self.load_context(cpu);
    }

    /// The clock of the CPU that runs.
    #[inline(always)]
    pub(crate) fn now(&self) -> Picos {
        self.context.clock
    }

    /// The time of all CPUs together.
    pub(crate) fn account(&self) -> Account {
        self.profile.account()
    }

    /// The same time by span.
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The running CPU enters a span.
    #[inline(always)]
    pub(crate) fn enter(&mut self, span: Activity) {
        let stack = self.profile.enter(self.context.stack, span);
        self.set_stack(stack);
    }

    /// The running CPU leaves its innermost span.
    #[inline(always)]
    pub(crate) fn leave(&mut self, span: Activity) {
        let stack = self.profile.leave(self.context.stack, span);
        self.set_stack(stack);
    }

    pub(crate) fn lock_stats(&self) -> Vec<LockStats> {
        self.locks.stats()
    }

    /// Lines that each node's channel moved.
    pub(crate) fn channel_lines(&self) -> Vec<u64> {
        self.channels.iter().map(Channel::lines).collect()
    }

    #[inline(always)]
    fn charge(&mut self, slot: Slot, time: Picos) {
        self.context.clock += time;
        self.profile.add_at(self.context.shares, slot, time);
    }

    /// The running CPU spends cycles on a named cost.
    #[inline]
    pub(crate) fn spend(&mut self, cost: CostId, cycles: u64) {
        let time = self.time_of(cycles);
        self.charge(Spent::Cost(cost).slot(), time);
    }

    /// The running CPU spends a kernel cost of the machine `times` times.
    #[inline]
    pub(crate) fn spend_kernel(&mut self, cost: KernelCost, times: u64) {
        let time = self.speeds.get(self.context.speed).kernel(&self.machine, cost, times);
        self.charge(Spent::Cost(cost.id()).slot(), time);
    }

    /// Picoseconds of 1024 cycles of the running CPU.
    fn kilocycle(&self) -> u64 {
        self.speeds.get(self.context.speed).kilocycle
    }

    fn time_of(&self, cycles: u64) -> Picos {
        Picos((cycles * self.kilocycle()) >> 10)
    }

    /// The running CPU waits for another CPU's progress.
    pub(crate) fn relax(&mut self, round: u32) {
        /// Cycles of one PAUSE, and the largest exponent of the back-off.
        const PAUSE_CYCLES: u64 = 40;
        const MOST_ROUNDS: u32 = 6;
        let time = self.time_of(PAUSE_CYCLES << round.min(MOST_ROUNDS));
        self.charge(Spent::Relax.slot(), time);
    }

    /// The running CPU writes the bytes of a frame, and reads those of another if it copies them. A line that is written
    /// is fetched and later written back.
    ///
    /// The cycles of the cost and the transfers overlap. A core has few lines in flight, so CPUs that write many pages
    /// leave room for each other.
    pub(crate) fn write_frame(&mut self, from: Option<Pfn>, to: Pfn, cost: KernelCost) {
        const LINES: u64 = PAGE_BYTES / LINE_BYTES;
        let begin = self.now();
        self.spend_kernel(cost, 1);
        let cycles = self.now().0 - begin.0;
        let threads = f64::from(self.busy_threads(self.context.place.core).max(1));
        let in_flight = ((self.machine.map_init.lines_in_flight / threads).round() as u64).max(1);
        let (from, node) = (from.map(|pfn| self.node_of(pfn)), self.node_of(to));
        let (mut at, mut left) = (begin, LINES);
        while left > 0 {
            let lines = left.min(in_flight);
            let mut wait = self.channels[node].move_lines(at, 2 * lines);
            if let Some(from) = from {
                wait = wait.max(self.channels[from].move_lines(at, lines));
            }
            at += wait.max(Picos(cycles * lines / LINES));
            left -= lines;
        }
        let wait = Picos(at.0.saturating_sub(self.now().0));
        self.charge(Spent::Access(Accessed::Frames, Cause::Bandwidth).slot(), wait);
        let read = if from.is_some() { LINES } else { 0 };
        self.fill(LINES + read, LINES + read);
        self.take_frame(to.0.wrapping_sub(self.regions.frames.start.0) as usize);
    }

    /// Marks the known lines of a frame's bytes as dirty in the running CPU's cache.
    fn take_frame(&mut self, frame: usize) {
        let RunningCpu { place, stamps, .. } = self.context;
        let state = PageLine::held(place.core, None, Use::Write, stamps);
        for line in self.frame_lines.of_frame(frame) {
            match self.frame_lines.number(line) {
                Some(number) => self.lines.take(number, place, stamps, Use::Write),
                None => self.frame_lines.set_compact(line, state),
            }
        }
    }

    /// The node of a frame.
    #[inline(always)]
    pub(crate) fn node_of(&self, pfn: Pfn) -> usize {
        let mut nodes = self.regions.nodes.iter();
        nodes.find(|(frames, _)| frames.contains(pfn)).map_or(0, |(_, node)| usize::from(node.0))
    }

    /// The cause of a transfer over a distance.
    fn transfer(distance: Distance) -> Cause {
        match distance {
            Distance::Same => Cause::PrivateHit,
            Distance::Group => Cause::SameGroup,
            Distance::Socket => Cause::SameSocket,
            Distance::Machine => Cause::OtherSocket,
        }
    }
}

#[cfg(test)]
mod tests;
