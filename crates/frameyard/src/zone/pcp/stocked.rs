//! A CPU's lists in front of the depot: which lists have a stock there, and how full batches of theirs move on.
//!
//! A batch of a list's chain moves as it is: its leader's link is all that changes. Only what stands in the array is packed.

use super::packed::{self, BATCH};
use super::{ARRAY, Group, ListId, LockedPcp, add};
use crate::page::Link;
use crate::platform::{Access, Platform};
use crate::sync::Ordering;
use crate::units::{Order, PageCount};
use crate::zone::transfer::depot::{HELD, Stock};
use crate::zone::{ZoneView, add_exclusive};

impl<P: Platform> LockedPcp<'_, P> {
    /// The list's stock in the depot: for single frames, where the limit of the lists is no lower than what an array holds.
    pub(super) fn stock<'v>(&self, view: ZoneView<'v, P>, id: ListId) -> Option<Stock<'v, P>> {
        let list_type = id.small_type().filter(|_| id.order(view.geometry) == Order::ZERO)?;
        let high = self.pcp.high[Group::Small as usize].load(Ordering::Relaxed);
        if (high as usize) < ARRAY {
            return None;
        }
        Stock::of(view, self.cpu(), list_type)
    }

    /// Moves a batch of the list to the depot where the lists hold more than the depot lets them.
    pub(super) fn move_on_what_is_too_much(&mut self, view: ZoneView<'_, P>, id: ListId) {
        if self.list(id).len() == ARRAY
            && self.pcp.held_racy(Group::Small).0 >= HELD
            && let Some(stock) = self.stock(view, id)
            && self.move_batch_on(view, id, &stock).is_some()
        {
            add_exclusive(&self.pcp.counts.drains, 1);
        }
    }

    /// Moves a full batch of the list to the depot: the newest of its chain, or what is oldest in its array. `None`, and
    /// nothing changed, where it has no full batch at hand.
    pub(super) fn move_batch_on(&self, view: ZoneView<'_, P>, id: ListId, stock: &Stock<'_, P>) -> Option<PageCount> {
        let list = self.list(id);
        let leader = match view.map.linked(list.chain()) {
            Some(newest) => {
                let page = view.page(newest);
                if packed::len_of(&page) != BATCH {
                    return None;
                }
                list.chain.store(page.next().0, Ordering::Relaxed);
                view.map.link(newest)
            }
            None if list.len() >= BATCH => {
                self.touch_entries(list, Access::Write);
                let oldest = list.take_oldest(BATCH);
                packed::pack(view.map, view.platform, oldest.entries(), Link::NONE)
            }
            None => return None,
        };
        add(&self.pcp.room[Group::Small as usize], BATCH as u32);
        stock.keep(leader);
        Some(PageCount(BATCH as u64))
    }
}
