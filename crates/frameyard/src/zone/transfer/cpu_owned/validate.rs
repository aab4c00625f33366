//! The equations of CPU-owned pageblocks: those above [`cpu_owned`](super) and [`lists`](super::lists).

use super::lists::LockedCpuOwned;
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{CpuId, MigrateType, Order, Pfn};
use crate::zone::buddy::BlockLists;
use crate::zone::transfer::validate::{Found, Unsound, compare};
use crate::zone::view::ZoneView;

/// Follows every list of owned pageblocks of a zone, and counts its blocks by order.
pub(in crate::zone::transfer) fn validate<P: Platform>(
    view: ZoneView<'_, P>,
    found: &mut Found,
) -> Result<(), Unsound> {
    let mut all = 0;
    for cpu in view.cpu_owned().cpus() {
        let Some(owned) = view.lock_cpu_owned(cpu) else { continue };
        let Some(lists) = view.cpu_owned_lists(cpu) else { continue };
        let mut pages = 0;
        for migrate_type in MigrateType::ALL.into_iter().take(MigrateType::PER_CPU) {
            pages += check_type(view, &owned, (cpu, migrate_type), found)?;
        }
        compare("free frames of an owner", lists.pages_racy().0, pages)?;
        let span = view.span();
        let pageblocks = view.cpu_owned().owned_in(span).filter(|(_, owner)| *owner == cpu).count();
        compare("pageblocks of an owner", lists.pageblocks_racy(), pageblocks as u64)?;
        all += pageblocks as u64;
    }
    compare("owned pageblocks", view.cpu_owned_pageblocks_racy(), all)
}

/// Checks the lists of one type; the number of their frames.
fn check_type<P: Platform>(
    view: ZoneView<'_, P>,
    owned: &LockedCpuOwned<'_, P>,
    (cpu, migrate_type): (CpuId, MigrateType),
    found: &mut Found,
) -> Result<u64, Unsound> {
    let pageblock = view.geometry.pageblock_order();
    let mut pages = 0;
    for order in (0..=pageblock.0).map(Order) {
        let blocks = follow(view, owned, (cpu, migrate_type), order)?;
        let kept = view.cpu_owned_lists(cpu).map_or(0, |lists| lists.blocks_racy(order, migrate_type));
        compare("blocks of an owner's list", kept, blocks)?;
        let bit = owned.orders_from(order, migrate_type) & 1;
        compare("an order's bit of an owner", u64::from(bit), u64::from(blocks > 0))?;
        pages += blocks << order.0;
        found.held[order.index()] += blocks;
    }
    let above = owned.orders_from(Order(pageblock.0 + 1), migrate_type);
    compare("an owner's orders above a pageblock's", u64::from(above), 0)?;
    Ok(pages)
}

/// Follows a list; the number of its blocks. Each block must link back to the one before, so none is met twice.
fn follow<P: Platform>(
    view: ZoneView<'_, P>,
    owned: &LockedCpuOwned<'_, P>,
    (cpu, migrate_type): (CpuId, MigrateType),
    order: Order,
) -> Result<u64, Unsound> {
    let wanted = Tag::new(FrameState::HeldFree, order, migrate_type, view.id);
    let mut previous = None;
    let mut blocks = 0;
    let mut at = owned.first_linked(order, migrate_type);
    let most = view.map.places();
    while let Some(pfn) = at {
        let page = view.page_of(pfn).filter(|page| page.tag() == wanted && blocks < most);
        let linked_back = page.filter(|page| view.map.linked(page.prev()) == previous);
        let Some(page) = linked_back else { return Err(Unsound::Broken { what: "list of owned pageblocks", at: pfn }) };
        if view.cpu_owned().owner_racy(pfn) != Some(cpu) {
            return Err(Unsound::Broken { what: "list of owned pageblocks, of another CPU", at: pfn });
        }
        if view.blocks.get(pfn) != migrate_type {
            return Err(Unsound::WrongList(pfn, migrate_type));
        }
        let below = order < view.geometry.pageblock_order();
        if below && view.page(pfn.buddy(order)).tag().is_block(FrameState::HeldFree, order) {
            return Err(Unsound::UnmergedBuddies(pfn.align_down(Order(order.0 + 1)), order));
        }
        previous = Some(pfn);
        blocks += 1;
        at = view.map.linked(page.next());
    }
    Ok(blocks)
}

/// Demands that no CPU owns a pageblock of a block on the zone's free lists.
pub(in crate::zone::transfer) fn validate_free_block<P: Platform>(
    view: ZoneView<'_, P>,
    pfn: Pfn,
    order: Order,
) -> Result<(), Unsound> {
    let mut at = pfn;
    while at < pfn + order.pages() {
        if super::is_owned(view, at) {
            return Err(Unsound::Broken { what: "free list, with a block of an owned pageblock", at: pfn });
        }
        at = at + view.blocks.pages();
    }
    Ok(())
}
