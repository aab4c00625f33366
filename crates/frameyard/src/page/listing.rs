//! Two bits in the tag of a single free page: merging was skipped, and the page is in a cluster.

use super::{FrameState, Tag};
use crate::units::{Order, ZoneId};

impl Tag {
    pub(super) const SKIPPED: u64 = 1 << 26;
    const CLUSTERED: u64 = 1 << 27;

    /// The bits of this module that the tag may have.
    pub(super) const fn listing_bits(self) -> u64 {
        if self.is_block(FrameState::BuddyFree, Order::ZERO) { Self::SKIPPED | Self::CLUSTERED } else { 0 }
    }

    /// Whether the tag has any bit of this module.
    #[inline(always)]
    pub(crate) const fn has_listing(self) -> bool {
        self.0 & (Self::SKIPPED | Self::CLUSTERED) != 0
    }

    /// Whether a single free page was freed without looking at its buddy.
    #[inline(always)]
    pub(crate) const fn is_merge_skipped(self) -> bool {
        self.0 & Self::SKIPPED != 0
    }

    /// A single free page that was freed without looking at its buddy.
    #[inline(always)]
    pub(crate) const fn with_merge_skipped(self) -> Self {
        Self(self.0 | Self::SKIPPED)
    }

    /// A single free page whose buddy is not free.
    pub(crate) const fn without_merge_skipped(self) -> Self {
        Self(self.0 & !Self::SKIPPED)
    }

    /// Whether the page is in a cluster. The cluster's record then decides whether the page is free.
    #[inline(always)]
    pub(crate) const fn is_clustered(self) -> bool {
        self.0 & Self::CLUSTERED != 0
    }

    /// A single free page that is in a cluster.
    #[inline(always)]
    pub(crate) const fn with_cluster(self) -> Self {
        Self(self.0 | Self::CLUSTERED)
    }

    /// A single free page that is in no cluster.
    pub(crate) const fn without_cluster(self) -> Self {
        Self(self.0 & !Self::CLUSTERED)
    }

    /// As [`is_free_buddy`](Self::is_free_buddy), also for pages in a cluster, which may be leaving the list.
    #[inline(always)]
    pub(crate) const fn seems_free_buddy(self, order: Order, zone: ZoneId) -> bool {
        self.without_cluster().is_free_buddy(order, zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MigrateType;

    const FREE: Tag = Tag::new(FrameState::BuddyFree, Order::ZERO, MigrateType::Movable, ZoneId(3));

    #[test]
    fn a_page_that_skipped_merging_is_a_buddy_and_one_in_a_cluster_only_seems_to_be() {
        assert!(FREE.with_merge_skipped().is_free_buddy(Order::ZERO, ZoneId(3)));
        let clustered = FREE.with_merge_skipped().with_cluster();
        assert!(!clustered.is_free_buddy(Order::ZERO, ZoneId(3)));
        assert!(clustered.seems_free_buddy(Order::ZERO, ZoneId(3)));
        assert!(!clustered.seems_free_buddy(Order::ZERO, ZoneId(2)));
        assert_eq!(clustered.without_cluster().without_merge_skipped(), FREE);
        assert!(clustered.has_listing() && !FREE.has_listing());
    }

    #[test]
    fn only_single_free_pages_are_marked_or_in_clusters() {
        for mark in [Tag::with_merge_skipped, Tag::with_cluster] {
            assert!(mark(FREE).is_well_formed());
            assert!(!mark(FREE.with_state(FrameState::PerCpu)).is_well_formed());
            let pair = Tag::new(FrameState::BuddyFree, Order(1), MigrateType::Movable, ZoneId(3));
            assert!(!mark(pair).is_well_formed());
        }
    }
}
