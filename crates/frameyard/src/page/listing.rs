//! Two marks in the tag of a single free page: merging was skipped, and the page is tentative.
//!
//! A tentative page looks free. The transfer mechanism that set the mark decides whether it is, by what the page's
//! [`MECHANISM`](super::MECHANISM) word names.

use crate::page::{FrameState, Tag};
use crate::units::{Order, ZoneId};

impl Tag {
    pub(super) const SKIPPED: u64 = 1 << 26;
    const TENTATIVE: u64 = 1 << 27;

    /// The bits of this module that the tag may have.
    pub(super) const fn mark_bits(self) -> u64 {
        if self.is_block(FrameState::BuddyFree, Order::ZERO) { Self::SKIPPED | Self::TENTATIVE } else { 0 }
    }

    /// Whether the tag has any bit of this module.
    #[inline(always)]
    pub(crate) const fn has_marks(self) -> bool {
        self.0 & (Self::SKIPPED | Self::TENTATIVE) != 0
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

    /// Whether the page is tentative.
    #[inline(always)]
    pub(crate) const fn is_tentative(self) -> bool {
        self.0 & Self::TENTATIVE != 0
    }

    /// A single free page that is tentative.
    #[inline(always)]
    pub(crate) const fn with_tentative(self) -> Self {
        Self(self.0 | Self::TENTATIVE)
    }

    /// A single free page that is free for certain.
    pub(crate) const fn without_tentative(self) -> Self {
        Self(self.0 & !Self::TENTATIVE)
    }

    /// As [`is_free_buddy`](Self::is_free_buddy), also for tentative pages, which may be in transit.
    #[inline(always)]
    pub(crate) const fn seems_free_buddy(self, order: Order, zone: ZoneId) -> bool {
        self.without_tentative().is_free_buddy(order, zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MigrateType;

    const FREE: Tag = Tag::new(FrameState::BuddyFree, Order::ZERO, MigrateType::Movable, ZoneId(3));

    #[test]
    fn a_page_that_skipped_merging_is_a_buddy_and_a_tentative_one_only_seems_to_be() {
        assert!(FREE.with_merge_skipped().is_free_buddy(Order::ZERO, ZoneId(3)));
        let tentative = FREE.with_merge_skipped().with_tentative();
        assert!(!tentative.is_free_buddy(Order::ZERO, ZoneId(3)));
        assert!(tentative.seems_free_buddy(Order::ZERO, ZoneId(3)));
        assert!(!tentative.seems_free_buddy(Order::ZERO, ZoneId(2)));
        assert_eq!(tentative.without_tentative().without_merge_skipped(), FREE);
        assert!(tentative.has_marks() && !FREE.has_marks());
    }

    #[test]
    fn only_single_free_pages_are_marked() {
        for mark in [Tag::with_merge_skipped, Tag::with_tentative] {
            assert!(mark(FREE).is_well_formed());
            assert!(!mark(FREE.with_state(FrameState::PerCpu)).is_well_formed());
            let pair = Tag::new(FrameState::BuddyFree, Order(1), MigrateType::Movable, ZoneId(3));
            assert!(!mark(pair).is_well_formed());
        }
    }
}
