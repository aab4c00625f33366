//! Who runs next: of those that can, the CPU whose clock is the earliest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::speed::IsBusy;
use super::{Engine, Task};
use crate::account::Spent;
use crate::time::Picos;

/// How far a CPU may run ahead of the others where nothing says that they can tell.
const SLACK: Picos = Picos::from_ns(2000);

/// Bits of a key of the schedule that are the CPU.
const CPU_BITS: u32 = 10;

/// CPUs that can run, by their clocks; the lower number first among equals.
#[derive(Default)]
pub(super) struct Ready {
    keys: BinaryHeap<Reverse<u64>>,
    /// Who has just stepped back, and is to be among the others.
    stepped_back: Option<u64>,
    /// The least of `keys`, where there is one.
    first: Option<u64>,
}

impl Ready {
    fn push(&mut self, key: u64) {
        self.keys.push(Reverse(key));
        self.first = Some(self.first.map_or(key, |first| first.min(key)));
    }

    fn pop(&mut self) -> Option<u64> {
        let next = match (self.stepped_back.take(), self.keys.peek_mut()) {
            (None, None) => None,
            (None, Some(first)) => Some(PeekMut::pop(first).0),
            (Some(own), Some(mut first)) if first.0 < own => Some(std::mem::replace(&mut *first, Reverse(own)).0),
            (Some(own), _) => Some(own),
        };
        self.first = self.keys.peek().map(|key| key.0);
        next
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Engine {
    fn key(&self, cpu: usize, clock: Picos) -> u64 {
        assert!(clock.0 >> (u64::BITS - CPU_BITS) == 0, "virtual time has run out: a run may take five hours");
        clock.0 << CPU_BITS | cpu as u64
    }

    /// A CPU that does not run can, from its clock on.
    pub(super) fn make_ready(&mut self, cpu: usize) {
        let key = self.key(cpu, self.cpus[cpu].clock);
        self.ready.push(key);
    }

    /// Begins a run of tasks on those CPUs.
    pub(crate) fn begin(&mut self, cpus: &[usize]) {
        assert!(!self.running, "one run at a time");
        self.end_turn();
        self.running = true;
        let start = self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or_default();
        for cpu in &mut self.cpus {
            // What lies between two runs is nobody's time, and what a run broke off in nobody's span.
            cpu.clock = start;
            cpu.stack = 0;
        }
        for cpu in cpus {
            self.change_task(*cpu, Task::Ready);
            self.make_ready(*cpu);
        }
        self.begin_turn(self.turn.cpu);
    }

    /// The CPU that runs next.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let key = self.ready.pop()?;
        self.set_current((key & ((1 << CPU_BITS) - 1)) as usize);
        Some(self.turn.cpu)
    }

    /// How many CPUs wait for locks.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The task of the running CPU has ended.
    pub(crate) fn task_ended(&mut self) {
        self.change_task(self.turn.cpu, Task::None);
    }

    /// Ends a run: those CPUs have been idle since their tasks ended.
    pub(crate) fn end(&mut self) -> Picos {
        self.end_turn();
        let end = self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or_default();
        for cpu in &mut self.cpus {
            let idle = end - cpu.clock;
            cpu.clock = end;
            self.profile.add(0, Spent::Idle.slot(), idle);
        }
        self.begin_turn(self.turn.cpu);
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
        self.ready.first.is_some_and(|first| first < self.turn.clock.0 << CPU_BITS | self.turn.cpu as u64)
    }

    /// Whether another CPU is far behind the running one.
    #[inline(always)]
    pub(crate) fn is_far_ahead(&self) -> bool {
        self.ready.first.is_some_and(|first| (first >> CPU_BITS) + SLACK.0 < self.turn.clock.0)
    }

    /// The running CPU lets others run; it goes on when it is the earliest.
    pub(crate) fn step_back(&mut self) {
        self.ready.stepped_back = Some(self.key(self.turn.cpu, self.turn.clock));
    }

    /// The running CPU does nothing until it is woken.
    pub(super) fn wait(&mut self, task: Task) {
        self.change_task(self.turn.cpu, task);
        self.waiting += 1;
    }

    /// A CPU that waited for a lock, or for others, goes on from a time on.
    pub(super) fn wake(&mut self, cpu: usize, at: Picos, spent: Spent) -> Picos {
        let waited = at - self.cpus[cpu].clock;
        self.cpus[cpu].clock = at;
        self.profile.add(self.cpus[cpu].stack, spent.slot(), waited);
        self.change_task(cpu, Task::Ready);
        self.waiting -= 1;
        self.make_ready(cpu);
        waited
    }

    /// A task on a CPU begins, ends, spins, falls asleep or wakes.
    pub(super) fn change_task(&mut self, cpu: usize, task: Task) {
        let is_awake = |task| matches!(task, Task::Ready | Task::Waiting);
        let before = std::mem::replace(&mut self.cpus[cpu].task, task);
        self.note_spinning(cpu, before, task);
        self.tasks += usize::from(before == Task::None);
        self.tasks -= usize::from(task == Task::None);
        self.most_tasks = self.most_tasks.max(self.tasks);
        match (is_awake(before), is_awake(task)) {
            (false, true) => self.set_busy(cpu, IsBusy::Yes),
            (true, false) => self.set_busy(cpu, IsBusy::No),
            _ => {}
        }
    }
}
