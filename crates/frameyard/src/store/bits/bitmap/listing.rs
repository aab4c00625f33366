//! Listing: which lines have free frames, by migration type, fullness and largest free run.
//!
//! # Structure
//!
//! A line has one *state word*, which says whether it is on no list, on one list, or reserved. A list is a bitmap with
//! a bit for each line of the yard, and two levels of summary, in which a bit is set for each cache line of the level
//! below that is not zero. The lists of a migration type are numbered by the largest run of their lines and, for the
//! same run, by fullness, fullest first. After these come the whole lines and the reserved ones.
//!
//! # Protocol
//!
//! The state word decides which list a line is on. The bits of lists are only *hints*: they lead to lines, and may be
//! stale.
//!
//! - To put a line on a list, a CPU changes the state with a compare-exchange and then sets the hint, together with the
//!   hints of neighbouring lines if these are listed at the same time.
//! - To take it off, a CPU changes the state with a compare-exchange and then clears the hint.
//! - A CPU that has cleared a hint looks at the state again, and sets the hint again if the line is on that list by
//!   now. The same protocol applies to a word and its bit in the summary.
//!
//! A free looks at the state after it has set the bits:
//!
//! - If the run that the free has made is allowed on the line's list, it does nothing.
//! - If not, or if the line is on no list, it notes that the line has *grown* ([`Listing::note_grown`]). The notes are
//!   a bitmap like those of lists, and most frees find the note set already. The next search lists such lines by their
//!   bits ([`Listing::look_at_grown`]), removes their notes, and then looks at the bits again. A free looks for the
//!   note after it has set bits.
//! - If the line is reserved, it does nothing. A CPU that ends a reservation looks at the bits after it has changed the
//!   state ([`Listing::leave`]).
//!
//! All these accesses are sequentially consistent, so one of the two sees the other.
//!
//! A line that is freed as one block is *packed* ([`Listing::pack`]): it gets no bits, and a compare-exchange on its
//! state frees or takes all of its frames.
//!
//! A search can miss a line that moves from one list to another, or whose hint or summary bit is cleared and set again.
//! So a request that may fail only if memory is exhausted has to look at the bits of all lines in the end.
//!
//! # Invariants, at rest
//!
//! - A line that is on no list has no free frame, or is noted as grown.
//! - The largest free run of a listed line is at most that of its list, or the line is noted as grown. So a search by
//!   run misses no line. The run may be smaller; a search that notices this lists the line anew.
//! - The hint of each listed line is set, or the line is noted as grown. Each summary bit above a non-zero word is set.

use core::ops::Range;

use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
use crate::store::bits::bitmap::AlreadyFree;
use crate::store::bits::bitmap::line::Shape;
use crate::store::bits::bitmap::lists::{List, Lists, STEPS};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_in_models, is_broken};
use crate::units::{MigrateType, Order};

/// Bitmap and summaries.
const LEVELS: usize = 3;
/// The lines of a word of the last summary.
const GROUP: usize = BITS * SPAN.pow(LEVELS as u32 - 1);
/// The bits of a word in use. Few in models, so that small yards have summaries of several words.
const BITS: usize = if cfg!(loom) { 2 } else { u64::BITS as usize };
/// The words that a summary bit stands for: those of a cache line, so that few changes below change it.
const UNIT: usize = if cfg!(loom) { 2 } else { 8 };
/// The bits that a summary bit stands for.
const SPAN: usize = BITS * UNIT;

/// What the state of a line says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It has no free frame.
    Unlisted,
    /// It has some.
    Partial,
    /// It has all.
    Whole,
    /// A CPU has reserved it.
    Reserved,
}

/// Hints of one word of a list that are still to be set.
pub(super) struct Hints {
    list: List,
    word: usize,
    bits: u64,
}

impl Hints {
    pub(super) const NONE: Self = Self { list: List::NONE, word: 0, bits: 0 };
}

/// The tables: the states of lines, and the bitmaps of lists.
#[derive(Clone, Copy)]
pub(super) struct Listing {
    states: &'static [AtomicU32],
    /// Of each level the words of all lists, those of one list behind each other; on the last level those with one index.
    levels: [&'static [AtomicU64]; LEVELS],
    /// The words of one list on each level.
    widths: [usize; LEVELS],
    lists: Lists,
}

/// Where the tables lie.
pub(super) type ListingSpans = [TableSpan; 1 + LEVELS];

/// The words of one list on a level.
const fn words_of(lines: usize, level: usize) -> usize {
    let (mut words, mut at) = (lines.div_ceil(BITS), 0);
    while at < level {
        words = words.div_ceil(UNIT).div_ceil(BITS);
        at += 1;
    }
    // No unit lies on two cache lines.
    match words {
        _ if level == LEVELS - 1 => words,
        0..UNIT => words.next_power_of_two(),
        _ => words.next_multiple_of(UNIT),
    }
}

impl Listing {
    /// Plans the tables for that number of lines; `None` if they do not fit an address space.
    pub(super) const fn plan(planner: &mut TablePlanner, lines: usize, lists: Lists) -> Option<ListingSpans> {
        let Some(states) = planner.table::<AtomicU32>(lines) else { return None };
        let mut spans = [states; 1 + LEVELS];
        let mut level = 0;
        while level < LEVELS {
            let words = if lines == 0 { Some(0) } else { words_of(lines, level).checked_mul(lists.count()) };
            let Some(words) = words else { return None };
            let Some(span) = planner.table::<AtomicU64>(words) else { return None };
            level += 1;
            spans[level] = span;
        }
        Some(spans)
    }

    /// # Safety
    ///
    /// As for [`ControlRegion::table`]: the spans are those that [`plan`](Self::plan) made.
    pub(super) unsafe fn carve(region: &ControlRegion, spans: &ListingSpans, lists: Lists) -> Option<Self> {
        let [states, bits, words, groups] = *spans;
        // SAFETY: passed on to the caller; each span has the type of its plan.
        unsafe {
            let levels = [region.table(bits)?, region.table(words)?, region.table(groups)?];
            let widths = core::array::from_fn(|level| words_of(states.count, level));
            Some(Self { states: region.table(states)?, levels, widths, lists })
        }
    }

    /// The bitmaps of all levels.
    #[cfg(all(test, not(loom)))]
    pub(super) fn levels_for_tests(&self) -> [&'static [AtomicU64]; LEVELS] {
        self.levels
    }

    /// Whether the tables are those for that number of lines.
    pub(super) fn fits(&self, lines: usize) -> bool {
        let words = |level| if lines == 0 { 0 } else { words_of(lines, level) * self.lists.count() };
        self.states.len() == lines && self.levels.iter().enumerate().all(|(level, table)| table.len() == words(level))
    }

    #[inline(always)]
    fn word(&self, level: usize, list: List, at: usize) -> Option<&'static AtomicU64> {
        let words = self.widths[level];
        if at >= words || list.number() >= self.lists.count() {
            return None;
        }
        if level == LEVELS - 1 {
            self.last_summary(list, at)
        } else {
            self.levels[level].get(list.number() * words + at)
        }
    }

    /// The last summary of a list for a group of lines.
    #[inline(always)]
    fn last_summary(&self, list: List, group: usize) -> Option<&'static AtomicU64> {
        self.levels[LEVELS - 1].get(group * self.lists.count() + list.number())
    }

    #[inline(always)]
    fn state(&self, line: usize) -> Option<&'static AtomicU32> {
        self.states.get(line)
    }

    fn touch<P: Platform, T>(platform: &P, word: &T, access: Access) {
        platform.probe().touch_line(SharedLine::of(LineKind::Mechanism, word), access);
    }

    /// Sets the hint of a line, and the summary bits above it.
    fn set_hint<P: Platform>(&self, platform: &P, list: List, line: usize) {
        self.set_bits(platform, 0, list, line / BITS, 1 << (line % BITS));
    }

    /// Sets bits of a word of a level, and the summary bits above it that are not set.
    fn set_bits<P: Platform>(&self, platform: &P, first: usize, list: List, mut at: usize, mut bits: u64) {
        for level in first..LEVELS {
            let Some(word) = self.word(level, list, at) else { return };
            // The first one always, so that a CPU that clears the bit at the same time sees what it stands for. Sequentially consistent: pairs
            // with `clear_hint` and `clear_summary`.
            if level == first || word.load(Ordering::SeqCst) & bits == 0 {
                Self::touch(platform, word, Access::ReadModifyWrite);
                word.fetch_or(bits, Ordering::SeqCst);
            }
            (at, bits) = (at / SPAN, 1 << (at / UNIT % BITS));
        }
    }

    /// Whether the hint of a line is set, and all summary bits above it.
    fn has_hint(&self, list: List, line: usize) -> bool {
        let mut at = line;
        (0..LEVELS).all(|level| {
            let word = self.word(level, list, at / BITS);
            let is_set = word.is_some_and(|word| word.load(Ordering::Relaxed) >> (at % BITS) & 1 == 1);
            at /= SPAN;
            is_set
        })
    }

    /// Notes that a line may have outgrown its list. The caller has set bits of it.
    #[inline(always)]
    pub(super) fn note_grown<P: Platform>(&self, platform: &P, line: usize) {
        let list = self.lists.grown();
        let Some(word) = self.word(0, list, line / BITS) else { return };
        Self::touch(platform, word, Access::Read);
        // Sequentially consistent: pairs with `look_at_grown`.
        if word.load(Ordering::SeqCst) >> (line % BITS) & 1 == 0 {
            self.set_hint(platform, list, line);
        }
    }

    /// Whether there is a note of a line, possibly stale.
    #[inline(always)]
    pub(super) fn has_grown_racy(&self, line: usize) -> bool {
        let word = self.word(0, self.lists.grown(), line / BITS);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (line % BITS) & 1 == 1)
    }

    /// Calls `look` with up to `most` lines among some that have grown and whose notes lie in one word, from `start` on and then around. Removes
    /// these notes, and calls `look` again for what was freed meanwhile. Whether there were any.
    #[inline]
    pub(super) fn look_at_grown<P: Platform>(
        &self,
        platform: &P,
        (lines, start): (&Range<usize>, usize),
        most: usize,
        mut look: impl FnMut(usize),
    ) -> bool {
        let list = self.lists.grown();
        if !self.may_have(list, lines) {
            return false;
        }
        let start = start.clamp(lines.start, lines.end);
        for part in [start..lines.end, lines.start..start] {
            let Some(first) = self.next(platform, 0, list, part.start, part.end) else { continue };
            let Some(word) = self.word(0, list, first / BITS) else { continue };
            let base = first / BITS * BITS;
            let end = part.end.min(base + BITS).min(first + most);
            let grown =
                word.load(Ordering::Relaxed) & (u64::MAX >> (u64::BITS as usize - (end - first))) << (first - base);
            let each = |mut left: u64, look: &mut dyn FnMut(usize)| {
                while left != 0 {
                    look(base + left.trailing_zeros() as usize);
                    left &= left - 1;
                }
            };
            // A line is noted until it is listed: other searches find it.
            each(grown, &mut look);
            Self::touch(platform, word, Access::ReadModifyWrite);
            // Sequentially consistent: pairs with `note_grown`.
            word.fetch_and(!grown, Ordering::SeqCst);
            if !is_broken!(NotedOnce) {
                each(grown, &mut look);
            }
            return true;
        }
        false
    }

    /// Clears a hint; sets it again if the line is on the list by now.
    fn clear_hint<P: Platform>(&self, platform: &P, list: List, line: usize) {
        let (Some(word), Some(state)) = (self.word(0, list, line / BITS), self.state(line)) else { return };
        Self::touch(platform, word, Access::ReadModifyWrite);
        // Sequentially consistent: pairs with `move_to`, which changes the state before it sets the hint.
        word.fetch_and(!(1 << (line % BITS)), Ordering::SeqCst);
        if !is_broken!(HintsNotRestored) && List(state.load(Ordering::SeqCst)).number() == list.number() {
            self.set_hint(platform, list, line);
        }
    }

    /// Clears the summary bit of a unit that is zero; sets it again, and those above it, if the unit is not zero by now.
    fn clear_summary<P: Platform>(&self, platform: &P, level: usize, list: List, unit: usize) {
        let Some(word) = self.word(level, list, unit / BITS) else { return };
        let is_zero = |order| {
            let mut words = (unit * UNIT..(unit + 1) * UNIT).map_while(|at| self.word(level - 1, list, at));
            words.all(|word| word.load(order) == 0)
        };
        let bit = 1 << (unit % BITS);
        if word.load(Ordering::Relaxed) & bit == 0 || !is_zero(Ordering::Relaxed) {
            return;
        }
        Self::touch(platform, word, Access::ReadModifyWrite);
        // Sequentially consistent: pairs with `set_bits`, which sets the bit below first.
        word.fetch_and(!bit, Ordering::SeqCst);
        if !is_broken!(SummariesNotRestored) && !is_zero(Ordering::SeqCst) {
            // Another CPU may have found this word to be zero meanwhile.
            if is_broken!(RestoredOnOneLevel) {
                word.fetch_or(bit, Ordering::Relaxed);
            } else {
                self.set_bits(platform, level, list, unit / BITS, bit);
            }
        }
    }

    /// The first bit that is set on a level of a list, from `from` up to `end`.
    fn next<P: Platform>(&self, platform: &P, level: usize, list: List, from: usize, end: usize) -> Option<usize> {
        let (mut at, mut wanted) = (from / BITS, u64::MAX << (from % BITS));
        while at * BITS < end {
            let unit = at / UNIT;
            while at < (unit + 1) * UNIT && at * BITS < end {
                let word = self.word(level, list, at)?;
                Self::touch(platform, word, Access::Read);
                // Sequentially consistent: pairs with `set_bits`.
                let bits = word.load(Ordering::SeqCst) & wanted;
                if bits != 0 {
                    let found = at * BITS + bits.trailing_zeros() as usize;
                    return (found < end).then_some(found);
                }
                (at, wanted) = (at + 1, u64::MAX);
            }
            if level < LEVELS - 1 {
                self.clear_summary(platform, level + 1, list, unit);
                at = self.next(platform, level + 1, list, unit + 1, end.div_ceil(SPAN))? * UNIT;
            }
        }
        None
    }

    /// Changes the list of a line, apart from its hints. The caller has read `from` as its state. Whether it was still that.
    #[inline(always)]
    fn change_state<P: Platform>(&self, platform: &P, line: usize, from: List, to: List) -> bool {
        let Some(state) = self.state(line) else { return false };
        Self::touch(platform, state, Access::ReadModifyWrite);
        // Sequentially consistent: pairs with `allows`, which looks at the state after bits were set, and with `clear_hint`.
        let is_changed = state.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if is_changed {
            fence_in_models!(ListedUnfenced);
        }
        is_changed
    }

    /// Changes the list of a line. The caller has read `from` as its state. Whether it was still that.
    fn move_to<P: Platform>(&self, platform: &P, line: usize, from: List, to: List) -> bool {
        if !self.change_state(platform, line, from, to) {
            return false;
        }
        if to != List::NONE {
            self.set_hint(platform, to, line);
        }
        if from != List::NONE && from.number() != to.number() {
            self.clear_hint(platform, from, line);
        }
        true
    }

    /// Whether a line that has a run of that order now may stay where it is, for a CPU that has set bits of it: its list allows that, or it is
    /// reserved. Otherwise it has grown.
    #[inline(always)]
    pub(super) fn allows<P: Platform>(&self, platform: &P, line: usize, run: Order) -> bool {
        self.state(line).is_some_and(|state| {
            Self::touch(platform, state, Access::Read);
            // Sequentially consistent: pairs with `move_to`.
            List(state.load(Ordering::SeqCst)).allows(run)
        })
    }

    /// Sees to it that a line that is not reserved is on a list that its shape allows. A line on no list gets one of the type `list_type`; a
    /// listed one keeps its type.
    pub(super) fn settle<P: Platform>(
        &self,
        platform: &P,
        (line, list_type): (usize, MigrateType),
        shape: impl Fn() -> Option<Shape>,
    ) {
        let Some(state) = self.state(line) else { return };
        loop {
            Self::touch(platform, state, Access::Read);
            // Sequentially consistent: pairs with `move_to`.
            let found = List(state.load(Ordering::SeqCst));
            if found.is_reserved() {
                return;
            }
            // Any line may be on the list of whole ones.
            let grown = if found.allows(self.lists.line_order) {
                None
            } else {
                let Some(shape) = shape() else { return };
                Some(shape).filter(|shape| !found.allows(shape.run))
            };
            let Some(shape) = grown else {
                // Another CPU may have listed the line, and be about to set the hint.
                if !self.has_hint(found, line) && !is_broken!(HintsNotRestored) {
                    self.set_hint(platform, found, line);
                }
                return;
            };
            // What was freed since and has outgrown the old list is noted: the line is not reserved.
            if self.move_to(platform, line, found, self.lists.of(found.list_type().unwrap_or(list_type), shape))
                || is_broken!(ListedOnce)
            {
                return;
            }
        }
    }

    /// Takes a listed line for the caller: the fullest of a type with a free run of that order that is not whole, among some lines, from
    /// `start` on and then around. The line is on the list of reserved ones then.
    pub(super) fn reserve_partly_free<P: Platform>(
        &self,
        platform: &P,
        (list_type, order): (MigrateType, Order),
        lines: Range<usize>,
        start: usize,
    ) -> Option<usize> {
        let reserved = self.lists.reserved(list_type);
        if lines.len() == 1 {
            // Sequentially consistent: pairs with `move_to`.
            let found = List(self.state(lines.start)?.load(Ordering::SeqCst));
            let fits = self.lists.with_run(list_type, order).contains(&found.number());
            return (fits && self.move_to(platform, lines.start, found, reserved)).then_some(lines.start);
        }
        let mut steps = self.steps_with_lines(list_type, order, &lines);
        while steps != 0 {
            for run in u32::from(order.0)..self.lists.line_order.0.into() {
                let list = self.lists.partly_free(list_type, steps.trailing_zeros(), run);
                if self.may_have(list, &lines)
                    && let Some((line, _)) = self.take_from(platform, list, lines.clone(), start, reserved)
                {
                    return Some(line);
                }
            }
            steps &= steps - 1;
        }
        None
    }

    /// Whether a list may have some of these lines.
    #[inline(always)]
    fn may_have(&self, list: List, lines: &Range<usize>) -> bool {
        let mut groups = lines.start / GROUP..lines.end.div_ceil(GROUP);
        // Sequentially consistent: pairs with `set_bits`.
        groups.any(|group| self.last_summary(list, group).is_some_and(|word| word.load(Ordering::SeqCst) != 0))
    }

    /// The steps of fullness, as bits, of which some of these lines may have a run of that order without being whole. Most lists are empty, and
    /// those of a type have their last summaries side by side.
    #[inline(always)]
    fn steps_with_lines(&self, list_type: MigrateType, order: Order, lines: &Range<usize>) -> u32 {
        let (lists, mut steps) = (self.lists.with_run(list_type, order), 0);
        for group in lines.start / GROUP..lines.end.div_ceil(GROUP) {
            let of_group = group * self.lists.count();
            let words = self.levels[LEVELS - 1].get(of_group + lists.start..of_group + lists.end).unwrap_or(&[]);
            for (at, word) in (0..).zip(words) {
                // Sequentially consistent: pairs with `set_bits`.
                steps |= u32::from(word.load(Ordering::SeqCst) != 0) << (at % STEPS);
            }
        }
        steps
    }

    /// The order of the largest free run of the listed lines of a type among some, as the summaries have it; that of a line while lines have
    /// grown. Possibly stale.
    pub(super) fn largest_run_racy(&self, list_type: MigrateType, lines: &Range<usize>) -> Option<Order> {
        let largest = [self.lists.whole(list_type), self.lists.grown()];
        if largest.into_iter().any(|list| self.may_have(list, lines)) {
            return Some(self.lists.line_order);
        }
        let has_run = |order: &Order| self.steps_with_lines(list_type, *order, lines) != 0;
        (0..self.lists.line_order.0).rev().map(Order).find(has_run)
    }

    /// Takes a whole line off its list. It is on no list then, or on that of the reserved ones if the caller `reserves` it. Also whether it was
    /// packed: its frames are the caller's then.
    pub(super) fn take_whole<P: Platform>(
        &self,
        platform: &P,
        (list_type, reserves): (MigrateType, bool),
        lines: Range<usize>,
        start: usize,
    ) -> Option<(usize, bool)> {
        let to = if reserves { self.lists.reserved(list_type) } else { List::NONE };
        let (line, found) = self.take_from(platform, self.lists.whole(list_type), lines, start, to)?;
        Some((line, self.lists.is_packed(found)))
    }

    /// Takes up to `most` packed lines of a type whose hints lie in one word. Whether there were any.
    pub(super) fn take_packed<P: Platform>(
        &self,
        platform: &P,
        list_type: MigrateType,
        (lines, start): (&Range<usize>, usize),
        (most, mut take): (usize, impl FnMut(usize)),
    ) -> bool {
        let packed = self.lists.packed(list_type);
        let start = start.clamp(lines.start, lines.end);
        for part in [start..lines.end, lines.start..start] {
            let Some(first) = self.next(platform, 0, packed, part.start, part.end) else { continue };
            let Some(word) = self.word(0, packed, first / BITS) else { continue };
            let (base, end) = (first / BITS * BITS, part.end.min(first / BITS * BITS + BITS));
            let (mut line, mut taken, mut count) = (first, 0, 0);
            // Sequentially consistent: pairs with `set_bits`.
            let hints = word.load(Ordering::SeqCst);
            while line < end && count < most {
                let bit = 1 << (line - base);
                if hints & bit != 0
                    && let Some(state) = self.state(line)
                {
                    Self::touch(platform, state, Access::ReadModifyWrite);
                    // Sequentially consistent: pairs with `allows`, as in `move_to`.
                    let moved = state.compare_exchange(packed.0, List::NONE.0, Ordering::SeqCst, Ordering::Relaxed);
                    if moved.is_ok() {
                        (taken, count) = (taken | bit, count + 1);
                        take(line);
                    }
                }
                line += 1;
            }
            if taken != 0 {
                Self::touch(platform, word, Access::ReadModifyWrite);
                // No hint has to be set again: these lines have no free frame until the caller has them. Sequentially consistent: pairs with
                // `set_bits`.
                word.fetch_and(!taken, Ordering::SeqCst);
                return true;
            }
        }
        false
    }

    /// The first of 2^`order` lines side by side, aligned to that number, that are on the list of whole lines of a type, as its hints say.
    /// The lines of such a run have their hints in one word.
    pub(super) fn next_whole_run<P: Platform>(
        &self,
        platform: &P,
        list_type: MigrateType,
        lines: Range<usize>,
        order: u8,
    ) -> Option<usize> {
        let (list, mut from) = (self.lists.whole(list_type), lines.start);
        if 1 << order > BITS {
            return None;
        }
        while let Some(first) = self.next(platform, 0, list, from, lines.end) {
            let base = first / BITS * BITS;
            // Sequentially consistent: pairs with `set_bits`.
            let hints = self.word(0, list, first / BITS)?.load(Ordering::SeqCst);
            let is_run = |start: usize| {
                let run = u64::MAX >> (u64::BITS - (1 << order)) << (start - base);
                start >= first && start + (1 << order) <= lines.end && hints & run == run
            };
            if let Some(start) = (base..base + BITS).step_by(1 << order).find(|start| is_run(*start)) {
                return Some(start);
            }
            from = base + BITS;
        }
        None
    }

    /// Lists a line as packed, all of whose frames the caller has; its hint is among `hints` then. Whether its frames are free now: those of a
    /// reserved line get bits instead.
    ///
    /// # Errors
    ///
    /// [`AlreadyFree`] if it was packed.
    #[inline]
    pub(super) fn pack<P: Platform>(
        &self,
        platform: &P,
        (line, list_type): (usize, MigrateType),
        hints: &mut Hints,
    ) -> Result<bool, AlreadyFree> {
        let (found, packed) = (self.list_of_racy(line), self.lists.packed(list_type));
        if self.lists.is_packed(found) {
            return Err(AlreadyFree);
        }
        if found.is_reserved() || !self.change_state(platform, line, found, packed) {
            return Ok(false);
        }
        if found != List::NONE && found.number() != packed.number() {
            self.clear_hint(platform, found, line);
        }
        if (hints.list, hints.word) != (packed, line / BITS) {
            self.set_hints(platform, hints);
            *hints = Hints { list: packed, word: line / BITS, bits: 0 };
        }
        hints.bits |= 1 << (line % BITS);
        Ok(true)
    }

    /// Sets hints that were left for later.
    #[inline]
    pub(super) fn set_hints<P: Platform>(&self, platform: &P, hints: &Hints) {
        if hints.bits != 0 {
            self.set_bits(platform, 0, hints.list, hints.word, hints.bits);
        }
    }

    /// Takes the frames of a line, if it is packed. It is on no list then.
    pub(super) fn unpack<P: Platform>(&self, platform: &P, line: usize) -> bool {
        let found = self.list_of_racy(line);
        self.lists.is_packed(found) && self.move_to(platform, line, found, List::NONE)
    }

    /// Whether all frames of a line are free without bits, possibly stale.
    #[inline(always)]
    pub(super) fn is_packed_racy(&self, line: usize) -> bool {
        self.lists.is_packed(self.list_of_racy(line))
    }

    #[inline(always)]
    fn list_of_racy(&self, line: usize) -> List {
        self.state(line).map_or(List::NONE, |state| List(state.load(Ordering::Relaxed)))
    }

    fn take_from<P: Platform>(
        &self,
        platform: &P,
        list: List,
        lines: Range<usize>,
        start: usize,
        to: List,
    ) -> Option<(usize, List)> {
        let take = |line| {
            // Sequentially consistent: pairs with `move_to`.
            let found = List(self.state(line)?.load(Ordering::SeqCst));
            let is_listed = found.number() == list.number();
            (is_listed && self.move_to(platform, line, found, to)).then_some((line, found))
        };
        if lines.len() == 1 {
            return take(lines.start);
        }
        let start = start.clamp(lines.start, lines.end);
        for part in [start..lines.end, lines.start..start] {
            let mut from = part.start;
            while let Some(line) = self.next(platform, 0, list, from, part.end) {
                if let Some(taken) = take(line) {
                    return Some(taken);
                }
                if is_broken!(FirstHintAlone) {
                    return None;
                }
                self.clear_hint(platform, list, line);
                from = line + 1;
            }
        }
        None
    }

    /// Moves a line with that many free frames to the list of its shape, if it is on the list of another fullness and not reserved.
    pub(super) fn list_anew<P: Platform>(
        &self,
        platform: &P,
        (line, list_type): (usize, MigrateType),
        free: u32,
        shape: impl Fn() -> Option<Shape>,
    ) {
        let Some(state) = self.state(line) else { return };
        Self::touch(platform, state, Access::Read);
        let found = List(state.load(Ordering::Relaxed));
        if found == List::NONE || found.is_reserved() || self.lists.is_as_full(found, list_type, free) {
            return;
        }
        let Some(to) = shape().map(|shape| self.lists.of(list_type, shape)).filter(|to| *to != found) else { return };
        if self.move_to(platform, line, found, to) {
            // A free that saw the old list may have relied on it.
            self.settle(platform, (line, list_type), shape);
        }
    }

    /// What a line is, as its state says, possibly stale.
    #[inline(always)]
    pub(super) fn standing_racy<P: Platform>(&self, platform: &P, line: usize) -> Standing {
        let Some(state) = self.state(line) else { return Standing::Unlisted };
        Self::touch(platform, state, Access::Read);
        match List(state.load(Ordering::Relaxed)) {
            List::NONE => Standing::Unlisted,
            list if list.is_reserved() => Standing::Reserved,
            list if list.allows(self.lists.line_order) => Standing::Whole,
            _ => Standing::Partial,
        }
    }

    /// Ends the reservation of a line. The caller has it, or takes over from an owner that is gone.
    pub(super) fn leave<P: Platform>(
        &self,
        platform: &P,
        (line, list_type): (usize, MigrateType),
        shape: impl Fn() -> Option<Shape>,
    ) {
        let Some(state) = self.state(line) else { return };
        let found = List(state.load(Ordering::Relaxed));
        let to = shape().map_or(List::NONE, |shape| self.lists.of(list_type, shape));
        if found.is_reserved() && self.move_to(platform, line, found, to) && !is_broken!(ListedOnce) {
            // CPUs that set bits while the line was reserved left them to the caller.
            self.settle(platform, (line, list_type), shape);
        }
    }

    /// The reserved lines of a type among some lines, from one on.
    pub(super) fn next_reserved<P: Platform>(
        &self,
        platform: &P,
        list_type: MigrateType,
        lines: Range<usize>,
    ) -> Option<usize> {
        self.next(platform, 0, self.lists.reserved(list_type), lines.start, lines.end)
    }

    /// What is wrong with the listing of a line of that shape; `None` if nothing is. For a yard at rest.
    pub(super) fn problem(&self, line: usize, shape: Option<Shape>) -> Option<&'static str> {
        let list = List(self.state(line)?.load(Ordering::Relaxed));
        if list != List::NONE && !self.lists.has(list) {
            return Some("state of a line");
        }
        if self.lists.is_packed(list) && shape.is_some() {
            return Some("bits of a line that is free without them");
        }
        if self.has_hint(self.lists.grown(), line) {
            return None;
        }
        if list == List::NONE {
            return shape.is_some().then_some("line with free frames that is on no list");
        }
        if !self.has_hint(list, line) {
            return Some("hint of a listed line");
        }
        shape.is_some_and(|shape| !list.allows(shape.run)).then_some("line with a larger run than those of its list")
    }
}
