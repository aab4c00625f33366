//! Queues of CPUs that wait for locks, and hand-overs of locks.

use std::collections::BTreeMap;

use frameyard::platform::{LockId, LockKind};

use super::speed::AccessKind;
use super::{Engine, Task};
use crate::account::Spent;
use crate::cache::{LINE_BYTES, Stamps};
use crate::lines::Use;
use crate::machine::KernelCost;
use crate::time::Picos;
use frameyard_machines::LockMethod;

/// The waits for a lock. Only a lock that some CPU has waited for has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockStats {
    /// The lock.
    pub id: LockId,
    /// The number of hand-overs to waiting CPUs.
    pub handovers: u64,
    /// The time that all CPUs together spent waiting.
    pub waited: Picos,
    /// The largest number of CPUs that waited at once.
    pub longest_queue: u32,
}

struct Queue {
    /// The number of locks with a queue before this one.
    order: usize,
    stats: LockStats,
    /// Waiting CPUs in order of arrival.
    waiters: Vec<usize>,
}

/// The locks with a queue, by the address of the lock's word.
#[derive(Default)]
pub(crate) struct LockQueues {
    queues: BTreeMap<usize, Queue>,
}

impl LockQueues {
    /// Statistics in the order of each lock's first waiter. Addresses differ from run to run.
    pub(crate) fn stats(&self) -> Vec<LockStats> {
        let mut queues: Vec<&Queue> = self.queues.values().collect();
        queues.sort_unstable_by_key(|queue| queue.order);
        queues.into_iter().map(|queue| queue.stats).collect()
    }
}

/// The holder of a lock after its release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handover {
    /// No CPU.
    Free,
    /// A waiter, and no other CPU waits.
    ToLast,
    /// A waiter, and further CPUs wait.
    ToOneOfMany,
}

impl Engine {
    /// The running CPU enters a lock's queue and spins.
    pub(crate) fn enqueue(&mut self, word: usize, id: LockId) {
        self.queue_up(word, id, Task::Waiting);
    }

    /// The running CPU sleeps until a word changes.
    pub(crate) fn sleep(&mut self, word: usize, id: LockId) {
        self.queue_up(word, id, Task::Asleep);
    }

    fn queue_up(&mut self, word: usize, id: LockId, task: Task) {
        let stats = LockStats { id, handovers: 0, waited: Picos(0), longest_queue: 0 };
        let order = self.locks.queues.len();
        let queue = self.locks.queues.entry(word).or_insert_with(|| Queue { order, stats, waiters: Vec::new() });
        queue.waiters.push(self.context.cpu);
        queue.stats.longest_queue = queue.stats.longest_queue.max(queue.waiters.len() as u32);
        self.wait(task);
    }

    /// The running CPU releases a lock. One waiter gets it, if there is one.
    pub(crate) fn hand_over(&mut self, word: usize, id: LockId) -> Handover {
        if id.kind() == LockKind::Zone {
            self.spend_kernel(KernelCost::ZoneHold, 1);
        }
        let (now, holder, lock) = (self.now(), self.context.place, self.machine.lock);
        let Some(queue) = self.locks.queues.get_mut(&word).filter(|queue| !queue.waiters.is_empty()) else {
            return Handover::Free;
        };
        let next = match lock.kind {
            LockMethod::Queued | LockMethod::Ticket => 0,
            LockMethod::TestAndSet => {
                let distance = |at: &usize| holder.distance(self.cpus[queue.waiters[*at]].place);
                (0..queue.waiters.len()).min_by_key(distance).unwrap_or(0)
            }
        };
        let cpu = queue.waiters.remove(next);
        let waiters = queue.waiters.len();
        let place = self.cpus[cpu].place;
        let transfer =
            self.speeds.get(self.speed_of(cpu)).cost(AccessKind::Blocking, Self::transfer(holder.distance(place)));
        let crowd = if lock.kind == LockMethod::Queued { 0.0 } else { lock.per_waiter_ns * 1000.0 * waiters as f64 };
        let handover = (transfer.0 as f64 * lock.handover_transfers + crowd).round() as u64;
        let at = now.max(self.cpus[cpu].clock) + Picos(handover);
        let waited = self.wake(cpu, at, Spent::Waiting(id.kind()));
        if let Some(queue) = self.locks.queues.get_mut(&word) {
            queue.stats.handovers += 1;
            queue.stats.waited += waited;
        }
        self.context.recent_lines.forget(word / LINE_BYTES as usize);
        if let Some(line) = self.line_at(word) {
            let stamps = Stamps::of(&self.privates[usize::from(place.core)], &self.groups[usize::from(place.group)]);
            self.lines.take(line, place, stamps, Use::Write);
            self.lines.state(line).busy = at;
        }
        if waiters == 0 { Handover::ToLast } else { Handover::ToOneOfMany }
    }

    /// Wakes all CPUs that sleep on a word, in order of arrival.
    pub(crate) fn wake_all(&mut self, word: usize, kind: LockKind) {
        let now = self.now();
        let Some(queue) = self.locks.queues.get_mut(&word) else { return };
        let waiters = std::mem::take(&mut queue.waiters);
        for (place, cpu) in (1..).zip(waiters) {
            // Clocks one picosecond apart keep the CPUs in order.
            let at = now.max(self.cpus[cpu].clock) + Picos(place);
            let waited = self.wake(cpu, at, Spent::Waiting(kind));
            if let Some(queue) = self.locks.queues.get_mut(&word) {
                queue.stats.handovers += 1;
                queue.stats.waited += waited;
            }
        }
    }

    /// Records that a lock on that line was held until now.
    #[inline(always)]
    pub(crate) fn mark_held_until_now(&mut self, line: usize) {
        let now = self.now();
        self.lines.state(line).busy = now;
    }
}

/// Whether CPUs share locks of a kind, so that CPUs must meet there in the order of their clocks.
///
/// A lock of the other kinds belongs to one CPU, which takes it nearly always, or to a page table, which covers few
/// addresses.
pub(crate) const fn is_shared(kind: LockKind) -> bool {
    !matches!(kind, LockKind::PerCpu | LockKind::LruBatch | LockKind::PageTable)
}
