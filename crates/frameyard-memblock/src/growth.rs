//! Growth: a full list moves to an array of twice the size, which the map allocates from itself.

use super::early_memory::MappedRegions;
use super::map::GrowthRules;
use super::region::Span;
use super::region_array::OuterArray;
use super::{EarlyMemory, Memblock, MemblockError, NodeFilter, RegionFlags, RegionList};
use frameyard_units::PageCount;

/// Where a new array may be placed.
#[derive(Clone, Copy, Debug)]
pub(super) enum ArrayPlace {
    /// In any free memory.
    Anywhere,
    /// Outside the range that the operation will reserve, drop or change.
    Outside(Span),
    /// Inside the range that the operation will keep, under all rules: an array in memory that a cap drops would lose its
    /// reservation. (The kernel does not check.)
    Inside(Span),
}

impl ArrayPlace {
    /// The windows to search, in order.
    fn windows(self, limit: u64) -> [Span; 2] {
        const NOWHERE: Span = Span { start: 0, end: 0 };
        match self {
            Self::Anywhere => [Span { start: 0, end: limit }, NOWHERE],
            Self::Outside(span) => {
                [Span { start: span.end, end: limit }, Span { start: 0, end: limit.min(span.start) }]
            }
            Self::Inside(span) => [Span { start: span.start, end: limit.min(span.end) }, NOWHERE],
        }
    }
}

impl<M: EarlyMemory, const INLINE: usize> Memblock<M, INLINE> {
    /// Doubles the list until `needed` more regions fit.
    ///
    /// Calls `needed` again after each doubling, because moving the array also changes the reserved list.
    pub(super) fn make_room(
        &mut self,
        list: RegionList,
        place: ArrayPlace,
        needed: impl Fn(&Self) -> usize,
    ) -> Result<(), MemblockError> {
        while !self.list(list).has_room_for(needed(self)) {
            match list {
                RegionList::Memory => self.double_memory(place)?,
                RegionList::Reserved => self.double_reserved(place)?,
            }
        }
        Ok(())
    }

    fn double_memory(&mut self, place: ArrayPlace) -> Result<(), MemblockError> {
        self.may_double(RegionList::Memory)?;
        // Dropping the old array's reservation may split a region at both ends. The new reservation is one region.
        let slots = if self.memory.reserved_span().is_some() { 2 } else { 1 };
        let span = match (self.growth_rules, place) {
            (GrowthRules::AsNeeded, _) | (GrowthRules::Kernel, ArrayPlace::Inside(_)) => {
                self.make_room(RegionList::Reserved, place, |_| slots)?;
                self.find_array(RegionList::Memory, place)?
            }
            (GrowthRules::Kernel, ArrayPlace::Anywhere | ArrayPlace::Outside(_)) => {
                let span = self.find_array(RegionList::Memory, ArrayPlace::Anywhere)?;
                self.make_room(RegionList::Reserved, ArrayPlace::Outside(span), |_| slots)?;
                span
            }
        };
        let array = self.map_array(RegionList::Memory, span)?;
        let old = self.memory.move_to(array);
        self.exchange_reservations(old, span);
        Ok(())
    }

    fn double_reserved(&mut self, place: ArrayPlace) -> Result<(), MemblockError> {
        self.may_double(RegionList::Reserved)?;
        let span = self.find_array(RegionList::Reserved, place)?;
        let array = self.map_array(RegionList::Reserved, span)?;
        let old = self.reserved.move_to(array);
        self.exchange_reservations(old, span);
        Ok(())
    }

    /// Drops the reservation of the old array and reserves the new one. There must be room for two more regions, or for one if
    /// there is no old array.
    fn exchange_reservations(&mut self, old: Option<Span>, new: Span) {
        if let Some(old) = old {
            self.reserved.remove_span(old);
        }
        self.reserved.fill(new, self.no_node, RegionFlags::NONE);
    }

    fn may_double(&self, list: RegionList) -> Result<(), MemblockError> {
        if self.can_resize {
            Ok(())
        } else {
            Err(MemblockError::ListFull { list, capacity: self.list(list).capacity() })
        }
    }

    /// Finds free memory for an array of twice the capacity.
    fn find_array(&self, list: RegionList, place: ArrayPlace) -> Result<Span, MemblockError> {
        let page = self.geometry.page_size();
        let bytes = MappedRegions::bytes_for(self.list(list).capacity() * 2);
        let size = self.geometry.size_of(PageCount(bytes.0.div_ceil(page.0)));
        let base = place
            .windows(self.current_limit.0)
            .into_iter()
            .filter(|window| !window.is_empty())
            .find_map(|window| self.find_mirrored_first(size, page, window, &[NodeFilter::Any]))
            .ok_or(MemblockError::NoRoomToGrow { list, size })?;
        Ok(Span::capped(base, size))
    }

    /// Maps and empties the array at a place from [`find_array`](Self::find_array); the caller must reserve it at once.
    fn map_array(&self, list: RegionList, span: Span) -> Result<OuterArray, MemblockError> {
        let capacity = self.list(list).capacity() * 2;
        // SAFETY: the range is unreserved memory, and the callers reserve it at once. It stays reserved until the list
        // moves to another array: only `remove_span` above and the operations that drop reservations remove one, and
        // those refuse the ranges of arrays in use. `memory` lives beside the list.
        let slots = unsafe { MappedRegions::new(&self.mapping, span.base(), capacity) }
            .ok_or(MemblockError::Unmapped { base: span.base(), size: span.size() })?;
        Ok(OuterArray { slots, span: Some(span) })
    }
}
