//! The running-CPU context: the state of the running CPU that each access needs. A page fault makes about seventy
//! accesses.

use super::Engine;
use super::recent::Recent;
use super::speed::{HitTimes, SpeedId};
use crate::cache::{FillClock, Stamps};
use crate::machine::Place;
use crate::profile::StackId;
use crate::time::Picos;

/// The CPU that runs, or the CPU of set-up code. The context holds its clock and stack; the copies in
/// [`Cpu`](super::Cpu) are stale while it runs.
pub(super) struct RunningCpu {
    pub(super) cpu: usize,
    pub(super) clock: Picos,
    pub(super) place: Place,
    /// The spans that the CPU is in, and the index of their shares in the profile.
    pub(super) stack: StackId,
    pub(super) shares: usize,
    /// The CPU's speed, and the costs of its private hits.
    pub(super) speed: SpeedId,
    pub(super) hits: HitTimes,
    /// The CPU's private cache, and the stamps of a line used now.
    pub(super) private: FillClock,
    pub(super) stamps: Stamps,
    /// Recently used page structures, by index in the memory map, and other lines, by address.
    pub(super) recent_pages: Recent<16>,
    pub(super) recent_lines: Recent<16>,
}

impl RunningCpu {
    /// A context of no CPU, to be loaded.
    pub(super) fn unloaded(place: Place) -> Self {
        Self {
            cpu: 0,
            clock: Picos(0),
            place,
            stack: 0,
            shares: 0,
            speed: 0,
            hits: HitTimes::default(),
            private: FillClock::new(1),
            stamps: Stamps::default(),
            recent_pages: Recent::default(),
            recent_lines: Recent::default(),
        }
    }
}

impl Engine {
    /// Loads the context of a CPU. The context of the CPU before must have been [saved](Self::save_context).
    pub(super) fn load_context(&mut self, cpu: usize) {
        let super::Cpu { clock, place, stack, .. } = self.cpus[cpu];
        let context = &mut self.context;
        (context.cpu, context.clock, context.place) = (cpu, clock, place);
        (context.recent_pages, context.recent_lines) = (Recent::default(), Recent::default());
        self.set_stack(stack);
        self.renew_speed();
        self.renew_stamps();
    }

    /// Saves the context into its CPU.
    pub(super) fn save_context(&mut self) {
        let cpu = &mut self.cpus[self.context.cpu];
        (cpu.clock, cpu.stack) = (self.context.clock, self.context.stack);
    }

    /// Moves the running CPU to other spans.
    #[inline(always)]
    pub(super) fn set_stack(&mut self, stack: StackId) {
        self.context.stack = stack;
        self.context.shares = self.profile.shares_of(stack);
    }

    /// Updates the running CPU's speed.
    pub(super) fn renew_speed(&mut self) {
        self.context.speed = self.speed_of(self.context.cpu);
        self.context.hits = self.speeds.get(self.context.speed).hits();
    }

    /// Updates the stamps after a fill of the running CPU's caches.
    #[inline(always)]
    fn renew_stamps(&mut self) {
        let Place { core, group, .. } = self.context.place;
        self.context.private = self.privates[usize::from(core)];
        self.context.stamps = Stamps::of(&self.context.private, &self.groups[usize::from(group)]);
    }

    /// The running CPU brings lines into its private cache and its group's cache.
    #[inline(always)]
    pub(super) fn fill(&mut self, private: u64, group: u64) {
        let place = self.context.place;
        self.privates[usize::from(place.core)].fill(private);
        self.groups[usize::from(place.group)].fill(group);
        self.renew_stamps();
    }
}
