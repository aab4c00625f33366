//! Which cores have which lines: eight bytes for each page structure, and full state for the few other lines.

use crate::cache::{FillClock, STAMP_BITS, Stamps};
use crate::machine::Place;
use crate::time::Picos;

mod in_frames;

pub(crate) use in_frames::{FrameLine, FrameLines};

/// The state of a page structure's line in one word.
///
/// | bits | meaning |
/// |---|---|
/// | 0–1 | 0: uncached; 1: one core has it; 2: further cores may have it |
/// | 2 | dirty: written since it came from memory |
/// | 3–12 | the core that used it last |
/// | 13–22 | the core that used it before, in state 2 |
/// | 23 | unused |
/// | 24–43 | stamp of the last core's private cache |
/// | 44–63 | stamp of that core's group's cache |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageLine(pub(crate) u64);

const CORE_BITS: u32 = 10;
const CORE_MASK: u64 = (1 << CORE_BITS) - 1;
const STAMP: u64 = (1 << STAMP_BITS) - 1;
const _: () = assert!(24 + 2 * STAMP_BITS == u64::BITS);

impl PageLine {
    pub(crate) fn is_known(self) -> bool {
        self.0 & 3 != 0
    }

    pub(crate) fn is_shared(self) -> bool {
        self.0 & 3 == 2
    }

    pub(crate) fn is_dirty(self) -> bool {
        self.0 & 4 != 0
    }

    pub(crate) fn core(self) -> u16 {
        (self.0 >> 3 & CORE_MASK) as u16
    }

    pub(crate) fn other(self) -> u16 {
        (self.0 >> (3 + CORE_BITS) & CORE_MASK) as u16
    }

    pub(crate) fn private_stamp(self) -> u64 {
        self.0 >> 24 & STAMP
    }

    pub(crate) fn group_stamp(self) -> u64 {
        self.0 >> (24 + STAMP_BITS)
    }

    /// A line that `core` has, alone or beside another core; dirty after a write.
    pub(crate) fn held(core: u16, beside: Option<u16>, usage: Use, stamps: Stamps) -> Self {
        let (state, other) = beside.map_or((1, 0), |other| (2, other));
        let cores = u64::from(core) << 3 | u64::from(other) << (3 + CORE_BITS);
        Self(state | usage.dirty() | cores | stamps.compact)
    }

    /// Whether a core used the line last and has it in its private cache in the required state.
    #[inline(always)]
    pub(crate) fn is_at_hand(self, core: u16, private: &FillClock, usage: Use) -> bool {
        let is_own = self.core() == core && self.is_known() && private.has(self.private_stamp());
        is_own && (usage == Use::Read || !self.is_shared())
    }

    /// The line after a further use by a core that has it in the required [state](Self::is_at_hand).
    #[inline(always)]
    pub(crate) fn used(self, stamps: Stamps, usage: Use) -> Self {
        Self(self.0 & ((1 << (3 + 2 * CORE_BITS)) - 1) | usage.dirty() | stamps.compact)
    }
}

/// The full state of a line.
#[derive(Clone, Copy, Default)]
pub(crate) struct SharedState {
    /// The time until which the line is on its way to a core.
    pub(crate) busy: Picos,
    /// The core that used the line last, plus 1.
    last: u16,
    /// The only core that has the line, plus 1; 0 if several may.
    alone: u16,
    pub(crate) dirty: bool,
    /// Exchanges that stay strictly in order. A change of the exchanging core resets it.
    pub(crate) wanted: u8,
}

/// Exchanges by one core alone after which no other core is expected to want the line.
const WANTED: u8 = 16;

/// Lines with full state: a stamp for each core and each group.
pub(crate) struct SharedLines {
    states: Vec<SharedState>,
    stamps: Vec<u32>,
    cores: usize,
    each: usize,
}

/// A core's use of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Read,
    Write,
}

impl Use {
    /// The dirty bit of a [`PageLine`].
    #[inline(always)]
    const fn dirty(self) -> u64 {
        match self {
            Self::Read => 0,
            Self::Write => 4,
        }
    }
}

/// The place of a line for a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// In the core's cache alone.
    Alone,
    /// In the core's cache and in further caches; the farthest of these.
    Beside(u16),
    /// In the private cache of another core, which wrote to it.
    Dirty(u16),
    /// In the cache of the core's group.
    InGroup,
    /// In another group's cache: that of this core.
    InOther(u16),
    /// In no cache.
    Nowhere,
}

impl SharedLines {
    /// No lines.
    pub(crate) fn new(cores: usize, groups: usize) -> Self {
        Self { states: Vec::new(), stamps: Vec::new(), cores, each: cores + groups }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<SharedState>() + self.stamps.capacity() * size_of::<u32>()
    }

    /// Adds uncached lines. Returns the number of the first.
    #[cold]
    pub(crate) fn add(&mut self, count: usize) -> usize {
        let first = self.states.len();
        self.states.resize(first + count, SharedState::default());
        self.stamps.resize(self.states.len() * self.each, 0);
        first
    }

    #[inline(always)]
    pub(crate) fn state(&mut self, line: usize) -> &mut SharedState {
        &mut self.states[line]
    }

    fn stamps(&self, line: usize) -> &[u32] {
        &self.stamps[line * self.each..(line + 1) * self.each]
    }

    /// Uses a line if the core has it in its private cache in the required state. Returns whether it has.
    #[inline(always)]
    pub(crate) fn use_at_hand(
        &mut self,
        line: usize,
        me: Place,
        private: &FillClock,
        stamps: Stamps,
        usage: Use,
    ) -> bool {
        let state = &mut self.states[line];
        let of_line = &mut self.stamps[line * self.each..(line + 1) * self.each];
        let own = &mut of_line[usize::from(me.core)];
        if !((usage == Use::Read || state.alone == me.core + 1) && private.has_wide(*own)) {
            return false;
        }
        *own = stamps.wide_private;
        of_line[self.cores + usize::from(me.group)] = stamps.wide_group;
        state.dirty |= usage == Use::Write;
        true
    }

    /// The place of a line for a core.
    pub(crate) fn find(
        &self,
        line: usize,
        me: Place,
        privates: &[FillClock],
        groups: &[FillClock],
        places: &[Place],
    ) -> Found {
        let (state, stamps) = (&self.states[line], self.stamps(line));
        let has = |core: usize| privates[core].has_wide(stamps[core]);
        if has(me.core.into()) {
            if state.alone == me.core + 1 {
                return Found::Alone;
            }
            let sharers = (0..self.cores).filter(|core| *core != usize::from(me.core) && has(*core));
            return match sharers.max_by_key(|core| me.distance(places[*core])) {
                Some(farthest) => Found::Beside(farthest as u16),
                None => Found::Alone,
            };
        }
        if let Some(owner) = state.alone.checked_sub(1)
            && state.dirty
            && has(owner.into())
        {
            return Found::Dirty(owner);
        }
        let in_group = |group: u16| groups[usize::from(group)].has_wide(stamps[self.cores + usize::from(group)]);
        if in_group(me.group) {
            return Found::InGroup;
        }
        match state.last.checked_sub(1) {
            Some(last) if in_group(places[usize::from(last)].group) || has(last.into()) => Found::InOther(last),
            _ => Found::Nowhere,
        }
    }

    /// The farthest other core with a copy of the line in its private cache.
    pub(crate) fn farthest(&self, line: usize, me: Place, privates: &[FillClock], places: &[Place]) -> Option<u16> {
        let stamps = self.stamps(line);
        let sharers =
            (0..self.cores).filter(|core| *core != usize::from(me.core) && privates[*core].has_wide(stamps[*core]));
        sharers.max_by_key(|core| me.distance(places[*core])).map(|core| core as u16)
    }

    /// Moves a line to a core. A write makes the core its only holder.
    pub(crate) fn take(&mut self, line: usize, me: Place, stamps: Stamps, usage: Use) {
        let of_line = &mut self.stamps[line * self.each..(line + 1) * self.each];
        let state = &mut self.states[line];
        if usage == Use::Write {
            if state.last != 0 && state.last != me.core + 1 {
                state.wanted = WANTED;
            }
            if state.alone != me.core + 1 {
                of_line.fill(0);
            }
            state.alone = me.core + 1;
        } else if state.alone != me.core + 1 {
            state.alone = 0;
        }
        state.last = me.core + 1;
        state.dirty |= usage == Use::Write;
        of_line[usize::from(me.core)] = stamps.wide_private;
        of_line[self.cores + usize::from(me.group)] = stamps.wide_group;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(private: u64, group: u64) -> Stamps {
        Stamps { compact: Stamps::compact(private, group), ..Stamps::default() }
    }

    #[test]
    fn a_page_line_unpacks_its_fields() {
        let line = PageLine::held(1022, Some(1021), Use::Write, stamps(STAMP, STAMP - 1));
        assert!(line.is_known() && line.is_shared() && line.is_dirty());
        assert_eq!((line.core(), line.other()), (1022, 1021));
        assert_eq!((line.private_stamp(), line.group_stamp()), (STAMP, STAMP - 1));
        let line = PageLine::held(7, None, Use::Read, stamps(1, 2));
        assert!(line.is_known() && !line.is_shared() && !line.is_dirty());
        assert_eq!((line.core(), line.private_stamp(), line.group_stamp()), (7, 1, 2));
        assert!(!PageLine(0).is_known());
    }
}
