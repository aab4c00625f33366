//! Refilling and draining a CPU's lists, and the packed batches behind their arrays.
//!
//! What a batch does on its way between a list and the zone is said in [`crossing`](crate::zone::transfer).

use super::packed::{self, BATCH};
use super::{ARRAY, Group, ListId, LockedPcp, PcpList, add, sub};
use crate::page::Link;
use crate::platform::{Access, Platform};
use crate::sync::Ordering;
use crate::units::{Order, PageCount};
use crate::zone::fallback::BlockRequest;
use crate::zone::transfer::{self, Ask, Batch, Drain, DrainReason};
use crate::zone::{ZoneView, add_exclusive};

/// What a refill may take from the zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    pub(crate) list: ListId,
    pub(crate) request: BlockRequest,
}

impl PcpList {
    pub(super) fn len(&self) -> usize {
        (self.len.load(Ordering::Relaxed) as usize).min(ARRAY)
    }

    pub(super) fn chain(&self) -> Link {
        Link(self.chain.load(Ordering::Relaxed))
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && self.chain() == Link::NONE
    }

    /// Takes the oldest entries of the array, and moves the others down.
    pub(super) fn take_oldest(&self, count: usize) -> Batch {
        let mut picked = Batch::none();
        let len = self.len();
        picked.len = count.min(len).min(BATCH);
        for (entry, slot) in picked.entries.iter_mut().zip(&self.entries[..picked.len]) {
            *entry = slot.load(Ordering::Relaxed);
        }
        for at in picked.len..len {
            self.entries[at - picked.len].store(self.entries[at].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.len.store((len - picked.len) as u32, Ordering::Relaxed);
        picked
    }

    /// Appends entries to the array, which has room for them.
    fn append(&self, entries: impl ExactSizeIterator<Item = u32>) {
        let len = self.len();
        let end = len + entries.len();
        for (slot, entry) in self.entries[len..end].iter().zip(entries) {
            slot.store(entry, Ordering::Relaxed);
        }
        self.len.store(end as u32, Ordering::Relaxed);
    }

    /// Puts entries below those of the array, which has room for them: they are handed out later.
    fn put_below(&self, entries: impl ExactSizeIterator<Item = u32>) {
        let (len, count) = (self.len(), entries.len());
        for at in (0..len).rev() {
            self.entries[at + count].store(self.entries[at].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (slot, entry) in self.entries.iter().zip(entries) {
            slot.store(entry, Ordering::Relaxed);
        }
        self.len.store((len + count) as u32, Ordering::Relaxed);
    }

    fn push_batch<P: Platform>(&self, view: ZoneView<'_, P>, entries: &[u32]) {
        let leader = packed::pack(view.map, view.platform, entries, self.chain());
        self.chain.store(leader.0, Ordering::Relaxed);
    }

    fn pop_batch<P: Platform>(&self, view: ZoneView<'_, P>) -> Batch {
        let mut picked = Batch::none();
        let chain = self.chain();
        if chain != Link::NONE {
            let unpacked = packed::unpack(view.map, view.platform, chain, &mut picked.entries);
            picked.len = unpacked.len;
            self.chain.store(unpacked.next.0, Ordering::Relaxed);
        }
        picked
    }
}

/// How many entries lie on a line.
const PER_LINE: usize = 16;

impl<P: Platform> LockedPcp<'_, P> {
    /// Says that all entries of a list's array are used, or about to be.
    #[inline(always)]
    pub(super) fn touch_entries(&self, list: &PcpList, access: Access) {
        for line in list.entries.chunks(PER_LINE) {
            self.touch(&line[0], access);
        }
    }

    /// Takes an entry of a list, from a packed batch or the zone where the array is empty.
    ///
    /// With `refill` absent the zone is left alone.
    #[inline(never)]
    pub(crate) fn pop_slow(&mut self, view: ZoneView<'_, P>, id: ListId, refill: Option<Refill>) -> Option<u32> {
        let order = id.order(view.geometry);
        if let Some(index) = self.pop(id, order) {
            return Some(index);
        }
        let list = self.list(id);
        if list.chain() != Link::NONE {
            let picked = list.pop_batch(view);
            self.touch_entries(list, Access::Write);
            list.append(picked.entries().iter().copied());
        } else if let Some(refill) = refill {
            self.refill(view, refill);
        }
        self.pop(id, order)
    }

    /// Adds an entry where the array is full or the limit reached: makes room, or frees to the zone.
    #[inline(never)]
    pub(crate) fn push_slow(&mut self, view: ZoneView<'_, P>, id: ListId, index: u32) {
        let order = id.order(view.geometry);
        if self.push(id, order, index) {
            return;
        }
        if !self.has_room(id, order) {
            let batch = self.pcp.batch_racy().0.max(order.pages().0);
            self.drain_group(view, id, PageCount(batch), DrainReason::Overflow);
        } else {
            self.move_on_what_is_too_much(view, id);
        }
        let list = self.list(id);
        if list.len() == ARRAY {
            self.touch_entries(list, Access::Write);
            let oldest = list.take_oldest(BATCH);
            list.push_batch(view, oldest.entries());
        }
        if !self.push(id, order, index) {
            Drain::new(view, self.cpu(), DrainReason::Overflow).give(&Batch::one(index), order);
        }
    }

    pub(super) fn has_room(&self, id: ListId, order: Order) -> bool {
        let group = id.group() as usize;
        self.pcp.room[group].load(Ordering::Relaxed) as i32 >= order.pages().0 as i32
    }

    /// How many blocks a refill of an empty list fetches (the kernel's `nr_pcp_alloc`, without its ramp).
    fn refill_blocks(&self, id: ListId, order: Order) -> usize {
        let batch = self.pcp.batch_racy().0;
        let blocks = match id.group() {
            Group::Huge => {
                let high = self.pcp.high[Group::Huge as usize].load(Ordering::Relaxed);
                u64::from(high) >> order.0 >> 1
            }
            Group::Small if order.0 > 0 && batch > 1 => (batch >> order.0).max(2),
            Group::Small => batch,
        };
        blocks.max(1) as usize
    }

    /// Fetches a batch from the zone into an empty list, or as much of one as there is.
    fn refill(&mut self, view: ZoneView<'_, P>, refill: Refill) {
        let wanted = self.refill_blocks(refill.list, refill.request.order);
        let room = self.pcp.room[refill.list.group() as usize].load(Ordering::Relaxed) as i32;
        let room = (room.max(0) as usize) >> refill.request.order.0;
        let list = self.list(refill.list);
        let mut first = true;
        self.touch_entries(list, Access::Write);
        let deliver = |picked: &Batch| {
            if core::mem::take(&mut first) {
                // Reversed, so that frames are handed out in the order the zone gave them: ascending.
                list.append(picked.entries().iter().rev().copied());
            } else if list.len() + picked.len <= ARRAY && list.chain() == Link::NONE {
                list.put_below(picked.entries().iter().rev().copied());
            } else {
                list.push_batch(view, picked.entries());
            }
        };
        let got = match self.stock(view, refill.list) {
            Some(stock) => stock.fetch(refill.request, deliver),
            None => transfer::fetch(view, refill.request, self.cpu(), Ask { wanted, room }, deliver),
        };
        let pages = (got as u64 * refill.request.order.pages().0) as u32;
        sub(&self.pcp.room[refill.list.group() as usize], pages);
        add_exclusive(&self.pcp.counts.refills, 1);
    }

    /// Gives at least `pages` frames of a list and those that share its limit back to the zone, if they hold as many.
    fn drain_group(&mut self, view: ZoneView<'_, P>, first: ListId, pages: PageCount, why: DrainReason) {
        let mut left = pages.0;
        let mut drain = None;
        let mut given_back = false;
        for id in first.group_from() {
            let order = id.order(view.geometry);
            let list = self.list(id);
            let stock = if why == DrainReason::Overflow { self.stock(view, id) } else { None };
            while left > 0 && !list.is_empty() {
                if let Some(stock) = &stock {
                    // The depot may need the zone lock to keep a batch.
                    drain = None;
                    if let Some(moved) = self.move_batch_on(view, id, stock) {
                        left = left.saturating_sub(moved.0);
                        continue;
                    }
                }
                let wanted = left.div_ceil(order.pages().0).min(BATCH as u64) as usize;
                given_back = true;
                self.touch_entries(list, Access::Write);
                let drain = drain.get_or_insert_with(|| Drain::new(view, self.cpu(), why));
                let mut picked = list.take_oldest(wanted);
                if picked.len == 0 {
                    picked = list.pop_batch(view);
                }
                let freed = picked.len as u64 * order.pages().0;
                add(&self.pcp.room[id.group() as usize], freed as u32);
                drain.give(&picked, order);
                left = left.saturating_sub(freed);
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

    /// Visits every entry of every list, packed ones included: its list and its index.
    pub(crate) fn for_each_entry(&self, view: ZoneView<'_, P>, mut visit: impl FnMut(ListId, u32)) {
        for id in ListId::all() {
            let list = self.list(id);
            for slot in &list.entries[..list.len()] {
                visit(id, slot.load(Ordering::Relaxed));
            }
            let mut chain = list.chain();
            while chain != Link::NONE {
                let mut entries = [0; BATCH];
                let found = packed::read(view.map, view.platform, chain, &mut entries);
                for entry in &entries[..found.len] {
                    visit(id, *entry);
                }
                chain = found.next;
            }
        }
    }
}
