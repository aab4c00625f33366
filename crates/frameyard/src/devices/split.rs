//! Splitting a compound page of a device into base pages, and joining them again.

use crate::devices::build::OWN;
use crate::devices::remove::{Used, unfreeze_if_frozen};
use crate::devices::{DeviceError, DeviceId, DeviceRow, MapLayout, PageMap, Plan};
use crate::platform::{MemoryBacking, Platform};
use crate::units::{Order, Pfn};

/// A registered CPU that splits or joins pages of a device. The device is not removed meanwhile.
struct Entered<'a>(&'a DeviceRow);

impl<'a> Entered<'a> {
    fn at(id: DeviceId, row: &'a DeviceRow) -> Result<Self, DeviceError> {
        match row.enter(id) {
            Ok(()) => Ok(Self(row)),
            Err(users) if !users.are_of(id) => Err(DeviceError::NoSuchDevice(id)),
            Err(_) => Err(DeviceError::Busy(id)),
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl<'a, P: Platform> PageMap<'a, P> {
    /// The compound page that begins at a frame of a device that can split pages.
    fn enter(&self, head: Pfn) -> Result<(DeviceId, Plan, Entered<'static>), DeviceError> {
        let (id, row, plan) = self.device_of(head)?;
        let entered = Entered::at(id, row)?;
        let order = plan.request.order;
        if order == Order::ZERO {
            return Err(DeviceError::BasePages(head));
        }
        if !head.is_aligned(order) {
            return Err(DeviceError::NotHead { pfn: head, head: head.align_down(order) });
        }
        if plan.request.layout == MapLayout::Folded {
            return Err(DeviceError::LayoutCannotSplit(head));
        }
        Ok((id, plan, entered))
    }

    /// Runs `change` on the frozen head of a compound page that is split, or not, as `split` says. The head is unfrozen afterwards.
    fn with_frozen_head(
        &self,
        head: Pfn,
        split: bool,
        change: impl FnOnce(&Plan) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let (id, plan, _entered) = self.enter(head)?;
        let page = self.own_page(head);
        let counted = self.counted(page);
        if !counted.freeze(OWN) {
            let counts = counted.counts();
            // Another CPU has frozen the page, or it has references.
            return if counts.references == 0 { Err(DeviceError::Busy(id)) } else { Used::by(head, counts).result() };
        }
        let result = match (self.is_split(&plan, page), split) {
            (true, false) => Err(DeviceError::IsSplit(head)),
            (false, true) => Err(DeviceError::NotSplit(head)),
            _ => change(&plan),
        };
        counted.unfreeze(OWN);
        result
    }

    /// Splits a compound page into base pages.
    pub(crate) fn split(&self, head: Pfn) -> Result<(), DeviceError> {
        self.with_frozen_head(head, false, |plan| {
            let tails = plan.tail_pages_of(head);
            if !tails.is_empty() {
                let (address, bytes) = self.map.memory_of(tails);
                self.platform.backing().back_map(tails, address, bytes).map_err(|_| DeviceError::NoMapMemory(tails))?;
            }
            let single = plan.tag(Order::ZERO);
            for part in self.parts_of(plan, head) {
                let part = self.own_page(part);
                part.set_tag(single);
                self.counted(part).set_counts(OWN);
            }
            // A CPU that reads this tag takes a reference on the head before it reads a part. It gets none before the head is unfrozen,
            // whose Release makes all of this visible.
            self.own_page(head).set_tag(single);
            Ok(())
        })
    }

    /// Joins the base pages of a compound page that was split.
    pub(crate) fn join(&self, head: Pfn) -> Result<(), DeviceError> {
        self.with_frozen_head(head, true, |plan| {
            self.freeze_parts(plan, head)?;
            for part in self.parts_of(plan, head) {
                self.own_page(part).become_interior(self.tail_template(plan, part));
            }
            let tails = plan.tail_pages_of(head);
            if !tails.is_empty() {
                let (address, bytes) = self.map.memory_of(tails);
                self.platform.backing().return_map(tails, address, bytes);
            }
            self.own_page(head).set_tag(plan.tag(plan.request.order));
            Ok(())
        })
    }

    /// Freezes all parts of a split page whose head is frozen, or none.
    fn freeze_parts(&self, plan: &Plan, head: Pfn) -> Result<(), DeviceError> {
        let used = Used::default();
        self.parts_of(plan, head).for_each(|part| used.freeze(self.counted(self.own_page(part))));
        let result = used.result();
        if result.is_err() {
            self.parts_of(plan, head).for_each(|part| unfreeze_if_frozen(self.counted(self.own_page(part))));
        }
        result
    }
}
