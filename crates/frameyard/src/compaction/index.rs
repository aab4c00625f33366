//! Fragmentation indices: how fragmented a zone's free memory is for a block of some order.

use crate::store::buddy::FreeShape;
use crate::units::Order;

/// Up to this index a request fails because memory is short, not because it is fragmented (`sysctl_extfrag_threshold`).
pub(crate) const EXTFRAG_THRESHOLD: i64 = 500;

/// Why a request of that order fails, in thousandths (`__fragmentation_index`): near 0 because memory is short, near 1000 because
/// free memory is in small blocks. −1000 if it does not fail.
pub(crate) fn fragmentation(shape: FreeShape, order: Order) -> i64 {
    if shape.blocks == 0 {
        return 0;
    }
    if shape.suitable > 0 {
        return -1000;
    }
    let requests = shape.pages.saturating_mul(1000) / order.pages().0;
    1000 - ((1000 + requests) / shape.blocks) as i64
}

/// The part of free memory in blocks too small for that order, in thousandths (`unusable_free_index`); 1000 if nothing is free.
pub(crate) fn unusable(shape: FreeShape, order: Order) -> u64 {
    if shape.pages == 0 {
        return 1000;
    }
    let usable = shape.suitable << order.0;
    shape.pages.saturating_sub(usable).saturating_mul(1000) / shape.pages
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_can_be_served_has_no_index() {
        assert_eq!(fragmentation(FreeShape { pages: 1024, blocks: 1, suitable: 2 }, Order(9)), -1000);
        assert_eq!(fragmentation(FreeShape::default(), Order(9)), 0);
    }

    #[test]
    fn fragmentation_index_separates_scatter_from_shortage() {
        let single = |pages| FreeShape { pages, blocks: pages, suitable: 0 };
        assert_eq!(fragmentation(single(100_000), Order(9)), 999);
        assert_eq!(fragmentation(single(4), Order(9)), 749);
        // One block of half the size that is wanted.
        assert_eq!(fragmentation(FreeShape { pages: 256, blocks: 1, suitable: 0 }, Order(9)), -500);
        assert_eq!(fragmentation(FreeShape { pages: 512, blocks: 2, suitable: 0 }, Order(9)), 0);
    }

    #[test]
    fn unusable_index_counts_smaller_blocks() {
        assert_eq!(unusable(FreeShape { pages: 2048, blocks: 1025, suitable: 2 }, Order(9)), 500);
        assert_eq!(unusable(FreeShape { pages: 2048, blocks: 2, suitable: 4 }, Order(9)), 0);
        assert_eq!(unusable(FreeShape::default(), Order(0)), 1000);
    }
}
