//! The state of a simulated machine: clocks, caches, channels, locks, and who runs next.

use frameyard::platform::{Activity, NodeInit};
use frameyard::{NodeId, Pfn, PfnRange};

use crate::account::{Accessed, Account, Cause, CostId, Slot, Spent};
use crate::cache::{FillClock, LINE_BYTES};
use crate::channel::Channel;
use crate::fiber::STACK_BYTES;
use crate::lines::{FrameLines, PageLine, SharedLines, Use};
use crate::machine::{Distance, KernelCost, Machine, Place};
use crate::profile::{Profile, StackId};
use crate::region::Words;
use crate::time::Picos;
use locks::LockQueues;
use schedule::Ready;
use speed::{Busy, Speeds};
use turn::Turn;

mod access;
mod locks;
mod map;
mod recent;
mod schedule;
mod speed;
mod turn;
mod workers;

pub(crate) use access::InOrder;
pub use locks::LockStats;
pub(crate) use locks::{Handover, is_shared};

/// What a virtual CPU is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// Nothing, from the beginning or from the end of its task on.
    None,
    /// It runs, or could.
    Ready,
    /// It spins until it has a lock.
    Waiting,
    /// It sleeps until the word of a lock changes: its core may be idle meanwhile.
    Asleep,
}

/// A virtual CPU.
struct Cpu {
    clock: Picos,
    place: Place,
    task: Task,
    /// The spans that it is in.
    stack: StackId,
}

/// Bytes of a stretch of the control region, whose lines get their numbers together.
const STRETCH: usize = 1024;

/// Where frames lie, and the lines of a yard's control region.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) frames: PfnRange,
    /// The first frame of each node.
    pub(crate) nodes: Vec<(PfnRange, NodeId)>,
    /// Where the control region begins, and its bytes.
    pub(crate) control: (usize, usize),
    /// Where the bytes of frames begin, and how many there are.
    pub(crate) bytes: (usize, usize),
    /// Where the memory map begins.
    pub(crate) map: usize,
}

/// The state of a simulated machine.
pub(crate) struct Engine {
    machine: Machine,
    cpus: Vec<Cpu>,
    places: Vec<Place>,
    turn: Turn,
    running: bool,
    ready: Ready,
    waiting: usize,
    /// How many tasks there are, and the most that there have been.
    tasks: usize,
    most_tasks: usize,
    privates: Vec<FillClock>,
    groups: Vec<FillClock>,
    channels: Vec<Channel>,
    ground: Ground,
    pages: Words,
    /// The place of the page structure that each core missed last.
    last_fetched: Vec<usize>,
    /// The number of the first line of each stretch of the control region, plus 1, from its first use on: most are never used.
    control_lines: Vec<u32>,
    /// The lines of the control region with bytes that say what is handed out; those at the places of other lines are never used.
    allocation_map: Words,
    lines: SharedLines,
    frame_lines: FrameLines,
    locks: LockQueues,
    profile: Profile,
    /// What writing a page structure costs beside its lines.
    map_page: CostId,
    node_inits: Vec<NodeInit>,
    speeds: Speeds,
    busy: Busy,
}

impl Engine {
    /// `None` where the host has no memory for its state.
    pub(crate) fn new(machine: &Machine, ground: Ground, mut costs: Vec<&'static str>) -> Option<Self> {
        let map_page = CostId::nth(costs.len());
        costs.push(map::COST);
        let places: Vec<Place> = (0..machine.cores()).map(|core| machine.place_of_core(core)).collect();
        let cpus = (0..machine.cpus()).map(|cpu| Cpu {
            clock: Picos(0),
            place: machine.place(cpu),
            task: Task::None,
            stack: 0,
        });
        let lines_of = |kib: u64| FillClock::new((kib << 10) / LINE_BYTES);
        let mut engine = Self {
            cpus: cpus.collect(),
            turn: Turn::none(machine.place(0)),
            running: false,
            ready: Ready::default(),
            waiting: 0,
            tasks: 0,
            most_tasks: 0,
            privates: vec![lines_of(machine.caches.private_kib); machine.cores()],
            groups: vec![lines_of(machine.caches.shared_kib); machine.groups()],
            channels: (0..machine.topology.sockets).map(|_| Channel::new(&machine.memory)).collect(),
            pages: Words::new(ground.frames.count().0 as usize)?,
            last_fetched: vec![usize::MAX; machine.cores()],
            control_lines: vec![0; ground.control.1.div_ceil(STRETCH)],
            allocation_map: Words::new(ground.control.1.div_ceil(LINE_BYTES as usize))?,
            lines: SharedLines::new(machine.cores(), machine.groups()),
            frame_lines: FrameLines::new(ground.frames.count().0 as usize),
            locks: LockQueues::default(),
            machine: machine.clone(),
            busy: Busy::none(machine),
            places,
            ground,
            profile: Profile::new(costs),
            map_page,
            node_inits: Vec::new(),
            speeds: Speeds::of(machine),
        };
        engine.begin_turn(0);
        Some(engine)
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn costs(&self) -> &[&'static str] {
        self.profile.costs()
    }

    /// Bytes that the simulator itself holds, with the stacks of as many tasks as there have been at once.
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

    /// The CPU that runs, or that set-up runs on.
    #[inline(always)]
    pub(crate) fn current(&self) -> usize {
        self.turn.cpu
    }

    pub(crate) fn set_current(&mut self, cpu: usize) {
        self.end_turn();
        self.begin_turn(cpu);
    }

    /// The clock of the CPU that runs.
    #[inline(always)]
    pub(crate) fn now(&self) -> Picos {
        self.turn.clock
    }

    /// What all CPUs together have spent.
    pub(crate) fn account(&self) -> Account {
        self.profile.account()
    }

    /// The same by what was being done.
    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The running CPU begins to do something.
    #[inline(always)]
    pub(crate) fn enter(&mut self, span: Activity) {
        let stack = self.profile.enter(self.turn.stack, span);
        self.set_stack(stack);
    }

    /// The running CPU is done with what it began last.
    #[inline(always)]
    pub(crate) fn leave(&mut self, span: Activity) {
        let stack = self.profile.leave(self.turn.stack, span);
        self.set_stack(stack);
    }

    pub(crate) fn lock_stats(&self) -> Vec<LockStats> {
        self.locks.stats()
    }

    /// Lines that went over each node's channel.
    pub(crate) fn channel_lines(&self) -> Vec<u64> {
        self.channels.iter().map(Channel::lines).collect()
    }

    #[inline(always)]
    fn charge(&mut self, slot: Slot, time: Picos) {
        self.turn.clock += time;
        self.profile.add_at(self.turn.shares, slot, time);
    }

    /// The running CPU spends cycles on a named cost.
    #[inline]
    pub(crate) fn spend(&mut self, cost: CostId, cycles: u64) {
        let time = self.time_of(cycles);
        self.charge(Spent::Cost(cost).slot(), time);
    }

    /// The running CPU spends as many cycles as the machine says on something outside of the allocator, so often.
    #[inline]
    pub(crate) fn spend_kernel(&mut self, cost: KernelCost, times: u64) {
        let time = self.speeds.get(self.turn.speed).kernel(&self.machine, cost, times);
        self.charge(Spent::Cost(cost.id()).slot(), time);
    }

    /// Picoseconds of 1024 cycles of the running CPU.
    fn kilocycle(&self) -> u64 {
        self.speeds.get(self.turn.speed).kilocycle
    }

    fn time_of(&self, cycles: u64) -> Picos {
        Picos((cycles * self.kilocycle()) >> 10)
    }

    /// The running CPU waits for something that another has to do.
    pub(crate) fn relax(&mut self, round: u32) {
        /// A pause of the processor, and the most that one wait takes.
        const PAUSE_CYCLES: u64 = 40;
        const MOST_ROUNDS: u32 = 6;
        let time = self.time_of(PAUSE_CYCLES << round.min(MOST_ROUNDS));
        self.charge(Spent::Relax.slot(), time);
    }

    /// The running CPU writes whole frames' bytes, a stream of lines to the memory of their node.
    pub(crate) fn stream(&mut self, pfn: Pfn, bytes: u64) {
        self.stream_in(pfn, bytes);
        let first = pfn.0.wrapping_sub(self.ground.frames.start.0) as usize;
        (first..first + bytes.div_ceil(4096) as usize).for_each(|frame| self.take_frame(frame));
    }

    /// The running CPU reads whole frames' bytes, a stream of lines from the memory of their node.
    pub(crate) fn stream_in(&mut self, pfn: Pfn, bytes: u64) {
        let lines = bytes / LINE_BYTES;
        let node = self.node_of(pfn);
        self.fill(lines, lines);
        let wait = self.channels[node].stream(self.turn.clock, lines);
        self.charge(Spent::Access(Accessed::Frames, Cause::Bandwidth).slot(), wait);
    }

    /// The lines of a frame's bytes, those that are known, are in the running CPU's cache, written to.
    fn take_frame(&mut self, frame: usize) {
        let Turn { place, stamps, .. } = self.turn;
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
        let mut nodes = self.ground.nodes.iter();
        nodes.find(|(frames, _)| frames.contains(pfn)).map_or(0, |(_, node)| usize::from(node.0))
    }

    /// How a transfer over a distance is served.
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
