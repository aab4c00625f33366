//! The CPU that runs, with what it needs at each access at hand: there are some seventy in a page fault.

use super::Engine;
use super::recent::Recent;
use super::speed::{HitTimes, SpeedId};
use crate::cache::{FillClock, Stamps};
use crate::machine::Place;
use crate::profile::StackId;
use crate::time::Picos;

/// The CPU that runs, or that set-up runs on. Its clock and its stack are here; what [`Cpu`](super::Cpu) says of them is from before its turn.
pub(super) struct Turn {
    pub(super) cpu: usize,
    pub(super) clock: Picos,
    pub(super) place: Place,
    /// The spans that it is in, and where the profile keeps what is spent there.
    pub(super) stack: StackId,
    pub(super) shares: usize,
    /// How fast it runs, and what its private hits cost.
    pub(super) speed: SpeedId,
    pub(super) hits: HitTimes,
    /// Its private cache, and the stamps of a line that it uses now.
    pub(super) private: FillClock,
    pub(super) stamps: Stamps,
    /// Page structures, by their places in the memory map, and other lines, by their numbers as the host's lines.
    pub(super) recent_pages: Recent<16>,
    pub(super) recent_lines: Recent<16>,
}

impl Turn {
    /// Nobody's: to be begun.
    pub(super) fn none(place: Place) -> Self {
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
    /// The turn is a CPU's from now on. That of whoever had it must be [over](Self::end_turn).
    pub(super) fn begin_turn(&mut self, cpu: usize) {
        let super::Cpu { clock, place, stack, .. } = self.cpus[cpu];
        let turn = &mut self.turn;
        (turn.cpu, turn.clock, turn.place) = (cpu, clock, place);
        (turn.recent_pages, turn.recent_lines) = (Recent::default(), Recent::default());
        self.set_stack(stack);
        self.renew_speed();
        self.renew_stamps();
    }

    /// Notes what the turn has changed of the CPU that has it.
    pub(super) fn end_turn(&mut self) {
        let cpu = &mut self.cpus[self.turn.cpu];
        (cpu.clock, cpu.stack) = (self.turn.clock, self.turn.stack);
    }

    /// The running CPU is in those spans.
    #[inline(always)]
    pub(super) fn set_stack(&mut self, stack: StackId) {
        self.turn.stack = stack;
        self.turn.shares = self.profile.shares_of(stack);
    }

    /// The running CPU may be faster or slower now.
    pub(super) fn renew_speed(&mut self) {
        self.turn.speed = self.speed_of(self.turn.cpu);
        self.turn.hits = self.speeds.get(self.turn.speed).hits();
    }

    /// The running CPU's caches have been filled.
    #[inline(always)]
    fn renew_stamps(&mut self) {
        let Place { core, group, .. } = self.turn.place;
        self.turn.private = self.privates[usize::from(core)];
        self.turn.stamps = Stamps::of(&self.turn.private, &self.groups[usize::from(group)]);
    }

    /// The running CPU brings lines into its private cache, and that of its group.
    #[inline(always)]
    pub(super) fn fill(&mut self, private: u64, group: u64) {
        let place = self.turn.place;
        self.privates[usize::from(place.core)].fill(private);
        self.groups[usize::from(place.group)].fill(group);
        self.renew_stamps();
    }
}
