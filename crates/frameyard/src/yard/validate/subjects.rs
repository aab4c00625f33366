//! The equations of one subject each: the allocation map, compaction, devices, pools of huge pages.

use crate::devices::DeviceProblem;
use crate::huge_pool::HugePageSize;
use crate::page::{Counts, PageRef, Tag};
use crate::platform::Platform;
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::yard::Yard;
use crate::yard::validate::{ListKind, Recount, ValidateError, compare};
use crate::zone::{CompactEvent, ZoneView};

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

/// The background compactor's counts are parts of all counts.
pub(super) fn check_compaction_counts<P: Platform>(view: ZoneView<'_, P>) -> Result<(), ValidateError> {
    let counted = view.zone.compaction.all_counted();
    let parts = [
        (
            "pages that its background compactor scanned for blocks to move",
            CompactEvent::DaemonMigrateScanned,
            CompactEvent::MigrateScanned,
        ),
        (
            "pages that its background compactor scanned for targets",
            CompactEvent::DaemonFreeScanned,
            CompactEvent::FreeScanned,
        ),
        ("pages that its background compactor moved", CompactEvent::DaemonMigrated, CompactEvent::Migrated),
    ];
    parts.into_iter().try_for_each(|(what, part, whole)| {
        let (part, whole) = (counted[part as usize], counted[whole as usize]);
        if part <= whole { Ok(()) } else { Err(ValidateError::Part { what, zone: view.id, part, whole }) }
    })
}

impl<P: Platform> Yard<P> {
    /// Checks the table of devices against sections, page structures and the Device zones of all nodes.
    pub(super) fn check_devices(&self) -> Result<(), ValidateError> {
        let map = self.page_map();
        map.check().map_err(|problem| match problem {
            DeviceProblem::Device { device, what, at } => ValidateError::Device { device, what, at },
            DeviceProblem::NoDevice(pfn) => ValidateError::NoDevice(pfn),
        })?;
        for node in (0..self.nodes()).map(NodeId) {
            let id = ZoneId::new(node, ZoneKind::Device);
            let zone = &self.tables.zones[id.index()];
            let devices = || map.devices().filter(|device| device.node == node);
            let present: PageCount = devices().map(|device| device.range.count()).sum();
            let span = devices()
                .map(|device| device.range)
                .reduce(|a, b| PfnRange { start: a.start.min(b.start), end: a.end.max(b.end) });
            let span = span.unwrap_or_default();
            let equations = [
                ("present pages", zone.present(), present),
                ("first frame", PageCount(zone.span().start.0), PageCount(span.start.0)),
                ("end of the last frame", PageCount(zone.span().end.0), PageCount(span.end.0)),
                ("managed pages", zone.managed(), PageCount(0)),
            ];
            equations.into_iter().try_for_each(|(what, kept, found)| compare(what, id, kept.0, found.0))?;
        }
        Ok(())
    }

    /// Counts the head of a pooled page.
    pub(super) fn count_pooled(&self, page: PageRef<'_, P>, order: Order, recount: &mut Recount) {
        let Some(size) = HugePageSize::of_order(order) else { return };
        let page = self.counted_page(page);
        let found = &mut recount.pooled[size as usize];
        found.pages += 1;
        found.free += u64::from(page.counts() == Counts::default());
        found.map_returned.0 = found.map_returned.0.wrapping_add(page.index());
    }

    /// Compares the pools of a zone with its pages, and follows their lists.
    pub(super) fn check_huge_pools(&self, zone: ZoneId, recount: &Recount) -> Result<(), ValidateError> {
        for size in HugePageSize::ALL {
            let found = recount.pooled[size as usize];
            let kept = self.pool(zone, size).statistics();
            compare("huge pages of a pool", zone, kept.pages, found.pages)?;
            compare("free huge pages of a pool", zone, kept.free, found.free)?;
            compare("bytes of the map returned for a pool", zone, kept.map_returned.0, found.map_returned.0)?;
            let locked = self.pool(zone, size).lock().map_err(ValidateError::Lock)?;
            let mut listed = 0;
            for page in locked.listed() {
                page.map_err(|at| ValidateError::BrokenList { kind: ListKind::HugePages, zone, at })?;
                listed += 1;
            }
            compare("huge pages on the list of a pool", zone, listed, found.free)?;
        }
        Ok(())
    }
}
