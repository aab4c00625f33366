//! Free frames as bits: one bit for each frame, or a single state word for a pageblock that is free as a whole.
//!
//! An allocator that links free frames through their page structures touches a cache line of 64 bytes for each frame
//! that it takes or frees, and merges buddies one by one. Here the bits of 512 neighbouring frames share one cache
//! line: a refill takes up to 64 frames with one exchange, and a free sets a bit. Nothing needs to merge, and no lock
//! is taken. A pageblock that was freed as one block has no bits at all: its state word says that it is free.
//!
//! # Structure
//!
//! | part | holds |
//! |---|---|
//! | [`line`] | the bits of up to 512 frames, usually those of a pageblock |
//! | [`listing`], [`lists`] | which lines have free frames, by type, fullness and largest free run |
//! | [`slot`] | the line that a CPU keeps reserved |
//! | [`total`] | how many frames are free |
//!
//! A *line* is a pageblock, or 512 frames of a larger one. A caller that wants frames reserves a line and takes from it
//! until nothing there fits, so two CPUs seldom take from the same line. A reservation is only a courtesy: anybody may
//! take from any line at any time.
//!
//! # When what happens
//!
//! | event | action |
//! |---|---|
//! | single frames are wanted | take a word of the reserved line: up to 64 frames |
//! | a block of order 1 to 8 is wanted | take an aligned run of the reserved line: one compare-exchange (order 7: two, order 8: four) |
//! | the reserved line has nothing that fits | release it and reserve the fullest line with a run that is large enough |
//! | only whole lines have such a run, and a refill wants a line's worth | take several whole lines at once; these are never reserved |
//! | no line has such a run | take from lines that other CPUs have reserved |
//! | a block of the order of a line is wanted | take a whole line off its list, then clear its bits, if it has any |
//! | a block is freed | set its bits; if the line's largest run grows, note the line |
//! | a whole line is freed, or blocks that make up one | list it as *packed*: free as a whole, without bits |
//! | single frames are wanted from a packed line | reserve it, then set its bits |
//! | a line is wanted | first list a few of the noted lines anew |
//!
//! # Invariants
//!
//! - Only the owner of a frame sets its bit, and whoever clears the bit becomes the owner. The CPU that takes a packed
//!   line off its list owns its frames. Everything else is hints and courtesy.
//! - At rest, every line with free frames is either on a list that fits its largest run, or noted, or reserved; see
//!   [`listing`].
//!
//! # Processes that write at random
//!
//! Other processes that share the yard may write anything to the tables. An invalid number is treated as if nothing
//! were there. Loops still end: a search clears invalid hints and looks at each line only once.

use core::ops::Range;

use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::platform::{Access, LineKind, Platform, Probe, SharedLine, prefetch};
use crate::sync::{AtomicU64, fence_in_models, is_broken};
use crate::units::{MigrateType, Order};
pub(crate) use line::LARGEST as LARGEST_LINE;
use line::{Claimed, Grown, Line};
pub(crate) use listing::Standing;
use listing::{Hints, Listing, ListingSpans};
use lists::Lists;
pub(crate) use slot::Slot;
pub(crate) use total::Total;

mod line;
mod listing;
mod lists;
#[cfg(all(test, loom))]
mod loom_models;
mod slot;
#[cfg(all(test, not(loom)))]
mod tests;
mod total;

/// The lines that have grown that a search looks at, at most, before it looks for one that is listed.
const GROWN: usize = 8;

/// The bits of all frames of a yard.
#[derive(Clone, Copy)]
pub(crate) struct Bits {
    words: &'static [AtomicU64],
    listing: Listing,
    order: Order,
}

/// Where the tables lie.
pub(crate) type BitsSpans = (TableSpan, ListingSpans);

/// A frame that was freed was free already. It is free once now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AlreadyFree;

/// The order of the lines of a yard whose pageblocks have this order.
pub(crate) const fn line_order(pageblock_order: Order) -> Order {
    if pageblock_order.0 < line::LARGEST.0 { pageblock_order } else { line::LARGEST }
}

impl Bits {
    /// Plans the tables for that number of pageblocks; `None` if they do not fit an address space.
    pub(crate) const fn plan(
        planner: &mut TablePlanner,
        pageblocks: usize,
        pageblock_order: Order,
    ) -> Option<BitsSpans> {
        let order = line_order(pageblock_order);
        let Some(lines) = pageblocks.checked_mul(1 << (pageblock_order.0 - order.0)) else { return None };
        let Some(words) = lines.checked_mul(line::words(order)) else { return None };
        let Some(words) = planner.table::<AtomicU64>(words) else { return None };
        match Listing::plan(planner, lines, Lists::new(order)) {
            Some(listing) => Some((words, listing)),
            None => None,
        }
    }

    /// # Safety
    ///
    /// As for [`ControlRegion::table`]: the spans are those that [`plan`](Self::plan) made.
    pub(crate) unsafe fn carve(region: &ControlRegion, spans: &BitsSpans, pageblock_order: Order) -> Option<Self> {
        let order = line_order(pageblock_order);
        // SAFETY: passed on to the caller.
        unsafe {
            let listing = Listing::carve(region, &spans.1, Lists::new(order))?;
            Some(Self { words: region.table(spans.0)?, listing, order })
        }
    }

    /// Whether the tables have the lengths for that number of pageblocks.
    pub(crate) fn fits(&self, pageblocks: usize, pageblock_order: Order) -> bool {
        let lines = pageblocks << (pageblock_order.0 - line_order(pageblock_order).0);
        self.order == line_order(pageblock_order)
            && self.words.len() == lines * line::words(self.order)
            && self.listing.fits(lines)
    }

    /// The order of a line.
    #[inline(always)]
    pub(crate) fn line_order(&self) -> Order {
        self.order
    }

    /// The same bits for code in which the order of lines is a constant. For lines of the largest order.
    #[inline(always)]
    pub(crate) fn of_largest_lines(&self) -> Self {
        Self { order: LARGEST_LINE, ..*self }
    }

    /// How many frames a word has.
    #[inline(always)]
    pub(crate) fn word_order(&self) -> Order {
        line::word_order(self.order)
    }

    /// The number of lines.
    #[inline(always)]
    pub(crate) fn lines(&self) -> usize {
        self.words.len() / line::words(self.order)
    }

    /// The words of a line.
    pub(crate) fn words_of_line(&self) -> usize {
        line::words(self.order)
    }

    #[inline(always)]
    fn line(&self, number: usize) -> Option<Line<'static>> {
        let count = line::words(self.order);
        let first = number.checked_mul(count)?;
        Some(Line::new(self.words.get(first..first + count)?, self.order))
    }

    /// Fetches the line of bits around a place for a free that comes soon.
    #[inline(always)]
    pub(crate) fn prefetch<P: Platform>(&self, platform: &P, place: usize) {
        if let Some(word) = self.words.get(place >> self.word_order().0) {
            platform.probe().touch_line(SharedLine::of(LineKind::Mechanism, word), Access::Prefetch);
            prefetch(&raw const *word);
        }
    }

    /// Frees a block below the order of a line, by its place.
    ///
    /// # Errors
    ///
    /// [`AlreadyFree`]
    #[inline(always)]
    pub(crate) fn free<P: Platform>(&self, platform: &P, place: usize, order: Order) -> Result<(), AlreadyFree> {
        self.free_some(platform, &[place as u32], order).1
    }

    /// Frees the first of some blocks below the order of a line, by their places, that lie in one line. Returns their number, and whether none
    /// of their frames was free already.
    #[inline(always)]
    pub(crate) fn free_some<P: Platform>(
        &self,
        platform: &P,
        blocks: &[u32],
        order: Order,
    ) -> (usize, Result<(), AlreadyFree>) {
        let number = blocks[0] as usize >> self.order.0;
        let Some(line) = self.line(number) else { return (1, Err(AlreadyFree)) };
        // No line of which the caller has a frame is packed.
        if self.listing.is_packed_racy(number) {
            return (1, Err(AlreadyFree));
        }
        let (grown, count) = line.put_some(platform, blocks, order);
        (count, self.note_freed(platform, number, grown))
    }

    /// Frees a whole line, of that type.
    pub(crate) fn free_whole<P: Platform>(&self, platform: &P, line: (usize, MigrateType)) -> Result<(), AlreadyFree> {
        self.free_several_whole(platform, core::iter::once(line)).1
    }

    /// Frees whole lines, each of its type. Returns their number, and whether none of their frames was free already.
    #[inline]
    pub(crate) fn free_several_whole<P: Platform>(
        &self,
        platform: &P,
        lines: impl Iterator<Item = (usize, MigrateType)>,
    ) -> (usize, Result<(), AlreadyFree>) {
        let (mut hints, mut count, mut all) = (Hints::NONE, 0, Ok(()));
        for line in lines {
            let freed = match self.listing.pack(platform, line, &mut hints) {
                Ok(false) => self.put_whole(platform, line.0),
                packed => packed.map(|_| ()),
            };
            (count, all) = (count + 1, all.and(freed));
        }
        if !(is_broken!(HintsForgotten) && count > 1) {
            self.listing.set_hints(platform, &hints);
        }
        (count, all)
    }

    /// Sets the bits of a line of which the caller has all frames.
    fn put_whole<P: Platform>(&self, platform: &P, number: usize) -> Result<(), AlreadyFree> {
        let Some(line) = self.line(number) else { return Err(AlreadyFree) };
        let is_new = line.put_whole(platform);
        self.note_freed(platform, number, Grown { is_new, run: self.order })
    }

    /// Notes that a line of which frames were freed has outgrown its list, if it has.
    #[inline(always)]
    fn note_freed<P: Platform>(&self, platform: &P, number: usize, grown: Grown) -> Result<(), AlreadyFree> {
        fence_in_models!(FreedUnfenced);
        if !self.listing.allows(platform, number, grown.run) {
            self.listing.note_grown(platform, number);
        }
        if grown.is_new { Ok(()) } else { Err(AlreadyFree) }
    }

    /// Notes a line of which a claim has put back what it had taken.
    fn note_put_back<P: Platform>(&self, platform: &P, number: usize) {
        fence_in_models!(FreedUnfenced);
        if !is_broken!(PutBackUnlisted) {
            self.listing.note_grown(platform, number);
        }
    }

    /// Lists a line anew, unless it is reserved, if its list does not allow its largest run.
    fn settle<P: Platform>(&self, platform: &P, number: usize, list_type: MigrateType) {
        if let Some(line) = self.line(number) {
            self.listing.settle(platform, (number, list_type), || line.shape(platform));
        }
    }

    /// As [`settle`](Self::settle), for a line of which a claim may have put back what it had taken.
    fn settle_claimed<P: Platform>(&self, platform: &P, number: usize, list_type: MigrateType) {
        fence_in_models!(FreedUnfenced);
        self.settle(platform, number, list_type);
    }

    /// Lists lines anew that have outgrown their lists: a few of those among some, from `start` on and then around. Whether there were any.
    fn sort<P: Platform>(
        &self,
        platform: &P,
        among: (&Range<usize>, usize),
        type_of: impl Fn(usize) -> MigrateType,
    ) -> bool {
        self.listing.look_at_grown(platform, among, GROWN, |number| self.settle(platform, number, type_of(number)))
    }

    /// Takes all free frames of a word of a line, as bits.
    #[inline(always)]
    pub(crate) fn take_word<P: Platform>(&self, platform: &P, number: usize, at: usize) -> u64 {
        self.line(number).map_or(0, |line| line.take_word(platform, at))
    }

    /// Takes a block below the order of a line from a line. Returns its place.
    #[inline]
    pub(crate) fn claim<P: Platform>(&self, platform: &P, number: usize, order: Order) -> Option<usize> {
        let line = self.line(number)?;
        // Again after each block that was put back; bounded, where another process lets that happen for ever.
        for _ in 0..=self.words_of_line() {
            match line.claim(platform, order) {
                Claimed::At(offset) => return Some((number << self.order.0) + offset as usize),
                Claimed::Nothing => return None,
                Claimed::PutBack => self.note_put_back(platform, number),
            }
        }
        None
    }

    /// Takes up to `most` blocks of an order of at most that of a word from a line, and gives the place of each to `take`.
    #[inline]
    pub(crate) fn claim_many<P: Platform>(
        &self,
        platform: &P,
        number: usize,
        (order, most): (Order, usize),
        mut take: impl FnMut(usize),
    ) {
        if let Some(line) = self.line(number) {
            line.claim_many(platform, order, most, |offset| take((number << self.order.0) + offset as usize));
        }
    }

    /// Reserves the fullest line of a type that has a free run of that order, among some lines, from `start` on and then around; a whole one
    /// comes last. `type_of` says the types of lines that are listed anew.
    pub(crate) fn reserve<P: Platform>(
        &self,
        platform: &P,
        (list_type, order): (MigrateType, Order),
        (lines, start): (Range<usize>, usize),
        type_of: impl Fn(usize) -> MigrateType,
    ) -> Option<usize> {
        // Bounded, where another process notes lines for ever.
        for _ in 0..=lines.len() {
            let has_grown = self.sort(platform, (&lines, start), &type_of);
            let found = self.reserve_partly_free(platform, (list_type, order), (lines.clone(), start)).or_else(|| {
                let whole = self.listing.take_whole(platform, (list_type, true), lines.clone(), start);
                whole.map(|(number, is_packed)| {
                    if is_packed {
                        _ = self.put_whole(platform, number);
                    }
                    number
                })
            });
            if found.is_some() || !has_grown {
                return found;
            }
        }
        None
    }

    /// As [`reserve`](Self::reserve), for a caller that would rather have whole lines: these are left out, and lines that have grown are not looked
    /// at.
    pub(crate) fn reserve_partly_free<P: Platform>(
        &self,
        platform: &P,
        of: (MigrateType, Order),
        (lines, start): (Range<usize>, usize),
    ) -> Option<usize> {
        self.listing.reserve_partly_free(platform, of, lines, start)
    }

    /// Ends the reservation of a line, which is listed again, with that type, if it has free frames.
    pub(crate) fn leave<P: Platform>(&self, platform: &P, number: usize, list_type: MigrateType) {
        if let Some(line) = self.line(number) {
            self.listing.leave(platform, (number, list_type), || line.shape(platform));
        }
    }

    /// Takes a line of a type all of whose frames are free, with all of its frames.
    pub(crate) fn take_whole<P: Platform>(
        &self,
        platform: &P,
        list_type: MigrateType,
        (lines, start): (Range<usize>, usize),
        type_of: impl Fn(usize) -> MigrateType,
    ) -> Option<usize> {
        let claim = |number| self.line(number).is_some_and(|line| line.claim_whole(platform) == Claimed::At(0));
        let (mut taken, mut none_listed) = (None, false);
        // Each line that turns out not to be whole is listed elsewhere. Bounded, where another process makes it look whole again.
        for looked in 0..=2 * lines.len() {
            let look = |number| {
                if taken.is_some() {
                    return;
                }
                let is_unlisted = self.listing.standing_racy(platform, number) == Standing::Unlisted;
                let is_wanted = is_unlisted && type_of(number) == list_type;
                if is_wanted && claim(number) {
                    taken = Some(number);
                } else {
                    self.settle_claimed(platform, number, type_of(number));
                }
            };
            let may_have_grown = none_listed || looked < GROWN;
            let any_grown = may_have_grown && self.listing.look_at_grown(platform, (&lines, start), 1, look);
            if taken.is_some() || !any_grown && none_listed {
                return taken;
            }
            if !any_grown {
                match self.listing.take_whole(platform, (list_type, false), lines.clone(), start) {
                    Some((number, is_packed)) if is_packed || claim(number) => return Some(number),
                    Some((number, _)) => self.settle_claimed(platform, number, list_type),
                    None => none_listed = true,
                }
            }
        }
        None
    }

    /// Takes up to `most` whole lines of a type, with all of their frames, and gives their numbers to `take`. Fewer than there are, perhaps, but
    /// one if there is any.
    pub(crate) fn take_several_whole<P: Platform>(
        &self,
        platform: &P,
        list_type: MigrateType,
        (lines, start): (Range<usize>, usize),
        type_of: impl Fn(usize) -> MigrateType,
        (most, mut take): (usize, impl FnMut(usize)),
    ) {
        if !self.listing.take_packed(platform, list_type, (&lines, start), (most, &mut take)) {
            self.take_whole(platform, list_type, (lines, start), type_of).into_iter().for_each(take);
        }
    }

    /// Whether there may be a run as [`take_whole_run`](Self::take_whole_run) takes one.
    pub(crate) fn has_whole_run_racy<P: Platform>(
        &self,
        platform: &P,
        list_type: MigrateType,
        lines: Range<usize>,
        order: u8,
    ) -> bool {
        self.listing.next_whole_run(platform, list_type, lines, order).is_some()
    }

    /// Takes 2^`order` whole lines of a type side by side, aligned to that number, with all of their frames. Returns the first. Misses
    /// lines that have grown since they were listed.
    pub(crate) fn take_whole_run<P: Platform>(
        &self,
        platform: &P,
        list_type: MigrateType,
        mut lines: Range<usize>,
        order: u8,
    ) -> Option<usize> {
        let take = |line: usize| self.take_whole(platform, list_type, (line..line + 1, line), |_| list_type);
        while let Some(first) = self.listing.next_whole_run(platform, list_type, lines.clone(), order) {
            let run = first..first + (1 << order);
            let taken = run.clone().take_while(|line| take(*line).is_some()).count();
            if taken == run.len() {
                return Some(first);
            }
            if !is_broken!(RunKept) {
                _ = self.free_several_whole(platform, (first..first + taken).map(|line| (line, list_type)));
            }
            lines.start = run.end;
        }
        None
    }

    /// Takes all frames of a line, if they are free without bits.
    pub(crate) fn unpack<P: Platform>(&self, platform: &P, number: usize) -> bool {
        self.listing.unpack(platform, number)
    }

    /// The first reserved line of a type among some lines. Other CPUs may take from it, where nothing else is left.
    pub(crate) fn next_reserved<P: Platform>(
        &self,
        platform: &P,
        list_type: MigrateType,
        lines: Range<usize>,
    ) -> Option<usize> {
        self.listing.next_reserved(platform, list_type, lines)
    }

    /// Takes all frames of a reserved line of a type among some lines, if it is whole. It stays reserved.
    pub(crate) fn take_reserved_whole<P: Platform>(
        &self,
        platform: &P,
        list_type: MigrateType,
        mut lines: Range<usize>,
    ) -> Option<usize> {
        while let Some(number) = self.next_reserved(platform, list_type, lines.clone()) {
            let line = self.line(number)?;
            if u64::from(line.free_racy()) == self.order.pages().0 {
                match line.claim_whole(platform) {
                    Claimed::At(_) => return Some(number),
                    Claimed::PutBack => self.note_put_back(platform, number),
                    Claimed::Nothing => {}
                }
            }
            lines.start = number + 1;
        }
        None
    }

    /// Lists a line with that many free frames anew, if it is on the list of fuller or emptier ones.
    pub(crate) fn list_anew<P: Platform>(&self, platform: &P, number: usize, list_type: MigrateType, free: u32) {
        if let Some(line) = self.line(number) {
            self.listing.list_anew(platform, (number, list_type), free, || line.shape(platform));
        }
    }

    /// The order of the largest free run of the listed lines of a type among some; that of a line while lines have grown. Possibly stale.
    pub(crate) fn largest_run_racy(&self, list_type: MigrateType, lines: &Range<usize>) -> Option<Order> {
        self.listing.largest_run_racy(list_type, lines)
    }

    /// What a line is, possibly stale: as the lists say, or its bits if it has grown and is on no list.
    #[inline(always)]
    pub(crate) fn standing_racy<P: Platform>(&self, platform: &P, number: usize) -> Standing {
        match self.listing.standing_racy(platform, number) {
            Standing::Unlisted if self.listing.has_grown_racy(number) => match self.free_frames_racy(number) {
                0 => Standing::Unlisted,
                free if u64::from(free) == self.order.pages().0 => Standing::Whole,
                _ => Standing::Partial,
            },
            listed => listed,
        }
    }

    /// The free frames of a line, possibly stale.
    pub(crate) fn free_frames_racy(&self, number: usize) -> u32 {
        if self.listing.is_packed_racy(number) {
            return 1 << self.order.0;
        }
        self.line(number).map_or(0, |line| line.free_racy())
    }

    /// The free frames of a line, as bits of words, possibly stale.
    pub(crate) fn line_words_racy(&self, number: usize) -> impl Iterator<Item = u64> + use<> {
        let packed = if self.listing.is_packed_racy(number) { line::ones(self.word_order()) } else { 0 };
        self.line(number).into_iter().flat_map(|line| line.words_racy()).map(move |word| word | packed)
    }

    /// The maximal aligned free blocks of an order in a line, possibly stale.
    pub(crate) fn blocks_racy(&self, number: usize, order: Order) -> u64 {
        self.line(number).map_or(0, |line| line.blocks_racy(order))
    }

    /// As [`reserve`](Self::reserve), without taking whole lines. All lines are movable.
    #[cfg(test)]
    fn reserve_line<P: Platform>(
        &self,
        platform: &P,
        of: (MigrateType, Order),
        lines: Range<usize>,
        start: usize,
    ) -> Option<usize> {
        self.reserve(platform, of, (lines, start), |_| MigrateType::Movable)
    }

    /// Sets the bits of a line that is free without them.
    #[cfg(test)]
    fn open<P: Platform>(&self, platform: &P, number: usize) {
        if self.unpack(platform, number) {
            self.put_whole(platform, number).expect("it has no bits");
        }
    }

    /// Whether the frame at a place is free here, possibly stale.
    pub(crate) fn is_free_racy(&self, place: usize) -> bool {
        let bit = place & ((1 << self.word_order().0) - 1);
        let word = self.words.get(place >> self.word_order().0);
        word.is_some_and(|word| word.load(crate::sync::Ordering::Relaxed) >> bit & 1 == 1)
            || self.listing.is_packed_racy(place >> self.order.0)
    }

    /// Sees to the invariants of a line that a thread has left half changed, and is gone. At rest.
    pub(crate) fn mend<P: Platform>(&self, platform: &P, number: usize) {
        if self.problem(platform, number).is_some() {
            self.listing.note_grown(platform, number);
        }
    }

    /// What is wrong with a line; `None` if nothing is. For a yard at rest.
    pub(crate) fn problem<P: Platform>(&self, platform: &P, number: usize) -> Option<&'static str> {
        let shape = self.line(number)?.shape(platform);
        self.listing.problem(number, shape)
    }
}
