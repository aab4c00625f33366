//! Chains: single free frames of a fragmented pageblock, which come and go without the zone lock.
//!
//! # Structure
//!
//! Each pageblock has a word ([`Known`]). While the pageblock is *open*, the word has the first frame of its *chain* and their number;
//! the frames link through their page structures, and have the state [`HeldFree`](FrameState::HeldFree). A movable pageblock opens when
//! a block of it below pageblock order joins the free lists, when a list of a CPU gives up a single frame of it, and when it begins to drain.
//!
//! | event | action |
//! |---|---|
//! | a single frame of a draining pageblock is freed | push: one compare-exchange of the word, which takes no lock |
//! | a full list of a CPU gives up a single frame of an open pageblock | push, unless the buddy of the frame is on a free list |
//! | a list of a CPU is empty | the refill takes frames from chains of pageblocks that do not drain, without the zone lock |
//! | all frames of an open pageblock are free | they become one block, under the zone lock |
//! | a pageblock gets another type, it is isolated, the policy changes | close: the chain goes to the free lists |
//! | code has to find every free frame, or larger blocks | gather: the chain goes to the free lists, and the pageblock stays open |
//!
//! # Protocol
//!
//! *Push* links the frame to the first one and exchanges the word, with Release, if the word says that the pageblock is open. Otherwise
//! the frame takes the zone lock, as all blocks without a list. *Close* and *gather* take the chain in one exchange, with Acquire, under
//! the zone lock; a close also says that the pageblock is open no more. So the word decides, and no frame is left behind. The type of
//! the pageblock is a hint that leads here.
//!
//! A *refill* takes a whole chain in one exchange, too, keeps some frames and pushes the rest back together. It takes only what
//! belongs to a pageblock that does not drain. It holds the lock of its CPU's lists meanwhile, as refills from the depot do.
//!
//! While a pageblock is open, all changes of its word are exchanges, so a take acquires every push. Otherwise the holder of the zone lock
//! is the only writer, and stores. A link cannot be stale: a taker of a chain takes all of it.
//!
//! The push, or the free under the lock, after which all frames of the pageblock are free makes it whole: the word tells. A push does not
//! see it while a holder of the lock has blocks of the pageblock off the lists for a moment. Then the next step does.
//!
//! # Frames that a request cannot find
//!
//! While a refill holds a chain, or the thread that freed the last frame of a pageblock makes that one block, its frames count as free and
//! are on no list. A request that may sleep waits for them: for refills by locking the lists, and for pageblocks as for collectors of the depot.
//! A request that must not sleep may miss them, and fail. If the process ends meanwhile, the yard loses them.
//!
//! # Counting equations
//!
//! - The frames on all chains of a zone = Σ over CPUs of the frames pushed, less the frames taken, modulo 2³². They count as free. While
//!   a refill holds a chain, the frames that it will push back count, too.

use super::batch::Batch;
use super::counters::TransferCounters;
use super::healing_state::{Known, MOVED};
use super::view::{LockedZone, ZoneView};
use crate::memmap::{Located, MapPlace};
use crate::page::{FrameState, Link, Tag};
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, is_broken};
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};

/// The pageblocks that [`ZoneView::gather_until`] looks at.
const LOOKED_AT: usize = 1024;
/// The most chains that it gathers.
const GATHERED: u64 = 4;
/// The pageblocks at which a refill looks for frames.
const SEARCHED: usize = if cfg!(loom) { 4 } else { 1024 };
/// This number of frames that move without the lock count as a block that moves under it.
const FRAMES_PER_BLOCK: u64 = 16;
/// The words of pageblocks on a cache line.
const WORDS_PER_LINE: u64 = 8;

impl<'a, P: Platform> ZoneView<'a, P> {
    /// The tag of a frame on a chain.
    fn chained(&self) -> Tag {
        Tag::new(FrameState::HeldFree, Order::ZERO, MigrateType::Draining, self.id)
    }

    /// Whether a frame with that tag is on a chain, or about to be.
    pub(crate) fn is_chained(&self, tag: Tag) -> bool {
        tag == self.chained()
    }

    /// Frees a single frame that the caller owns to the chain of its pageblock; `false` if that is not open. `counters` are those of the
    /// CPU that frees it, or of the zone. While the pageblock becomes whole, no request finds its frames. `register` is called before: requests
    /// that may sleep wait for as long as its result lives.
    #[inline(never)]
    pub(super) fn free_to_chain<R>(
        self,
        counters: &TransferCounters,
        frame: MapPlace,
        register: impl FnOnce() -> R,
    ) -> bool {
        let Some(word) = self.pageblock_word(frame) else { return false };
        let pushed = self.push_single(counters, (frame, word));
        if pushed.is_some_and(|known| known.all_free() == self.blocks.pages().0 as u32) {
            let _registered = register();
            self.make_whole(word, self.blocks.start_of(self.map.pfn(frame)));
        }
        pushed.is_some()
    }

    /// Pushes a single frame that the caller owns, and counts it. Returns the new word; `None` if the pageblock is not open.
    fn push_single(self, counters: &TransferCounters, (frame, word): (MapPlace, &AtomicU64)) -> Option<Known> {
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, word), Access::ReadModifyWrite);
        let found = word.load(Ordering::Relaxed);
        if !Known::of(found).open {
            return None;
        }
        let (page, pushed) = (self.page(frame), &counters.chained);
        let before = page.tag();
        page.set_tag(self.chained());
        // Before the frame can be taken, so that a count is never too small.
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, pushed), Access::ReadModifyWrite);
        pushed.fetch_add(1, Ordering::Relaxed);
        let known = self.push_to_chain(word, found, frame);
        match known {
            Some(known) if known.drains => {}
            Some(_) => self.note_chain(),
            None => {
                page.set_next(Link::NONE);
                page.set_tag(before);
                pushed.fetch_sub(1, Ordering::Relaxed);
            }
        }
        known
    }

    /// Makes a pageblock one block, if it is open and all its frames are free. Takes the zone lock for as long as it takes to list that
    /// block, if all frames are on the chain.
    fn make_whole(self, word: &AtomicU64, start: Pfn) {
        let (order, pages) = (self.geometry.pageblock_order(), self.blocks.pages());
        let is_whole = |known: Known| known.open && known.free == 0 && u64::from(known.chain) == pages.0;
        let Some(known) = Known::change_if(word, is_whole, Known::closed) else {
            return self.lock().into_iter().for_each(|mut locked| locked.make_whole(start));
        };
        let head = start.place(&self.map);
        // The head first: it covers the block from then on.
        let block = Tag::new(FrameState::InTransit, order, MigrateType::Movable, self.id);
        for inner in 0..pages.0 as u32 {
            let page = self.page(head.part(order, inner));
            page.set_next(Link::NONE);
            page.set_tag(if inner == 0 { block } else { Tag::INTERIOR });
        }
        let Ok(mut locked) = self.lock() else { return };
        if locked.blocks.get(start) == MigrateType::Draining {
            // A step that had looked at the pageblock before may have begun to drain it since.
            if !is_broken!(WholeNotClosed) {
                locked.close(start);
            }
            locked.end_draining_whole(start);
        }
        locked.count_taken(known.chain);
        locked.free_by_type(head, order);
    }

    /// As [`free_to_chain`](Self::free_to_chain), for a frame whose free was counted before. `false` also if the frame would merge with its
    /// buddy on the free lists. The caller is registered as a collector.
    pub(super) fn merge_to_chain(self, counters: &TransferCounters, frame: MapPlace) -> bool {
        let buddy = self.page(self.map.buddy(frame, Order::ZERO)).tag();
        !buddy.is_free_buddy(Order::ZERO, self.id) && self.free_to_chain(counters, frame, || ())
    }

    /// Counts frames that [`merge_to_chain`](Self::merge_to_chain) freed.
    pub(super) fn count_merged(self, counters: &TransferCounters, frames: u64) {
        if frames == 0 {
            return;
        }
        self.zone.healing.taken.merged.fetch_add(frames, Ordering::Relaxed);
        self.count_moved_past_lists(counters, frames);
    }

    /// The single frames that were freed to chains at once, past the lists of CPUs.
    pub(crate) fn freed_to_chains(self) -> u64 {
        let taken = &self.zone.healing.taken;
        let pushed = taken.frames.load(Ordering::Relaxed).wrapping_add(self.chained_frames().into());
        pushed.wrapping_sub(taken.merged.load(Ordering::Relaxed))
    }

    /// Pushes a frame. Returns the new word; `None` if the pageblock is open no more.
    #[inline(always)]
    fn push_to_chain(self, word: &AtomicU64, mut found: u64, frame: MapPlace) -> Option<Known> {
        let order = self.geometry.pageblock_order();
        let start = self.map.head(frame, order);
        let page = self.page(frame);
        loop {
            let known = Known::of(found);
            if !known.open && !is_broken!(ClosedNotNoticed) {
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

    /// Fills a batch with up to `most` frames of chains, for a refill. Pageblocks that drain keep theirs.
    pub(super) fn take_chained(self, counters: &TransferCounters, most: usize, batch: &mut Batch) {
        let (cursor, unsearched) = (&self.zone.healing.filled, &self.zone.facts.unsearched);
        if !self.may_have_chains() {
            return;
        }
        for (number, word) in self.some_chains() {
            if Known::read(word).drains {
                continue;
            }
            self.take_chain(number, word, most, batch);
            if batch.len() >= most {
                cursor.store(number, Ordering::Relaxed);
                break;
            }
        }
        if batch.is_empty() {
            let next = cursor.load(Ordering::Relaxed).saturating_add(SEARCHED as u64);
            cursor.store(if next < self.pageblock_free.len() as u64 { next } else { 0 }, Ordering::Relaxed);
            let left = unsearched.load(Ordering::Relaxed).min(self.pageblocks_in_span());
            unsearched.store(left.saturating_sub(SEARCHED as u64), Ordering::Relaxed);
        } else {
            self.count_refilled(counters, batch.len() as u64);
        }
    }

    /// The pageblocks of the zone, holes included.
    fn pageblocks_in_span(self) -> u64 {
        let span = self.span();
        (span.end.0 - span.start.0).div_ceil(self.blocks.pages().0)
    }

    /// Whether a pageblock that does not drain may have a chain: refills have not looked at all of them in vain since a frame joined one.
    pub(super) fn may_have_chains(self) -> bool {
        self.zone.facts.unsearched.load(Ordering::Relaxed) != 0
    }

    /// Notes that a pageblock that does not drain has a chain.
    pub(super) fn note_chain(self) {
        let unsearched = &self.zone.facts.unsearched;
        if unsearched.load(Ordering::Relaxed) != u64::MAX {
            unsearched.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// The pageblock that drains and has the fewest frames on its chain, among those at which a refill looks.
    pub(super) fn fullest_draining(self) -> Option<Pfn> {
        let draining = self.some_chains().filter(|(_, word)| Known::read(word).drains);
        let fullest = draining.min_by_key(|(_, word)| Known::read(word).all_free());
        fullest.map(|(number, _)| self.blocks.start_at(number))
    }

    /// The pageblocks of this zone that have chains, and their words: of the next [`SEARCHED`] pageblocks, from where the last refill found
    /// frames.
    fn some_chains(self) -> impl Iterator<Item = (u64, &'static AtomicU64)> + use<'a, P> {
        let (first, pageblock) = (self.zone.healing.filled.load(Ordering::Relaxed), self.geometry.pageblock_order());
        let runs = move || self.blocks.numbers_in(self.span());
        let from_first = runs().flat_map(move |run| run.start.max(first)..run.end);
        let before_first = runs().flatten().take_while(move |number| *number < first);
        from_first.chain(before_first).take(SEARCHED).filter_map(move |number| {
            let word = self.pageblock_free.get(number as usize)?;
            if number % WORDS_PER_LINE == 0 {
                self.platform.touch_line(SharedLine::of(LineKind::Mechanism, word), Access::Read);
            }
            let is_own = || self.blocks.zone_at((number << pageblock.0) as usize) == Some(self.id);
            (Known::read(word).chain > 0 && is_own()).then_some((number, word))
        })
    }

    /// Takes the chain of a pageblock, unless that drains, adds frames to a batch until that is full, and pushes the rest back.
    fn take_chain(self, number: u64, word: &AtomicU64, most: usize, batch: &mut Batch) {
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, word), Access::ReadModifyWrite);
        let has_frames = |known: Known| known.chain > 0 && !known.drains;
        if let Some(taken) = Known::change_if(word, has_frames, Known::without_chain) {
            self.keep_some(word, (self.blocks.start_at(number), taken), most, batch);
        }
    }

    /// Adds frames of a chain that the caller took to a batch until that is full, and pushes the rest back.
    fn keep_some(self, word: &AtomicU64, (start, taken): (Pfn, Known), most: usize, batch: &mut Batch) {
        let order = self.geometry.pageblock_order();
        let mut chain = Chain { start: start.place(&self.map), first: taken.first, frames: taken.chain };
        while batch.len() < most && chain.frames > 0 {
            let Some((frame, next)) = self.first_of(chain) else { return self.note_corrupt() };
            chain = next;
            let page = self.page(frame);
            page.set_next(Link::NONE);
            let is_untagged = self.untagged_zone_at(frame.index() as usize) == Some(self.id);
            let tag = Tag::new(FrameState::PerCpu, Order::ZERO, MigrateType::Movable, self.id);
            page.set_tag(if is_untagged { Tag::INTERIOR } else { tag });
            batch.push(frame.index());
        }
        if chain.frames > 0 {
            self.push_back(word, chain, order);
        }
    }

    /// The first frame of a chain that the caller owns, and the rest of the chain. `None` if a neighbour has damaged it.
    fn first_of(self, chain: Chain) -> Option<(MapPlace, Chain)> {
        let order = self.geometry.pageblock_order();
        let in_block = self.blocks.pages().0 as u32 - 1;
        let frame = chain.start.part(order, chain.first & in_block);
        let page = self.page(frame);
        if !self.is_chained(page.tag()) {
            return None;
        }
        let left = chain.frames - 1;
        let next = match self.map.next(page.next()) {
            Some(next) if self.map.head(next, order) == chain.start => next.index() - chain.start.index(),
            _ if left == 0 => 0,
            _ => return None,
        };
        Some((frame, Chain { first: next, frames: left, ..chain }))
    }

    /// Pushes what is left of a chain, in front of which frames may have joined meanwhile.
    fn push_back(self, word: &AtomicU64, mut chain: Chain, order: Order) {
        loop {
            let is_empty = |known: Known| {
                let is_open = known.open || is_broken!(ReturnedToClosed);
                is_open && (known.chain == 0 || is_broken!(JoinedOverwritten))
            };
            // Release: pairs with the Acquire in `Known::change_if`.
            let pushed = word.fetch_update(Ordering::Release, Ordering::Relaxed, |found| {
                let known = Known::of(found);
                is_empty(known).then(|| Known { chain: chain.frames, first: chain.first, ..known }.bits())
            });
            let Err(found) = pushed else { return self.note_chain() };
            let start = self.map.pfn(chain.start);
            if !Known::of(found).open {
                let all = Known { chain: chain.frames, first: chain.first, ..Known::of(0) };
                return self.lock().into_iter().for_each(|mut locked| locked.free_chain(start, all));
            }
            let Some(joined) = Known::change_if(word, |known| known.chain > 0, Known::without_chain) else { continue };
            let newer = Chain { first: joined.first, frames: joined.chain, ..chain };
            let mut last = newer;
            while last.frames > 1 {
                let Some((_, next)) = self.first_of(last) else { return self.note_corrupt() };
                last = next;
            }
            self.page(chain.start.part(order, last.first)).set_next(chain.start.part(order, chain.first).link());
            chain = Chain { frames: newer.frames + chain.frames, ..newer };
        }
    }

    /// Counts frames that a refill took.
    fn count_refilled(self, counters: &TransferCounters, frames: u64) {
        let taken = &self.zone.healing.taken;
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, taken), Access::ReadModifyWrite);
        // Release: pairs with the Acquire in `chained_frames`.
        taken.frames.fetch_add(frames, Ordering::Release);
        self.count_moved_past_lists(counters, frames);
    }

    /// Counts frames that moved between lists of CPUs and chains. Now and then a step follows.
    fn count_moved_past_lists(self, counters: &TransferCounters, frames: u64) {
        let moved = frames.div_ceil(FRAMES_PER_BLOCK);
        let before = self.zone.healing.moved.fetch_add(moved, Ordering::Relaxed);
        if before < MOVED && before.saturating_add(moved) >= MOVED {
            // The end of the hold makes the step.
            drop(self.lock_counted(counters));
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
        // Acquire: pairs with the Release in `count_taken` and `count_refilled`. The frames that were taken count as pushed.
        let taken = self.zone.healing.taken.frames.load(Ordering::Acquire);
        let pushed = self.pushed_counts().map(|count| count.load(Ordering::Relaxed));
        pushed.fold(0, u32::wrapping_add).wrapping_sub(taken as u32)
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
        self.zone.healing.taken.frames.fetch_add(surplus.into(), Ordering::Relaxed);
    }

    /// Returns the frames of all chains to the free lists.
    pub(crate) fn gather_chains(self) {
        if self.chained_racy().0 == 0 {
            return;
        }
        for (start, word) in self.own_pageblocks() {
            self.gather(start, word);
        }
    }

    /// As [`gather_chains`](Self::gather_chains), for a request that must not wait: of a few pageblocks, until there is enough. Whether
    /// there were any.
    pub(super) fn gather_until(self, enough: impl Fn() -> bool) -> bool {
        if !self.zone.heals() {
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
        // Acquire: pairs with the Release in `Known::change_if`. A thread that finds that a push has closed the pageblock sees it registered.
        let known = Known::of(word.load(Ordering::Acquire));
        let has_chain = known.chain > 0 && self.blocks.zone_at(self.map.place(start)) == Some(self.id);
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
    /// As [`merge_to_chain`](ZoneView::merge_to_chain), for a pageblock that may have to be opened first.
    pub(super) fn open_and_push(&mut self, counters: &TransferCounters, frame: MapPlace) -> bool {
        let view = **self;
        let Some(word) = view.pageblock_word(frame) else { return false };
        let is_alone = !self.page(self.map.buddy(frame, Order::ZERO)).tag().is_free_buddy(Order::ZERO, self.id);
        // The policy may have changed since the caller read it.
        if is_alone && (self.zone.heals() || is_broken!(PolicyNotRechecked)) && !Known::read(word).open {
            self.open(frame, word);
        }
        let pushed = if is_alone { view.push_single(counters, (frame, word)) } else { None };
        if pushed.is_some_and(|known| known.all_free() == self.blocks.pages().0 as u32) {
            self.make_whole(self.blocks.start_of(self.map.pfn(frame)));
        }
        pushed.is_some()
    }

    /// Closes the word of the pageblock that begins at a frame. Returns what it was.
    pub(super) fn close(&self, start: Pfn) -> Option<Known> {
        self.pageblock_word(start.place(&self.map)).map(|word| Known::change(word, Known::closed))
    }

    /// Closes the pageblocks of a block, of which the type has changed, if that type has no chains.
    pub(super) fn shut_unless_movable(&mut self, start: Pfn, order: Order, to: MigrateType) {
        if self.zone.heals() && to != MigrateType::Movable {
            self.blocks.starts_in(PfnRange::new(start, order.pages())).for_each(|start| self.shut(start));
        }
    }

    /// Closes a pageblock: frees its chain to the lists of the type that it has.
    pub(super) fn shut(&mut self, start: Pfn) {
        if let Some(taken) = self.close(start) {
            self.free_chain(start, taken);
        }
    }

    /// Frees the frames of a chain that was taken from the word of the pageblock that begins at a frame.
    pub(super) fn free_chain(&mut self, start: Pfn, taken: Known) {
        let mut chain = Chain { start: start.place(&self.map), first: taken.first, frames: taken.chain };
        while chain.frames > 0 {
            let Some((frame, next)) = self.first_of(chain) else { return self.note_corrupt() };
            chain = next;
            let page = self.page(frame);
            page.set_next(Link::NONE);
            page.set_tag(Tag::INTERIOR);
            self.free_by_type(frame, Order::ZERO);
        }
        self.count_taken(taken.chain);
    }

    /// Makes the pageblock that begins at a frame one block, if it is open and all its frames are free. Reads the page of each.
    pub(super) fn make_whole(&mut self, start: Pfn) {
        let (order, pages) = (self.geometry.pageblock_order(), self.blocks.pages());
        let is_whole = |known: Known| known.open && u64::from(known.all_free()) == pages.0;
        let word = self.pageblock_word(start.place(&self.map));
        let Some(known) = word.and_then(|word| Known::change_if(word, is_whole, Known::closed)) else { return };
        if known.drains {
            self.end_draining_whole(start);
        }
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
        let healing = &self.zone.healing;
        // Release: pairs with the Acquire in `chained_frames`.
        healing.taken.frames.fetch_add(frames.into(), Ordering::Release);
        self.count_moved(PageCount(frames.into()));
    }
}

/// Frames of a pageblock that link to each other, off the word or about to be pushed.
#[derive(Clone, Copy)]
struct Chain {
    /// The first frame of the pageblock.
    start: MapPlace,
    /// The first frame of the chain, counted from that.
    first: u32,
    frames: u32,
}
