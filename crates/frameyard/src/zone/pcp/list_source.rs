//! A list as a drain takes blocks from it.

use super::list::PcpList;
use super::{ListId, LockedPcp};
use crate::memmap::MapPlace;
use crate::page::Link;
use crate::platform::{Access, Platform};
use crate::units::{MigrateType, Order};
use crate::zone::batch::{BATCH, Batch, packed};
use crate::zone::page_check;
use crate::zone::transfer::{DrainSource, PackedBatches};
use crate::zone::view::ZoneView;

/// The longest chain that a drain divides: longer than those of the depot's lists, and a bound where the chain is damaged.
const WALKED: usize = 16;

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
pub(super) struct ListSource<'l, 'a, 'v, P: Platform> {
    pub(super) lists: &'l LockedPcp<'a, P>,
    pub(super) view: ZoneView<'v, P>,
    pub(super) id: ListId,
    pub(super) order: Order,
    pub(super) batch_type: Option<MigrateType>,
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
