//! Healing: memory that is fragmented becomes whole during use, without moving frames.
//!
//! # Rule
//!
//! Some pageblocks *drain*: the emptiest ones, a number that the free frames of all could make whole, less a reserve. A frame freed in
//! a draining pageblock stays there; every other frame stays on its CPU's list. Requests take from other pageblocks first. So a draining
//! pageblock only loses frames in use, and becomes whole; and frames that are in use again and again
//! end up in pageblocks that are full.
//!
//! # Mechanism
//!
//! A draining pageblock has the type [`Draining`](MigrateType::Draining); its lasting type is Movable. The blocks that were free when it
//! began to drain are on lists of that type, which no request searches. A free reads the type of the pageblock anyway, and finds one
//! without per-CPU lists, so the fast path has no instruction for this. A single frame then joins the chain of its pageblock, without
//! the zone lock ([`chains`](super::chains)). When the last frame is free, the pageblock becomes one block, and Movable again.
//!
//! Single frames of all other fragmented movable pageblocks are on chains, too: lists of CPUs that are full push them there, and empty
//! ones take them from there, without the lock.
//!
//! Before a request takes from a whole pageblock, mixes types or fails, it ends the draining of a pageblock ([`LockedZone::end_draining`]).
//! That pageblock rests: it fills, and other pageblocks drain.
//!
//! # Steps
//!
//! The word of each pageblock that is not whole counts its free frames: a frame that circulates between a caller and a list of a CPU
//! costs nothing. A *step* reads some of these counts, and begins or ends the draining of a few pageblocks. After
//! a pass over all pageblocks it knows how many drain in the next pass: those with the most free frames. A step ends the hold of the
//! zone lock after which [`MOVED`] blocks below pageblock order have joined or left the free lists since the last one: whole
//! pageblocks that come and go change no count. Blocks that join a freed one as they merge, or change lists with their pageblock, stay
//! counted in its word. Frames that move between lists of CPUs and chains count less, and one refill in a few takes the lock for a step.
//! The background compactor makes some, too. A pageblock with a frame that cannot move does not drain, nor one whose last frames stay in
//! use for [`PATIENCE`] times as long as frames do on average. A zone that keeps [regions](super::regions) clean does not heal.
//!
//! # Counting equations
//!
//! - The free frames of a pageblock = Σ over free blocks in it, below pageblock order, of 2^order.
//! - The word of a pageblock says that it drains exactly if its type does. One that is open is movable or drains, in a zone that heals.
//! - No pageblock of type Draining is whole. There are none under other policies. One whose free frames were taken by number stops
//!   draining at the next step that looks at it.

use super::block_list::Place;
use super::exclusive::add_exclusive;
use super::healing_state::{CLASSES, Known, MOVED, tick};
use super::policy::ZonePolicy;
use super::state::Zone;
use super::transfer::Unsound;
use super::view::{LockedZone, ZoneView};
use crate::memmap::{Located, MapPlace};
use crate::page::{FrameState, Residence};
use crate::platform::Platform;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{MigrateType, Order, Pfn, PfnRange};

/// The pageblocks that a step looks at.
const LOOKED_AT: u64 = 256;
/// The most pageblocks that a step changes: each is walked.
const CHANGED: u32 = 4;
/// One in this number of pageblocks of a zone is kept from draining, so that refills find frames elsewhere, beside those of lists.
const RESERVE: u64 = 1000;
/// A draining pageblock in which no frame was freed for this number of times the expected time stops draining: what is left in it stays.
const PATIENCE: u64 = 16;
/// It rests until every frame in use of the zone could have been freed this number of times.
const REST: u64 = 64;

fn add(counter: &AtomicU32, amount: u32) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl<'a, P: Platform> ZoneView<'a, P> {
    /// A step, if the zone heals. `frees` is the number of single movable frames ever freed to lists of CPUs.
    pub(crate) fn heal_in_background(self, frees: impl FnOnce() -> u64) {
        if self.zone.heals()
            && let Ok(mut locked) = self.lock()
        {
            self.zone.healing.count_listed(frees());
            locked.heal_step();
        }
    }

    /// Free frames of a block's pageblock that are on the free lists, in blocks below pageblock order, while something counts them.
    pub(crate) fn listed_in_pageblock(self, block: MapPlace) -> u32 {
        self.pageblock_word(block).map_or(0, |word| Known::read(word).free)
    }

    /// Counts a block that joins or leaves the free lists, in its pageblock, while something counts them. The caller holds the zone lock.
    #[inline(always)]
    pub(super) fn count_in_pageblock(
        self,
        (block, order): (MapPlace, Order),
        migrate_type: MigrateType,
        change: fn(u32, u32) -> u32,
    ) {
        if self.zone.counts_pageblocks() {
            self.change_count((block, order), migrate_type, change);
        }
    }

    /// Counts a block that was freed and has merged, up to an order, with blocks that its pageblock counts already. The caller holds the zone
    /// lock.
    #[inline(always)]
    pub(super) fn count_freed(self, freed: (MapPlace, Order), merged: Order, migrate_type: MigrateType) {
        let is_whole = merged >= self.geometry.pageblock_order();
        self.count_in_pageblock(freed, migrate_type, if is_whole { |_, _| 0 } else { u32::wrapping_add });
    }

    fn change_count(self, (block, order): (MapPlace, Order), migrate_type: MigrateType, change: fn(u32, u32) -> u32) {
        if order < self.geometry.pageblock_order()
            && let Some(word) = self.pageblock_word(block)
        {
            let count = |free| change(free, order.pages().0 as u32);
            if migrate_type == MigrateType::Draining {
                let now = self.zone.healing.now.load(Ordering::Relaxed);
                Known::change(word, |known| Known { free: count(known.free), ..known.at(now) });
            } else {
                Known::count(word, count);
            }
            if self.zone.heals() {
                add_exclusive(&self.zone.healing.moved, 1);
                let known = Known::read(word);
                if migrate_type == MigrateType::Movable && !known.open && known.free > 0 {
                    self.open(block, word);
                }
            }
        }
    }

    /// Lets single frames of a movable pageblock join its chain.
    #[cold]
    pub(super) fn open(self, block: MapPlace, word: &AtomicU64) {
        let at = block.index() as usize;
        if self.blocks.zone_at(at) == Some(self.id) && self.blocks.get_at(block) == MigrateType::Movable {
            Known::change(word, |known| Known { open: true, ..known });
        }
    }

    /// The word of a block's pageblock.
    #[inline(always)]
    pub(super) fn pageblock_word(self, block: MapPlace) -> Option<&'static AtomicU64> {
        self.pageblock_free.get(block.index() as usize >> self.geometry.pageblock_order().0)
    }

    /// The pageblocks that belong to this zone alone and are initialised, and their words.
    pub(super) fn own_pageblocks(self) -> impl Iterator<Item = (Pfn, &'static AtomicU64)> + use<'a, P> {
        self.blocks.numbers_in(self.span()).flatten().filter_map(move |number| {
            let start = self.blocks.start_at(number);
            let is_own = self.blocks.has_memory(start) && self.blocks.zone_at(self.map.place(start)) == Some(self.id);
            is_own.then_some((start, self.pageblock_free.get(number as usize)?))
        })
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// At the end of a hold of the lock: now and then a step.
    #[inline]
    pub(super) fn heal(&mut self) {
        let since = &self.zone.healing.moved;
        if since.load(Ordering::Relaxed) >= MOVED {
            self.heal_step();
            // What the step itself freed does not count.
            since.store(0, Ordering::Relaxed);
        }
    }

    #[inline(never)]
    fn heal_step(&mut self) {
        let (state, order) = (&self.zone.healing, self.geometry.pageblock_order());
        let at = state.cursor.load(Ordering::Relaxed);
        let Some(run) = self.blocks.numbers_in(self.span()).find(|run| run.end > at) else {
            self.end_pass(self.zone.managed().0 >> order.0, order);
            return state.cursor.store(0, Ordering::Relaxed);
        };
        let first = at.max(run.start);
        let (mut next, mut changed) = (first, 0);
        while next < run.end.min(first + LOOKED_AT) && changed < CHANGED {
            changed += u32::from(self.look_at(next, order));
            next += 1;
        }
        state.cursor.store(next, Ordering::Relaxed);
    }

    /// Counts a pageblock, and begins or ends its draining; whether it did either.
    fn look_at(&mut self, number: u64, order: Order) -> bool {
        let word = self.pageblock_free.get(number as usize);
        if word.is_none_or(|word| Known::read(word).is_at_rest()) {
            return false;
        }
        let (state, place) = (&self.zone.healing, (number as usize) << order.0);
        let block_type = self.blocks.get_at(self.map.checked(place as u32));
        let is_own = self.blocks.zone_at(place) == Some(self.id);
        let (Some(word), true, MigrateType::Movable | MigrateType::Draining) = (word, is_own, block_type) else {
            return false;
        };
        let start = || self.blocks.start_at(number);
        let known = self.grow_older(word);
        let (free, rests) = (known.all_free(), known.rests);
        if u64::from(free) == order.pages().0 && known.open {
            self.make_whole(start());
            return true;
        }
        if free == 0 {
            let drains = block_type == MigrateType::Draining;
            if drains {
                self.stop_draining(start());
            }
            return drains;
        }
        let class = ((free as usize * CLASSES) >> order.0).min(CLASSES - 1);
        add_exclusive(&state.free, free.into());
        if !rests {
            add(&state.classes[class], 1);
        }
        let least = CLASSES.saturating_sub(state.drained.load(Ordering::Relaxed) as usize);
        let is_among_more = class + 1 == least && state.more.load(Ordering::Relaxed) > 0;
        let should_drain = !rests && (class >= least || is_among_more);
        if should_drain && is_among_more {
            add(&state.more, 1u32.wrapping_neg());
        }
        match (block_type, should_drain) {
            (MigrateType::Movable, true) if state.draining_racy() < state.most.load(Ordering::Relaxed) => {
                self.begin_draining(start(), word)
            }
            (MigrateType::Draining, false) => {
                self.stop_draining(start());
                true
            }
            _ => false,
        }
    }

    /// Lets a pageblock rest in which frames stay that are in use, and ends its rest.
    fn grow_older(&self, word: &AtomicU64) -> Known {
        let state = &self.zone.healing;
        let (now, used) = (state.now.load(Ordering::Relaxed), state.used.load(Ordering::Relaxed));
        let tick = tick(used);
        let known = Known::read(word);
        let in_use = self.blocks.pages().0.saturating_sub(known.all_free().into()).max(1);
        // A product, not a quotient: a step reads many words, and a division takes longer than the rest.
        let is_older = |frees: u64| known.age(now).saturating_mul(tick) > frees;
        if known.was_pushed {
            Known::change(word, |known| known.at(now));
        } else if known.rests && is_older(REST.saturating_mul(used)) {
            Known::change(word, |known| Known { rests: false, ..known });
        } else if known.drains && is_older(PATIENCE.saturating_mul((used / in_use).saturating_add(tick))) {
            // One in `used` frees is of a frame in this pageblock for each frame in use there.
            Known::change(word, |known| Known { rests: true, ..known.at(now) });
            add_exclusive(&state.rested, 1);
        }
        Known::read(word)
    }

    /// Decides how many pageblocks drain in the next pass.
    fn end_pass(&self, pageblocks: u64, order: Order) {
        let state = &self.zone.healing;
        let chained = self.chained_racy().0;
        let used = self.zone.managed().0.saturating_sub(self.zone.free_pages_racy().0).saturating_sub(chained);
        state.used.store(used, Ordering::Relaxed);
        let frees = state.frees.load(Ordering::Relaxed).wrapping_add(self.freed_to_chains());
        let ticks = frees.wrapping_sub(state.timed.load(Ordering::Relaxed)) / tick(used);
        add_exclusive(&state.now, ticks);
        add_exclusive(&state.timed, ticks.wrapping_mul(tick(used)));
        let free = state.free.load(Ordering::Relaxed);
        state.free.store(0, Ordering::Relaxed);
        let mut left = (free >> order.0).saturating_sub(pageblocks / RESERVE);
        state.most.store(left as u32, Ordering::Relaxed);
        let mut least = CLASSES;
        for (class, number) in state.classes.iter().enumerate().rev() {
            let number = u64::from(number.load(Ordering::Relaxed));
            if number > left {
                break;
            }
            left -= number;
            least = class;
        }
        state.classes.iter().for_each(|class| class.store(0, Ordering::Relaxed));
        state.drained.store((CLASSES - least) as u32, Ordering::Relaxed);
        state.more.store(left as u32, Ordering::Relaxed);
    }

    /// Makes a pageblock drain. One with a frame that cannot move rests instead. Reads the page of each block in it.
    fn begin_draining(&mut self, start: Pfn, word: &AtomicU64) -> bool {
        let is_movable = self.use_of_pageblock(start).is_some_and(|found| found.has_only_movable(self.blocks.pages()));
        let now = self.zone.healing.now.load(Ordering::Relaxed);
        Known::change(word, |known| Known { rests: !is_movable, ..known.at(now) });
        add_exclusive(&self.zone.healing.rested, (!is_movable).into());
        if is_movable {
            self.blocks.drain(start);
            self.relink_range(PfnRange::new(start, self.blocks.pages()), MigrateType::Draining);
            Known::change(word, |known| Known { open: true, drains: true, was_pushed: false, ..known });
            add(&self.zone.healing.draining, 1);
            add_exclusive(&self.zone.healing.begun, 1);
        }
        true
    }

    /// As a step that finds a pageblock among the emptiest.
    #[cfg(all(test, loom))]
    pub(crate) fn drain_for_model(&mut self, pfn: Pfn) {
        use crate::memmap::Located;

        let start = self.blocks.start_of(pfn);
        if self.blocks.get(start) == MigrateType::Movable
            && !self.is_whole(start)
            && let Some(word) = self.pageblock_word(start.place(&self.map))
        {
            self.begin_draining(start, word);
        }
    }

    /// As a step that looks at the pageblock of a frame, while all pageblocks with free frames should drain.
    #[cfg(all(test, loom))]
    pub(crate) fn look_for_model(&mut self, pfn: Pfn) -> bool {
        use crate::memmap::Located;

        let (state, order) = (&self.zone.healing, self.geometry.pageblock_order());
        state.drained.store(CLASSES as u32, Ordering::Relaxed);
        state.most.store(u32::MAX, Ordering::Relaxed);
        self.look_at(u64::from(pfn.place(&self.map).index()) >> order.0, order)
    }

    /// Changes the policy of the zone.
    pub(crate) fn set_policy(&mut self, policy: ZonePolicy) {
        self.change_mode(|zone| zone.set_policy(policy));
    }

    /// Changes what decides whether the zone heals.
    pub(super) fn change_mode(&mut self, change: impl FnOnce(&Zone)) {
        let heals = self.zone.heals();
        change(self.zone);
        match (heals, self.zone.heals()) {
            (true, false) => self.end_healing(),
            (false, true) => self.begin_healing(),
            _ => {}
        }
    }

    /// Begins to heal a zone under the hold in which its mode changes: counts the free frames of each pageblock. Reads the page of each
    /// free block below pageblock order.
    fn begin_healing(&mut self) {
        self.zone.healing.forget_listed();
        self.forget_pageblocks();
        for order in (0..self.geometry.pageblock_order().0).map(Order) {
            for migrate_type in MigrateType::LISTED {
                let blocks = self.zone.free_blocks_racy(order.index(), migrate_type);
                let mut next = self.first_block_at(order, migrate_type).map(|(block, _)| block);
                for _ in 0..blocks {
                    let Some(block) = next else { break };
                    self.count_in_pageblock((block, order), migrate_type, u32::wrapping_add);
                    next = self.map.next(self.page(block).next());
                }
            }
        }
    }

    /// Forgets what is known of each pageblock.
    pub(super) fn forget_pageblocks(&self) {
        self.own_pageblocks().for_each(|(_, word)| word.store(0, Ordering::Relaxed));
    }

    /// Counts the free frames of a pageblock in blocks below pageblock order.
    fn count_free_in(&self, start: Pfn) -> u32 {
        let (mut free, mut at) = (0, start);
        while at < start + self.blocks.pages() {
            let tag = self.settled_tag(at);
            let order = if tag.is(FrameState::Interior) { Order::ZERO } else { tag.order() };
            let is_counted = self.is_listed(at, tag) && order < self.geometry.pageblock_order();
            free += if is_counted { order.pages().0 as u32 } else { 0 };
            at = at + order.pages();
        }
        free
    }

    /// Checks the counting equations.
    pub(crate) fn check_healing(&self) -> Result<(), Unsound> {
        let mut draining = 0;
        for (start, word) in self.own_pageblocks() {
            let (known, found) = (Known::read(word), self.count_free_in(start));
            let (kept, drains) = (known.free, self.blocks.get(start) == MigrateType::Draining);
            let may_be_open = self.zone.heals() && (drains || self.blocks.get(start) == MigrateType::Movable);
            if known.drains != drains || known.chain != 0 || (known.open && !may_be_open) {
                return Err(Unsound::Broken { what: "chain of a pageblock", at: start });
            }
            if self.zone.counts_pageblocks() && kept != found {
                let (kept, found) = (u64::from(kept), u64::from(found));
                return Err(Unsound::Count { what: "free frames in a pageblock", kept, found });
            }
            if drains {
                draining += 1;
                if !self.zone.heals() || u64::from(found) == self.blocks.pages().0 {
                    return Err(Unsound::Broken { what: "draining pageblock", at: start });
                }
            }
        }
        let kept = u64::from(self.zone.healing.draining_racy());
        let what = "draining pageblocks";
        if kept == draining { Ok(()) } else { Err(Unsound::Count { what, kept, found: draining }) }
    }

    /// Ends healing under the hold in which the mode of a zone changes: no pageblock drains any more.
    fn end_healing(&mut self) {
        for (start, _) in self.own_pageblocks() {
            if self.blocks.get(start) == MigrateType::Draining {
                self.stop_draining(start);
            }
            // No block that joins the lists opens it again: the zone heals no more.
            self.shut(start);
        }
    }

    /// Makes a draining pageblock an ordinary one, which stays open.
    pub(super) fn stop_draining(&mut self, start: Pfn) {
        self.blocks.set(start, MigrateType::Movable);
        self.relink_range(PfnRange::new(start, self.blocks.pages()), MigrateType::Movable);
        let stopped = |known| Known { open: true, drains: false, was_pushed: false, ..known };
        self.pageblock_word(start.place(&self.map)).map(|word| Known::change(word, stopped));
        self.note_chain();
        add(&self.zone.healing.draining, 1u32.wrapping_neg());
    }

    /// Frees a block of a draining pageblock to the lists, merged. `false` if the pageblock is whole then: the caller goes on with that
    /// block, which is on no list.
    #[cold]
    #[inline(never)]
    pub(super) fn free_in_draining(
        &mut self,
        freed: (MapPlace, Order),
        (block, order): (MapPlace, Order),
        residence: Residence,
    ) -> bool {
        let start = self.blocks.start_of(self.map.pfn(block));
        if order < self.geometry.pageblock_order() {
            self.link_block(block, order, MigrateType::Draining, Place::Tail, residence);
            self.count_freed(freed, order, MigrateType::Draining);
            self.make_whole(start);
            return true;
        }
        let whole = PfnRange::new(start, order.pages());
        for start in self.blocks.starts_in(whole).filter(|start| self.blocks.get(*start) == MigrateType::Draining) {
            self.close(start);
            self.end_draining_whole(start);
        }
        false
    }

    /// Makes a draining pageblock an ordinary one of which all frames are free.
    pub(super) fn end_draining_whole(&self, start: Pfn) {
        self.blocks.set(start, MigrateType::Movable);
        add(&self.zone.healing.draining, 1u32.wrapping_neg());
        add_exclusive(&self.zone.healing.healed, 1);
    }

    /// Ends the draining of the pageblock of the smallest free block of that order or more that drains; whether there was one.
    pub(super) fn end_draining(&mut self, order: Order) -> bool {
        let found = self.smallest_order(order, MigrateType::Draining);
        let listed = found.and_then(|found| self.first_block(found, MigrateType::Draining));
        let chained = || if order == Order::ZERO { self.fullest_draining() } else { None };
        let Some(pfn) = listed.map(|(pfn, _)| pfn).or_else(chained) else { return false };
        let start = self.blocks.start_of(pfn);
        if self.blocks.get(start) != MigrateType::Draining {
            return false;
        }
        self.stop_draining(start);
        self.shut(start);
        // It rests, so that other pageblocks drain meanwhile.
        let now = self.zone.healing.now.load(Ordering::Relaxed);
        self.pageblock_word(start.place(&self.map))
            .map(|word| Known::change(word, |known| Known { rests: true, ..known.at(now) }));
        add_exclusive(&self.zone.healing.given_up, 1);
        true
    }

    /// Whether pageblocks drain. Zones that do not heal read no line for this.
    #[inline(always)]
    pub(super) fn drains(&self) -> bool {
        self.zone.heals() && self.zone.healing.draining_racy() != 0
    }

    /// Before a request for a block below pageblock order takes from a whole pageblock: frames of draining ones, if its type has no
    /// smaller blocks.
    #[inline(always)]
    pub(super) fn prefer_draining(&mut self, order: Order, migrate_type: MigrateType) {
        if migrate_type != MigrateType::Movable || !self.drains() {
            return;
        }
        let pageblock = self.geometry.pageblock_order();
        if self.smallest_order(order, migrate_type).is_none_or(|found| found >= pageblock) && order < pageblock {
            self.end_draining(order);
        }
    }
}
