//! The schedule: of the ready CPUs, the one with the earliest clock runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::speed::IsBusy;
use super::{Engine, Task};
use crate::account::Spent;
use crate::time::Picos;

/// The time by which a CPU may run ahead while no other CPU can observe it.
const SLACK: Picos = Picos::from_ns(2000);

/// Bits of a schedule key that are the CPU's number.
const CPU_BITS: u32 = 10;

/// Ready CPUs by clock, ties by number.
#[derive(Default)]
pub(super) struct Ready {
    keys: BinaryHeap<Reverse<u64>>,
    /// The CPU that has just yielded and is to be queued again.
    yielded: Option<u64>,
    /// The least of `keys`.
    first: Option<u64>,
}

impl Ready {
    fn push(&mut self, key: u64) {
        self.keys.push(Reverse(key));
        self.first = Some(self.first.map_or(key, |first| first.min(key)));
    }

    fn pop(&mut self) -> Option<u64> {
        let next = match (self.yielded.take(), self.keys.peek_mut()) {
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
        assert!(clock.0 >> (u64::BITS - CPU_BITS) == 0, "virtual time overflows: a run is limited to five hours");
        clock.0 << CPU_BITS | cpu as u64
    }

    /// Makes a CPU ready, from its clock on.
    pub(super) fn make_ready(&mut self, cpu: usize) {
        let key = self.key(cpu, self.cpus[cpu].clock);
        self.ready.push(key);
    }

    /// Begins a run of tasks on these CPUs.
    pub(crate) fn begin(&mut self, cpus: &[usize]) {
        assert!(!self.running, "a run is already in progress");
        self.save_context();
        self.running = true;
        let start = self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or_default();
        for cpu in &mut self.cpus {
            // Time between two runs is charged to no CPU, and spans that an aborted run left open are closed.
            cpu.clock = start;
            cpu.stack = 0;
            cpu.interrupts = 0;
        }
        for cpu in cpus {
            self.change_task(*cpu, Task::Ready);
            self.make_ready(*cpu);
        }
        self.load_context(self.context.cpu);
    }

    /// Switches to the CPU that runs next.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let key = self.ready.pop()?;
        self.set_current((key & ((1 << CPU_BITS) - 1)) as usize);
        self.answer_interrupts();
        Some(self.context.cpu)
    }

    /// The number of CPUs that wait for locks.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The task of the running CPU has ended.
    pub(crate) fn task_ended(&mut self) {
        self.change_task(self.context.cpu, Task::None);
    }

    /// Ends a run. Charges each CPU's time since the end of its task as idle.
    pub(crate) fn end(&mut self) -> Picos {
        self.save_context();
        let end = self.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or_default();
        for cpu in &mut self.cpus {
            let idle = end - cpu.clock;
            cpu.clock = end;
            self.profile.add(0, Spent::Idle.slot(), idle);
        }
        self.load_context(self.context.cpu);
        end
    }

    /// The run is over; code runs as set-up from now on.
    pub(crate) fn stop(&mut self) {
        self.running = false;
        self.ready.clear();
    }

    /// Whether another ready CPU is behind the running one.
    #[inline(always)]
    pub(crate) fn is_ahead(&self) -> bool {
        self.ready.first.is_some_and(|first| first < self.context.clock.0 << CPU_BITS | self.context.cpu as u64)
    }

    /// Whether another ready CPU is more than the slack behind the running one.
    #[inline(always)]
    pub(crate) fn is_far_ahead(&self) -> bool {
        self.ready.first.is_some_and(|first| (first >> CPU_BITS) + SLACK.0 < self.context.clock.0)
    }

    /// The running CPU yields until it is the earliest again.
    pub(crate) fn yield_to_earlier(&mut self) {
        self.ready.yielded = Some(self.key(self.context.cpu, self.context.clock));
    }

    /// The running CPU blocks until another CPU wakes it.
    pub(super) fn wait(&mut self, task: Task) {
        self.change_task(self.context.cpu, task);
        self.waiting += 1;
    }

    /// Wakes a blocked CPU at a time. Returns the time that it waited.
    pub(super) fn wake(&mut self, cpu: usize, at: Picos, spent: Spent) -> Picos {
        let waited = at - self.cpus[cpu].clock;
        self.cpus[cpu].clock = at;
        self.profile.add(self.cpus[cpu].stack, spent.slot(), waited);
        self.change_task(cpu, Task::Ready);
        self.waiting -= 1;
        self.make_ready(cpu);
        waited
    }

    /// Changes the state of a CPU's task, and with it which CPUs are busy.
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
