//! How fast CPUs run: by the clock of their socket, and by what the other thread of their core does.

use super::{AccessKind, Cpu, Engine, Task};
use crate::account::Cause;
use crate::machine::{Machine, Place};
use crate::time::Picos;

/// What an access costs, by kind of access and cause.
pub(super) type AccessTimes = [[Picos; Cause::ALL.len()]; AccessKind::COUNT];

/// How fast a CPU runs: picoseconds of 1024 cycles, and what accesses cost.
#[derive(Clone, Copy)]
struct Speed {
    kilocycle: u64,
    costs: AccessTimes,
}

/// What the other thread of a core does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sibling {
    /// It has no task, or one that sleeps; or there is none.
    Idle = 0,
    /// It waits for a lock.
    Spinning = 1,
    /// All else.
    Working = 2,
}

/// How fast CPUs of a machine can run: by busy cores of the socket, by how many of them have both threads busy, and by what
/// the other thread of the CPU's own core does.
pub(super) struct Speeds(Vec<Vec<[Speed; 3]>>);

impl Speeds {
    pub(super) fn of(machine: &Machine) -> Self {
        let speed = |mhz: f64, slowdown: f64| {
            let cycle = 1e6 / mhz * slowdown;
            Speed { kilocycle: (cycle * 1024.0).round() as u64, costs: access_times(machine, cycle) }
        };
        let clock = &machine.clock;
        let cores = usize::from(machine.topology.cores_per_socket);
        let slowdowns = [1.0, clock.spin_slowdown.unwrap_or(clock.smt_slowdown), clock.smt_slowdown];
        let by_sibling = |cores: usize, pairs: usize| {
            let mhz = clock.mhz_with(cores, cores + pairs);
            slowdowns.map(|slowdown| speed(mhz, slowdown))
        };
        Self((1..=cores).map(|cores| (0..=cores).map(|pairs| by_sibling(cores, pairs)).collect()).collect())
    }

    /// With so many busy cores, and CPUs, in the socket.
    fn with(&self, cores: u16, cpus: u16, other: Sibling) -> &Speed {
        let (cores, cpus) = (cores.max(1), cpus.max(1));
        &self.0[usize::from(cores) - 1][usize::from(cpus.saturating_sub(cores))][other as usize]
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

impl Engine {
    /// Sets the clock of each CPU of a socket by how many of its cores have a task, and what the other thread of its core does.
    pub(super) fn set_clocks(&mut self, socket: u16) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].place.socket == socket {
                self.set_clock(cpu);
            }
        }
    }

    fn set_clock(&mut self, cpu: usize) {
        let Cpu { place: Place { core, socket, .. }, task, .. } = self.cpus[cpu];
        let (cores, cpus) = (self.busy_cores[usize::from(socket)], self.busy_cpus[usize::from(socket)]);
        let other = if self.busy_threads[usize::from(core)] < 2 {
            Sibling::Idle
        } else if self.spinning_threads[usize::from(core)] > u16::from(task == Task::Waiting) {
            Sibling::Spinning
        } else {
            Sibling::Working
        };
        let Speed { kilocycle, costs } = *self.speeds.with(cores, cpus, other);
        (self.cpus[cpu].kilocycle, self.cpus[cpu].costs) = (kilocycle, costs);
    }

    /// A task on a CPU begins, ends, spins, falls asleep or wakes: clocks change with it.
    pub(super) fn change_task(&mut self, cpu: usize, task: Task) {
        let is_awake = |task| matches!(task, Task::Ready | Task::Waiting);
        let before = std::mem::replace(&mut self.cpus[cpu].task, task);
        self.note_spinning(cpu, before, task);
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

    /// A task on a CPU begins to spin, or is done with it: the other thread of the core is faster meanwhile.
    fn note_spinning(&mut self, cpu: usize, before: Task, now: Task) {
        if self.machine.clock.spin_slowdown.is_none() || (before == Task::Waiting) == (now == Task::Waiting) {
            return;
        }
        let spinning = &mut self.spinning_threads[usize::from(self.cpus[cpu].place.core)];
        if now == Task::Waiting {
            *spinning += 1;
        } else {
            *spinning -= 1;
        }
        let cores = self.places.len();
        let threads = (cpu % cores..self.cpus.len()).step_by(cores);
        threads.for_each(|thread| self.set_clock(thread));
    }
}
