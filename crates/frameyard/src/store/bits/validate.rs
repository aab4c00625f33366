//! The equations of the bits, and of the lines that they make up.

use crate::platform::Platform;
use crate::store::{Found, Unsound, compare};
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
