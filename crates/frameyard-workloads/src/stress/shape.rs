//! Free memory by block size, to compare the end of a run with its beginning.

use std::fmt;

use frameyard::units::ORDER_SLOTS;
use frameyard::{MigrateType, Order, PageCount, ZoneId};
use frameyard_host::HostYard;

/// Free memory of all zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    zones: Vec<ZoneShape>,
    /// The order of pageblocks.
    pageblock: Order,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ZoneShape {
    id: ZoneId,
    free: PageCount,
    reserved: PageCount,
    /// Free blocks, by order.
    blocks: [u64; ORDER_SLOTS],
}

/// How free memory differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ShapeProblem {
    /// Another amount is free.
    Free { zone: ZoneId, before: PageCount, after: PageCount },
    /// The same amount is free, in other blocks.
    Blocks { zone: ZoneId, order: Order, before: u64, after: u64 },
}

impl fmt::Display for ShapeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free { zone, before, after } => {
                write!(f, "{zone}: {before} were free before the run and {after} when all was freed")
            }
            Self::Blocks { zone, order, before, after } => write!(
                f,
                "{zone}: all is free and not merged as before: {after} blocks of {order}, and {before} before the run"
            ),
        }
    }
}

impl std::error::Error for ShapeProblem {}

impl Shape {
    /// As it is now.
    pub(crate) fn of(yard: &HostYard) -> Self {
        let blocks = |zone| {
            std::array::from_fn(|order| {
                let count = |of: &MigrateType| yard.zone(zone).free_blocks(Order(order as u8), *of);
                MigrateType::ALL.iter().map(count).sum()
            })
        };
        let zone = |zone: frameyard::stats::ZoneStatistics| ZoneShape {
            id: zone.id,
            free: zone.free + zone.per_cpu,
            reserved: zone.reserved_highatomic,
            blocks: blocks(zone.id),
        };
        Self { zones: yard.stats().zones().map(zone).collect(), pageblock: yard.geometry().pageblock_order() }
    }

    /// Compares with an earlier shape.
    ///
    /// Pageblocks reserved for atomic requests do not merge with their neighbours. If there are any, blocks larger than a
    /// pageblock are counted as pageblocks.
    pub(crate) fn check_against(&self, before: &Self) -> Result<(), ShapeProblem> {
        for (zone, then) in self.zones.iter().zip(&before.zones) {
            if zone.free != then.free {
                return Err(ShapeProblem::Free { zone: zone.id, before: then.free, after: zone.free });
            }
            let limit = if zone.reserved.0 > 0 { self.pageblock.index() } else { ORDER_SLOTS };
            let (now, then) = (split_above(zone.blocks, limit), split_above(then.blocks, limit));
            if let Some(order) = (0..ORDER_SLOTS).find(|order| now[*order] != then[*order]) {
                let (before, after) = (then[order], now[order]);
                return Err(ShapeProblem::Blocks { zone: zone.id, order: Order(order as u8), before, after });
            }
        }
        Ok(())
    }
}

/// Splits all blocks above an order.
fn split_above(mut blocks: [u64; ORDER_SLOTS], limit: usize) -> [u64; ORDER_SLOTS] {
    for order in limit.saturating_add(1)..ORDER_SLOTS {
        blocks[limit] += std::mem::take(&mut blocks[order]) << (order - limit);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(reserved: u64, blocks: &[(usize, u64)]) -> Shape {
        let mut zone =
            ZoneShape { id: ZoneId(1), free: PageCount(0), reserved: PageCount(reserved), blocks: [0; ORDER_SLOTS] };
        for (order, count) in blocks {
            zone.blocks[*order] = *count;
            zone.free += PageCount(count << order);
        }
        Shape { zones: vec![zone], pageblock: Order(9) }
    }

    #[test]
    fn detects_lost_and_unmerged_memory() {
        let before = shape(0, &[(10, 3)]);
        assert_eq!(shape(0, &[(10, 3)]).check_against(&before), Ok(()));
        let unmerged = shape(0, &[(10, 2), (9, 2)]).check_against(&before);
        assert!(matches!(unmerged, Err(ShapeProblem::Blocks { order: Order(9), .. })), "{unmerged:?}");
        let lost = shape(0, &[(10, 2)]).check_against(&before);
        assert!(matches!(lost, Err(ShapeProblem::Free { .. })), "{lost:?}");
    }

    #[test]
    fn pageblocks_reserved_for_atomic_requests_may_stay_unmerged() {
        let before = shape(0, &[(10, 3)]);
        assert_eq!(shape(512, &[(10, 2), (9, 2)]).check_against(&before), Ok(()));
        assert!(shape(512, &[(10, 2), (9, 1), (8, 2)]).check_against(&before).is_err());
    }
}
