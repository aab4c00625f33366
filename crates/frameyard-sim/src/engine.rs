//! The state of a simulated machine: clocks, caches, channels, locks, and who runs next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use frameyard::{LockKind, NodeId, Pfn, PfnRange};

use crate::account::{Account, Cause, CostId, Slot, Spent};
use crate::cache::{FillClock, LINE_BYTES};
use crate::channel::Channel;
use crate::lines::{FrameLines, SharedLines};
use crate::machine::{Distance, Machine, OutsideCost, Place};
use crate::time::Picos;
use locks::LockQueues;

mod access;
mod locks;

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
    /// It waits for a lock.
    Waiting,
}

/// A virtual CPU.
struct Cpu {
    clock: Picos,
    place: Place,
    task: Task,
    /// Picoseconds of 1024 cycles.
    kilocycle: u64,
    /// What an access costs, by kind of access and cause.
    costs: [[Picos; Cause::ALL.len()]; AccessKind::COUNT],
    account: Account,
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
    pages: Vec<u64>,
    /// The place of the page structure that each core missed last.
    last_fetched: Vec<usize>,
    lines: SharedLines,
    frame_lines: FrameLines,
    locks: LockQueues,
    costs: Vec<&'static str>,
}

impl Engine {
    pub(crate) fn new(machine: &Machine, ground: Ground, costs: Vec<&'static str>) -> Self {
        let places: Vec<Place> = (0..machine.cores()).map(|core| machine.place_of_core(core)).collect();
        let cpus = (0..machine.cpus()).map(|cpu| Cpu {
            clock: Picos(0),
            place: machine.place(cpu),
            task: Task::None,
            kilocycle: 0,
            costs: [[Picos(0); Cause::ALL.len()]; AccessKind::COUNT],
            account: Account::new(costs.len()),
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
            pages: vec![0; ground.frames.count().0 as usize],
            last_fetched: vec![usize::MAX; machine.cores()],
            lines: SharedLines::new(control_lines, machine.cores(), machine.groups()),
            frame_lines: FrameLines::new(ground.frames.count().0 as usize),
            locks: LockQueues::default(),
            machine: machine.clone(),
            places,
            ground,
            costs,
        };
        engine.set_clocks();
        engine
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn costs(&self) -> &[&'static str] {
        &self.costs
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
        self.current = cpu;
    }

    /// The clock of the CPU that runs.
    #[inline(always)]
    pub(crate) fn now(&self) -> Picos {
        self.cpus[self.current].clock
    }

    /// What all CPUs together have spent.
    pub(crate) fn account(&self) -> Account {
        let mut sum = Account::new(self.costs.len());
        self.cpus.iter().for_each(|cpu| sum.merge(&cpu.account));
        sum
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
        cpu.account.add(slot, time);
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
        let wait = self.channels[node].stream(clock, lines);
        self.charge(Spent::Access(crate::account::Accessed::Frames, Cause::Bandwidth).slot(), wait);
    }

    /// The node of a frame.
    #[inline(always)]
    pub(crate) fn node_of(&self, pfn: Pfn) -> usize {
        let mut nodes = self.ground.nodes.iter();
        nodes.find(|(frames, _)| frames.contains(pfn)).map_or(0, |(_, node)| usize::from(node.0))
    }

    /// Sets the clock of each CPU by how many cores of its socket have a task, and whether the other thread of its core has.
    fn set_clocks(&mut self) {
        let busy_core =
            |core: usize| self.cpus.iter().any(|cpu| cpu.task != Task::None && usize::from(cpu.place.core) == core);
        let mut busy = vec![0; self.machine.topology.sockets.into()];
        (0..self.places.len())
            .filter(|core| busy_core(*core))
            .for_each(|core| busy[usize::from(self.places[core].socket)] += 1);
        let mut threads = vec![0; self.places.len()];
        let mut loaded = vec![0; self.machine.topology.sockets.into()];
        let tasks = self.cpus.iter().filter(|cpu| cpu.task != Task::None);
        tasks.for_each(|cpu| {
            threads[usize::from(cpu.place.core)] += 1;
            loaded[usize::from(cpu.place.socket)] += 1;
        });
        for at in 0..self.cpus.len() {
            let place = self.cpus[at].place;
            let clock = &self.machine.clock;
            let socket = usize::from(place.socket);
            let slowdown = if threads[usize::from(place.core)] > 1 { clock.smt_slowdown } else { 1.0 };
            let cycle = 1e6 / clock.mhz_with(busy[socket], loaded[socket]) * slowdown;
            self.cpus[at].kilocycle = (cycle * 1024.0).round() as u64;
            self.cpus[at].costs = self.access_costs(cycle);
        }
    }

    /// What accesses cost where a cycle takes so many picoseconds.
    fn access_costs(&self, cycle: f64) -> [[Picos; Cause::ALL.len()]; AccessKind::COUNT] {
        let costs = &self.machine.costs;
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
            // What lies between two runs is nobody's time.
            cpu.clock = start;
        }
        for cpu in cpus {
            self.cpus[*cpu].task = Task::Ready;
            self.ready.push(Reverse(self.key(*cpu)));
        }
        self.set_clocks();
    }

    /// The CPU that runs next.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let Reverse(key) = self.ready.pop()?;
        self.current = (key & ((1 << CPU_BITS) - 1)) as usize;
        Some(self.current)
    }

    /// How many CPUs wait for locks.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The task of the running CPU has ended.
    pub(crate) fn task_ended(&mut self) {
        self.cpus[self.current].task = Task::None;
        self.set_clocks();
    }

    /// Ends a run: those CPUs have been idle since their tasks ended.
    pub(crate) fn end(&mut self) -> Picos {
        let end = self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or_default();
        for cpu in &mut self.cpus {
            let idle = end - cpu.clock;
            cpu.clock = end;
            cpu.account.add(Spent::Idle.slot(), idle);
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

    fn wait(&mut self) {
        self.cpus[self.current].task = Task::Waiting;
        self.waiting += 1;
    }

    /// A CPU that waited for a lock has it from a time on.
    fn wake(&mut self, cpu: usize, at: Picos, kind: LockKind) -> Picos {
        let waited = at - self.cpus[cpu].clock;
        self.cpus[cpu].clock = at;
        self.cpus[cpu].account.add(Spent::Waiting(kind).slot(), waited);
        self.cpus[cpu].task = Task::Ready;
        self.waiting -= 1;
        self.ready.push(Reverse(self.key(cpu)));
        waited
    }
}

#[cfg(test)]
mod tests;
