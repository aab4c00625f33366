//! Refilling and draining a CPU's lists.
//!
//! How a batch moves between a list and the zone is up to the mechanisms behind [`transfer`](crate::zone::transfer).

use super::list::PER_LINE;
use super::list_source::ListSource;
use super::{ARRAY, Group, ListId, LockedPcp, PcpList};
use crate::page::Link;
use crate::platform::{Access, OwnList, Platform};
use crate::sync::Ordering;
use crate::units::{MigrateType, Order, PageCount};
use crate::zone::batch::{BATCH, Batch, packed};
use crate::zone::checks::PageChecks;
use crate::zone::effort::Effort;
use crate::zone::exclusive::add_exclusive;
use crate::zone::page_check;
use crate::zone::request::BlockRequest;
use crate::zone::transfer::{self, Delivered, Drain, DrainReason, RefillRequest};
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
        if self.platform.has_sections() {
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
    pub(crate) fn pop_slow(&mut self, view: ZoneView<'_, P>, id: ListId, refill: Option<Refill<'_>>) -> Option<u32> {
        if let Some(index) = self.pop(id) {
            return Some(index);
        }
        let list = self.list(id);
        if list.chain() == Link::NONE && refill.is_none() && transfer::keeps_bits(view) {
            self.refill_ready(view, id);
        }
        if list.chain() == Link::NONE
            && let Some(refill) = refill
            && !self.take_huge_batch(view, id)
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
        if self.give_huge_batch(view, id) && self.push(id, index) {
            return;
        }
        if transfer::keeps_bits(view) && self.list(id).len() > 1 {
            self.return_older_half(view, id);
            if self.push(id, index) {
                return;
            }
        }
        if self.pack_oldest_within_limits(view, id) && self.push(id, index) {
            return;
        }
        let order = id.order(view.geometry);
        if self.room_of(view, id) < order.pages().0 {
            let batch = match self.huge_batch(view, id) {
                Some(blocks) => (blocks as u64) << order.0,
                None => self.pcp.batch_racy().0.max(order.pages().0),
            };
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

    /// Makes room in a full array, if no other list loses its part of the limit by that; whether it did. First a mechanism may take
    /// batches of a long chain.
    #[inline(always)]
    fn pack_oldest_within_limits(&mut self, view: ZoneView<'_, P>, id: ListId) -> bool {
        let list = self.list(id);
        if list.len() < ARRAY || transfer::keeps_bits(view) {
            return false;
        }
        let pages = |blocks: u64| blocks << id.order(view.geometry).0;
        if transfer::gives_up_batches(view, PageCount(pages(list.blocks_racy()))) {
            self.drain_group(view, id, PageCount(BATCH as u64), DrainReason::ArrayFull);
        }
        let fits = self.unassigned(view, id.group()).min(self.room_of(view, id)) >= pages(BATCH as u64);
        if fits && list.len() == ARRAY {
            self.pack_oldest(view, id);
        }
        fits
    }

    /// Gives the older half of an array back to the zone.
    #[inline(never)]
    fn return_older_half(&mut self, view: ZoneView<'_, P>, id: ListId) {
        let (list, order) = (self.list(id), id.order(view.geometry));
        let mut drain = Drain::begin(view, self.cpu(), DrainReason::Overflow);
        let mut source = ListSource { lists: self, view, id, order, batch_type: None };
        drain.give_back(&mut source, order, (list.len() / 2).min(BATCH));
        drop(drain);
        add_exclusive(&self.pcp.counts.drains, 1);
    }

    /// Fills an empty list with what the zone has ready for it without a search.
    #[inline(never)]
    fn refill_ready(&mut self, view: ZoneView<'_, P>, id: ListId) {
        let (list, Some(list_type)) = (self.list(id), id.allocated_type()) else { return };
        let order = id.order(view.geometry);
        let (wanted, mut batch) = (self.refill_blocks(view, id, order), Batch::new());
        transfer::take_ready(view, self.cpu(), (order, list_type), wanted, &mut batch);
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
                self.touch_first_entries(list, len, Access::Write);
                list.move_down(batch, len);
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
        self.touch_first_entries(list, blocks, Access::Write);
        list.set_len(blocks);
        list.count_in(blocks);
        if blocks > list.word().limit() {
            self.share_room(view, id);
        }
        add_exclusive(&self.pcp.counts.refills, 1);
        true
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
            // Half of what they hold, as frees may follow.
            Group::Large => (self.high(Group::Large) >> order.0 >> 1).min(MOST_LARGE),
            Group::Small if order.0 > 0 && batch > 1 => (batch >> order.0).max(2),
            Group::Small => batch,
        };
        blocks.clamp(1, MOST_BLOCKS) as usize
    }

    /// Fetches a batch from the zone into an empty list, or less if the zone has less. Bad blocks go out of use.
    fn refill(&mut self, view: ZoneView<'_, P>, refill: Refill<'_>) -> Refilled {
        let wanted = self.refill_blocks(view, refill.list, refill.request.order);
        let room = self.room_of(view, refill.list) as usize >> refill.request.order.0;
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
        let deliver = |delivered: Delivered<'_>| match (view.checks, delivered) {
            (PageChecks::None, Delivered::Blocks(batch)) => add(batch),
            (PageChecks::None, Delivered::Packed(batches)) => list.push_packed(view, batches),
            (_, Delivered::Blocks(batch)) => bad += add_good(view, order, *batch, &mut add),
            (_, Delivered::Packed(batches)) => {
                let is_sound = batches.unpack(view, order, |batch| bad += add_good(view, order, batch, &mut add));
                self.expect_sound(is_sound);
            }
        };
        let batch_type = self.batch_type(view, refill.list);
        let Refill { request: blocks, effort, .. } = refill;
        let (given_out, _) = list.flow_racy();
        let request = RefillRequest { blocks, cpu: self.cpu(), wanted, room, given_out, batch_type, effort };
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

    /// The type of a list of a small order whose limit leaves room for whole batches.
    fn batch_type(&self, view: ZoneView<'_, P>, id: ListId) -> Option<MigrateType> {
        let most = self.most_of(id).min(self.high(Group::Small) >> id.order(view.geometry).0);
        id.allocated_type().filter(|_| most >= transfer::least_room(view) as u64)
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

    /// Gives single movable frames back to the zone, up to a batch, as a list does that overflows: each in a batch of its own.
    #[cfg(all(test, loom))]
    pub(crate) fn overflow_for_model(&mut self, view: ZoneView<'_, P>) {
        use crate::zone::transfer::DrainSource;

        let Some(id) = ListId::small(Order::ZERO, MigrateType::Movable) else { return };
        let mut batch = Batch::new();
        ListSource { lists: self, view, id, order: Order::ZERO, batch_type: None }.take(BATCH, &mut batch);
        batch.iter().for_each(|entry| transfer::give_back_for_model(view, self.cpu(), *entry));
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
