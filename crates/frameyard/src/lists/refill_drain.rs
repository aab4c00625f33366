//! Refilling and draining a CPU's lists.
//!
//! The mechanisms behind [`transfer`](crate::transfer) decide how a batch moves between a list and the zone.

use crate::lists::list::PER_LINE;
use crate::lists::{ARRAY, Group, ListId, LockedPcp, PcpList};
use crate::page::Link;
use crate::platform::{Access, OwnList, Platform};
use crate::store::batch::{BATCH, Batch, packed};
use crate::store::{self, RefillRequest, page_check};
use crate::sync::Ordering;
use crate::transfer::{self, Drain, DrainReason};
use crate::units::{Order, PageCount};
use crate::zone::checks::PageChecks;
use crate::zone::exclusive::add_exclusive;
use crate::zone::request::BlockRequest;
use crate::zone::view::ZoneView;

/// What a refill may take from the zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    pub(crate) list: ListId,
    pub(crate) request: BlockRequest,
}

/// What came of a refill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refilled {
    /// The list has what the zone gave, which may be nothing.
    AsFarAsThereWas,
    /// The list has nothing because all blocks of the zone were bad.
    OnlyBad,
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

/// The most blocks of the orders between the small ones and that of a line that a refill fetches.
const MOST_LARGE: u64 = 16;

/// More blocks than any refill fetches.
const MOST_BLOCKS: u64 = 1 << 16;

/// The entries for which a list's first line has no room: other words are there.
const BEFORE_ENTRIES: usize = OwnList::ENTRIES / size_of::<u32>();

/// After this number of refills that gave only bad blocks, a request releases the lock of the lists, and goes on without it.
const MOST_BAD_REFILLS: u32 = 64;

impl<P: Platform> LockedPcp<'_, P> {
    /// Announces a use of all entries of a list's array.
    ///
    /// Under locks, a list stands for a kernel's in the predictions of published tables. Those count eight lines, which the entries
    /// alone would fill, although they begin behind the word of the list and so lie on nine.
    #[inline(always)]
    pub(super) fn touch_entries(&self, list: &PcpList, access: Access) {
        if self.platform.has_sequences() {
            return self.touch_first_entries(list, ARRAY, access);
        }
        for line in list.entries.chunks(PER_LINE) {
            self.touch(&line[0], access);
        }
    }

    /// Announces a use of the first entries of a list's array.
    #[inline(always)]
    fn touch_first_entries(&self, list: &PcpList, count: usize, access: Access) {
        let mut at = 0;
        while let Some(entry) = list.entries[..count.min(ARRAY)].get(at) {
            self.touch(entry, access);
            at = (at + BEFORE_ENTRIES) / PER_LINE * PER_LINE + PER_LINE - BEFORE_ENTRIES;
        }
    }

    /// Notes that the lists are corrupt unless what was read of them `is_sound`.
    pub(super) fn expect_sound(&self, is_sound: bool) {
        if !is_sound {
            self.platform.note_corrupt(self.id);
        }
    }

    /// Takes an entry of a list; if the array is empty, from a packed batch or, given a `refill`, from the zone.
    #[inline(never)]
    pub(crate) fn pop_slow(&mut self, view: ZoneView<'_, P>, id: ListId, refill: Option<Refill>) -> Option<u32> {
        if let Some(index) = self.pop(id) {
            return Some(index);
        }
        let list = self.list(id);
        if list.chain() == Link::NONE && refill.is_none() && store::keeps_bits(view) {
            self.refill_ready(view, id);
        }
        if list.chain() == Link::NONE
            && let Some(refill) = refill
        {
            // Again, where all blocks were bad: they never return.
            for _ in 0..MOST_BAD_REFILLS {
                if self.refill(view, refill) != Refilled::OnlyBad {
                    break;
                }
            }
        }
        if list.word().len() == 0 && list.chain() != Link::NONE {
            self.touch_entries(list, Access::Write);
            self.expect_sound(list.pop_batch(view, id.order(view.geometry), |batch| list.append(batch)));
        }
        self.pop(id)
    }

    /// Adds an entry that was freed although the list is at its limit: makes room, or frees the block to the zone.
    #[inline(never)]
    pub(crate) fn push_slow(&mut self, view: ZoneView<'_, P>, id: ListId, index: u32) {
        if self.push(id, index) {
            return;
        }
        if store::keeps_bits(view) && self.list(id).len() > 1 {
            self.return_older_half(view, id);
            if self.push(id, index) {
                return;
            }
        }
        if self.pack_oldest_within_limits(view, id) && self.push(id, index) {
            return;
        }
        let order = id.order(view.geometry);
        if self.room(view, id.group()) < order.pages().0 {
            let batch = self.pcp.batch_racy().0.max(order.pages().0);
            self.drain_group(view, id, PageCount(batch), DrainReason::Overflow);
        }
        if self.list(id).len() == ARRAY {
            self.pack_oldest(view, id);
        }
        self.share_room(view, id);
        if !self.push(id, index) {
            self.list(id).count_overflowing_free();
            Drain::begin(view, self.cpu(), DrainReason::Overflow).give_back_entry(index, order);
        }
    }

    /// Makes room in a full array, if no other list loses its part of the limit by that; whether it did.
    #[inline(always)]
    fn pack_oldest_within_limits(&mut self, view: ZoneView<'_, P>, id: ListId) -> bool {
        let list = self.list(id);
        if list.len() < ARRAY || store::keeps_bits(view) {
            return false;
        }
        let pages = |blocks: u64| blocks << id.order(view.geometry).0;
        let fits = self.unassigned(view, id.group()).min(self.room(view, id.group())) >= pages(BATCH as u64);
        if fits {
            self.pack_oldest(view, id);
        }
        fits
    }

    /// Gives the older half of an array back to the zone.
    #[inline(never)]
    fn return_older_half(&mut self, view: ZoneView<'_, P>, id: ListId) {
        let (list, order) = (self.list(id), id.order(view.geometry));
        let mut drain = Drain::begin(view, self.cpu(), DrainReason::Overflow);
        self.touch_entries(list, Access::Write);
        drain.give_back(order, |batch| self.take_oldest(view, id, (list.len() / 2).min(BATCH), batch));
        drop(drain);
        add_exclusive(&self.pcp.counts.drains, 1);
    }

    /// Fills an empty list with what the zone has ready for it without a search.
    #[inline(never)]
    fn refill_ready(&mut self, view: ZoneView<'_, P>, id: ListId) {
        let (list, Some(list_type)) = (self.list(id), id.allocated_type()) else { return };
        let order = id.order(view.geometry);
        let (wanted, mut batch) = (self.refill_blocks(id, order), Batch::new());
        // Only single frames come by the word. The room of a list depends on all lists of its group.
        let room = if order == Order::ZERO { self.room(view, id.group()) as usize } else { wanted };
        transfer::take_ready(view, self.cpu(), (order, list_type), (wanted, room), &mut batch);
        if batch.is_empty() {
            return;
        }
        self.touch_entries(list, Access::Write);
        list.append_reversed(&batch);
        list.count_in(batch.len());
        if list.len() > list.word().limit() {
            self.share_room(view, id);
        }
        add_exclusive(&self.pcp.counts.refills, 1);
    }

    /// Packs the oldest entries of a full array.
    fn pack_oldest(&mut self, view: ZoneView<'_, P>, id: ListId) {
        let (list, order) = (self.list(id), id.order(view.geometry));
        self.touch_entries(list, Access::Write);
        let mut oldest = Batch::new();
        self.expect_sound(list.take_oldest(BATCH, &mut oldest, view.map, order));
        list.count_out(page_check::retire_bad(view, &mut oldest, order));
        if !oldest.is_empty() {
            list.push_batch(view, &oldest);
        }
    }

    /// The number of blocks that a refill of an empty list fetches (the kernel's `nr_pcp_alloc`, without its ramp).
    fn refill_blocks(&self, id: ListId, order: Order) -> usize {
        let batch = self.pcp.batch_racy().0;
        let blocks = match id.group() {
            Group::Huge => {
                let high = self.pcp.high[Group::Huge as usize].load(Ordering::Relaxed);
                u64::from(high) >> order.0 >> 1
            }
            // Half of what they hold, as frees may follow.
            Group::Large => (self.high(Group::Large) >> order.0 >> 1).min(MOST_LARGE),
            Group::Small if order.0 > 0 && batch > 1 => (batch >> order.0).max(2),
            Group::Small => batch,
        };
        blocks.clamp(1, MOST_BLOCKS) as usize
    }

    /// Fetches a batch from the zone into an empty list, or less if the zone has less. Bad blocks go out of use.
    fn refill(&mut self, view: ZoneView<'_, P>, refill: Refill) -> Refilled {
        let wanted = self.refill_blocks(refill.list, refill.request.order);
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
        let order = refill.request.order;
        let deliver = |batch: &Batch| match view.checks {
            PageChecks::None => add(batch),
            _ => bad += add_good(view, order, *batch, &mut add),
        };
        let request = RefillRequest { blocks: refill.request, cpu: self.cpu(), wanted, room };
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

    /// Gives back to the zone at least `pages` frames of a list and those that share its limit, as far as they have them.
    fn drain_group(&mut self, view: ZoneView<'_, P>, first: ListId, pages: PageCount, reason: DrainReason) {
        let mut left = pages.0.min(view.map.places());
        let mut given_back = false;
        let mut drain = Drain::begin(view, self.cpu(), reason);
        for id in first.group_from() {
            let order = id.order(view.geometry);
            while left > 0 && !self.list(id).is_empty() {
                self.touch_entries(self.list(id), Access::Write);
                let wanted = left.div_ceil(order.pages().0).min(BATCH as u64) as usize;
                let blocks = drain.give_back(order, |batch| self.take_oldest(view, id, wanted, batch));
                if blocks == 0 {
                    break;
                }
                given_back = true;
                left = left.saturating_sub(blocks as u64 * order.pages().0);
            }
        }
        if given_back {
            add_exclusive(&self.pcp.counts.drains, 1);
        }
    }

    /// Takes up to `most` blocks of a list for a drain, at most a batch: the oldest of its array, or a packed batch if that is empty.
    fn take_oldest(&self, view: ZoneView<'_, P>, id: ListId, most: usize, batch: &mut Batch) {
        let (list, order) = (self.list(id), id.order(view.geometry));
        self.expect_sound(list.take_oldest(most, batch, view.map, order));
        if batch.is_empty() {
            self.expect_sound(list.pop_batch(view, order, |unpacked| *batch = *unpacked));
        }
        list.count_out(batch.len());
    }

    /// Gives everything back to the zone.
    pub(crate) fn drain(&mut self, view: ZoneView<'_, P>) {
        for group in self.pcp.groups() {
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
        for id in self.pcp.ids() {
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
