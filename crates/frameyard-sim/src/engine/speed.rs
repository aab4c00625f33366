//! Speeds of CPUs and costs of accesses. A CPU's speed depends on the clock of its socket and on the other thread of
//! its core.

use super::{Engine, Task};
use crate::account::Cause;
use crate::machine::{KernelCost, Machine};
use crate::time::Picos;
use frameyard::platform::Access;

/// Kinds of accesses with different costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessKind {
    /// The core waits for the line.
    Blocking = 0,
    /// The core continues until too many stores are in flight.
    Store = 1,
    /// The core continues until too many loads are in flight.
    Ahead = 2,
    /// The core waits and executes an atomic read-modify-write.
    Exchange = 3,
}

impl AccessKind {
    const COUNT: usize = 4;

    #[inline(always)]
    pub(super) const fn of_page(access: Access) -> Self {
        match access {
            Access::Read => Self::Blocking,
            Access::Write => Self::Store,
            Access::ReadModifyWrite => Self::Exchange,
            Access::ReadAhead | Access::Prefetch => Self::Ahead,
        }
    }

    #[inline(always)]
    pub(super) const fn of_line(access: Access) -> Self {
        match access {
            Access::ReadModifyWrite => Self::Exchange,
            _ => Self::Blocking,
        }
    }
}

/// Costs of private hits, by kind of access.
pub(super) type HitTimes = [Picos; AccessKind::COUNT];

/// A speed of a CPU.
pub(super) struct Speed {
    /// Picoseconds of 1024 cycles.
    pub(super) kilocycle: u64,
    /// The cost of an access, by cause and kind of access.
    costs: [HitTimes; Cause::ALL.len()],
    /// Each kernel cost, once.
    kernel: [Picos; KernelCost::ALL.len()],
}

impl Speed {
    /// The speed with a cycle of `cycle` picoseconds.
    fn of(machine: &Machine, cycle: f64) -> Self {
        let kilocycle = (cycle * 1024.0).round() as u64;
        let kernel = KernelCost::ALL.map(|cost| kernel_time(machine, kilocycle, cost, 1));
        Self { kilocycle, costs: access_times(machine, cycle), kernel }
    }

    pub(super) fn cost(&self, kind: AccessKind, cause: Cause) -> Picos {
        self.costs[cause as usize][kind as usize]
    }

    pub(super) fn hits(&self) -> HitTimes {
        self.costs[Cause::PrivateHit as usize]
    }

    /// The duration of a kernel cost that occurs `times` times.
    #[inline(always)]
    pub(super) fn kernel(&self, machine: &Machine, cost: KernelCost, times: u64) -> Picos {
        match times {
            1 => self.kernel[cost as usize],
            _ => kernel_time(machine, self.kilocycle, cost, times),
        }
    }
}

fn kernel_time(machine: &Machine, kilocycle: u64, cost: KernelCost, times: u64) -> Picos {
    let cycles = cost.cycles(&machine.kernel_overhead) * times as f64;
    Picos((cycles * kilocycle as f64 / 1024.0).round() as u64)
}

/// Costs of accesses with a cycle of `cycle` picoseconds, by cause and kind of access.
fn access_times(machine: &Machine, cycle: f64) -> [HitTimes; Cause::ALL.len()] {
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
    Cause::ALL.map(|cause| {
        kinds.map(|(overlap, extra)| {
            let cycles = (costs.access_cycles + extra) * cycle;
            Picos((cycles + latency(cause) * 1000.0 / overlap).round() as u64)
        })
    })
}

/// The state of the other thread of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sibling {
    /// Absent, without a task, or asleep.
    Idle = 0,
    /// Spinning on a lock.
    Spinning = 1,
    /// Anything else.
    Working = 2,
}

impl Sibling {
    const COUNT: usize = 3;
}

/// All speeds of a machine's CPUs: by the number of busy cores of the socket, and by the state of the core's other threads.
pub(super) struct Speeds {
    all: Vec<Speed>,
}

/// The index of a [`Speed`].
pub(super) type SpeedId = usize;

impl Speeds {
    pub(super) fn of(machine: &Machine) -> Self {
        let clock = &machine.clock;
        let cores = usize::from(machine.topology.cores_per_socket);
        let slowdowns: [f64; Sibling::COUNT] =
            [1.0, clock.spin_slowdown.unwrap_or(clock.smt_slowdown), clock.smt_slowdown];
        let by_sibling = |cores: usize| {
            let cycle = 1e6 / clock.mhz_with(cores);
            slowdowns.map(|slowdown| Speed::of(machine, cycle * slowdown))
        };
        Self { all: (1..=cores).flat_map(by_sibling).collect() }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.all)
    }

    /// The speed with `cores` busy cores in the socket, beside an idle thread. The speeds beside a spinning and a working
    /// thread follow.
    fn with(cores: u16) -> SpeedId {
        (usize::from(cores.max(1)) - 1) * Sibling::COUNT
    }

    #[inline(always)]
    pub(super) fn get(&self, id: SpeedId) -> &Speed {
        &self.all[id]
    }
}

/// The busy CPUs, and the speeds that follow from them.
pub(super) struct Busy {
    /// Awake tasks of each core, and spinning ones among them; busy cores of each socket.
    threads: Vec<u16>,
    spinning: Vec<u16>,
    cores: Vec<u16>,
    /// For each socket, the speed of cores with one busy thread.
    speeds: Vec<SpeedId>,
}

impl Busy {
    /// No CPU is busy.
    pub(super) fn none(machine: &Machine) -> Self {
        let sockets = usize::from(machine.topology.sockets);
        let (threads, zero) = (vec![0; machine.cores()], vec![0; sockets]);
        Self { spinning: threads.clone(), threads, cores: zero, speeds: vec![0; sockets] }
    }
}

impl Engine {
    /// The number of busy threads of a core.
    pub(super) fn busy_threads(&self, core: u16) -> u16 {
        self.busy.threads[usize::from(core)]
    }

    /// The current speed of a CPU.
    pub(super) fn speed_of(&self, cpu: usize) -> SpeedId {
        let place = self.cpus[cpu].place;
        self.busy.speeds[usize::from(place.socket)] + self.beside(cpu) as usize
    }

    fn beside(&self, cpu: usize) -> Sibling {
        let super::Cpu { place, task, .. } = self.cpus[cpu];
        if self.busy_threads(place.core) < 2 {
            Sibling::Idle
        } else if self.busy.spinning[usize::from(place.core)] > u16::from(task == Task::Waiting) {
            Sibling::Spinning
        } else {
            Sibling::Working
        }
    }

    /// Records that a task begins or stops spinning, which changes the speed of the core's other thread.
    pub(super) fn note_spinning(&mut self, cpu: usize, before: Task, now: Task) {
        if (before == Task::Waiting) == (now == Task::Waiting) {
            return;
        }
        let spinning = &mut self.busy.spinning[usize::from(self.cpus[cpu].place.core)];
        if now == Task::Waiting {
            *spinning += 1;
        } else {
            *spinning -= 1;
        }
        self.renew_speed();
    }

    /// Records that a CPU becomes busy or idle, which changes the clock of its socket.
    pub(super) fn set_busy(&mut self, cpu: usize, is_busy: IsBusy) {
        let place = self.cpus[cpu].place;
        let (core, socket) = (usize::from(place.core), usize::from(place.socket));
        let busy = &mut self.busy;
        match is_busy {
            IsBusy::Yes => {
                busy.threads[core] += 1;
                busy.cores[socket] += u16::from(busy.threads[core] == 1);
            }
            IsBusy::No => {
                busy.threads[core] -= 1;
                busy.cores[socket] -= u16::from(busy.threads[core] == 0);
            }
        }
        busy.speeds[socket] = Speeds::with(busy.cores[socket]);
        self.renew_speed();
    }
}

/// Whether a CPU is busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IsBusy {
    Yes,
    No,
}
