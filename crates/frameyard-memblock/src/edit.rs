//! Edits of the lists: add and remove, reserve and free, flags and nodes.

use core::ops::Range;

use super::growth::ArrayPlace;
use super::map::GrowthRules;
use super::region::Span;
use super::{EarlyMemory, Memblock, MemblockError, RegionFlags, RegionList, RegionNode};
use frameyard_units::{ByteSize, PhysAddr};

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// Adds memory without a known node: the kernel's `memblock_add`.
    ///
    /// If the range overlaps existing memory, only the gaps are filled: existing regions keep their node and flags.
    /// Unlike the kernel, the map does not warn if these differ.
    ///
    /// # Errors
    ///
    /// [`MemblockError::ListFull`], [`NoRoomToGrow`](MemblockError::NoRoomToGrow) or
    /// [`Unmapped`](MemblockError::Unmapped) if the list must grow but cannot.
    pub fn add(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        self.fill_gaps(RegionList::Memory, Span::capped(base, size), self.no_node, RegionFlags::NONE)
    }

    /// Adds memory of a node, with flags: the kernel's `memblock_add_node`. Fills gaps as [`add`](Self::add) does.
    ///
    /// # Errors
    ///
    /// Those of [`add`](Self::add).
    pub fn add_node(
        &mut self,
        base: PhysAddr,
        size: ByteSize,
        node: impl Into<RegionNode>,
        flags: RegionFlags,
    ) -> Result<(), MemblockError> {
        self.fill_gaps(RegionList::Memory, Span::capped(base, size), node.into(), flags)
    }

    /// Marks a range as in use: the kernel's `memblock_reserve`.
    ///
    /// The range need not be memory, and parts of it may be reserved already.
    ///
    /// # Errors
    ///
    /// Those of [`add`](Self::add).
    pub fn reserve(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        self.fill_gaps(RegionList::Reserved, Span::capped(base, size), self.no_node, RegionFlags::NONE)
    }

    /// Removes memory: the kernel's `memblock_remove`. Reservations stay.
    ///
    /// Unlike in the kernel, a list that grows for this does not place its array in the range to be removed.
    ///
    /// # Errors
    ///
    /// Those of [`add`](Self::add): splitting a region takes a slot. The kernel always requires two free slots. This
    /// map requires only the slots that it needs, unless it is [lent](Self::lent).
    pub fn remove(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        let span = Span::capped(base, size);
        self.make_room_to_isolate(RegionList::Memory, span)?;
        self.memory.remove_span(span);
        Ok(())
    }

    /// Drops the reservation of a range, whichever call made it: the kernel's `memblock_phys_free`.
    ///
    /// Parts of the range need not be reserved, so freeing a range twice is not an error.
    ///
    /// # Errors
    ///
    /// [`MemblockError::HoldsRegionArray`] if a list's array is in the range, and those of [`remove`](Self::remove).
    pub fn phys_free(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        let span = Span::capped(base, size);
        self.refuse_arrays_in(span)?;
        self.make_room_to_isolate(RegionList::Reserved, span)?;
        self.reserved.remove_span(span);
        Ok(())
    }

    /// Splits regions so that none extends across an end of the range; returns the indices of the regions inside.
    ///
    /// The kernel's internal `memblock_isolate_range`. A split lasts until an operation changes an adjacent region or
    /// the caller calls [`cap`](Self::cap) or [`merge`](Self::merge). Until then, no allocation extends across it.
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove).
    pub fn isolate(&mut self, list: RegionList, base: PhysAddr, size: ByteSize) -> Result<Range<usize>, MemblockError> {
        let span = Span::capped(base, size);
        if span.is_empty() {
            return Ok(0..0);
        }
        self.make_room_to_isolate(list, span)?;
        Ok(self.list_mut(list).isolate(span))
    }

    /// Merges neighbouring regions with equal node and flags: the kernel's `memblock_merge_regions`.
    ///
    /// Only needed after [`isolate`](Self::isolate).
    pub fn merge(&mut self, list: RegionList) {
        self.list_mut(list).merge_all();
    }

    /// Sets the node of a range of a list: the kernel's `memblock_set_node`.
    ///
    /// Parts of the range that are not in the list are not added.
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove).
    pub fn set_node(
        &mut self,
        list: RegionList,
        base: PhysAddr,
        size: ByteSize,
        node: impl Into<RegionNode>,
    ) -> Result<(), MemblockError> {
        let node = node.into();
        self.change(list, Span::capped(base, size), |(_, flags)| (node, flags))
    }

    /// Marks memory that must be neither mapped nor allocated: the kernel's `memblock_mark_nomap`.
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove).
    pub fn mark_nomap(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        self.set_flag(RegionList::Memory, Span::capped(base, size), RegionFlags::NOMAP)
    }

    /// Undoes [`mark_nomap`](Self::mark_nomap): the kernel's `memblock_clear_nomap`.
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove).
    pub fn clear_nomap(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        self.clear_flag(RegionList::Memory, Span::capped(base, size), RegionFlags::NOMAP)
    }

    /// Marks memory that may be unplugged: the kernel's `memblock_mark_hotplug`.
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove).
    pub fn mark_hotplug(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        self.set_flag(RegionList::Memory, Span::capped(base, size), RegionFlags::HOTPLUG)
    }

    /// Undoes [`mark_hotplug`](Self::mark_hotplug): the kernel's `memblock_clear_hotplug`.
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove).
    pub fn clear_hotplug(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        self.clear_flag(RegionList::Memory, Span::capped(base, size), RegionFlags::HOTPLUG)
    }

    /// Marks mirrored memory, which allocations prefer from now on: the kernel's `memblock_mark_mirror`.
    ///
    /// The kernel ignores this call unless it was booted with mirrored kernel memory. Here it always takes effect.
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove).
    pub fn mark_mirror(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        let span = Span::capped(base, size);
        self.set_flag(RegionList::Memory, span, RegionFlags::MIRROR)?;
        self.has_mirror |= !span.is_empty();
        Ok(())
    }

    /// Marks reserved memory whose page structures must not be initialised: the kernel's `memblock_reserved_mark_noinit`.
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove).
    pub fn reserved_mark_noinit(&mut self, base: PhysAddr, size: ByteSize) -> Result<(), MemblockError> {
        self.set_flag(RegionList::Reserved, Span::capped(base, size), RegionFlags::RSRV_NOINIT)
    }

    fn set_flag(&mut self, list: RegionList, span: Span, flag: RegionFlags) -> Result<(), MemblockError> {
        self.change(list, span, |(node, flags)| (node, flags.with(flag)))
    }

    fn clear_flag(&mut self, list: RegionList, span: Span, flag: RegionFlags) -> Result<(), MemblockError> {
        self.change(list, span, |(node, flags)| (node, flags.without(flag)))
    }

    /// The kernel's `memblock_setclr_flag`, extended to the node.
    fn change(
        &mut self,
        list: RegionList,
        span: Span,
        change: impl Fn((RegionNode, RegionFlags)) -> (RegionNode, RegionFlags),
    ) -> Result<(), MemblockError> {
        if span.is_empty() {
            return Ok(());
        }
        self.make_room_to_isolate(list, span)?;
        let list = self.list_mut(list);
        let inside = list.isolate(span);
        for region in &mut list.regions_mut()[inside.clone()] {
            (region.node, region.flags) = change((region.node, region.flags));
        }
        if !inside.is_empty() {
            list.merge(inside);
        }
        Ok(())
    }

    /// The kernel's `memblock_add_range`.
    pub(super) fn fill_gaps(
        &mut self,
        list: RegionList,
        span: Span,
        node: RegionNode,
        flags: RegionFlags,
    ) -> Result<(), MemblockError> {
        let place = match list {
            RegionList::Memory => ArrayPlace::Anywhere,
            RegionList::Reserved => ArrayPlace::Outside(span),
        };
        self.make_room(list, place, |map| map.list(list).gaps_in(span))?;
        if self.list(list).gaps_in(span) != 0 {
            self.list_mut(list).fill(span, node, flags);
        }
        Ok(())
    }

    fn make_room_to_isolate(&mut self, list: RegionList, span: Span) -> Result<(), MemblockError> {
        self.make_room(list, ArrayPlace::Outside(span), |map| map.slots_to_isolate(list, span))
    }

    /// The number of free slots that the growth rules demand before an isolation.
    pub(super) fn slots_to_isolate(&self, list: RegionList, span: Span) -> usize {
        match self.growth_rules {
            GrowthRules::AsNeeded => self.list(list).cuts_at(span),
            GrowthRules::Kernel if span.is_empty() => 0,
            GrowthRules::Kernel => 2,
        }
    }

    pub(super) fn refuse_arrays_in(&self, span: Span) -> Result<(), MemblockError> {
        for list in [RegionList::Memory, RegionList::Reserved] {
            if let Some(array) = self.list(list).reserved_span()
                && array.intersects(span)
            {
                return Err(MemblockError::HoldsRegionArray { list, base: array.base(), size: array.size() });
            }
        }
        Ok(())
    }
}
