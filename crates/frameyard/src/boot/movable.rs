//! Where the Movable zone of each node begins.

use crate::boot::{BootError, MAX_NODES, MemorySource, MovableMemory, YardConfig};
use crate::units::{PageCount, Pfn};

/// First frame of each node's Movable zone; past the end of memory where it has none.
pub(crate) type MovableStarts = [Pfn; MAX_NODES];

/// Spreads the memory that stays unmovable evenly over the nodes, and lets Movable begin where a node's share
/// ends (`find_zone_movable_pfns_for_nodes`).
///
/// Only the highest ordinary zone can become Movable: the low zones count towards the unmovable share.
// Boot has a small stack: inlined, three tables of nodes would stay in the caller's frame.
#[inline(never)]
pub(crate) fn movable_starts(memory: &dyn MemorySource, config: &YardConfig<'_>) -> Result<MovableStarts, BootError> {
    let none = [Pfn(u64::MAX); MAX_NODES];
    let (node_pages, total) = pages_by_node(memory);
    let movable = match config.movable {
        MovableMemory::None => return Ok(none),
        MovableMemory::Pages(count) => count.0.min(total),
        MovableMemory::Percent(percent) if percent > 100 => return Err(BootError::BadPercent(percent)),
        MovableMemory::Percent(percent) => (u128::from(total) * u128::from(percent) / 100) as u64,
    };
    if movable == 0 {
        return Ok(none);
    }
    let share = even_share(&node_pages, total - movable);
    let lowest = lowest_movable(memory, config);
    let mut starts = none;
    let mut seen = [0u64; MAX_NODES];
    memory.for_each_memory(&mut |range, node| {
        let node = node.index();
        if starts[node] != Pfn(u64::MAX) {
            return;
        }
        let usable = range.start.max(lowest.min(range.end));
        seen[node] += (usable - range.start).0;
        let rest = share.saturating_sub(seen[node]);
        if rest < (range.end - usable).0 {
            let start = usable + PageCount(rest);
            starts[node] = start.align_up(config.geometry.max_order()).unwrap_or(start);
        }
        seen[node] += (range.end - usable).0;
    });
    Ok(starts)
}

fn pages_by_node(memory: &dyn MemorySource) -> ([u64; MAX_NODES], u64) {
    let mut pages = [0; MAX_NODES];
    memory.for_each_memory(&mut |range, node| pages[node.index()] += range.count().0);
    (pages, pages.iter().sum())
}

/// The largest share that, taken from every node that has as much, adds up to at most `wanted`.
fn even_share(node_pages: &[u64; MAX_NODES], wanted: u64) -> u64 {
    let taken = |share: u64| node_pages.iter().map(|pages| share.min(*pages)).sum::<u64>();
    let (mut low, mut high) = (0, wanted);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if taken(middle) <= wanted { low = middle } else { high = middle - 1 }
    }
    low
}

/// The first frame that can be Movable: the start of the highest ordinary zone that has memory.
fn lowest_movable(memory: &dyn MemorySource, config: &YardConfig<'_>) -> Pfn {
    let limits = config.zone_limits;
    let [dma_end, dma32_end] = [limits.dma, limits.dma32.max(limits.dma)].map(|limit| config.geometry.frame_of(limit));
    let mut end = Pfn(0);
    memory.for_each_memory(&mut |range, _| end = end.max(range.end));
    [dma32_end, dma_end].into_iter().find(|start| *start < end).unwrap_or(Pfn(0))
}
