//! Where free memory was when the recording began.
//!
//! A snapshot says how many free blocks a zone has of each order and type, and not where they are. The recording names blocks that were
//! allocated at its beginning: those that it frees first. The rest is chosen at random, under three conditions:
//!
//! - The numbers of free blocks are those of the snapshot.
//! - No two buddies of the same order are free, because they would merge.
//! - Blocks that the recording frees first are not free.
//!
//! The memory of a zone is divided into *units*, the largest aligned blocks, and each unit has a type. Blocks are placed from the largest
//! order down, each in the smallest place that holds it. A *whole* place may become free as a whole: a part of its buddy stays
//! allocated. A *part* may not: its buddy is free. So an order-k block takes a whole place of order k, or half of any place above; the
//! other half becomes a part.

use std::collections::BTreeMap;

use frameyard::{MigrateType, Order, Pfn, PfnRange};
use frameyard_formats::TracedBlock;

use super::recorded_memory::{MAX_ORDER, ReplayZone, Votes};
use crate::snapshot::ORDERS;

/// The order of pageblocks.
pub(super) const PAGEBLOCK: Order = Order(9);
/// The types of units.
const TYPES: [MigrateType; 3] = [MigrateType::Unmovable, MigrateType::Reclaimable, MigrateType::Movable];

/// A unit, and its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub(super) pfn: Pfn,
    pub(super) order: Order,
    pub(super) migrate_type: MigrateType,
}

/// The layout of a zone.
#[derive(Clone, Debug, Default)]
pub(super) struct ZoneLayout {
    /// Units of other types than movable.
    pub(super) units: Vec<Placed>,
    /// Free blocks, in random order.
    pub(super) free: Vec<TracedBlock>,
    /// Pages of free blocks that found no place.
    pub(super) missing_pages: u64,
    /// Movable blocks that stay allocated and that the recording does not name, smallest first.
    pub(super) rest: Vec<TracedBlock>,
}

/// Places of one type, by order.
#[derive(Default)]
struct Places {
    whole: [Vec<Pfn>; ORDERS],
    part: [Vec<Pfn>; ORDERS],
}

/// The largest aligned blocks of a range.
fn units(range: PfnRange) -> impl Iterator<Item = TracedBlock> {
    let mut rest = range;
    std::iter::from_fn(move || {
        let order = rest.first_block(MAX_ORDER)?;
        let pfn = rest.start;
        rest.start = pfn + order.pages();
        Some(TracedBlock { pfn, order })
    })
}

/// Lays out a zone. `held` has the blocks that the recording frees first, ascending.
pub(super) fn lay_out(
    zone: &ReplayZone,
    held: &[TracedBlock],
    votes: &BTreeMap<u64, Votes>,
    rng: &mut fastrand::Rng,
) -> ZoneLayout {
    let mut free: [[u64; ORDERS]; TYPES.len()] = Default::default();
    for (of, blocks) in &zone.kernel.free {
        let of = TYPES.iter().position(|listed| listed == of).unwrap_or(0);
        free[of].iter_mut().zip(blocks).for_each(|(sum, blocks)| *sum += blocks);
    }
    let typed = choose_types(zone, &free, votes, rng);
    let mut layout = ZoneLayout::default();
    let mut places: [Places; TYPES.len()] = Default::default();
    for (unit, of) in &typed {
        places[*of].add(*unit, held);
        let migrate_type = TYPES[*of];
        if migrate_type != MigrateType::Movable {
            layout.units.push(Placed { pfn: unit.pfn, order: unit.order, migrate_type });
        }
    }
    if zone.kernel.free.is_empty() {
        // Without a snapshot all memory is free that the recording does not free first.
        for (order, whole) in places.iter_mut().flat_map(|places| places.whole.iter_mut().enumerate()) {
            layout.free.extend(whole.drain(..).map(|pfn| TracedBlock { pfn, order: Order(order as u8) }));
        }
    }
    for (of, blocks) in free.iter().enumerate() {
        // Blocks that find no place become two of the order below. What finds none at all goes to memory of another type.
        let mut without_place = 0;
        for order in (0..ORDERS).rev() {
            let wanted = blocks[order] + 2 * without_place;
            let mut take = || places[of].take(order, rng).map(|pfn| TracedBlock { pfn, order: Order(order as u8) });
            let placed: Vec<TracedBlock> = std::iter::from_fn(&mut take).take(wanted as usize).collect();
            without_place = wanted - placed.len() as u64;
            layout.free.extend(placed);
        }
        layout.missing_pages += without_place;
    }
    let mut anywhere = |order| places.iter_mut().find_map(|places| places.take(order, rng));
    for order in (0..ORDERS).rev() {
        while layout.missing_pages >> order > 0
            && let Some(pfn) = anywhere(order)
        {
            layout.missing_pages -= 1 << order;
            layout.free.push(TracedBlock { pfn, order: Order(order as u8) });
        }
    }
    rng.shuffle(&mut layout.free);
    layout.rest = places[TYPES.len() - 1].rest();
    layout
}

/// The units of a zone in random order, each with the place of its type in [`TYPES`]. Units in which the recording allocated frames of a
/// type get that type first.
fn choose_types(
    zone: &ReplayZone,
    free: &[[u64; ORDERS]; TYPES.len()],
    votes: &BTreeMap<u64, Votes>,
    rng: &mut fastrand::Rng,
) -> Vec<(TracedBlock, usize)> {
    let mut left: Vec<TracedBlock> = units(zone.memory).collect();
    rng.shuffle(&mut left);
    let mut typed = Vec::with_capacity(left.len());
    for (of, migrate_type) in TYPES.into_iter().enumerate().take(TYPES.len() - 1) {
        let pageblocks = zone.kernel.pageblocks.get(&migrate_type).copied().unwrap_or(0);
        let largest = free[of].iter().rposition(|blocks| *blocks > 0);
        let votes_for = |unit: &TracedBlock| {
            let votes = votes.get(&(unit.pfn.0 >> MAX_ORDER.0)).copied().unwrap_or_default();
            let own = if migrate_type == MigrateType::Reclaimable { votes.reclaimable } else { votes.unmovable };
            i64::from(own) - i64::from(votes.movable)
        };
        left.sort_by_key(|unit| votes_for(unit));
        let mut pages = pageblocks << PAGEBLOCK.0;
        // The largest free block of the type needs a unit that holds it, and no larger one.
        if let Some(largest) = largest.filter(|_| pages > 0) {
            let fits = left.iter().enumerate().filter(|(_, unit)| unit.order.index() >= largest);
            if let Some((at, _)) = fits.min_by_key(|(at, unit)| (unit.order, std::cmp::Reverse(*at))) {
                let unit = left.remove(at);
                pages = pages.saturating_sub(unit.order.pages().0);
                typed.push((unit, of));
            }
        }
        while pages >= PAGEBLOCK.pages().0 {
            let Some(unit) = left.pop() else { break };
            pages = pages.saturating_sub(unit.order.pages().0);
            typed.push((unit, of));
        }
    }
    rng.shuffle(&mut left);
    typed.extend(left.into_iter().map(|unit| (unit, TYPES.len() - 1)));
    typed
}

impl Places {
    /// Adds the parts of a block that no held block covers.
    fn add(&mut self, block: TracedBlock, held: &[TracedBlock]) {
        let end = block.pfn + block.order.pages();
        // The last held block that begins before the end is the only one that can reach into it from before its start.
        let first = held.partition_point(|held| held.pfn < end);
        let last = first.checked_sub(1).map(|at| held[at]);
        match last.filter(|held| held.pfn + held.order.pages() > block.pfn) {
            None => self.whole[block.order.index()].push(block.pfn),
            Some(held) if held.order >= block.order => {}
            Some(_) => {
                let half = Order(block.order.0 - 1);
                for pfn in [block.pfn, block.pfn + half.pages()] {
                    self.add(TracedBlock { pfn, order: half }, held);
                }
            }
        }
    }

    /// Takes a place for a free block.
    fn take(&mut self, order: usize, rng: &mut fastrand::Rng) -> Option<Pfn> {
        if let Some(pfn) = self.whole[order].pop() {
            return Some(pfn);
        }
        let above = |from: usize| (from..ORDERS).find(|at| !self.part[*at].is_empty() || !self.whole[*at].is_empty());
        let from = above(order + 1)?;
        let mut pfn = self.part[from].pop().or_else(|| self.whole[from].pop())?;
        for half in (order..from).rev() {
            let size = Order(half as u8).pages();
            let (taken, kept) = if rng.bool() { (pfn, pfn + size) } else { (pfn + size, pfn) };
            // Something of the half that is taken stays allocated, unless all of it becomes free.
            let kept_places = if half == order { &mut self.part } else { &mut self.whole };
            kept_places[half].push(kept);
            pfn = taken;
        }
        Some(pfn)
    }

    /// The places that are left, smallest first.
    fn rest(&mut self) -> Vec<TracedBlock> {
        let mut rest = Vec::new();
        for order in 0..ORDERS {
            let places = self.part[order].drain(..).chain(self.whole[order].drain(..));
            rest.extend(places.map(|pfn| TracedBlock { pfn, order: Order(order as u8) }));
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use frameyard::PageCount;
    use frameyard::units::ZoneKind;

    use super::*;
    use crate::snapshot::KernelSnapshot;

    fn zones() -> Vec<ReplayZone> {
        let snapshot = KernelSnapshot::parse(
            include_str!("../../tests/fixtures/page-cache.buddyinfo.before"),
            Some(include_str!("../../tests/fixtures/page-cache.pagetypeinfo.before")),
            include_str!("../../tests/fixtures/page-cache.zoneinfo.before"),
        );
        let memory = |kind| match kind {
            ZoneKind::Dma => PfnRange::new(Pfn(256), PageCount(3840)),
            ZoneKind::Dma32 => PfnRange::new(Pfn(4096), PageCount(772_915)),
            _ => PfnRange::new(Pfn(0x10_0000), PageCount(1_769_472)),
        };
        let zone = |((node, kind), kernel)| ReplayZone { node, kind, memory: memory(kind), base: 0, kernel };
        snapshot.unwrap().zones.into_iter().map(zone).collect()
    }

    /// A thousand blocks that stay allocated, all over the Normal zone.
    fn held() -> Vec<TracedBlock> {
        let mut rng = fastrand::Rng::with_seed(7);
        let blocks = (0..1000).map(|_| Pfn(0x10_0000 + 8 * rng.u64(..1_769_472 / 8 / 2)));
        let blocks: std::collections::BTreeSet<Pfn> = blocks.collect();
        blocks.into_iter().map(|pfn| TracedBlock { pfn, order: Order(pfn.0 as u8 / 8 % 3) }).collect()
    }

    #[test]
    fn free_blocks_are_as_many_as_in_the_snapshot_and_do_not_merge_or_overlap() {
        let (held, mut rng) = (held(), fastrand::Rng::with_seed(1));
        for zone in zones() {
            let layout = lay_out(&zone, &held, &BTreeMap::new(), &mut rng);
            for order in 0..ORDERS as u8 {
                let placed = layout.free.iter().filter(|block| block.order == Order(order)).count() as u64;
                // DMA32 is all but 63 frames free, which leaves no choice of places.
                if zone.kind != ZoneKind::Dma32 {
                    assert_eq!(placed, zone.kernel.free_blocks(Order(order)), "{:?} order {order}", zone.kind);
                }
            }
            let placed: u64 = layout.free.iter().map(|block| block.order.pages().0).sum();
            assert_eq!(placed + layout.missing_pages, zone.kernel.free_pages().0);
            assert!(layout.missing_pages < 64, "{}", layout.missing_pages);
            let mut taken = HashSet::new();
            let is_held = |pfn: Pfn| held.iter().any(|held| held.pfn <= pfn && pfn < held.pfn + held.order.pages());
            for block in &layout.free {
                assert!(block.pfn.is_aligned(block.order));
                for at in 0..block.order.pages().0 {
                    let pfn = block.pfn + PageCount(at);
                    assert!(taken.insert(pfn) && zone.memory.contains(pfn), "{block:?}");
                }
            }
            assert!(held.iter().all(|held| !taken.contains(&held.pfn)));
            for block in layout.free.iter().filter(|block| block.order < MAX_ORDER) {
                let buddy = block.pfn.buddy(block.order);
                assert!((0..block.order.pages().0).any(|at| !taken.contains(&(buddy + PageCount(at)))), "{block:?}");
            }
            assert!(layout.rest.iter().all(|block| !taken.contains(&block.pfn) && !is_held(block.pfn)));
        }
    }
}
