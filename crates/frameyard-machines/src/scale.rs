//! Scaling: the same machine with more or less memory.

use frameyard_units::{ByteSize, PageCount, PhysAddr};

use super::layout::shares;
use super::{ADDRESS_LIMIT, AddressRange, FIRST_MIB, Machine, MachineError, MachineNode, Problem};

/// The minimum memory of a node that has memory: the size of the DMA zone.
const NODE_MINIMUM: u64 = 16 << 20;

/// Shares are rounded to a unit only if each has at least this number of units.
const FAIR_UNITS: u64 = 8;

impl Machine {
    /// The same machine with `memory` installed, counted as by [`Machine::installed_bytes`] and rounded down to whole
    /// pages.
    ///
    /// - Each node keeps its share of the memory. Shares are rounded to sections if each has at least eight, else to
    ///   maximum-order blocks or pages.
    /// - Memory below 4 GiB keeps its place and is cut at its end. On a machine without a DMA32 zone the limit is 1 MiB.
    /// - The rest of each node is one range. These ranges follow each other, from the start of the memory that moves. Each
    ///   begins on a section.
    /// - Reserved ranges and contiguous areas that are no longer in memory are dropped.
    ///
    /// # Errors
    ///
    /// [`Problem::TooSmall`] with the smallest valid size, which leaves 16 MiB to each node with memory;
    /// [`Problem::SizeOverflow`] if the size exceeds [`ADDRESS_LIMIT`]; and the errors of [`Machine::validate`].
    pub fn scaled(&self, memory: ByteSize) -> Result<Self, MachineError> {
        self.validate()?;
        let total = self.geometry.size_of(self.geometry.pages_in(memory));
        if total == self.installed_bytes() {
            return Ok(self.clone());
        }
        if total.0 > ADDRESS_LIMIT.0 {
            return Err(Problem::SizeOverflow { start: PhysAddr(0), size: memory }.into());
        }
        let order = self.nodes_by_address();
        let weights: Vec<u64> = order.iter().map(|&node| self.installed_on(node)).collect();
        let minimum = self.minimum(&weights);
        if memory < minimum {
            return Err(Problem::TooSmall { size: memory, minimum }.into());
        }
        let mut scaled = self.clone();
        scaled.nodes = vec![MachineNode::default(); self.nodes.len()];
        let mut cursor = self.high_start();
        for (&node, share) in order.iter().zip(self.aligned_shares(total.0, &weights)) {
            let ranges = self.low_part(node, share);
            let placed: u64 = ranges.iter().map(|range| range.bytes().0).sum::<u64>() + self.low_holes_on(node);
            scaled.nodes[node].memory = ranges;
            let rest = share.saturating_sub(placed);
            if rest > 0 {
                let end = cursor.saturating_add(rest);
                scaled.nodes[node].memory.push(AddressRange::new(PhysAddr(cursor), PhysAddr(end)));
                cursor = end.next_multiple_of(self.geometry.section_size().0);
            }
        }
        let kept = |areas: &[AddressRange]| areas.iter().copied().filter(|area| scaled.holds(*area)).collect();
        (scaled.reserved, scaled.cma) = (kept(&self.reserved), kept(&self.cma));
        scaled.source = format!("{}; scaled from {} to {total}", self.source, self.installed_bytes());
        scaled.validate()?;
        Ok(scaled)
    }

    /// The smallest size that [`Machine::scaled`] accepts.
    fn minimum(&self, weights: &[u64]) -> ByteSize {
        let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
        let smallest = weights.iter().copied().min().unwrap_or(1).max(1);
        // Rounding removes less than a page at either end of a share.
        let slack = if weights.len() > 1 { 2 * self.geometry.page_size().0 } else { 0 };
        let bytes = (u128::from(NODE_MINIMUM + slack) * sum).div_ceil(u128::from(smallest));
        let rounded = bytes.next_multiple_of(u128::from(FIRST_MIB));
        ByteSize(u64::try_from(rounded).unwrap_or(u64::MAX))
    }

    /// The shares in the largest unit that rounds them fairly: each share has several units.
    fn aligned_shares(&self, total: u64, weights: &[u64]) -> Vec<u64> {
        let block = self.geometry.size_of(self.geometry.max_order().pages());
        let page = self.geometry.size_of(PageCount(1));
        [self.geometry.section_size(), block]
            .into_iter()
            .map(|unit| (shares(total, weights, unit.0), NODE_MINIMUM.max(FAIR_UNITS * unit.0)))
            .find(|(shares, least)| shares.iter().all(|share| share >= least))
            .map_or_else(|| shares(total, weights, page.0), |(shares, _)| shares)
    }

    /// The nodes with memory, in the order of their lowest addresses.
    fn nodes_by_address(&self) -> Vec<usize> {
        let lowest = |node: &usize| self.nodes[*node].memory.iter().map(|range| range.start).min();
        let mut nodes: Vec<_> = (0..self.nodes.len()).filter(|node| lowest(node).is_some()).collect();
        nodes.sort_by_key(lowest);
        nodes
    }

    /// The installed memory of a node: its memory and, for the lowest node, the holes of the first MiB.
    fn installed_on(&self, node: usize) -> u64 {
        let memory: u64 = self.nodes[node].memory.iter().map(|range| range.bytes().0).sum();
        memory + self.low_holes_on(node)
    }

    fn low_holes_on(&self, node: usize) -> u64 {
        if self.nodes_by_address().first() == Some(&node) { self.low_holes().0 } else { 0 }
    }

    /// Memory below this address keeps its place.
    fn fixed_below(&self) -> PhysAddr {
        if self.zones.dma32.is_some() { PhysAddr(4 << 30) } else { PhysAddr(FIRST_MIB) }
    }

    /// The start of the memory that moves.
    fn high_start(&self) -> u64 {
        let fixed = self.fixed_below();
        let above = self.memory_ranges().filter(|(_, range)| range.end > fixed);
        above.map(|(_, range)| range.start.max(fixed)).min().unwrap_or(fixed).0
    }

    /// The memory of a node that keeps its place, cut to the node's share.
    fn low_part(&self, node: usize, share: u64) -> Vec<AddressRange> {
        let fixed = AddressRange::new(PhysAddr(0), self.fixed_below());
        let mut left = share.saturating_sub(self.low_holes_on(node));
        let mut ranges: Vec<_> = self.nodes[node].memory.iter().map(|range| range.intersection(fixed)).collect();
        ranges.sort_unstable();
        for range in &mut ranges {
            let bytes = range.bytes().0.min(left);
            range.end = PhysAddr(range.start.0.saturating_add(bytes));
            left -= bytes;
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }

    fn holds(&self, area: AddressRange) -> bool {
        self.memory_ranges().any(|(_, range)| range.intersection(area) == area)
    }
}
