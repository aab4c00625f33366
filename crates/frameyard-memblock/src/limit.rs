//! Limits: trimming memory to an alignment, a range or an amount.

use super::growth::ArrayPlace;
use super::map::GrowthRules;
use super::region::Span;
use super::{EarlyMemory, Memblock, MemblockError, Region, RegionFlags, RegionList};
use frameyard_units::{ByteSize, PhysAddr};

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// Trims each memory region to multiples of `align`, and drops a region in which nothing is left: the kernel's
    /// `memblock_trim_memory`. Reservations stay.
    ///
    /// Unlike in the kernel, the total memory size is correct afterwards.
    ///
    /// # Errors
    ///
    /// [`MemblockError::Alignment`] unless `align` is a power of two.
    pub fn trim(&mut self, align: ByteSize) -> Result<(), MemblockError> {
        if !align.0.is_power_of_two() {
            return Err(MemblockError::Alignment(align));
        }
        self.memory.retain_parts(|region| {
            let start = region.base.0.checked_next_multiple_of(align.0)?;
            let span = Span { start, end: region.end().0 & !(align.0 - 1) };
            (!span.is_empty()).then(|| Region::new(span, region.node, region.flags))
        });
        Ok(())
    }

    /// Drops all memory outside a range, except no-map memory, and all reservations outside it:
    /// the kernel's `memblock_cap_memory_range`.
    ///
    /// Does nothing on a map without memory. Unlike in the kernel, no-map memory that extends across an end of the range
    /// stays one region, unless the map is [lent](Self::lent).
    ///
    /// # Errors
    ///
    /// [`MemblockError::HoldsRegionArray`] if a list's array is outside the range, and those of
    /// [`remove`](Self::remove).
    pub fn cap(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        let span = Span::capped(base, size);
        if span.is_empty() || self.memory.regions().is_empty() {
            return Ok(());
        }
        self.make_room_to_cap(span)?;
        self.memory.isolate(span);
        self.memory.retain_parts(|region| {
            let stays = region.span().intersects(span) || region.flags.contains(RegionFlags::NOMAP);
            stays.then_some(*region)
        });
        if self.growth_rules == GrowthRules::AsNeeded {
            self.memory.merge_all();
        }
        self.drop_reservations_outside(span);
        Ok(())
    }

    /// Keeps the lowest `limit` bytes of memory, whatever its flags, and drops all memory and reservations
    /// above: the kernel's `memblock_enforce_memory_limit`.
    ///
    /// Does nothing if the limit is 0 or exceeds the amount of memory.
    ///
    /// # Errors
    ///
    /// Those of [`cap`](Self::cap).
    pub fn enforce_memory_limit(&mut self, limit: ByteSize) -> Result<(), MemblockError> {
        let Some(end) = self.end_of_lowest(limit) else { return Ok(()) };
        let kept = Span { start: 0, end };
        self.make_room_to_cap(kept)?;
        self.memory.remove_span(Span::from(end));
        self.drop_reservations_outside(kept);
        Ok(())
    }

    /// Keeps the lowest `limit` bytes of memory, and the no-map memory above them:
    /// the kernel's `memblock_mem_limit_remove_map`.
    ///
    /// Does nothing if the limit is 0 or exceeds the amount of memory.
    ///
    /// # Errors
    ///
    /// Those of [`cap`](Self::cap).
    pub fn mem_limit_remove_map(&mut self, limit: ByteSize) -> Result<(), MemblockError> {
        match self.end_of_lowest(limit) {
            Some(end) => self.cap(PhysAddr(0), ByteSize(end)),
            None => Ok(()),
        }
    }

    /// The end of the lowest `limit` bytes of memory; `None` if there is less memory: the kernel's `__find_max_addr`.
    fn end_of_lowest(&self, limit: ByteSize) -> Option<u64> {
        let mut left = limit.0;
        if left == 0 {
            return None;
        }
        for region in self.memory.regions() {
            if left <= region.size.0 {
                return Some(region.base.0 + left);
            }
            left -= region.size.0;
        }
        None
    }

    /// Makes room for splits at both ends of `kept` in both lists. New arrays are placed inside `kept`.
    fn make_room_to_cap(&mut self, kept: Span) -> Result<(), MemblockError> {
        self.refuse_arrays_in(Span { start: 0, end: kept.start })?;
        self.refuse_arrays_in(Span::from(kept.end))?;
        let place = ArrayPlace::Inside(kept);
        // Memory first: a memory list that grows takes slots of the reserved list.
        self.make_room(RegionList::Memory, place, |map| map.slots_to_isolate(RegionList::Memory, kept))?;
        self.make_room(RegionList::Reserved, place, |map| map.slots_to_isolate(RegionList::Reserved, kept))
    }

    fn drop_reservations_outside(&mut self, kept: Span) {
        self.reserved.remove_span(Span { start: 0, end: kept.start });
        self.reserved.remove_span(Span::from(kept.end));
    }
}
