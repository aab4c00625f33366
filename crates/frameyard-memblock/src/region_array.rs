//! A sorted list of regions: the built-in array or a grown one, and the edits that keep it sorted.
//!
//! # Invariants
//!
//! Between two operations, the regions are sorted by base, none is empty, and no two overlap. Neighbours that could be
//! merged exist only between [`RegionArray::isolate`] and the next merge.

use core::ops::Range;
use core::ptr::NonNull;

use super::early_memory::MappedRegions;
use super::region::{Region, RegionFlags, RegionNode, Span};
use frameyard_units::{ByteSize, PhysAddr};

/// An array outside the map and its place. `span` is reserved for it; `None` for an array that has no reservation because a
/// caller lent it.
#[derive(Debug)]
pub(super) struct OuterArray {
    pub(super) slots: MappedRegions,
    pub(super) span: Option<Span>,
}

#[derive(Debug)]
pub(super) struct RegionArray<const INLINE: usize> {
    inline: [Region; INLINE],
    outer: Option<OuterArray>,
    len: usize,
}

impl RegionArray<0> {
    /// The list in an array outside the map.
    pub(super) const fn lent(array: OuterArray, len: usize) -> Self {
        Self { inline: [], outer: Some(array), len }
    }
}

impl<const INLINE: usize> RegionArray<INLINE> {
    pub(super) const fn new() -> Self {
        // A list that has just doubled must fit its new reservation and the two splits around the old one.
        const { assert!(INLINE >= 4, "a list starts with room for at least 4 regions") };
        Self { inline: [Region::EMPTY; INLINE], outer: None, len: 0 }
    }

    fn slots(&self) -> &[Region] {
        match &self.outer {
            Some(outer) => outer.slots.slots(),
            None => &self.inline,
        }
    }

    fn slots_mut(&mut self) -> &mut [Region] {
        match &mut self.outer {
            Some(outer) => outer.slots.slots_mut(),
            None => &mut self.inline,
        }
    }

    pub(super) fn regions(&self) -> &[Region] {
        &self.slots()[..self.len]
    }

    pub(super) fn regions_mut(&mut self) -> &mut [Region] {
        let len = self.len;
        &mut self.slots_mut()[..len]
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots().len()
    }

    pub(super) fn has_room_for(&self, more: usize) -> bool {
        self.len + more <= self.capacity()
    }

    pub(super) fn total_size(&self) -> ByteSize {
        ByteSize(self.regions().iter().map(|region| region.size.0).sum())
    }

    /// The reserved place of the array; `None` for the built-in one and for a lent one.
    pub(super) fn reserved_span(&self) -> Option<Span> {
        self.outer.as_ref()?.span
    }

    /// Copies the list into a larger array; returns the reserved place of the old one.
    pub(super) fn move_to(&mut self, mut array: OuterArray) -> Option<Span> {
        array.slots.slots_mut()[..self.len].copy_from_slice(self.regions());
        self.outer.replace(array)?.span
    }

    /// The first slot, the number of regions and the number of slots.
    pub(super) fn parts(&mut self) -> (NonNull<Region>, usize, usize) {
        let len = self.len;
        let slots = NonNull::from(self.slots_mut());
        (slots.cast(), len, slots.len())
    }

    /// The first region whose end is above `start`.
    fn first_beyond(&self, start: u64) -> usize {
        self.regions().partition_point(|region| region.end().0 <= start)
    }

    /// The region that contains the address: the kernel's `memblock_search`.
    pub(super) fn search(&self, address: PhysAddr) -> Option<&Region> {
        self.regions().get(self.first_beyond(address.0)).filter(|region| region.contains(address))
    }

    /// Whether any region overlaps the span: the kernel's `memblock_overlaps_region`. An empty span overlaps the region that
    /// has bytes on both sides of it.
    pub(super) fn overlaps(&self, span: Span) -> bool {
        self.regions().get(self.first_beyond(span.start)).is_some_and(|region| region.base.0 < span.end)
    }

    /// The number of gaps in the span that no region covers.
    pub(super) fn gaps_in(&self, span: Span) -> usize {
        let mut base = span.start;
        let mut gaps = 0;
        for region in &self.regions()[self.first_beyond(span.start)..] {
            if region.base.0 >= span.end {
                break;
            }
            gaps += usize::from(region.base.0 > base);
            base = region.end().0;
        }
        gaps + usize::from(base < span.end)
    }

    /// Fills the gaps in the span with regions of `node` and `flags`, then merges.
    ///
    /// There must be room for [`gaps_in`](Self::gaps_in) more regions.
    pub(super) fn fill(&mut self, span: Span, node: RegionNode, flags: RegionFlags) {
        let mut index = self.first_beyond(span.start);
        let mut base = span.start;
        let mut new: Option<Range<usize>> = None;
        while let Some(region) = self.regions().get(index).map(Region::span)
            && region.start < span.end
        {
            if region.start > base {
                self.insert(index, Region::new(Span { start: base, end: region.start }, node, flags));
                new = Some(new.map_or(index, |new| new.start)..index + 1);
                index += 1;
            }
            base = region.end;
            index += 1;
        }
        if base < span.end {
            self.insert(index, Region::new(Span { start: base, end: span.end }, node, flags));
            new = Some(new.map_or(index, |new| new.start)..index + 1);
        }
        if let Some(new) = new {
            self.merge(new);
        }
    }

    /// The number of regions that [`isolate`](Self::isolate) splits: at most one at each end of the span.
    pub(super) fn cuts_at(&self, span: Span) -> usize {
        let cut_at = |address: u64| {
            let region = self.regions().get(self.first_beyond(address));
            usize::from(region.is_some_and(|region| region.base.0 < address))
        };
        if span.is_empty() { 0 } else { cut_at(span.start) + cut_at(span.end) }
    }

    /// Splits regions at both ends of the span; returns the indices of the regions inside.
    ///
    /// There must be room for [`cuts_at`](Self::cuts_at) more regions.
    pub(super) fn isolate(&mut self, span: Span) -> Range<usize> {
        let mut first = self.first_beyond(span.start);
        if self.cut(first, span.start) {
            first += 1;
        }
        let behind = first + self.regions()[first..].partition_point(|region| region.base.0 < span.end);
        if behind > first {
            self.cut(behind - 1, span.end);
        }
        first..behind
    }

    /// Splits the region at `index` if the address is inside it and not its base.
    fn cut(&mut self, index: usize, address: u64) -> bool {
        let Some(region) = self.regions_mut().get_mut(index) else { return false };
        let whole = region.span();
        if address <= whole.start || address >= whole.end {
            return false;
        }
        *region = Region::new(Span { start: whole.start, end: address }, region.node, region.flags);
        let rest = Region::new(Span { start: address, end: whole.end }, region.node, region.flags);
        self.insert(index + 1, rest);
        true
    }

    /// Merges the regions of the range with each other and with their neighbours if node and flags are equal.
    pub(super) fn merge(&mut self, range: Range<usize>) {
        let mut index = range.start.saturating_sub(1);
        let mut last = range.end;
        while index < last && index + 1 < self.len {
            let next = self.regions()[index + 1];
            let region = &mut self.regions_mut()[index];
            if region.merges_with(&next) {
                region.size.0 += next.size.0;
                self.remove(index + 1..index + 2);
                last -= 1;
            } else {
                index += 1;
            }
        }
    }

    pub(super) fn merge_all(&mut self) {
        self.merge(0..self.len);
    }

    /// Removes the span from all regions.
    ///
    /// There must be room for [`cuts_at`](Self::cuts_at) more regions.
    pub(super) fn remove_span(&mut self, span: Span) {
        if !span.is_empty() {
            let inside = self.isolate(span);
            self.remove(inside);
        }
    }

    fn insert(&mut self, index: usize, region: Region) {
        let len = self.len;
        let slots = self.slots_mut();
        slots.copy_within(index..len, index + 1);
        slots[index] = region;
        self.len += 1;
    }

    fn remove(&mut self, range: Range<usize>) {
        let len = self.len;
        self.slots_mut().copy_within(range.end..len, range.start);
        self.len -= range.len();
    }

    /// Replaces each region by the result of `keep`: the region, a part of it, or nothing.
    pub(super) fn retain_parts(&mut self, mut keep: impl FnMut(&Region) -> Option<Region>) {
        let mut kept = 0;
        for index in 0..self.len {
            if let Some(part) = keep(&self.regions()[index]) {
                self.slots_mut()[kept] = part;
                kept += 1;
            }
        }
        self.len = kept;
    }
}
