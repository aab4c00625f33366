//! Checking page structures, and taking a block with a bad one out of use.
//!
//! A block that has left its zone has a tag of one of the two states for that, with its order and zone; a single frame
//! may have none ([`untagged`](crate::zone::untagged)). All other words of its pages are as after initialisation. A
//! *packed* batch keeps indices in words of some of its members; of these pages, only tag and counts are checked.

use crate::memmap::MapPlace;
use crate::page::{COUNTS, FrameName, FrameState, PageRef, PageTemplate, Tag};
use crate::platform::{BadPage, PageProblem, Platform};
use crate::store::batch::Batch;
use crate::units::{Order, PageCount, Pfn};
use crate::zone::checks::PageChecks;
use crate::zone::view::ZoneView;

/// Takes blocks with a bad page out of a batch, whose entries were checked when they were read, and out of use. Returns their number.
///
/// Without checks it does nothing and costs one comparison.
#[inline(always)]
pub(crate) fn retire_bad<P: Platform>(view: ZoneView<'_, P>, batch: &mut Batch, order: Order) -> usize {
    if view.checks == PageChecks::None {
        return 0;
    }
    let read = *batch;
    *batch = good_of(view, &read, order);
    read.len() - batch.len()
}

/// The blocks of a batch without those that have a bad page, which go out of use.
///
/// Returns a new batch: a changed one would keep the compiler from having it in registers where nothing is checked.
#[inline(never)]
pub(crate) fn good_of<P: Platform>(view: ZoneView<'_, P>, batch: &Batch, order: Order) -> Batch {
    let mut good = Batch::new();
    for entry in batch.iter() {
        let block = view.map.checked(*entry);
        match problem_of_block(view, block, order) {
            Some(bad) => retire(view, block, order, bad),
            None => good.push(*entry),
        }
    }
    good
}

/// Whether a tag is that of a block of that order which has left this zone. A single frame needs none.
fn is_tag_of<P: Platform>(view: ZoneView<'_, P>, block: MapPlace, tag: Tag, order: Order) -> bool {
    if order == Order::ZERO && tag.is_untagged() {
        return view.untagged_zone_at(block.index() as usize) == Some(view.id);
    }
    // The validator may look at the page meanwhile.
    let tag = tag.without_seen();
    tag.has_left_zone() && tag.order() == order && tag.zone() == view.id && tag.is_well_formed()
}

/// The first bad page of a block that the caller owns.
pub(crate) fn problem_of_block<P: Platform>(view: ZoneView<'_, P>, block: MapPlace, order: Order) -> Option<BadPage> {
    let head = view.page(block);
    let found = |pfn: Pfn, problem: PageProblem| Some(BadPage { pfn, problem });
    if !is_tag_of(view, block, head.tag(), order) {
        return found(view.map.pfn(block), PageProblem::Tag);
    }
    if let Some(problem) = problem_of_rest(&head, view.map.template_at(block, Some(view.id))) {
        return found(view.map.pfn(block), problem);
    }
    pages_behind(view.map.pfn(block), order).find_map(|pfn| {
        let page = view.page(pfn);
        if !page.tag().is_untagged() {
            return found(pfn, PageProblem::Tag);
        }
        problem_of_rest(&page, view.map.template(pfn, Some(view.id))).and_then(|problem| found(pfn, problem))
    })
}

/// The frames of a block behind its head.
fn pages_behind(head: Pfn, order: Order) -> impl Iterator<Item = Pfn> {
    (1..order.pages().0).map(move |offset| head + PageCount(offset))
}

/// What is wrong with the words behind the tag.
fn problem_of_rest<P: Platform, F: FrameName>(page: &PageRef<'_, P, F>, fresh: PageTemplate) -> Option<PageProblem> {
    if page.rest_is(fresh) {
        return None;
    }
    let has_users = page.payload(COUNTS) != fresh.payload()[COUNTS];
    Some(if has_users { PageProblem::Counts } else { PageProblem::Words })
}

/// Takes a block out of use for ever and reports it. The report names the bad page. Its words become fresh again, so that the
/// validator finds the yard sound.
#[cold]
pub(crate) fn retire<P: Platform>(view: ZoneView<'_, P>, block: MapPlace, order: Order, bad: BadPage) {
    let pfn = view.map.pfn(block);
    for pfn in pages_behind(pfn, order) {
        view.page(pfn).become_interior(view.map.template(pfn, Some(view.id)));
    }
    let head = view.page(pfn);
    let migrate_type = match head.tag() {
        tag if tag.is_untagged() => view.blocks.get(pfn),
        tag => tag.migrate_type(),
    };
    head.become_interior(view.map.template(pfn, Some(view.id)));
    head.set_tag(Tag::new(FrameState::Poisoned, order, migrate_type, view.id));
    view.zone.bad_pages.note(bad, order);
    view.platform.note_bad_page(bad);
}
