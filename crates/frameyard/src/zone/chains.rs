//! Chains: a frame freed in a draining pageblock stays there, without the zone lock.
//!
//! # Structure
//!
//! Each pageblock has a word ([`Known`]). While the pageblock drains, the word has the first frame of its *chain* and their number;
//! the frames link through their page structures, and have the state [`HeldFree`](FrameState::HeldFree).
//!
//! | event | action |
//! |---|---|
//! | a single frame of a draining pageblock is freed | push: one compare-exchange of the word, which takes no lock |
//! | all frames of a draining pageblock are free | the zone lock: they become one block |
//! | a pageblock stops draining: a request needs its frames, it is isolated, the policy changes | close: the chain goes to the free lists |
//! | code has to find every free frame, or larger blocks | gather: the chain goes to the free lists, and the pageblock drains on |
//!
//! # Protocol
//!
//! *Push* links the frame to the first one and exchanges the word, with Release, if the word says that the pageblock drains. Otherwise
//! the frame takes the zone lock, as all blocks without a list. *Close* and *gather* take the chain in one exchange, with Acquire, under
//! the zone lock; a close also says that the pageblock drains no more. So the word decides, and no frame is left behind. The type of the
//! pageblock is a hint that leads here.
//!
//! While a pageblock drains, all changes of its word are exchanges, so a take acquires every push. Otherwise the holder of the zone lock
//! is the only writer, and stores. A link cannot be stale: only a holder of the lock takes, and it takes all.
//!
//! The push, or the free under the lock, after which all frames of the pageblock are free makes it whole: the word tells. A push does not
//! see it while a holder of the lock has blocks of the pageblock off the lists for a moment. Then the next step does.
//!
//! # Counting equations
//!
//! - The frames on all chains of a zone = Σ over CPUs of the frames pushed, less the frames taken, modulo 2³². They count as free.

use super::exclusive::add_exclusive;
use super::healing_state::Known;
use super::view::{LockedZone, ZoneView};
use crate::memmap::{Located, MapPlace};
use crate::page::{FrameState, Link, Tag};
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, is_broken};
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn};

/// The pageblocks that [`ZoneView::gather_until`] looks at.
const LOOKED_AT: usize = 1024;
/// The most chains that it gathers.
const GATHERED: u64 = 4;

impl<'a, P: Platform> ZoneView<'a, P> {
    /// The tag of a frame on a chain.
    fn chained(&self) -> Tag {
        Tag::new(FrameState::HeldFree, Order::ZERO, MigrateType::Draining, self.id)
    }

    /// Whether a frame with that tag is on a chain, or about to be.
    pub(crate) fn is_chained(&self, tag: Tag) -> bool {
        tag == self.chained()
    }

    /// Frees a single frame that the caller owns to the chain of its pageblock; `false` if that does not drain.
    #[inline(never)]
    pub(super) fn free_to_chain(self, cpu: CpuId, frame: MapPlace) -> bool {
        let Some(word) = self.pageblock_word(frame) else { return false };
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, word), Access::ReadModifyWrite);
        let found = word.load(Ordering::Relaxed);
        if !Known::of(found).drains {
            return false;
        }
        let (page, pushed) = (self.page(frame), &self.counters_of(cpu).chained);
        page.set_tag(self.chained());
        // Before the frame can be taken, so that a count is never too small.
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, pushed), Access::ReadModifyWrite);
        pushed.fetch_add(1, Ordering::Relaxed);
        match self.push_to_chain(word, found, frame) {
            Some(known) if known.all_free() == self.blocks.pages().0 as u32 => {
                let start = self.blocks.start_of(self.map.pfn(frame));
                self.lock().into_iter().for_each(|mut locked| locked.make_whole(start));
            }
            Some(_) => {}
            None => {
                page.set_next(Link::NONE);
                pushed.fetch_sub(1, Ordering::Relaxed);
                return false;
            }
        }
        true
    }

    /// Pushes a frame. Returns the new word; `None` if the pageblock drains no more.
    #[inline(always)]
    fn push_to_chain(self, word: &AtomicU64, mut found: u64, frame: MapPlace) -> Option<Known> {
        let order = self.geometry.pageblock_order();
        let start = self.map.head(frame, order);
        let page = self.page(frame);
        loop {
            let known = Known::of(found);
            if !known.drains && !is_broken!(ClosedNotNoticed) {
                return None;
            }
            let below = (known.chain > 0).then(|| start.part(order, known.first & (order.pages().0 as u32 - 1)));
            page.set_next(below.map_or(Link::NONE, MapPlace::link));
            let pushed = known.pushed(frame.index() - start.index());
            // Release: pairs with the Acquire in `Known::change`.
            match word.compare_exchange_weak(found, pushed.bits(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(pushed),
                Err(other) => found = other,
            }
        }
    }

    /// The counts of frames that were pushed.
    fn pushed_counts(self) -> impl Iterator<Item = &'a AtomicU32> {
        let (counters, zones) = self.all_counters;
        let of_cpus = counters.iter().skip(self.id.index()).step_by(zones.max(1));
        of_cpus.chain([&self.zone.counters]).map(|counters| &counters.chained)
    }

    /// Frames on chains, modulo 2³². Exact in a zone at rest.
    pub(crate) fn chained_frames(self) -> u32 {
        let taken = self.zone.healing.taken.frames.load(Ordering::Relaxed);
        let pushed = self.pushed_counts().map(|count| count.load(Ordering::Relaxed));
        pushed.fold(0, u32::wrapping_add).wrapping_sub(taken)
    }

    /// Frames on chains, possibly stale. Reads a line for each CPU if the zone heals.
    pub(crate) fn chained_racy(self) -> PageCount {
        let frames = if self.zone.heals() { self.chained_frames().into() } else { 0 };
        // A neighbour may have written the counts.
        PageCount(if frames > self.zone.managed().0 { 0 } else { frames })
    }

    /// Counts the frames on chains again, in a process without the threads that were pushing some.
    pub(crate) fn recount_chains(self) {
        let found = self.own_pageblocks().map(|(_, word)| Known::read(word).chain).fold(0, u32::wrapping_add);
        let surplus = self.chained_frames().wrapping_sub(found);
        let taken = &self.zone.healing.taken.frames;
        taken.store(taken.load(Ordering::Relaxed).wrapping_add(surplus), Ordering::Relaxed);
    }

    /// Returns the frames of all chains to the free lists.
    pub(crate) fn gather_chains(self) {
        if self.zone.healing.draining_racy() == 0 {
            return;
        }
        for (start, word) in self.own_pageblocks() {
            self.gather(start, word);
        }
    }

    /// As [`gather_chains`](Self::gather_chains), for a request that must not wait: of a few pageblocks, until there is enough. Whether
    /// there were any.
    pub(super) fn gather_until(self, enough: impl Fn() -> bool) -> bool {
        if self.zone.healing.draining_racy() == 0 {
            return false;
        }
        let cursor = &self.zone.healing.gathered;
        let (first, mut looked, mut gathered) = (cursor.load(Ordering::Relaxed), 0, 0);
        let runs = self.blocks.numbers_in(self.span()).map(|run| run.start.max(first)..run.end);
        for number in runs.flatten().take(LOOKED_AT) {
            let word = self.pageblock_free.get(number as usize);
            gathered += word.map_or(0, |word| u64::from(self.gather(self.blocks.start_at(number), word)));
            cursor.store(number + 1, Ordering::Relaxed);
            looked += 1;
            if gathered == GATHERED || (gathered > 0 && enough()) {
                return true;
            }
        }
        if looked < LOOKED_AT {
            cursor.store(0, Ordering::Relaxed);
        }
        gathered > 0
    }

    /// Returns the chain of the pageblock that begins at a frame to the free lists; whether it has one.
    pub(super) fn gather(self, start: Pfn, word: &AtomicU64) -> bool {
        let has_chain = Known::read(word).chain > 0 && self.blocks.zone_at(self.map.place(start)) == Some(self.id);
        if has_chain && let Ok(mut locked) = self.lock() {
            let taken = Known::change(word, Known::without_chain);
            locked.free_chain(start, taken);
        }
        has_chain
    }

    /// As [`gather`](Self::gather), for the pageblock of a frame.
    pub(super) fn gather_around(self, pfn: Pfn) {
        if let Some(word) = self.pageblock_word(pfn.place(&self.map)) {
            self.gather(self.blocks.start_of(pfn), word);
        }
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Closes the word of the pageblock that begins at a frame. Returns what it was.
    pub(super) fn close(&self, start: Pfn) -> Option<Known> {
        self.pageblock_word(start.place(&self.map)).map(|word| Known::change(word, Known::closed))
    }

    /// Frees the frames of a chain that was taken from the word of the pageblock that begins at a frame.
    pub(super) fn free_chain(&mut self, start: Pfn, taken: Known) {
        let (order, start) = (self.geometry.pageblock_order(), start.place(&self.map));
        let mut next = start.part(order, taken.first & (order.pages().0 as u32 - 1)).link();
        // A neighbour may have written the word and the links: the walk ends, and frees no frame twice.
        for _ in 0..taken.chain.min(order.pages().0 as u32) {
            let frame = self.map.next(next).filter(|frame| self.map.head(*frame, order) == start);
            let Some(frame) = frame.filter(|frame| self.is_chained(self.page(*frame).tag())) else {
                return self.note_corrupt();
            };
            let page = self.page(frame);
            next = page.next();
            page.set_next(Link::NONE);
            page.set_tag(Tag::INTERIOR);
            self.free_by_type(frame, Order::ZERO);
        }
        self.count_taken(taken.chain);
    }

    /// Makes the pageblock that begins at a frame one block, if it drains and all its frames are free. Reads the page of each.
    pub(super) fn make_whole(&mut self, start: Pfn) {
        let (order, pages) = (self.geometry.pageblock_order(), self.blocks.pages());
        let known = self.pageblock_word(start.place(&self.map)).map(Known::read);
        let Some(known) = known.filter(|known| known.drains && u64::from(known.all_free()) == pages.0) else { return };
        self.end_draining_whole(start);
        let (mut at, mut found) = (start, 0);
        while at < start + pages {
            let (page, tag) = (self.page(at), self.settled_tag(at));
            let is_chained = self.is_chained(tag);
            if is_chained {
                page.set_next(Link::NONE);
            } else if self.is_listed(at, tag) && tag.order() < order {
                self.remove_block(at, tag);
            } else {
                break;
            }
            page.set_tag(Tag::INTERIOR);
            found += tag.order().pages().0;
            at = at + tag.order().pages();
        }
        if found != pages.0 {
            return self.note_corrupt();
        }
        self.count_taken(known.chain);
        self.free_by_type(start, order);
    }

    /// Counts frames that were taken off a chain.
    fn count_taken(&mut self, frames: u32) {
        let (healing, events) = (&self.zone.healing, &self.zone.events);
        let taken = &healing.taken.frames;
        taken.store(taken.load(Ordering::Relaxed).wrapping_add(frames), Ordering::Relaxed);
        add_exclusive(&healing.frees, frames.into());
        add_exclusive(&healing.moved, frames.into());
        add_exclusive(&events.direct_frees, frames.into());
        add_exclusive(&events.direct_pages_freed, frames.into());
        self.count_moved(PageCount(frames.into()));
    }
}
