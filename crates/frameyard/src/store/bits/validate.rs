//! The counting equations of the bits and of their lines: checking them, and restoring them after a fork.

use crate::platform::Platform;
use crate::store::{Found, Unsound, compare};
use crate::sync::Ordering;
use crate::units::Order;
use crate::zone::view::ZoneView;

/// Marks the page of each free frame, so that one that is listed elsewhere shows. For a yard at rest.
pub(in crate::store) fn validate<P: Platform>(view: ZoneView<'_, P>, found: &mut Found) -> Result<(), Unsound> {
    let (bits, mut pages) = (view.free_bits(), 0);
    for line in view.lines().flatten() {
        let first = (line << bits.line_order().0) as u32;
        if view.blocks.zone_at(first as usize) != Some(view.id) {
            continue;
        }
        for (at, mut word) in bits.line_words_racy(line).enumerate() {
            while word != 0 {
                let pfn = view.map.pfn(first + ((at as u32) << bits.word_order().0) + word.trailing_zeros());
                word &= word - 1;
                pages += 1;
                let broken = Unsound::Broken { what: "bit of a free frame", at: pfn };
                view.mark_listed(pfn, Order::ZERO).ok_or(broken)?;
            }
        }
        if let Some(what) = bits.problem(view.platform, line) {
            return Err(Unsound::Broken { what, at: view.map.pfn(first) });
        }
    }
    compare("free frames as bits", view.bits_pages().0, pages)?;
    found.listed[0] += pages;
    Ok(())
}

/// Makes the equations hold again after threads ended between two changes that belong together. The bits decide: what such a thread had taken
/// and not handed on stays out of use. For a yard at rest.
pub(in crate::store) fn mend<P: Platform>(view: ZoneView<'_, P>) {
    let (Some(state), bits) = (view.bits_of_zone(), view.free_bits()) else { return };
    let (mut pages, mut emptied) = (0, 0);
    for line in view.lines().flatten() {
        let place = line << bits.line_order().0;
        if view.blocks.zone_at(place) != Some(view.id) {
            continue;
        }
        pages += u64::from(bits.free_frames_racy(line));
        emptied += u32::from(view.blocks.is_emptying_at(place));
        bits.mend(view.platform, line);
    }
    state.total.add(pages.wrapping_sub(view.bits_pages().0), u64::MAX);
    state.emptied.store(emptied, Ordering::Relaxed);
}
