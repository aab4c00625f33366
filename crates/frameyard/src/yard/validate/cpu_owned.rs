//! The equations of pageblocks that CPUs own; see [`crate::zone::transfer::cpu_owned`].

use super::{ListKind, Recount, ValidateError, compare};
use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{CpuId, MigrateType, Order, Pfn};
use crate::yard::Yard;
use crate::zone::ZoneView;
use crate::zone::transfer::cpu_owned::LockedCpuOwned;

/// What one CPU's lists hold.
#[derive(Default)]
struct Held {
    pages: u64,
    whole: u64,
}

impl<P: Platform> Yard<P> {
    /// Follows every list of owned memory of a zone, and counts its blocks by order.
    pub(super) fn check_cpu_owned_lists(
        &self,
        view: ZoneView<'_, P>,
        recount: &mut Recount,
    ) -> Result<(), ValidateError> {
        let mut all = 0;
        for cpu in (0..self.cpus).map(CpuId) {
            let Some(owned) = view.lock_cpu_owned(cpu) else { continue };
            let Some(lists) = view.owned.lists_of(view.id, cpu) else { continue };
            let mut pages = 0;
            for migrate_type in MigrateType::ALL.into_iter().take(MigrateType::PER_CPU) {
                let held = self.check_owned_type(view, &owned, (cpu, migrate_type), recount)?;
                compare("whole pageblocks of an owner", view.id, lists.whole_racy(migrate_type), held.whole)?;
                pages += held.pages;
            }
            compare("free frames of an owner", view.id, lists.pages_racy().0, pages)?;
            let pageblocks = view.owned.owned_in(view.id, view.zone.span()).filter(|(_, owner)| *owner == cpu).count();
            compare("pageblocks of an owner", view.id, lists.pageblocks_racy(), pageblocks as u64)?;
            all += pageblocks as u64;
        }
        compare("owned pageblocks", view.id, view.owned_pageblocks_racy(), all)
    }

    fn check_owned_type(
        &self,
        view: ZoneView<'_, P>,
        owned: &LockedCpuOwned<'_, P>,
        (cpu, migrate_type): (CpuId, MigrateType),
        recount: &mut Recount,
    ) -> Result<Held, ValidateError> {
        let pageblock = self.geometry.pageblock_order();
        let mut held = Held::default();
        for order in (0..=pageblock.0).map(Order) {
            let blocks = self.follow_owned(view, owned, (cpu, migrate_type), order)?;
            let bit = owned.orders_from(order, migrate_type) & 1;
            compare("an order's bit of an owner", view.id, u64::from(bit), u64::from(blocks > 0))?;
            held.pages += blocks << order.0;
            held.whole = blocks;
            recount.owned[order.index()] += blocks;
        }
        let above = owned.orders_from(Order(pageblock.0 + 1), migrate_type);
        compare("an owner's orders above a pageblock's", view.id, u64::from(above), 0)?;
        Ok(held)
    }

    /// Follows a list; each block must lead back to the one before, so none can be met twice. How many there are.
    fn follow_owned(
        &self,
        view: ZoneView<'_, P>,
        owned: &LockedCpuOwned<'_, P>,
        (cpu, migrate_type): (CpuId, MigrateType),
        order: Order,
    ) -> Result<u64, ValidateError> {
        let wanted = Tag::new(FrameState::CpuOwnedFree, order, migrate_type, view.id);
        let mut previous = None;
        let mut found = 0;
        let mut at = owned.first_block(order, migrate_type);
        while let Some(pfn) = at {
            let page = self.page_of(pfn).filter(|page| page.tag() == wanted);
            let linked_back = page.filter(|page| view.map.linked(page.prev()) == previous);
            let Some(page) = linked_back else {
                return Err(ValidateError::BrokenList { kind: ListKind::CpuOwned, zone: view.id, at: pfn });
            };
            if view.owned.owner_racy(view.id, pfn) != Some(cpu) {
                return Err(ValidateError::NotCpuOwned(pfn));
            }
            if view.blocks.get(pfn) != migrate_type {
                return Err(ValidateError::WrongList(pfn, migrate_type));
            }
            let below = order < self.geometry.pageblock_order();
            if below && view.page(pfn.buddy(order)).tag().is_block(FrameState::CpuOwnedFree, order) {
                return Err(ValidateError::UnmergedBuddies(pfn.align_down(Order(order.0 + 1)), order));
            }
            previous = Some(pfn);
            found += 1;
            at = view.map.linked(page.next());
        }
        Ok(found)
    }

    /// No pageblock of a free block is owned.
    pub(super) fn check_unowned(&self, view: ZoneView<'_, P>, pfn: Pfn, order: Order) -> Result<(), ValidateError> {
        let mut at = pfn;
        while at < pfn + order.pages() {
            if view.owned.owner_racy(view.id, at).is_some() {
                return Err(ValidateError::FreeInCpuOwned(pfn));
            }
            at = at + view.blocks.pages();
        }
        Ok(())
    }
}
