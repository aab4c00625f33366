//! The allocation map, against the pages.

use super::ValidateError;
use crate::page::Tag;
use crate::platform::Platform;
use crate::units::{PageCount, Pfn};
use crate::zone::ZoneView;

/// Demands that a block has an entry only if it has left its zone, with the order of its tag, and that no frame inside it has one.
/// `tag` is the tag of its head.
pub(super) fn check_map_entries<P: Platform>(view: ZoneView<'_, P>, head: Pfn, tag: Tag) -> Result<(), ValidateError> {
    let order = tag.order();
    let fits = view
        .allocation_map
        .entry(head)
        .is_none_or(|entry| tag.has_left_zone() && entry.is_well_formed() && entry.order() == order);
    if !fits {
        return Err(ValidateError::WrongMapEntry(head));
    }
    let mut inside = (1..order.pages().0).map(|offset| head + PageCount(offset));
    match inside.find(|pfn| view.allocation_map.entry(*pfn).is_some()) {
        Some(pfn) => Err(ValidateError::WrongMapEntry(pfn)),
        None => Ok(()),
    }
}
