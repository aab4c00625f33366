//! A sorted list of regions: the built-in array or a grown one, and the edits that keep it sorted.
//!
//! What holds between any two operations: regions are sorted by base, none is empty, no two overlap. No two
//! neighbours could be one region, except where [`RegionArray::isolate`] has cut and nobody has merged since.

use core::ops::Range;

use super::early_memory::MappedRegions;
use super::region::{Region, RegionFlags, Span};
use frameyard_units::{ByteSize, NodeId, PhysAddr};

/// Where a grown array lies; `span` is reserved for it.
#[derive(Debug)]
pub(super) struct GrownArray {
    pub(super) slots: MappedRegions,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) struct RegionArray<const INLINE: usize> {
    inline: [Region; INLINE],
    grown: Option<GrownArray>,
    len: usize,
}

impl<const INLINE: usize> RegionArray<INLINE> {
    pub(super) const fn new() -> Self {
        // A list that has just doubled must hold its new reservation and the two cuts around its old one.
        const { assert!(INLINE >= 4, "a list starts with room for at least 4 regions") };
        Self { inline: [Region::EMPTY; INLINE], grown: None, len: 0 }
    }

    fn slots(&self) -> &[Region] {
        match &self.grown {
            Some(grown) => grown.slots.slots(),
            None => &self.inline,
        }
    }

    fn slots_mut(&mut self) -> &mut [Region] {
        match &mut self.grown {
            Some(grown) => grown.slots.slots_mut(),
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

    /// Where the array lies, unless it is the built-in one.
    pub(super) fn grown_span(&self) -> Option<Span> {
        self.grown.as_ref().map(|grown| grown.span)
    }

    /// Copies the list into a larger array; returns where the old one lay, unless that was the built-in one.
    pub(super) fn move_to(&mut self, mut array: GrownArray) -> Option<Span> {
        array.slots.slots_mut()[..self.len].copy_from_slice(self.regions());
        self.grown.replace(array).map(|old| old.span)
    }

    /// The first region that reaches beyond `start`.
    fn first_beyond(&self, start: u64) -> usize {
        self.regions().partition_point(|region| region.end().0 <= start)
    }

    /// The region that holds the address: the kernel's `memblock_search`.
    pub(super) fn search(&self, address: PhysAddr) -> Option<&Region> {
        self.regions().get(self.first_beyond(address.0)).filter(|region| region.contains(address))
    }

    /// Whether any region has a byte in the span: the kernel's `memblock_overlaps_region`.
    pub(super) fn overlaps(&self, span: Span) -> bool {
        self.regions().get(self.first_beyond(span.start)).is_some_and(|region| region.span().intersects(span))
    }

    /// How many pieces of the span no region covers.
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

    /// Covers the gaps in the span with regions of that node and those flags, then merges.
    ///
    /// There must be room for [`gaps_in`](Self::gaps_in) more regions.
    pub(super) fn fill(&mut self, span: Span, node: Option<NodeId>, flags: RegionFlags) {
        let first = self.first_beyond(span.start);
        let mut index = first;
        let mut base = span.start;
        while let Some(region) = self.regions().get(index).map(Region::span)
            && region.start < span.end
        {
            if region.start > base {
                self.insert(index, Region::new(Span { start: base, end: region.start }, node, flags));
                index += 1;
            }
            base = region.end;
            index += 1;
        }
        if base < span.end {
            self.insert(index, Region::new(Span { start: base, end: span.end }, node, flags));
            index += 1;
        }
        self.merge(first..index);
    }

    /// How many regions [`isolate`](Self::isolate) cuts in two: at most one at each end of the span.
    pub(super) fn cuts_at(&self, span: Span) -> usize {
        let cut_at = |address: u64| {
            let region = self.regions().get(self.first_beyond(address));
            usize::from(region.is_some_and(|region| region.base.0 < address))
        };
        if span.is_empty() { 0 } else { cut_at(span.start) + cut_at(span.end) }
    }

    /// Cuts regions at both ends of the span; returns which regions then lie in it.
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

    /// Cuts the region at `index` in two if the address is inside it and not its base.
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

    /// Merges the regions of the range with each other and with their neighbours where node and flags are equal.
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

    /// Drops what the regions cover of the span.
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

    /// Replaces each region by what `keep` makes of it: the same, a part of it, or nothing.
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
