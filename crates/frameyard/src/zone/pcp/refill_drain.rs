//! Refilling and draining a CPU's lists, and the packed batches behind their arrays.
//!
//! How a batch moves between a list and the zone is up to the mechanisms behind [`transfer`](crate::zone::transfer).

use super::{ARRAY, Group, ListId, LockedPcp, PcpList, Totals};
use crate::memmap::{MapPlace, MemMap};
use crate::page::Link;
use crate::platform::{Access, Platform};
use crate::sync::{AtomicU32, Ordering};
use crate::units::{MigrateType, Order, PageCount};
use crate::zone::batch::{BATCH, Batch, packed};
use crate::zone::checks::PageChecks;
use crate::zone::effort::Effort;
use crate::zone::exclusive::add_exclusive;
use crate::zone::page_check;
use crate::zone::request::BlockRequest;
use crate::zone::transfer::{self, Drain, DrainReason, DrainSource, PackedBatches, RefillRequest};
use crate::zone::view::ZoneView;

/// What a refill may take from the zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill<'a> {
    pub(crate) list: ListId,
    pub(crate) request: BlockRequest,
    pub(crate) effort: &'a Effort,
}

/// What came of a refill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refilled {
    /// The list has what the zone gave, which may be nothing.
    AsFarAsThereWas,
    /// The list has nothing because all blocks of the zone were bad.
    OnlyBad,
}

impl PcpList {
    pub(super) fn chain(&self) -> Link {
        Link(self.chain.load(Ordering::Relaxed))
    }

    fn set_chain(&self, chain: Link) {
        // Release: pairs with the Acquire in `PcpList::is_empty_racy`. What was unpacked is in the array by now.
        self.chain.store(chain.0, Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && self.chain() == Link::NONE
    }

    /// Takes the oldest entries of the array into `batch`, which is empty, and moves the rest down. Entries where no block of the order
    /// may begin are lost; whether there was none.
    fn take_oldest(&self, count: usize, batch: &mut Batch, map: MemMap, order: Order) -> bool {
        let len = self.len();
        let taken = count.min(len).min(BATCH);
        batch.extend(self.entries[..taken].iter().map(|slot| slot.load(Ordering::Relaxed)));
        let are_sound = map.may_all_begin(batch, order);
        if !are_sound {
            let read = *batch;
            batch.clear();
            read.iter().filter(|at| map.may_begin(**at, order)).for_each(|at| batch.push(*at));
        }
        for (to, from) in self.entries.iter().zip(&self.entries[taken..len]) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.set_len(len - taken);
        are_sound
    }

    /// Appends entries to the array, which has room for them unless it is corrupt.
    fn append(&self, entries: &[u32]) {
        let len = self.len();
        let end = (len + entries.len()).min(ARRAY);
        for (slot, entry) in self.entries[len..end].iter().zip(entries) {
            slot.store(*entry, Ordering::Relaxed);
        }
        self.set_len(end);
    }

    /// As [`append`](Self::append), the last entry first: the list then gives them out in their order.
    fn append_reversed(&self, entries: &[u32]) {
        let len = self.len();
        let entries = &entries[..entries.len().min(ARRAY - len)];
        store_reversed(&self.entries[len..len + entries.len()], entries);
        self.set_len(len + entries.len());
    }

    /// Puts entries, the last one first, below those of the array, which has room for them unless it is corrupt: they are allocated
    /// later.
    fn put_below_reversed(&self, entries: &[u32]) {
        let count = entries.len();
        let len = self.len().min(ARRAY - count);
        for at in (0..len).rev() {
            self.entries[at + count].store(self.entries[at].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        store_reversed(&self.entries[..count], entries);
        self.set_len(len + count);
    }

    fn push_batch<P: Platform>(&self, view: ZoneView<'_, P>, entries: &[u32]) {
        let head = packed::pack(view.map, view.platform, entries, self.chain());
        self.set_chain(head);
        self.packed.store(self.packed.load(Ordering::Relaxed) + entries.len() as u32, Ordering::Relaxed);
    }

    /// Unpacks the newest batch of the chain, if there is one, and gives it to `take`; whether it is sound. The list loses it after
    /// that call.
    fn pop_batch<P: Platform>(&self, view: ZoneView<'_, P>, order: Order, take: impl FnOnce(&Batch)) -> bool {
        let chain = self.chain();
        if chain == Link::NONE {
            return true;
        }
        let mut batch = Batch::new();
        let next = packed::unpack(view.map, (view.platform, view.id), (chain, order), &mut batch);
        take(&batch);
        self.end_batch(next.unwrap_or(Link::NONE), batch.len());
        next.is_some()
    }

    /// Notes that the newest batch has left the chain with its `blocks`. The chain begins with `next` from now on.
    fn end_batch(&self, next: Link, blocks: usize) {
        self.count_unpacked(blocks);
        if next == Link::NONE {
            self.packed.store(0, Ordering::Relaxed);
        }
        self.set_chain(next);
    }

    /// Counts blocks that have left the chain.
    fn count_unpacked(&self, blocks: usize) {
        let packed = self.packed.load(Ordering::Relaxed);
        self.packed.store(packed.saturating_sub(blocks as u32), Ordering::Relaxed);
    }

    /// Counts blocks that came from the zone.
    fn count_in(&self, blocks: usize) {
        add_exclusive(&self.net_in, blocks as u64);
    }

    /// Counts blocks that went to the zone, or out of use.
    fn count_out(&self, blocks: usize) {
        add_exclusive(&self.net_in, (blocks as u64).wrapping_neg());
    }
}

/// Takes bad blocks of a batch out of use and calls `add` with the rest, if there is any. Returns the number of bad ones.
#[inline(never)]
fn add_good<P: Platform>(view: ZoneView<'_, P>, order: Order, mut batch: Batch, add: &mut dyn FnMut(&Batch)) -> usize {
    let bad = page_check::retire_bad(view, &mut batch, order);
    if !batch.is_empty() {
        add(&batch);
    }
    bad
}

/// Stores entries in slots, of which there are as many, the last one first.
#[inline(always)]
fn store_reversed(slots: &[AtomicU32], entries: &[u32]) {
    // A line of slots at a time: an iterator that runs backwards takes as many instructions for a step as eight stores.
    let (lines, rest) = slots.as_chunks::<PER_LINE>();
    let (first, whole) = entries.as_rchunks::<PER_LINE>();
    for (line, entries) in lines.iter().zip(whole.iter().rev()) {
        for at in 0..PER_LINE {
            line[at].store(entries[PER_LINE - 1 - at], Ordering::Relaxed);
        }
    }
    for (slot, entry) in rest.iter().zip(first.iter().rev()) {
        slot.store(*entry, Ordering::Relaxed);
    }
}

/// More blocks than any refill fetches.
const MOST_BLOCKS: u64 = 1 << 16;

/// After this number of refills that gave only bad blocks, a request releases the lock of the lists, and goes on without it.
const MOST_BAD_REFILLS: u32 = 64;

/// The longest chain that a drain divides: longer than those of the depot's lists, and a bound where the chain is damaged.
const WALKED: usize = 16;

/// Entries on a cache line.
const PER_LINE: usize = 16;

impl<P: Platform> LockedPcp<'_, P> {
    /// Announces a use of all entries of a list's array.
    #[inline(always)]
    fn touch_entries(&self, list: &PcpList, access: Access) {
        for line in list.entries.chunks(PER_LINE) {
            self.touch(&line[0], access);
        }
    }

    /// Notes that the lists are corrupt unless what was read of them `is_sound`.
    fn expect_sound(&self, is_sound: bool) {
        if !is_sound {
            self.platform.note_corrupt(self.id);
        }
    }

    /// Takes an entry of a list; if the array is empty, from a packed batch or, given a `refill`, from the zone.
    #[inline(never)]
    pub(crate) fn pop_slow(&mut self, view: ZoneView<'_, P>, id: ListId, refill: Option<Refill<'_>>) -> Option<u32> {
        if let Some(index) = self.pop(id) {
            return Some(index);
        }
        let list = self.list(id);
        if list.chain() != Link::NONE {
            self.expect_sound(list.pop_batch(view, id.order(view.geometry), |batch| {
                self.touch_entries(list, Access::Write);
                list.append(batch);
            }));
        } else if let Some(refill) = refill
            && !self.take_huge_batch(view, id)
        {
            // Again, where all blocks were bad: they never return.
            for _ in 0..MOST_BAD_REFILLS {
                if self.refill(view, refill) != Refilled::OnlyBad {
                    break;
                }
            }
        }
        self.pop(id)
    }

    /// Adds an entry that was freed although the list is at its limit: makes room, or frees the block to the zone.
    #[inline(never)]
    pub(crate) fn push_slow(&mut self, view: ZoneView<'_, P>, id: ListId, index: u32) {
        if self.push(id, index) {
            return;
        }
        if self.give_huge_batch(view, id) && self.push(id, index) {
            return;
        }
        let order = id.order(view.geometry);
        let list = self.list(id);
        if self.room(view, id.group()) < order.pages().0 {
            let batch = match self.huge_batch(view, id) {
                Some(blocks) => (blocks as u64) << order.0,
                None => self.pcp.batch_racy().0.max(order.pages().0),
            };
            self.drain_group(view, id, PageCount(batch), DrainReason::Overflow);
        } else if list.len() == ARRAY {
            self.drain_group(view, id, PageCount(BATCH as u64), DrainReason::ArrayFull);
        }
        if list.len() == ARRAY {
            self.touch_entries(list, Access::Write);
            let mut oldest = Batch::new();
            self.expect_sound(list.take_oldest(BATCH, &mut oldest, view.map, order));
            list.count_out(page_check::retire_bad(view, &mut oldest, order));
            if !oldest.is_empty() {
                list.push_batch(view, &oldest);
            }
        }
        self.share_room(view, id);
        if !self.push(id, index) {
            list.count_overflowing_free();
            Drain::begin(view, self.cpu(), DrainReason::Overflow).give_back_entry(index, order);
        }
    }

    /// The blocks that move at once between a list of huge blocks and the zone's stacks of these; `None` for other lists.
    fn huge_batch(&self, view: ZoneView<'_, P>, id: ListId) -> Option<usize> {
        id.mobility()?;
        transfer::huge_batch(view.zone, self.high(Group::Huge) >> id.order(view.geometry).0)
    }

    /// Gives the zone's stacks the oldest blocks of a list of huge blocks that has no room left, or of the one that shares its limit;
    /// whether there were enough for a batch.
    #[inline(always)]
    fn give_huge_batch(&mut self, view: ZoneView<'_, P>, first: ListId) -> bool {
        let Some(batch) = self.huge_batch(view, first) else { return false };
        let order = first.order(view.geometry);
        let has_room = || self.room(view, Group::Huge) >= order.pages().0 && self.list(first).len() < ARRAY;
        if self.list(first).len() < 2 * batch && has_room() {
            return false;
        }
        for id in first.group_from() {
            let (list, Some(mobility)) = (self.list(id), id.mobility()) else { return false };
            let len = list.len();
            if len >= batch && transfer::push_huge(view, self.cpu(), mobility, &list.entries[..batch]) {
                self.touch(&list.entries[0], Access::Write);
                for (to, from) in list.entries.iter().zip(&list.entries[batch..len]) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                list.set_len(len - batch);
                list.count_out(batch);
                add_exclusive(&self.pcp.counts.drains, 1);
                return true;
            }
        }
        false
    }

    /// Fills an empty list of huge blocks from the zone's stacks; whether they had a batch.
    #[inline(always)]
    fn take_huge_batch(&mut self, view: ZoneView<'_, P>, id: ListId) -> bool {
        let (list, Some(mobility)) = (self.list(id), id.mobility()) else { return false };
        if !list.is_empty() {
            return false;
        }
        let blocks = transfer::pop_huge(view, self.cpu(), mobility, &list.entries);
        if blocks == 0 {
            return false;
        }
        self.touch(&list.entries[0], Access::Write);
        list.set_len(blocks);
        list.count_in(blocks);
        if blocks > list.word().limit() {
            self.share_room(view, id);
        }
        add_exclusive(&self.pcp.counts.refills, 1);
        true
    }

    /// The frames that a group may still take.
    fn room(&self, view: ZoneView<'_, P>, group: Group) -> u64 {
        self.high(group).saturating_sub(self.pcp.held_racy(group, view.geometry).0)
    }

    fn high(&self, group: Group) -> u64 {
        self.pcp.high[group as usize].load(Ordering::Relaxed).into()
    }

    /// Divides the limit of its group again, unless the list has room and all parts keep to the limit: gives the list all that the
    /// group may still take and that is no other list's part, or half of the others' parts if everything is. Lists over their limit
    /// get less than they hold.
    fn share_room(&self, view: ZoneView<'_, P>, first: ListId) {
        let (group, word) = (first.group(), self.list(first).word());
        let totals = self.pcp.totals_racy(group, view.geometry);
        let high = self.high(group);
        if word.len() >= word.limit() || totals.limits + totals.packed > high {
            self.divide_room(view, first, totals, high);
        }
    }

    fn divide_room(&self, view: ZoneView<'_, P>, first: ListId, totals: Totals, high: u64) {
        let order = |id: ListId| id.order(view.geometry);
        let spare = |id: ListId| {
            let list = self.list(id);
            (list.word().limit().saturating_sub(list.len()) as u64) << order(id).0
        };
        let pages = order(first).pages().0;
        let mut room = high.saturating_sub(totals.held);
        let unassigned = room.saturating_sub(first.group_from().skip(1).map(spare).sum());
        let wanted = if unassigned >= pages { unassigned } else { (room / 2).max(pages) };
        let mut left = high.saturating_sub(totals.packed);
        for id in first.group_from() {
            let list = self.list(id);
            let len = list.len();
            let wanted = if id == first { wanted } else { spare(id) };
            let part = ((wanted.min(room) >> order(id).0) as usize).min(ARRAY - len);
            let limit = (len + part).min((left >> order(id).0) as usize);
            room -= (part as u64) << order(id).0;
            left -= (limit as u64) << order(id).0;
            list.set_word(list.word().with_limit(limit));
        }
    }

    /// For the validator: the frames by which the parts of the lists exceed the limit of their group.
    pub(crate) fn excess(&self, view: ZoneView<'_, P>, group: Group) -> u64 {
        let Totals { packed, limits, .. } = self.pcp.totals_racy(group, view.geometry);
        (limits + packed).saturating_sub(self.high(group).max(packed))
    }

    /// The number of blocks that a refill of an empty list fetches (the kernel's `nr_pcp_alloc`, without its ramp).
    fn refill_blocks(&self, view: ZoneView<'_, P>, id: ListId, order: Order) -> usize {
        let batch = self.pcp.batch_racy().0;
        let blocks = match id.group() {
            Group::Huge if self.huge_batch(view, id).is_some() && transfer::is_short_of_pageblocks_racy(view) => 1,
            Group::Huge => {
                let high = self.pcp.high[Group::Huge as usize].load(Ordering::Relaxed);
                u64::from(high) >> order.0 >> 1
            }
            Group::Small if order.0 > 0 && batch > 1 => (batch >> order.0).max(2),
            Group::Small => batch,
        };
        blocks.clamp(1, MOST_BLOCKS) as usize
    }

    /// Fetches a batch from the zone into an empty list, or less if the zone has less. Bad blocks go out of use.
    fn refill(&mut self, view: ZoneView<'_, P>, refill: Refill<'_>) -> Refilled {
        let wanted = self.refill_blocks(view, refill.list, refill.request.order);
        let room = self.room(view, refill.list.group()) as usize >> refill.request.order.0;
        let list = self.list(refill.list);
        let mut first = true;
        self.touch_entries(list, Access::Write);
        let mut add = |batch: &Batch| {
            if core::mem::take(&mut first) {
                // So that the list gives frames out in the zone's order: ascending.
                list.append_reversed(batch);
            } else if list.len() + batch.len() <= ARRAY && list.chain() == Link::NONE {
                list.put_below_reversed(batch);
            } else {
                list.push_batch(view, batch);
            }
        };
        let mut bad = 0;
        let deliver = |batch: &Batch| match view.checks {
            PageChecks::None => add(batch),
            _ => bad += add_good(view, refill.request.order, *batch, &mut add),
        };
        let batch_type = self.batch_type(view, refill.list);
        let Refill { request: blocks, effort, .. } = refill;
        let request = RefillRequest { blocks, cpu: self.cpu(), wanted, room, batch_type, effort };
        let got = transfer::fetch(view, request, deliver);
        let good = got.saturating_sub(bad);
        list.count_in(good);
        if list.chain() != Link::NONE || list.len() > list.word().limit() {
            // Other lists may have had a part of this room.
            self.share_room(view, refill.list);
        }
        add_exclusive(&self.pcp.counts.refills, 1);
        if bad > 0 && good == 0 { Refilled::OnlyBad } else { Refilled::AsFarAsThereWas }
    }

    /// The type of a list that holds single frames and whose limit leaves room for whole batches.
    fn batch_type(&self, view: ZoneView<'_, P>, id: ListId) -> Option<MigrateType> {
        let list_type = id.small_type().filter(|_| id.order(view.geometry) == Order::ZERO)?;
        let high = self.pcp.high[Group::Small as usize].load(Ordering::Relaxed);
        (high as usize >= ARRAY).then_some(list_type)
    }

    /// Gives back to the zone at least `pages` frames of a list and those that share its limit, as far as they have them; if an
    /// array is full, of that list only.
    fn drain_group(&mut self, view: ZoneView<'_, P>, first: ListId, pages: PageCount, reason: DrainReason) {
        let mut left = pages.0.min(view.map.places());
        let mut given_back = false;
        let mut drain = Drain::begin(view, self.cpu(), reason);
        for id in first.group_from() {
            let order = id.order(view.geometry);
            while left > 0 && !self.list(id).is_empty() {
                let mut source = ListSource { lists: self, view, id, order, batch_type: self.batch_type(view, id) };
                let wanted = left.div_ceil(order.pages().0).min(BATCH as u64) as usize;
                let blocks = drain.give_back(&mut source, order, wanted);
                if blocks == 0 {
                    break;
                }
                given_back = true;
                left = left.saturating_sub(blocks as u64 * order.pages().0);
            }
            if reason == DrainReason::ArrayFull {
                break;
            }
        }
        if given_back {
            add_exclusive(&self.pcp.counts.drains, 1);
        }
    }

    /// Gives everything back to the zone.
    pub(crate) fn drain(&mut self, view: ZoneView<'_, P>) {
        for group in [Group::Small, Group::Huge] {
            self.drain_group(view, ListId::first(group), PageCount(u64::MAX), DrainReason::Emptying);
        }
    }

    /// Gives all huge blocks back to the zone.
    pub(crate) fn drain_huge(&mut self, view: ZoneView<'_, P>) {
        self.drain_group(view, ListId::first(Group::Huge), PageCount(u64::MAX), DrainReason::Emptying);
    }

    /// Visits the entries of all lists, packed ones included, until `visit` refuses one. Returns the index at which the walk ended
    /// early: an entry refused, or the head of a packed batch that leads nowhere.
    ///
    /// For the validator: looks at no page without memory, and ends, whatever the lists hold.
    pub(crate) fn check_entries(
        &self,
        view: ZoneView<'_, P>,
        mut visit: impl FnMut(ListId, u32) -> bool,
    ) -> Option<u32> {
        let mut left = view.map.places();
        let mut refused = |id, index| {
            let is_too_many = left == 0;
            left = left.saturating_sub(1);
            is_too_many || !visit(id, index)
        };
        for id in ListId::all() {
            let list = self.list(id);
            let mut entries = list.entries[..list.len()].iter().map(|slot| slot.load(Ordering::Relaxed));
            if let Some(index) = entries.find(|index| refused(id, *index)) {
                return Some(index);
            }
            let mut chain = list.chain();
            while chain != Link::NONE {
                let mut batch = Batch::new();
                let Some(next) = packed::read_checked(view.map, chain, &mut batch, |pfn| view.page_of(pfn)) else {
                    return Some(chain.0 - 1);
                };
                if let Some(index) = batch.iter().find(|index| refused(id, **index)) {
                    return Some(*index);
                }
                chain = next;
            }
        }
        None
    }
}

/// What came of dividing a chain.
enum Cut {
    /// The chain lost these batches.
    Off(PackedBatches),
    /// The chain lost a batch with bad blocks, which are out of use; the rest of it is the newest batch now.
    Retired,
    /// The chain is as it was: it has one batch or more than [`WALKED`], or one of the half is short.
    Whole,
}

/// A list that a drain takes blocks from.
struct ListSource<'l, 'a, 'v, P: Platform> {
    lists: &'l LockedPcp<'a, P>,
    view: ZoneView<'v, P>,
    id: ListId,
    order: Order,
    batch_type: Option<MigrateType>,
}

impl<'a, P: Platform> ListSource<'_, 'a, '_, P> {
    fn list(&self) -> &'a PcpList {
        self.lists.list(self.id)
    }

    /// Cuts the older half off the chain, which begins at `newest`: those batches go to the depot in one piece, and the list keeps what
    /// was freed last.
    fn cut_older_half(&self, newest: MapPlace) -> Cut {
        let view = self.view;
        let mut chain = [newest; WALKED];
        let mut len = 1;
        while let Some(next) = view.map.next(view.page(chain[len - 1]).next()) {
            let Some(place) = chain.get_mut(len) else { return Cut::Whole };
            *place = next;
            len += 1;
        }
        let kept = len.div_ceil(2);
        let older = &chain[kept..len];
        let (Some(first), Some(last)) = (older.first(), older.last()) else { return Cut::Whole };
        for (at, head) in (kept..).zip(older) {
            if packed::len_of(&view.page(*head)) != BATCH {
                return Cut::Whole;
            }
            if !page_check::is_packed_batch_good(view, head.link()) {
                self.copied().unlink_bad(chain[at - 1], *head);
                return Cut::Retired;
            }
        }
        view.page(chain[kept - 1]).set_next(Link::NONE);
        self.list().count_unpacked(older.len() * BATCH);
        Cut::Off(PackedBatches { first: first.link(), last: last.link(), batches: older.len() })
    }

    /// Takes a batch with bad blocks out of the chain, the bad blocks out of use, and puts the rest back as the newest batch.
    #[cold]
    #[inline(never)]
    fn unlink_bad(self, newer: MapPlace, head: MapPlace) {
        let view = self.view;
        let mut batch = Batch::new();
        let next = packed::unpack(view.map, (view.platform, view.id), (head.link(), self.order), &mut batch);
        self.lists.expect_sound(next.is_some());
        view.page(newer).set_next(next.unwrap_or(Link::NONE));
        self.list().count_unpacked(batch.len());
        self.put_back_good(batch);
    }

    /// Takes bad blocks out of use, and puts the rest back as a packed batch.
    #[cold]
    #[inline(never)]
    fn put_back_good(self, mut batch: Batch) {
        self.list().count_out(page_check::retire_bad(self.view, &mut batch, self.order));
        if !batch.is_empty() {
            self.list().push_batch(self.view, &batch);
        }
    }

    /// A copy for calls that are not inlined: a reference to this would keep the drain from having it in registers.
    #[inline(always)]
    fn copied(&self) -> Self {
        Self { ..*self }
    }
}

impl<P: Platform> DrainSource for ListSource<'_, '_, '_, P> {
    fn batch_type(&self) -> Option<MigrateType> {
        self.batch_type
    }

    fn held(&self) -> PageCount {
        self.lists.pcp.held_racy(Group::Small, self.view.geometry)
    }

    fn announce(&self) {
        self.lists.touch_entries(self.list(), Access::Write);
    }

    fn take(&mut self, most: usize, batch: &mut Batch) {
        let (list, map, order) = (self.list(), self.view.map, self.order);
        self.lists.expect_sound(list.take_oldest(most, batch, map, order));
        if batch.is_empty() {
            self.lists.expect_sound(list.pop_batch(self.view, order, |unpacked| *batch = *unpacked));
        }
        list.count_out(batch.len());
    }

    /// The older half of the chain, its only batch, or the oldest entries of the array. A batch of the chain moves as it is: only links
    /// change.
    fn take_packed(&mut self) -> Option<PackedBatches> {
        let (list, view) = (self.list(), self.view);
        let head = match view.map.next(list.chain()) {
            Some(newest) => {
                match self.cut_older_half(newest) {
                    Cut::Off(older) => {
                        list.count_out(older.batches * BATCH);
                        return Some(older);
                    }
                    Cut::Retired => return None,
                    Cut::Whole => {}
                }
                let page = view.page(newest);
                if packed::len_of(&page) != BATCH {
                    return None;
                }
                if !page_check::is_packed_batch_good(view, newest.link()) {
                    let mut batch = Batch::new();
                    self.lists.expect_sound(list.pop_batch(view, self.order, |unpacked| batch = *unpacked));
                    self.copied().put_back_good(batch);
                    return None;
                }
                list.end_batch(page.next(), BATCH);
                newest.link()
            }
            None if list.len() >= BATCH => {
                self.announce();
                let mut oldest = Batch::new();
                if !list.take_oldest(BATCH, &mut oldest, view.map, self.order) {
                    self.lists.expect_sound(false);
                    return None;
                }
                if !page_check::is_batch_good(view, &oldest, self.order) {
                    self.copied().put_back_good(oldest);
                    return None;
                }
                packed::pack(view.map, view.platform, &oldest, Link::NONE)
            }
            None => return None,
        };
        list.count_out(BATCH);
        Some(PackedBatches { first: head, last: head, batches: 1 })
    }
}
