//! Cutting memory down: to an alignment, to a range, or to an amount.

use super::growth::ArrayPlace;
use super::region::Span;
use super::{EarlyMemory, Memblock, MemblockError, Region, RegionFlags, RegionList};
use frameyard_units::{ByteSize, PhysAddr};

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// Cuts each memory region to whole multiples of `align`, and drops those that have none:
    /// the kernel's `memblock_trim_memory`. Reservations stay.
    ///
    /// Unlike the kernel's, the total memory size is right afterwards.
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

    /// Drops all memory outside a range, except what is not to be mapped, and all reservations outside:
    /// the kernel's `memblock_cap_memory_range`.
    ///
    /// Nothing happens while there is no memory. Unlike in the kernel, memory not to be mapped that crosses an end
    /// of the range stays one region.
    ///
    /// # Errors
    ///
    /// [`MemblockError::HoldsRegionArray`] where a list lies outside the range, and those of
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
        self.memory.merge_all();
        self.drop_reservations_outside(span);
        Ok(())
    }

    /// Keeps the lowest `limit` bytes of memory, whatever its flags, and drops all memory and reservations
    /// above: the kernel's `memblock_enforce_memory_limit`.
    ///
    /// Nothing happens with a limit of 0, or with less memory than the limit.
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

    /// Keeps the lowest `limit` bytes of memory, and above them what is not to be mapped:
    /// the kernel's `memblock_mem_limit_remove_map`.
    ///
    /// Nothing happens with a limit of 0, or with less memory than the limit.
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

    /// Where the lowest `limit` bytes of memory end, if there are so many: the kernel's `__find_max_addr`.
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

    /// Room for the cuts at both ends of `kept` in both lists; new arrays lie inside.
    fn make_room_to_cap(&mut self, kept: Span) -> Result<(), MemblockError> {
        self.refuse_arrays_in(Span { start: 0, end: kept.start })?;
        self.refuse_arrays_in(Span::from(kept.end))?;
        let place = ArrayPlace::Inside(kept);
        // In this order: a memory list that grows takes slots of the reserved list.
        self.make_room(RegionList::Memory, place, |map| map.memory.cuts_at(kept))?;
        self.make_room(RegionList::Reserved, place, |map| map.reserved.cuts_at(kept))
    }

    fn drop_reservations_outside(&mut self, kept: Span) {
        self.reserved.remove_span(Span { start: 0, end: kept.start });
        self.reserved.remove_span(Span::from(kept.end));
    }
}
