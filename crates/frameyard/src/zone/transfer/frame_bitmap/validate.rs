//! The equations of the frame bitmap: those above [`frame_bitmap`](super).

use super::held::{Held, PageblockEntry};
use crate::page::FrameState;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{MigrateType, Order};
use crate::zone::transfer::validate::{Found, Unsound, compare};
use crate::zone::view::ZoneView;

/// Follows the list of every type and marks the pages of held frames, so that a frame that is listed elsewhere shows. For a yard at
/// rest.
pub(in crate::zone::transfer) fn validate<P: Platform>(
    view: ZoneView<'_, P>,
    found: &mut Found,
) -> Result<(), Unsound> {
    let held = Held::of(&view);
    let mut pageblocks = 0;
    for list_type in MigrateType::ALL.into_iter().take(MigrateType::PER_CPU) {
        let mut pages = 0;
        let mut at = held.first(list_type);
        while let Some((number, entry)) = at {
            pageblocks += 1;
            if pageblocks > held.most_pageblocks() {
                return Err(broken(&view, number));
            }
            let frames = check_words(view, held, number)?;
            compare("held frames of a pageblock", entry.frames(), frames)?;
            if frames == 0 {
                return Err(broken(&view, number));
            }
            pages += frames;
            at = held.next(entry);
        }
        compare("held frames of a type", held.state.pages_of_racy(list_type).0, pages)?;
        found.listed[0] += pages;
    }
    let numbers = view.blocks.numbers_in(view.span()).flatten();
    let listed = numbers.filter_map(|number| held.entry(number as u32)).filter(|entry| entry.frames() > 0).count();
    // Spans of zones overlap, so there may be more.
    if listed < pageblocks {
        return Err(Unsound::Count {
            what: "pageblocks with held frames",
            kept: listed as u64,
            found: pageblocks as u64,
        });
    }
    check_unlisted(view, held)
}

/// Marks the pages of a pageblock's held frames; their number.
fn check_words<P: Platform>(view: ZoneView<'_, P>, held: Held<'_>, number: u32) -> Result<u64, Unsound> {
    let mut frames = 0;
    for (first, word) in held.words_of(number) {
        let mut bits = word.load(Ordering::Relaxed);
        if bits & held.full() == held.full() || bits & !held.full() != 0 {
            return Err(broken(&view, number));
        }
        frames += u64::from(bits.count_ones());
        while bits != 0 {
            let pfn = view.map.pfn(first + bits.trailing_zeros());
            bits &= bits - 1;
            let page = view.page_of(pfn).ok_or(broken(&view, number))?;
            let in_page = page.tag();
            let tag = view.allocation_map.read(pfn, in_page);
            if !tag.is_block(FrameState::PerCpu, Order::ZERO) || tag.is_seen() {
                return Err(Unsound::Broken { what: "bit of the frame bitmap", at: pfn });
            }
            let _ = page.replace_tag(in_page, in_page.with_seen());
        }
    }
    Ok(frames)
}

/// Pageblocks without held frames have no bits.
fn check_unlisted<P: Platform>(view: ZoneView<'_, P>, held: Held<'_>) -> Result<(), Unsound> {
    let is_empty = |entry: &PageblockEntry| entry.frames() == 0;
    for number in view.blocks.numbers_in(view.span()).flatten().map(|number| number as u32) {
        if held.entry(number).is_some_and(is_empty)
            && held.words_of(number).any(|(_, word)| word.load(Ordering::Relaxed) != 0)
        {
            return Err(broken(&view, number));
        }
    }
    Ok(())
}

fn broken<P: Platform>(view: &ZoneView<'_, P>, number: u32) -> Unsound {
    Unsound::Broken { what: "pageblock of the frame bitmap", at: view.blocks.start_at(number.into()) }
}
