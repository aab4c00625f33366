//! How the lists of a group share their limit.

use crate::lists::{ARRAY, Group, ListId, LockedPcp, Totals};
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::zone::view::ZoneView;

impl<P: Platform> LockedPcp<'_, P> {
    /// The frames that a group may still take.
    pub(super) fn room(&self, view: ZoneView<'_, P>, group: Group) -> u64 {
        self.high(group).saturating_sub(self.pcp.held_racy(group, view.geometry).0)
    }

    /// The frames of a group's limit that are no list's part, nor in packed batches.
    pub(super) fn unassigned(&self, view: ZoneView<'_, P>, group: Group) -> u64 {
        let parts = self.pcp.parts[group as usize].load(Ordering::Relaxed);
        self.high(group).saturating_sub(u64::from(parts)).saturating_sub(self.pcp.packed_racy(group, view.geometry))
    }

    pub(super) fn high(&self, group: Group) -> u64 {
        self.pcp.high[group as usize].load(Ordering::Relaxed).into()
    }

    /// Divides the limit of its group again, unless the list has room and all parts keep to the limit: gives the list all that the
    /// group may still take and that is no other list's part, or half of the others' parts if everything is. Lists over their limit
    /// get less than they hold.
    pub(super) fn share_room(&self, view: ZoneView<'_, P>, first: ListId) {
        let (group, word) = (first.group(), self.list(first).word());
        let totals = self.pcp.totals_racy(group, view.geometry);
        let high = self.high(group);
        if word.len() >= word.limit() || totals.limits + totals.packed > high {
            self.divide_room(view, first, totals, high);
        }
    }

    pub(super) fn divide_room(&self, view: ZoneView<'_, P>, first: ListId, totals: Totals, high: u64) {
        let order = |id: ListId| id.order(view.geometry);
        let spare = |id: ListId| {
            let list = self.list(id);
            (list.word().limit().saturating_sub(list.len()) as u64) << order(id).0
        };
        let pages = order(first).pages().0;
        let mut room = high.saturating_sub(totals.held);
        let unassigned = room.saturating_sub(first.group_from().skip(1).map(spare).sum());
        let wanted = if unassigned >= pages { unassigned } else { (room / 2).max(pages) };
        let assignable = high.saturating_sub(totals.packed);
        let mut left = assignable;
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
        self.pcp.parts[first.group() as usize].store((assignable - left) as u32, Ordering::Relaxed);
    }

    /// For the validator: the parts of the lists of a group, by their words and as a sum.
    pub(crate) fn parts(&self, view: ZoneView<'_, P>, group: Group) -> (u64, u64) {
        let sum = self.pcp.parts[group as usize].load(Ordering::Relaxed);
        (self.pcp.totals_racy(group, view.geometry).limits, sum.into())
    }

    /// For the validator: the frames by which the parts of the lists exceed the limit of their group.
    pub(crate) fn excess(&self, view: ZoneView<'_, P>, group: Group) -> u64 {
        let Totals { packed, limits, .. } = self.pcp.totals_racy(group, view.geometry);
        (limits + packed).saturating_sub(self.high(group).max(packed))
    }
}
