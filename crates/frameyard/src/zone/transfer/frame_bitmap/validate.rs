//! The equations of the frame bitmap: those above [`frame_bitmap`](super).

use super::held::{Held, Record};
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
        while let Some(record) = at {
            pageblocks += 1;
            if pageblocks > held.most_pageblocks() {
                return Err(broken(&view, record));
            }
            let (frames, filled) = check_words(view, held, record)?;
            compare("words of a pageblock that have bits", record.filled().into(), filled)?;
            if frames == 0 || !record.holds_for(view.id) {
                return Err(broken(&view, record));
            }
            pages += frames;
            at = held.behind(record);
        }
        compare("held frames of a type", held.state.pages_of_racy(list_type).0, pages)?;
        found.listed[0] += pages;
    }
    let numbers = view.blocks.numbers_in(view.span()).flatten();
    let listed =
        numbers.filter_map(|number| held.record(number as u32)).filter(|record| record.holds_for(view.id)).count();
    compare("pageblocks with held frames", listed as u64, pageblocks as u64)?;
    check_unlisted(view, held)
}

/// Marks the pages of a pageblock's held frames; their number, and that of the words that have bits.
fn check_words<'a, P: Platform>(
    view: ZoneView<'a, P>,
    held: Held<'a>,
    record: Record<'a>,
) -> Result<(u64, u64), Unsound> {
    let (mut frames, mut filled) = (0, 0);
    for (first, word) in held.words(record) {
        let mut bits = word.load(Ordering::Relaxed);
        if bits & held.full() == held.full() || bits & !held.full() != 0 {
            return Err(broken(&view, record));
        }
        frames += u64::from(bits.count_ones());
        filled += u64::from(bits != 0);
        while bits != 0 {
            let pfn = view.map.pfn(first + bits.trailing_zeros());
            bits &= bits - 1;
            let page = view.page_of(pfn).ok_or(broken(&view, record))?;
            let in_page = page.tag();
            let tag = view.tag_on_list(pfn, in_page);
            if !tag.is_block(FrameState::PerCpu, Order::ZERO) || tag.is_seen() {
                return Err(Unsound::Broken { what: "bit of the frame bitmap", at: pfn });
            }
            let _ = page.replace_tag(in_page, in_page.with_seen());
        }
    }
    Ok((frames, filled))
}

/// Pageblocks without held frames have no bits.
fn check_unlisted<P: Platform>(view: ZoneView<'_, P>, held: Held<'_>) -> Result<(), Unsound> {
    let records = view.blocks.numbers_in(view.span()).flatten().filter_map(|number| held.record(number as u32));
    let has_bits = |record: &Record<'_>| record.bits().iter().any(|word| word.load(Ordering::Relaxed) != 0);
    match records.filter(|record| record.filled() == 0).find(has_bits) {
        Some(record) => Err(broken(&view, record)),
        None => Ok(()),
    }
}

fn broken<P: Platform>(view: &ZoneView<'_, P>, record: Record<'_>) -> Unsound {
    Unsound::Broken { what: "pageblock of the frame bitmap", at: view.blocks.start_at(record.number().into()) }
}
