//! The state of a simulated machine: clocks, caches, channels, locks, and who runs next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use frameyard::{NodeId, NodeInit, Pfn, PfnRange, Span};

use crate::account::{Account, Cause, CostId, Slot, Spent};
use crate::cache::{FillClock, LINE_BYTES};
use crate::channel::Channel;
use crate::lines::{FrameLines, PageLine, SharedLines, Use};
use crate::machine::{Distance, Machine, OutsideCost, Place};
use crate::profile::{Profile, StackId};
use crate::region::Words;
use crate::time::Picos;
use locks::LockQueues;
use recent::Recent;

mod access;
mod locks;
mod map;
mod recent;
mod workers;

pub use locks::LockStats;
pub(crate) use locks::{Handover, is_shared};

/// How far a CPU may run ahead of the others where nothing says that they can tell.
const SLACK: Picos = Picos::from_ns(2000);

/// Bits of a key of the schedule that are the CPU.
const CPU_BITS: u32 = 10;

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
    /// Picoseconds of 1024 cycles.
    kilocycle: u64,
    /// What an access costs, by kind of access and cause.
    costs: AccessTimes,
    /// The spans that it is in.
    stack: StackId,
}

/// What an access costs, by kind of access and cause.
type AccessTimes = [[Picos; Cause::ALL.len()]; AccessKind::COUNT];

/// How fast a CPU runs: picoseconds of 1024 cycles, and what accesses cost.
#[derive(Clone, Copy)]
struct Speed {
    kilocycle: u64,
    costs: AccessTimes,
}

/// Accesses that cost differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessKind {
    /// The core waits for the line.
    Blocking = 0,
    /// It goes on, until too many stores are under way.
    Store = 1,
    /// It goes on, until too many loads are under way.
    Ahead = 2,
    /// It waits, and exchanges.
    Exchange = 3,
}

impl AccessKind {
    const COUNT: usize = 4;
}

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
}

/// The state of a simulated machine.
pub(crate) struct Engine {
    machine: Machine,
    cpus: Vec<Cpu>,
    places: Vec<Place>,
    current: usize,
    running: bool,
    ready: BinaryHeap<Reverse<u64>>,
    waiting: usize,
    privates: Vec<FillClock>,
    groups: Vec<FillClock>,
    channels: Vec<Channel>,
    ground: Ground,
    pages: Words,
    /// Page structures, by their places in the memory map, and other lines, by their numbers as the host's lines.
    recent_pages: Recent<4>,
    recent_lines: Recent<16>,
    /// The place of the page structure that each core missed last.
    last_fetched: Vec<usize>,
    lines: SharedLines,
    frame_lines: FrameLines,
    locks: LockQueues,
    profile: Profile,
    /// What writing a page structure costs beside its lines.
    map_page: CostId,
    node_inits: Vec<NodeInit>,
    /// By the step of the clock, and whether one or both threads of a core have a task.
    speeds: Speeds,
    /// How many tasks each core has that are awake, and how many such cores each socket.
    busy_threads: Vec<u16>,
    busy_cores: Vec<u16>,
    busy_cpus: Vec<u16>,
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
            kilocycle: 0,
            costs: [[Picos(0); Cause::ALL.len()]; AccessKind::COUNT],
            stack: 0,
        });
        let lines_of = |kib: u64| FillClock::new((kib << 10) / LINE_BYTES);
        let control_lines = ground.control.1.div_ceil(LINE_BYTES as usize);
        let mut engine = Self {
            cpus: cpus.collect(),
            current: 0,
            running: false,
            ready: BinaryHeap::new(),
            waiting: 0,
            privates: vec![lines_of(machine.caches.private_kib); machine.cores()],
            groups: vec![lines_of(machine.caches.shared_kib); machine.groups()],
            channels: (0..machine.topology.sockets).map(|_| Channel::new(&machine.memory)).collect(),
            pages: Words::new(ground.frames.count().0 as usize)?,
            recent_pages: Recent::default(),
            recent_lines: Recent::default(),
            last_fetched: vec![usize::MAX; machine.cores()],
            lines: SharedLines::new(control_lines, machine.cores(), machine.groups()),
            frame_lines: FrameLines::new(ground.frames.count().0 as usize),
            locks: LockQueues::default(),
            machine: machine.clone(),
            busy_threads: vec![0; places.len()],
            busy_cores: vec![0; machine.topology.sockets.into()],
            busy_cpus: vec![0; machine.topology.sockets.into()],
            places,
            ground,
            profile: Profile::new(costs),
            map_page,
            node_inits: Vec::new(),
            speeds: Speeds::of(machine),
        };
        (0..machine.topology.sockets).for_each(|socket| engine.set_clocks(socket));
        Some(engine)
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn costs(&self) -> &[&'static str] {
        self.profile.costs()
    }

    /// Bytes that the simulator itself holds, but for stacks.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.pages) + self.lines.bytes() + self.frame_lines.bytes()
    }

    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    /// The CPU that runs, or that set-up runs on.
    #[inline(always)]
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    pub(crate) fn set_current(&mut self, cpu: usize) {
        self.recent_pages = Recent::default();
        self.recent_lines = Recent::default();
        self.current = cpu;
    }

    /// The clock of the CPU that runs.
    #[inline(always)]
    pub(crate) fn now(&self) -> Picos {
        self.cpus[self.current].clock
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
    pub(crate) fn enter(&mut self, span: Span) {
        let cpu = &mut self.cpus[self.current];
        cpu.stack = self.profile.enter(cpu.stack, span);
    }

    /// The running CPU is done with what it began last.
    #[inline(always)]
    pub(crate) fn leave(&mut self, span: Span) {
        let cpu = &mut self.cpus[self.current];
        cpu.stack = self.profile.leave(cpu.stack, span);
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
        let cpu = &mut self.cpus[self.current];
        cpu.clock += time;
        self.profile.add(cpu.stack, slot, time);
    }

    /// The running CPU spends cycles on a named cost.
    #[inline]
    pub(crate) fn spend(&mut self, cost: CostId, cycles: u64) {
        let time = self.time_of(cycles);
        self.charge(Spent::Cost(cost).slot(), time);
    }

    /// The running CPU spends as many cycles as the machine says on something outside of the allocator, so often.
    #[inline]
    pub(crate) fn spend_outside(&mut self, cost: OutsideCost, times: u64) {
        let cycles = self.machine.outside.cycles(cost) * times as f64;
        let time = Picos((cycles * self.cpus[self.current].kilocycle as f64 / 1024.0).round() as u64);
        self.charge(Spent::Cost(cost.id()).slot(), time);
    }

    fn time_of(&self, cycles: u64) -> Picos {
        Picos((cycles * self.cpus[self.current].kilocycle) >> 10)
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
        let lines = bytes / LINE_BYTES;
        let node = self.node_of(pfn);
        let Cpu { clock, place, .. } = self.cpus[self.current];
        self.privates[usize::from(place.core)].fill(lines);
        self.groups[usize::from(place.group)].fill(lines);
        let first = pfn.0.wrapping_sub(self.ground.frames.start.0) as usize;
        (first..first + bytes.div_ceil(4096) as usize).for_each(|frame| self.take_frame(frame, place));
        let wait = self.channels[node].stream(clock, lines);
        self.charge(Spent::Access(crate::account::Accessed::Frames, Cause::Bandwidth).slot(), wait);
    }

    /// The lines of a frame's bytes, those that are known, are in that core's cache, written to.
    fn take_frame(&mut self, frame: usize, place: Place) {
        let (private, group) = (&self.privates[usize::from(place.core)], &self.groups[usize::from(place.group)]);
        let state = PageLine::held(place.core, None, Use::Write, private.stamp(), group.stamp());
        for line in self.frame_lines.of_frame(frame) {
            match self.frame_lines.number(line) {
                Some(number) => self.lines.take(number, place, private, group, Use::Write),
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

    /// Sets the clock of each CPU of a socket by how many of its cores have a task, and whether the other thread of its core has.
    fn set_clocks(&mut self, socket: u16) {
        let (cores, cpus) = (self.busy_cores[usize::from(socket)], self.busy_cpus[usize::from(socket)]);
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.place.socket == socket) {
            let is_shared = self.busy_threads[usize::from(cpu.place.core)] > 1;
            let Speed { kilocycle, costs } = *self.speeds.with(cores, cpus, is_shared);
            (cpu.kilocycle, cpu.costs) = (kilocycle, costs);
        }
    }

    /// A task on a CPU begins, ends, falls asleep or wakes: clocks change with it.
    fn change_task(&mut self, cpu: usize, task: Task) {
        let is_awake = |task| matches!(task, Task::Ready | Task::Waiting);
        let before = std::mem::replace(&mut self.cpus[cpu].task, task);
        if is_awake(before) == is_awake(task) {
            return;
        }
        let Place { core, socket, .. } = self.cpus[cpu].place;
        let (threads, cores) = (&mut self.busy_threads[usize::from(core)], &mut self.busy_cores[usize::from(socket)]);
        let cpus = &mut self.busy_cpus[usize::from(socket)];
        if is_awake(task) {
            *cpus += 1;
            *threads += 1;
            *cores += u16::from(*threads == 1);
        } else {
            *cpus -= 1;
            *threads -= 1;
            *cores -= u16::from(*threads == 0);
        }
        self.set_clocks(socket);
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

/// How fast CPUs of a machine can run: by busy cores of the socket, by how many of them have both threads busy, and by whether
/// the CPU's own core has.
struct Speeds(Vec<Vec<[Speed; 2]>>);

impl Speeds {
    fn of(machine: &Machine) -> Self {
        let speed = |mhz: f64, slowdown: f64| {
            let cycle = 1e6 / mhz * slowdown;
            Speed { kilocycle: (cycle * 1024.0).round() as u64, costs: access_times(machine, cycle) }
        };
        let clock = &machine.clock;
        let cores = usize::from(machine.topology.cores_per_socket);
        let pair = |cores: usize, pairs: usize| {
            let mhz = clock.mhz_with(cores, cores + pairs);
            [speed(mhz, 1.0), speed(mhz, clock.smt_slowdown)]
        };
        Self((1..=cores).map(|cores| (0..=cores).map(|pairs| pair(cores, pairs)).collect()).collect())
    }

    /// With so many busy cores, and CPUs, in the socket.
    fn with(&self, cores: u16, cpus: u16, is_shared: bool) -> &Speed {
        let (cores, cpus) = (cores.max(1), cpus.max(1));
        &self.0[usize::from(cores) - 1][usize::from(cpus.saturating_sub(cores))][usize::from(is_shared)]
    }
}

/// What accesses cost where a cycle takes so many picoseconds.
fn access_times(machine: &Machine, cycle: f64) -> AccessTimes {
    let costs = &machine.costs;
    let latency = |cause| match cause {
        Cause::PrivateHit | Cause::LineQueue | Cause::Bandwidth | Cause::Upgrade => 0.0,
        Cause::SharedHit => costs.shared_hit_ns,
        Cause::SameGroup => costs.same_group_ns,
        Cause::SameSocket => costs.same_socket_ns,
        Cause::OtherSocket => costs.other_socket_ns,
        Cause::LocalMemory => costs.local_memory_ns,
        Cause::RemoteMemory => costs.remote_memory_ns,
    };
    let kinds = [(1.0, 0.0), (costs.store_overlap, 0.0), (costs.read_overlap, 0.0), (1.0, costs.atomic_cycles)];
    kinds.map(|(overlap, extra)| {
        Cause::ALL.map(|cause| {
            let cycles = (costs.access_cycles + extra) * cycle;
            Picos((cycles + latency(cause) * 1000.0 / overlap).round() as u64)
        })
    })
}

/// The schedule.
impl Engine {
    fn key(&self, cpu: usize) -> u64 {
        let clock = self.cpus[cpu].clock.0;
        assert!(clock >> (u64::BITS - CPU_BITS) == 0, "virtual time has run out: a run may take five hours");
        clock << CPU_BITS | cpu as u64
    }

    /// Begins a run of tasks on those CPUs.
    pub(crate) fn begin(&mut self, cpus: &[usize]) {
        assert!(!self.running, "one run at a time");
        self.running = true;
        let start = self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or_default();
        for cpu in &mut self.cpus {
            // What lies between two runs is nobody's time, and what a run broke off in nobody's span.
            cpu.clock = start;
            cpu.stack = 0;
        }
        for cpu in cpus {
            self.change_task(*cpu, Task::Ready);
            self.ready.push(Reverse(self.key(*cpu)));
        }
    }

    /// The CPU that runs next.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let Reverse(key) = self.ready.pop()?;
        self.set_current((key & ((1 << CPU_BITS) - 1)) as usize);
        Some(self.current)
    }

    /// How many CPUs wait for locks.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The task of the running CPU has ended.
    pub(crate) fn task_ended(&mut self) {
        self.change_task(self.current, Task::None);
    }

    /// Ends a run: those CPUs have been idle since their tasks ended.
    pub(crate) fn end(&mut self) -> Picos {
        let end = self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or_default();
        for cpu in &mut self.cpus {
            let idle = end - cpu.clock;
            cpu.clock = end;
            self.profile.add(0, Spent::Idle.slot(), idle);
        }
        end
    }

    /// The run is over; what is done from now on is set-up.
    pub(crate) fn stop(&mut self) {
        self.running = false;
        self.ready.clear();
    }

    /// Whether another CPU is behind the running one.
    #[inline(always)]
    pub(crate) fn is_ahead(&self) -> bool {
        let next = self.ready.peek().map_or(u64::MAX, |Reverse(key)| *key);
        next < self.cpus[self.current].clock.0 << CPU_BITS | self.current as u64
    }

    /// Whether another CPU is far behind the running one.
    #[inline(always)]
    pub(crate) fn is_far_ahead(&self) -> bool {
        let next = self.ready.peek().map_or(u64::MAX, |Reverse(key)| *key >> CPU_BITS);
        next.saturating_add(SLACK.0) < self.cpus[self.current].clock.0
    }

    /// The running CPU lets others run; it goes on when it is the earliest.
    pub(crate) fn step_back(&mut self) {
        let key = self.key(self.current);
        self.ready.push(Reverse(key));
    }

    fn wait(&mut self, task: Task) {
        self.change_task(self.current, task);
        self.waiting += 1;
    }

    /// A CPU that waited for a lock, or for others, goes on from a time on.
    fn wake(&mut self, cpu: usize, at: Picos, spent: Spent) -> Picos {
        let waited = at - self.cpus[cpu].clock;
        self.cpus[cpu].clock = at;
        self.profile.add(self.cpus[cpu].stack, spent.slot(), waited);
        self.change_task(cpu, Task::Ready);
        self.waiting -= 1;
        self.ready.push(Reverse(self.key(cpu)));
        waited
    }
}

#[cfg(test)]
mod tests;
