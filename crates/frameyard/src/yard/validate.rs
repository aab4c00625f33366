//! The validator: recounts everything and names the first equation that does not hold.
//!
//! It is meant for a yard at rest, with no thread inside an operation. In a yard that is in use or damaged, a walk
//! still ends and never touches a page structure without memory behind it: it follows a link only to a pageblock that
//! has memory, and follows at most as many links as the map has frames.

use crate::devices::DeviceId;
use crate::huge_pool::{self, HugePageSize, HugePoolStatistics};
use crate::lists::Group;
use crate::page::{CountedPage, FrameState, IDENTITY, MECHANISM, PageRef, Residence, Tag};
use crate::platform::{LockError, Platform};
use crate::store::{self, Found, Unsound};
use crate::units::{MigrateType, ORDER_SLOTS, Order, PageCount, Pfn, PfnRange, ZoneId, errors};
use crate::yard::Yard;
use crate::zone::{LockedZone, ZoneView};
use subjects::{check_compaction_counts, check_map_entries};

mod subjects;

/// The kind of list that an equation is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ListKind {
    /// A free list of a zone.
    Free,
    /// The lists of a CPU.
    PerCpu,
    /// The free pages of a pool of huge pages.
    HugePages,
}

errors! {
    /// An equation that does not hold.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum ValidateError {
        /// Another process holds a lock and does not release it, or has damaged the yard.
        Lock(error: LockError) = "{error}",
        /// A frame of memory is covered by no block, and is no single frame that is allocated or on a list.
        Uncovered(pfn: Pfn) = "{pfn} is memory but in no block",
        /// A block does not begin where its order allows, or reaches out of its range of memory.
        Misplaced(pfn: Pfn, order: Order) = "the block at {pfn}, {order}, is misaligned or leaves its range",
        /// A frame inside a block is not as it was initialised: all zero, or with the kernel-like content's words.
        InteriorNotZero {
            /// The frame.
            pfn: Pfn,
            /// Head of the block.
            head: Pfn,
        } = "{pfn}, inside the block at {head}, is not all zero",
        /// A block's tag names a state or type that does not exist, or has a bit set that means nothing.
        BadTag(pfn: Pfn) = "the tag of {pfn} is none that a page can have",
        /// A word that must be zero in this state is not.
        WordsNotZero(pfn: Pfn, state: FrameState) = "{pfn} is {state} and has words that should be zero",
        /// A block's tag, or the word of its pageblock, names another zone than the one its frames belong to.
        WrongZone(pfn: Pfn, zone: ZoneId) = "the block at {pfn}, or its pageblock, says that it is of {zone}",
        /// A frame is in transit although no operation is in progress.
        InTransit(pfn: Pfn) = "{pfn} is in transit although no operation is in progress",
        /// Two free buddies that should have merged, and neither of which skipped it.
        UnmergedBuddies(pfn: Pfn, order: Order) = "the block at {pfn}, {order}, and its buddy are both free",
        /// A free block is on the list of another type than that of the pageblocks it covers.
        WrongList(pfn: Pfn, list: MigrateType) = "the free block at {pfn} is on the list of {list} blocks",
        /// The allocation map has an entry for a frame that is no head of a block outside its zone, or with another order
        /// than that block's.
        WrongMapEntry(pfn: Pfn) = "the allocation map has a wrong entry for {pfn}",
        /// A list's links do not lead from one end to the other, or a block on it is not what the list holds.
        BrokenList {
            /// Which kind of list.
            kind: ListKind,
            /// The zone.
            zone: ZoneId,
            /// The block at which it is broken.
            at: Pfn,
        } = "a {kind:?} list of {zone} is broken at {at}",
        /// A structure of a transfer mechanism does not hold together, or has a block that it should not have.
        BrokenMechanism {
            /// Which structure.
            what: &'static str,
            /// The zone.
            zone: ZoneId,
            /// The block.
            at: Pfn,
        } = "a {what} in {zone} is broken at {at}",
        /// A count kept differs from the recount.
        Count {
            /// What is counted.
            what: &'static str,
            /// Where.
            zone: ZoneId,
            /// The count kept.
            kept: u64,
            /// The recount.
            found: u64,
        } = "{zone}: {what} is {kept}, recounted {found}",
        /// A count of some events exceeds the count of all of them.
        Part {
            /// Which events.
            what: &'static str,
            /// Where.
            zone: ZoneId,
            /// The count of some.
            part: u64,
            /// The count of all.
            whole: u64,
        } = "{zone}: {what} is {part}, more than the total of {whole}",
        /// The page structures or sections of a device are not what its row in the table of devices makes them.
        Device {
            /// The device.
            device: DeviceId,
            /// Which equation does not hold.
            what: &'static str,
            /// Where: the first frame.
            at: Pfn,
        } = "{device}, at {at}: {what}",
        /// A section leads from a frame to a device's page, but no device has the frame.
        NoDevice(pfn: Pfn) = "{pfn} leads to the page of a device, and is no device's",
    }
}

/// What a walk over a zone's memory found.
#[derive(Default)]
struct Recount {
    free: [[u64; MigrateType::COUNT]; ORDER_SLOTS],
    /// Blocks on per-CPU lists, by order.
    per_cpu: [u64; ORDER_SLOTS],
    reserved: u64,
    offline: u64,
    /// Frames that will be free once they are initialised.
    deferred: u64,
    covered: u64,
    highatomic: u64,
    /// Frames of free blocks that are reported.
    reported: u64,
    /// Free pages that skipped merging.
    skipped: u64,
    /// Pooled pages, those without users, and bytes of the map returned, by size.
    pooled: [HugePoolStatistics; HugePageSize::ALL.len()],
    /// The pageblock counted last; a hole may split it.
    pageblock: Option<Pfn>,
}

impl Recount {
    fn free_pages(&self) -> u64 {
        let pages = |order: usize| self.free[order].iter().sum::<u64>() << order;
        (0..ORDER_SLOTS).map(pages).sum()
    }

    fn free_pages_of(&self, migrate_type: MigrateType) -> u64 {
        (0..ORDER_SLOTS).map(|order| self.free[order][migrate_type.index()] << order).sum()
    }
}

impl<P: Platform> Yard<P> {
    /// Recounts every frame and every list, and compares the results with all counters.
    ///
    /// Nothing may be in flight: no other thread or process may be inside an operation of this yard, except for threads
    /// that the platform has lost ([`Platform::has_lost_threads`]). Reads the page of every frame of memory and of
    /// devices, and temporarily marks those on per-CPU lists. In a yard that is in use the result is meaningless, but
    /// the call does no harm.
    ///
    /// # Errors
    ///
    /// [`ValidateError`] names the first equation that does not hold.
    pub fn validate(&self) -> Result<(), ValidateError> {
        if let Some(error @ (LockError::OwnerDied { .. } | LockError::Corrupt { .. })) = self.platform.lock_error() {
            return Err(ValidateError::Lock(error));
        }
        let check_zone = |view| self.validate_zone(view).inspect_err(|_| self.clear_marks(view));
        let checked = self.populated_zones().try_for_each(check_zone).and_then(|()| self.check_devices());
        // A list that could not be locked looks wrong, or was left out.
        self.platform.lock_error().map_or(checked, |error| Err(ValidateError::Lock(error)))
    }

    /// The memory of a zone. Clamped to the map, whatever the table of ranges holds.
    fn memory_of(&self, view: ZoneView<'_, P>) -> impl Iterator<Item = PfnRange> {
        let map = self.map.range();
        self.tables.ranges().filter(move |(_, zone)| *zone == view.id).map(move |(range, _)| range.intersection(map))
    }

    /// Clears the marks that a walk which found an error has left on the pages of per-CPU lists.
    #[cold]
    fn clear_marks(&self, view: ZoneView<'_, P>) {
        for range in self.memory_of(view) {
            for page in (range.start.0..range.end.0).filter_map(|pfn| self.page_of(Pfn(pfn))) {
                let tag = page.tag();
                if tag.is_seen() {
                    // By exchange, as in the walk.
                    let _ = page.replace_tag(tag, tag.without_seen());
                }
            }
        }
    }

    fn validate_zone(&self, view: ZoneView<'_, P>) -> Result<(), ValidateError> {
        let mut recount = Recount::default();
        self.check_per_cpu_lists(view, &mut recount)?;
        let mut held = Found { listed: core::mem::take(&mut recount.per_cpu) };
        let unsound = |unsound| from_transfer(view.id, unsound);
        store::validate_held(view, &mut held).map_err(unsound)?;
        for range in self.memory_of(view) {
            self.walk(view, range, &mut recount)?;
        }
        for (kept, found) in held.listed.into_iter().zip(recount.per_cpu) {
            compare("blocks on per-CPU lists", view.id, kept, found)?;
        }
        let locked = view.lock().map_err(ValidateError::Lock)?;
        self.check_free_lists(&locked, &recount)?;
        store::validate_lists(&locked, recount.skipped).map_err(unsound)?;
        locked.check_regions().map_err(unsound)?;
        drop(locked);
        let zone = view.zone;
        let isolated = recount.free_pages_of(MigrateType::Isolate);
        let counted = if zone.deferred.is_counted() { recount.deferred } else { 0 };
        let present = recount.covered - recount.offline;
        let managed = present - recount.reserved - (recount.deferred - counted);
        let equations = [
            ("uninitialised pages", zone.deferred.pages_racy().0, recount.deferred),
            ("free pages", zone.free_pages_racy().0, recount.free_pages() - isolated + counted),
            ("free CMA pages", zone.free_cma_racy().0, recount.free_pages_of(MigrateType::Cma)),
            ("present pages", zone.present().0, present),
            ("managed pages", zone.managed().0, managed),
            ("reported pages", zone.reported_racy().0, recount.reported),
            ("high-atomic pages", zone.reserved_highatomic_racy().0, recount.highatomic),
        ];
        equations.into_iter().try_for_each(|(what, kept, found)| compare(what, view.id, kept, found))?;
        check_compaction_counts(view)?;
        self.check_huge_pools(view.id, &recount)
    }

    /// Walks the blocks of a range of memory.
    fn walk(&self, view: ZoneView<'_, P>, range: PfnRange, recount: &mut Recount) -> Result<(), ValidateError> {
        let lost_threads = self.platform.has_lost_threads();
        let mut at = range.start;
        while at < range.end {
            if !view.blocks.has_memory(at) {
                let pageblock = PfnRange::new(view.blocks.start_of(at), view.blocks.pages()).intersection(range);
                self.count_deferred(PfnRange { start: at, end: pageblock.end }, recount);
                at = pageblock.end;
                continue;
            }
            if let Some(other) = view.blocks.zone_at(self.map.place(at)).filter(|zone| *zone != view.id) {
                return Err(ValidateError::WrongZone(at, other));
            }
            let page = view.page(at);
            let in_page = page.tag();
            let tag = match view.completed(at, in_page) {
                // The walk goes from head to head, so no head covers the frame. One that is on no list is lost.
                tag if tag.is(FrameState::Interior) && (tag.is_seen() || lost_threads) => view.uncovered(at, tag),
                tag => tag,
            };
            let order = tag.order();
            if tag.is(FrameState::Interior) {
                return Err(ValidateError::Uncovered(at));
            }
            if !tag.is_well_formed() || (tag.is_seen() && !tag.is(FrameState::PerCpu)) {
                return Err(ValidateError::BadTag(at));
            }
            let may_be = match tag.state() {
                FrameState::Pooled => HugePageSize::of_order(order).is_some(),
                FrameState::Allocated => order <= self.geometry.largest_order(),
                _ => order <= self.geometry.max_order(),
            };
            if !may_be || !at.is_aligned(order) || at + order.pages() > range.end {
                return Err(ValidateError::Misplaced(at, order));
            }
            if tag.zone() != view.id {
                return Err(ValidateError::WrongZone(at, tag.zone()));
            }
            match tag.state() {
                FrameState::InTransit => return Err(ValidateError::InTransit(at)),
                FrameState::BuddyFree => self.check_free_block(view, at, tag, recount)?,
                // A vanished thread had it in its hands.
                FrameState::PerCpu if lost_threads && !tag.is_seen() => {}
                FrameState::PerCpu => {
                    // The mark of `check_per_cpu_lists`: a block that is on no list has none.
                    if !tag.is_seen() {
                        return Err(ValidateError::BrokenList { kind: ListKind::PerCpu, zone: view.id, at });
                    }
                    // By exchange, here and below: the tag of an operation that is in progress after all stays.
                    let _ = page.replace_tag(in_page, in_page.without_seen());
                    recount.per_cpu[order.index()] += 1;
                }
                FrameState::Reserved => recount.reserved += order.pages().0,
                FrameState::Offline => recount.offline += order.pages().0,
                FrameState::Pooled => self.count_pooled(page, order, recount),
                _ => {}
            }
            let fresh = self.map.template(at, Some(view.id));
            let clear = match tag.state() {
                // Head and members of a packed batch use every word.
                FrameState::PerCpu => true,
                FrameState::BuddyFree if tag.is_tentative() => page.first_payload_is(fresh, MECHANISM),
                FrameState::BuddyFree => page.payload_is(fresh),
                // Links and owner's words are its owner's; a counted block has users.
                FrameState::Counted => page.payload(IDENTITY) == fresh.payload()[IDENTITY] && self.has_users(page),
                FrameState::Pooled => {
                    page.payload(IDENTITY) == fresh.payload()[IDENTITY] && huge_pool::is_sound(self.counted_page(page))
                }
                _ => page.rest_is(fresh),
            };
            if !clear {
                return Err(ValidateError::WordsNotZero(at, tag.state()));
            }
            self.check_interior(view, at, order)?;
            check_map_entries(view, at, tag)?;
            count_highatomic(view, PfnRange::new(at, order.pages()), recount);
            recount.covered += order.pages().0;
            at = at + order.pages();
        }
        Ok(())
    }

    fn counted_page<'a>(&self, page: PageRef<'a, P>) -> CountedPage<'a, P> {
        CountedPage::new(page, self.map.content().no_users())
    }

    fn has_users(&self, page: PageRef<'_, P>) -> bool {
        let counts = self.counted_page(page).counts();
        counts.references >= counts.mappings.max(1)
    }

    /// Counts memory that is not initialised, and what of it will be free.
    fn count_deferred(&self, part: PfnRange, recount: &mut Recount) {
        recount.covered += part.count().0;
        let free: u64 = self.tables.free_ranges_in(part).map(|(range, _)| range.count().0).sum();
        recount.deferred += free;
        recount.reserved += part.count().0 - free;
    }

    fn check_interior(&self, view: ZoneView<'_, P>, head: Pfn, order: Order) -> Result<(), ValidateError> {
        for offset in 1..order.pages().0 {
            let pfn = head + PageCount(offset);
            let page = view.page(pfn);
            if page.tag() != Tag::INTERIOR || !page.rest_is(self.map.template(pfn, Some(view.id))) {
                return Err(ValidateError::InteriorNotZero { pfn, head });
            }
        }
        Ok(())
    }

    fn check_free_block(
        &self,
        view: ZoneView<'_, P>,
        pfn: Pfn,
        tag: Tag,
        recount: &mut Recount,
    ) -> Result<(), ValidateError> {
        let (order, list) = (tag.order(), tag.migrate_type());
        recount.free[order.index()][list.index()] += 1;
        if tag.residence() == Residence::Reported {
            recount.reported += order.pages().0;
        }
        recount.skipped += u64::from(tag.is_merge_skipped());
        let block_type = view.blocks.get(pfn);
        if view.blocks.types_of(pfn, order).any(|of_block| of_block != list) {
            return Err(ValidateError::WrongList(pfn, list));
        }
        if order >= self.geometry.max_order() {
            return Ok(());
        }
        let buddy = pfn.buddy(order);
        let mergeable = |migrate_type: MigrateType| migrate_type.index() < MigrateType::PER_CPU;
        let buddy_type = view.blocks.get(buddy);
        let may_merge = block_type == buddy_type || (mergeable(block_type) && mergeable(buddy_type));
        let other = view.page(buddy).tag();
        let skipped = tag.is_merge_skipped() || other.is_merge_skipped();
        if may_merge && !skipped && other.seems_free_buddy(order, view.id) {
            return Err(ValidateError::UnmergedBuddies(pfn.align_down(Order(order.0 + 1)), order));
        }
        Ok(())
    }

    /// Checks every entry of the per-CPU lists of a zone and marks its page, so that one that is listed twice shows.
    fn check_per_cpu_lists(&self, view: ZoneView<'_, P>, recount: &mut Recount) -> Result<(), ValidateError> {
        for (_, pcp) in self.tables.pcps_of(view.id) {
            let lists = pcp.lock(&self.platform).map_err(ValidateError::Lock)?;
            let mut pages = [0u64; Group::ALL.len()];
            let refused = lists.check_entries(view, |id, index| {
                let pfn = self.map.pfn(index);
                let order = id.order(self.geometry);
                let Some((order, blocks)) = view.mark_listed(pfn, order) else { return false };
                recount.per_cpu[order.index()] += blocks;
                pages[id.group() as usize] += blocks << order.0;
                true
            });
            if let Some(index) = refused {
                return Err(ValidateError::BrokenList {
                    kind: ListKind::PerCpu,
                    zone: view.id,
                    at: self.map.pfn(index),
                });
            }
            for (group, found) in pcp.groups().zip(pages) {
                compare("frames on a CPU's lists", view.id, pcp.held_racy(group, self.geometry).0, found)?;
                compare("frames that a CPU's lists may take over their limit", view.id, lists.excess(view, group), 0)?;
                let (parts, sum) = lists.parts(view, group);
                compare("frames of the parts of a CPU's lists", view.id, sum, parts)?;
            }
        }
        Ok(())
    }

    /// Follows every free list and counts it.
    fn check_free_lists(&self, locked: &LockedZone<'_, P>, recount: &Recount) -> Result<(), ValidateError> {
        for migrate_type in MigrateType::ALL {
            let bits = locked.orders_from(Order::ZERO, migrate_type);
            for order in 0..ORDER_SLOTS {
                let expected = recount.free[order][migrate_type.index()];
                let kept = locked.zone.free_blocks_racy(order, migrate_type);
                compare("blocks of a free list", locked.id, kept, expected)?;
                compare("an order's bit", locked.id, u64::from(bits >> order & 1), u64::from(expected > 0))?;
                self.follow(locked, Order(order as u8), migrate_type, expected)?;
            }
        }
        Ok(())
    }

    /// Follows a free list forwards; each block must lead back to the one before. Looks at no page outside the map.
    fn follow(
        &self,
        locked: &LockedZone<'_, P>,
        order: Order,
        migrate_type: MigrateType,
        expected: u64,
    ) -> Result<(), ValidateError> {
        let broken = |at| Err(ValidateError::BrokenList { kind: ListKind::Free, zone: locked.id, at });
        let mut previous = None;
        let mut found = 0;
        let mut at = locked.map.named(locked.first_link(order, migrate_type));
        while let Some(pfn) = at.filter(|_| found <= expected) {
            let Some(page) = self.page_of(pfn) else { return broken(pfn) };
            let tag = page.tag();
            let linked_back = locked.map.named(page.prev()) == previous;
            if !tag.seems_free_buddy(order, locked.id) || tag.migrate_type() != migrate_type || !linked_back {
                return broken(pfn);
            }
            previous = Some(pfn);
            found += 1;
            at = locked.map.named(page.next());
        }
        compare("blocks on a free list", locked.id, found, expected)?;
        if locked.last_block(order, migrate_type) != previous {
            return broken(previous.unwrap_or_default());
        }
        Ok(())
    }
}

/// The error of an equation of the transfer mechanisms.
fn from_transfer(zone: ZoneId, unsound: Unsound) -> ValidateError {
    match unsound {
        Unsound::Broken { what, at } => ValidateError::BrokenMechanism { what, zone, at },
        Unsound::Count { what, kept, found } => ValidateError::Count { what, zone, kept, found },
    }
}

fn compare(what: &'static str, zone: ZoneId, kept: u64, found: u64) -> Result<(), ValidateError> {
    if kept == found { Ok(()) } else { Err(ValidateError::Count { what, zone, kept, found }) }
}

/// Counts the pageblocks of a block that are kept for atomic requests, each once.
fn count_highatomic<P: Platform>(view: ZoneView<'_, P>, block: PfnRange, recount: &mut Recount) {
    for at in view.blocks.starts_in(block) {
        if recount.pageblock.replace(at) != Some(at) && view.blocks.get(at) == MigrateType::HighAtomic {
            recount.highatomic += view.blocks.pages().0;
        }
    }
}
